"""``fieldgate init``: writes a commented config for chosen sensors, to be filled in where only you can."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final

from cloud.command_line import OK, USAGE, CommandError, add_list, fail, os_problem, override
from cloud.operate.access_file import IDENTITY, PLACES, TOO_DEEP, Access, line_of, properties_of, read_access
from cloud.toml_models import field_names
from cloud.toml_problems import nearest
from drivers.interface import DriverError
from drivers.registry import driver_type
from gateway.config import Problem, check
from gateway.config.model import SensorCommon
from gateway.config.source import PLACEHOLDER
from gateway.config.template import Answers, Wanted, render
from gateway.system.atomic_file import Ownership, write_atomic

STDOUT: Final = Path("-")

_BRACKETS: Final = r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]|\{(?:[^{}]|\{[^{}]*\})*\}"
_DRIVER_END: Final = re.compile("[:,]")
_PART: Final = re.compile(rf"""(?:"[^"]*"|'[^']*'|{_BRACKETS}|[^,])+""")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is given of the gateway: the rest is marked in the file, to be filled in."""
    parser.add_argument("--id", metavar="ID", help="this gateway's, such as mast-07")
    meaning = "e.g. cup-50m-a=hall-anemometer:17,height_m=50 or baro=bp20"
    add_list(parser, "--sensor", "sensors", "NAME=DRIVER[:PIN][,KEY=VALUE…]", meaning)
    parser.add_argument(
        "--board", choices=["raspberry-pi", "simulated"], default="raspberry-pi", help="default: raspberry-pi"
    )
    parser.add_argument("--kafka", metavar="HOST:PORT", help="where readings go")
    for name, positive in (("latitude", "north"), ("longitude", "east")):
        help_text = f"of the mast, decimal; {positive} is positive"
        parser.add_argument(f"--{name}", type=float, metavar="DEG", help=help_text)
    parser.add_argument("--elevation", dest="elevation_m", type=float, metavar="M", help="above sea level")
    parser.add_argument("--site", metavar="NAME", help="the site's; needs its position")
    offset = "local time less UTC there, all year: --utc-offset=-03:00"
    parser.add_argument("--utc-offset", metavar="+HH:MM", help=offset)
    meaning = "of `fieldgate provision gateway`: id, Kafka and login; where -o is there, its new password"
    parser.add_argument("--access", type=Path, metavar="FILE", help=meaning)
    meaning = "must not be there yet; - is standard output (default: gateway.toml)"
    parser.add_argument("-o", "--output", type=Path, default="gateway.toml", metavar="FILE", help=meaning)


def run(arguments: argparse.Namespace) -> int:
    """Write the file; 2 for a sensor that can't be written. Raises CommandError where it can't be right."""
    target: Path = arguments.output
    access = None if arguments.access is None else read_access(arguments.access)
    if access is not None and target.is_file():
        for path in renew(access, target):
            print(f"replaced {path}")
        # A run proves itself from its first reading on: another key makes another run.
        print(f"Now: sudo systemctl {'reload' if access.identity_key is None else 'restart'} fieldgate")
        return OK
    if target != STDOUT and os.path.lexists(target):
        raise CommandError(f"{target} is there already: nothing written; name another with -o")
    try:
        text = render(given(arguments, access))
    except (ValueError, DriverError) as error:
        return fail(error, USAGE)
    problems = problems_of(text)
    errors = [each for each in problems if each.severity == "error"]
    # What is still to be filled in is no mistake.
    if wrong := [f"{each.key}: {each.message}" for each in errors if PLACEHOLDER not in each.message]:
        raise CommandError("\n".join((*wrong, "nothing written")))
    if target == STDOUT:
        sys.stdout.write(text)
        return OK
    if access is not None:
        text = f"{text.rstrip()}\n\n{access.section(target.parent)}"
        install(access, target.parent)
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CommandError(f"{target} can't be written: {error.strerror}") from error
    for each in errors:
        print(f"{target}:{each.line}: {each.key}: is still to be filled in")
    print(f"wrote {target}; whether it is right: fieldgate check -c {target}")
    return OK


def install(access: Access, directory: Path) -> list[Path]:
    """Write an access's files, for root and the service's group; their paths. Raises CommandError."""
    try:
        ownership = Ownership.for_service(directory)
        places = {directory / PLACES[name]: content for name, content in access.files.items()}
        if access.identity_key is not None:
            places[directory / IDENTITY] = access.identity_key
        for place, content in places.items():
            write_atomic(place, f"{content.rstrip()}\n", ownership)
    except OSError as error:
        raise CommandError(os_problem(error, directory)) from error
    return list(places)


def renew(access: Access, config: Path) -> list[Path]:
    """Replace the files of a config that has this login already. Raises CommandError."""
    try:
        text = config.read_text(encoding="utf-8")
        raw = tomllib.loads(text)
        gateway, prefix = dict(raw.get("gateway", {})), dict(raw.get("kafka", {})).get("prefix", "")
        now, section = properties_of(text), access.section(config.parent)
    except RecursionError as error:
        raise CommandError(f"{config} {TOO_DEEP}: nothing written") from error
    except (OSError, ValueError, TypeError) as error:
        raise CommandError(f"{config}: {error}: nothing written") from error
    if (name := gateway.get("id")) != access.gateway_id:
        raise CommandError(f"{config} is {name}'s, the access {access.gateway_id}'s: nothing written")
    if any(now.get(path) != value for path, value in properties_of(section).items()):
        advice = "nothing written. Put this in its place, then repeat"
        raise CommandError(f"{config} has another login: {advice}:\n\n{section}")
    if prefix != access.prefix:
        raise CommandError(
            f"{config} has another prefix of topics: nothing written. Put this into its [kafka], then "
            f"repeat:\n\n{line_of('prefix', access.prefix)}"
        )
    reference = access.identity(config.parent)
    if reference is not None and gateway.get("identity_key") != reference:
        place = json.dumps(reference["file"], ensure_ascii=False)
        raise CommandError(
            f"{config} doesn't name the key that its runs prove themselves by: nothing written. Put this "
            f"into its [gateway], then repeat:\n\nidentity_key = {{ file = {place} }}"
        )
    return install(access, config.parent)


def given(arguments: argparse.Namespace, access: Access | None) -> Answers:
    """The answers of the command line, and of an access file. Raises ValueError, DriverError."""
    keys: dict[str, dict[str, Any]] = {
        "gateway": {name: getattr(arguments, name) for name in ("latitude", "longitude", "elevation_m")},
        "site": {"name": arguments.site, "utc_offset": arguments.utc_offset},
        "kafka": {"bootstrap_servers": arguments.kafka},
    }
    gateway_id, target = arguments.id, arguments.output
    if access is not None:
        if target == STDOUT or gateway_id not in (None, access.gateway_id) or arguments.kafka is not None:
            raise ValueError(f"{arguments.access} has id and Kafka of {access.gateway_id}, for a file (-o)")
        gateway_id = access.gateway_id
        keys["gateway"]["identity_key"] = access.identity(target.parent)
        keys["kafka"] = {"bootstrap_servers": access.servers, "prefix": access.prefix or None}
    by_section = {
        section: {key: value for key, value in of_section.items() if value is not None}
        for section, of_section in keys.items()
    }
    sensors = [wanted(text) for text in arguments.sensors]
    return Answers(gateway_id or PLACEHOLDER, arguments.board, sensors, by_section)


def wanted(text: str) -> Wanted:
    """A sensor as ``cup-50m-a=hall-anemometer:17,slope=0.765``. Raises ValueError, DriverError."""
    name, equals, rest = text.partition("=")
    # A comma ends the driver too: without a pin there is no colon to be expected.
    driver, options = (*_DRIVER_END.split(rest, maxsplit=1), "")[:2]
    if not equals or not name or not driver:
        raise ValueError(f"{text!r} is not NAME=DRIVER, NAME=DRIVER:PIN or NAME=DRIVER:KEY=VALUE,…")
    known = (*field_names(driver_type(driver).options), *field_names(SensorCommon))
    keys: dict[str, Any] = {}
    # What stands between commas, but for those within brackets and quotes.
    for option in filter(None, (part.strip() for part in _PART.findall(options))):
        if "=" not in option:
            option = f"pin={option}"
        key, value = override(option)
        if key not in known:
            guess = nearest(key, known)
            hint = f"did you mean {guess}?" if guess is not None else f"there are {', '.join(known)}"
            raise ValueError(f"{text!r}: {driver} has no key {key!r}; {hint}")
        keys[key] = value
    return Wanted(name, driver, keys)


def problems_of(text: str) -> tuple[Problem, ...]:
    """What check finds in a file with this text."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "gateway.toml"
        path.write_text(text, encoding="utf-8")
        return check(path)[1]
