"""``fieldgate init``: writes a commented config for chosen sensors, to be filled in where only you can."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from cloud.toml_models import field_names, keys_of
from cloud.toml_problems import nearest
from drivers.interface import DriverError
from drivers.registry import driver_names, driver_type
from gateway.commands.arguments import OK, USAGE, CommandError, add_list, fail, override
from gateway.commands.provision.access_file import read_access
from gateway.config import Problem, check
from gateway.config.model import SensorCommon
from gateway.config.source import PLACEHOLDER
from gateway.config.template import Answers, Wanted, render

STDOUT: Final = Path("-")

_BRACKETS: Final = r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]|\{(?:[^{}]|\{[^{}]*\})*\}"
_DRIVER_END: Final = re.compile("[:,]")
_PART: Final = re.compile(rf"""(?:"[^"]*"|'[^']*'|{_BRACKETS}|[^,])+""")

Prompt = Callable[[str], str]
"""Prints a question and returns the answer, empty where there is none. Raises EOFError."""
Put = Callable[[Answers, str], Answers]
"""The answers with one more, of a text."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is given of the gateway; without an id or a sensor a terminal prompts for it."""
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
        for path in access.renew(target):
            print(f"replaced {path}")
        # A run proves itself from its first reading on: another key makes another run.
        print(f"Now: sudo systemctl {'reload' if access.identity_key is None else 'restart'} fieldgate")
        return OK
    if target != STDOUT and os.path.lexists(target):
        raise CommandError(f"{target} is there already: nothing written; name another with -o")
    prompt = terminal()
    try:
        if access is not None:
            if (
                target == STDOUT
                or arguments.id not in (None, access.gateway_id)
                or arguments.kafka is not None
            ):
                raise ValueError(
                    f"{arguments.access} has id and Kafka of {access.gateway_id}, for a file (-o)"
                )
            arguments.id, arguments.kafka = access.gateway_id, access.servers
        if prompt is not None and not arguments.sensors and arguments.id is None:
            answers = prompted(prompt, arguments.board)
        else:
            answers = given(arguments)
        if access is not None and (key := access.identity(target.parent)) is not None:
            answers = _with(answers, "gateway", identity_key=key)
        if access is not None and access.prefix:
            answers = _with(answers, "kafka", prefix=access.prefix)
        text = render(answers)
    except (ValueError, DriverError) as error:
        return fail(error, USAGE)
    except (EOFError, KeyboardInterrupt):
        raise CommandError("nothing written") from None
    problems = problems_of(text)
    if wrong := _mistakes(problems):
        raise CommandError("\n".join((*wrong, "nothing written")))
    if target == STDOUT:
        sys.stdout.write(text)
        return OK
    if access is not None:
        text = f"{text.rstrip()}\n\n{access.section(target.parent)}"
        access.install(target.parent)
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CommandError(f"{target} can't be written: {error.strerror}") from error
    for each in problems:
        if each.severity == "error":
            print(f"{target}:{each.line}: {each.key}: is still to be filled in")
    print(f"wrote {target}; whether it is right: fieldgate check -c {target}")
    return OK


def given(arguments: argparse.Namespace) -> Answers:
    """The answers of the command line. Raises ValueError, DriverError."""
    keys = {
        "gateway": {"latitude": arguments.latitude, "longitude": arguments.longitude},
        "site": {"name": arguments.site, "utc_offset": arguments.utc_offset},
        "kafka": {"bootstrap_servers": arguments.kafka},
    }
    by_section = {
        section: {key: value for key, value in of_section.items() if value is not None}
        for section, of_section in keys.items()
    }
    sensors = [wanted(text) for text in arguments.sensors]
    return Answers(arguments.id or PLACEHOLDER, arguments.board, sensors, by_section)


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


def prompted(prompt: Prompt, board: str) -> Answers:
    """The answers of a person at the terminal, each repeated until it is right. Raises EOFError."""
    take = partial(_taken, prompt)
    answers = Answers(PLACEHOLDER, board)
    answers = take("id of this gateway, such as mast-07", answers, _with_id)
    if board == "raspberry-pi":
        answers = take("Kafka, as host:port", answers, _in_section("kafka", "bootstrap_servers"))
    # Each needs the other, which comes next.
    latitude = _in_section("gateway", "latitude", longitude=PLACEHOLDER)
    answers = take("latitude in decimal degrees", answers, latitude)
    longitude = _in_section("gateway", "longitude", latitude=PLACEHOLDER)
    answers = take("longitude in decimal degrees", answers, longitude)
    if "longitude" in answers.given.get("gateway", {}):
        answers = take("name of the site", answers, _in_section("site", "name"))
        question = "local time less UTC there, all year, such as +05:45"
        answers = take(question, answers, _in_section("site", "utc_offset"))
    drivers = ", ".join(driver_names())
    while True:
        which = "next" if answers.sensors else "first"
        question = f"driver of the {which} sensor ({drivers}; empty: no more)"
        with_sensor = take(question, answers, _with_driver)
        if with_sensor is answers:
            return answers
        example = with_sensor.sensors[-1].driver.split("-")[-1] + "-50m"
        answers = take(f"its name, such as {example}", with_sensor, _in_sensor("name"))
        for key in keys_of(driver_type(answers.sensors[-1].driver).options):
            if key.required:
                question = ", ".join(filter(None, (f"its {key.name}", key.meaning.description)))
                answers = take(question, answers, _in_sensor(key.name))


def _taken(prompt: Prompt, question: str, answers: Answers, put: Put) -> Answers:
    """The answers with this one, repeated while check refuses it; unchanged for an empty one."""
    while text := prompt(f"{question}: "):
        try:
            changed = put(answers, text)
            wrong = _mistakes(problems_of(render(changed)))
        except (ValueError, DriverError) as error:
            wrong = [str(error)]
        if not wrong:
            return changed
        print("\n".join(wrong))
    return answers


def _with_id(answers: Answers, text: str) -> Answers:
    return replace(answers, gateway_id=text)


def _with(answers: Answers, section: str, **keys: object) -> Answers:
    return replace(answers, given={**answers.given, section: {**answers.given.get(section, {}), **keys}})


def _in_section(section: str, key: str, **missing: str) -> Put:
    def put(answers: Answers, text: str) -> Answers:
        keys = {**missing, **answers.given.get(section, {}), key: override(f"{key}={text}")[1]}
        return replace(answers, given={**answers.given, section: keys})

    return put


def _with_driver(answers: Answers, text: str) -> Answers:
    return replace(answers, sensors=(*answers.sensors, Wanted(f"sensor-{len(answers.sensors) + 1}", text)))


def _in_sensor(key: str) -> Put:
    """Puts a key of the last sensor, or its name."""

    def put(answers: Answers, text: str) -> Answers:
        *others, sensor = answers.sensors
        if key == "name":
            changed = replace(sensor, name=text)
        else:
            changed = replace(sensor, given={**sensor.given, key: override(f"{key}={text}")[1]})
        return replace(answers, sensors=(*others, changed))

    return put


def _mistakes(problems: tuple[Problem, ...]) -> list[str]:
    """What is wrong beyond what is still to be filled in."""
    return [
        f"{each.key}: {each.message}"
        for each in problems
        if each.severity == "error" and PLACEHOLDER not in each.message
    ]


def problems_of(text: str) -> tuple[Problem, ...]:
    """What check finds in a file with this text."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "gateway.toml"
        path.write_text(text, encoding="utf-8")
        return check(path)[1]


def terminal() -> Prompt | None:
    """Questions at the terminal; None where there is none."""
    return input if sys.stdin.isatty() and sys.stdout.isatty() else None
