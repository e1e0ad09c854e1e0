"""``fieldgate init``: writes a commented config for chosen sensors, to be filled in where only you know."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from drivers.interface import DriverError
from drivers.registry import driver_names, driver_type
from gateway.commands.cli_types import override
from gateway.config import Problem, check
from gateway.config.keys import field_names, keys_of, nearest
from gateway.config.model import SensorCommon
from gateway.config.placeholders import PLACEHOLDER
from gateway.config.template import Answers, Wanted, render

OK, FAILED, USAGE = 0, 1, 2
STDOUT: Final = Path("-")

_BRACKETS: Final = r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]|\{(?:[^{}]|\{[^{}]*\})*\}"
_DRIVER_END: Final = re.compile("[:,]")
_PART: Final = re.compile(rf"""(?:"[^"]*"|'[^']*'|{_BRACKETS}|[^,])+""")

Ask = Callable[[str], str]
"""Puts a question and gives the answer, empty where there is none. Raises EOFError."""


def run(arguments: argparse.Namespace, ask: Ask | None = None) -> int:
    """Write the file; 1 where it is there already or its sensors can't be together, 2 on one nobody knows."""
    target: Path = arguments.output
    if target != STDOUT and os.path.lexists(target):
        return _complain(f"{target} is there already: nothing written; name another with -o", FAILED)
    try:
        if ask is not None and not arguments.sensors and arguments.id is None:
            answers = asked(ask, arguments.board)
        else:
            answers = given(arguments)
        text = render(answers)
    except (ValueError, DriverError) as error:
        return _complain(str(error), USAGE)
    except (EOFError, KeyboardInterrupt):
        return _complain("nothing written", FAILED)
    problems = problems_of(text)
    wrong = [each for each in problems if each.severity == "error" and PLACEHOLDER not in each.message]
    if wrong:
        return _complain(
            "\n".join(f"{each.key}: {each.message}" for each in wrong) + "\nnothing written", FAILED
        )
    if target == STDOUT:
        sys.stdout.write(text)
        return OK
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        return _complain(f"{target} can't be written: {error.strerror}", FAILED)
    left = [each for each in problems if each.severity == "error"]
    for each in left:
        sys.stdout.write(f"{target}:{each.line}: {each.key}: is still to be filled in\n")
    sys.stdout.write(f"wrote {target}; whether it is right: fieldgate check -c {target}\n")
    return OK


def given(arguments: argparse.Namespace) -> Answers:
    """What the command line says. Raises ValueError, DriverError."""
    keys = {
        "gateway": {"latitude": arguments.latitude, "longitude": arguments.longitude},
        "kafka": {"bootstrap_servers": arguments.kafka},
    }
    told = {
        section: {key: value for key, value in of_section.items() if value is not None}
        for section, of_section in keys.items()
    }
    sensors = [wanted(text) for text in arguments.sensors]
    return Answers(arguments.id or PLACEHOLDER, arguments.board, sensors, told)


def wanted(text: str) -> Wanted:
    """A sensor as ``cup-50m-a=hall-anemometer:17,slope=0.765``. Raises ValueError, DriverError."""
    name, equals, rest = text.partition("=")
    # A comma ends the driver too: without a pin there is no colon to be expected.
    driver, options = (*_DRIVER_END.split(rest, maxsplit=1), "")[:2]
    if not equals or not name or not driver:
        raise ValueError(f"{text!r} is not NAME=DRIVER, NAME=DRIVER:PIN or NAME=DRIVER:KEY=VALUE,…")
    known = _keys(driver)
    keys: dict[str, Any] = {}
    for option in filter(None, _parts(options)):
        if "=" not in option:
            option = f"pin={option}"
        key, value = override(option)
        if key not in known:
            guess = nearest(key, known)
            hint = f"did you mean {guess}?" if guess is not None else f"there are {', '.join(known)}"
            raise ValueError(f"{text!r}: {driver} has no key {key!r}; {hint}")
        keys[key] = value
    return Wanted(name, driver, keys)


def asked(ask: Ask, board: str) -> Answers:
    """What the person at the terminal says. Raises ValueError, DriverError, EOFError."""
    gateway_id = ask("id of this gateway, such as mast-07: ") or PLACEHOLDER
    kafka = ask("Kafka, as host:port: ") if board == "raspberry-pi" else ""
    place = {
        key: override(f"{key}={answer}")[1]
        for key in ("latitude", "longitude")
        if (answer := ask(f"{key} in decimal degrees: "))
    }
    sensors: list[Wanted] = []
    names = ", ".join(driver_names())
    while driver := ask(f"driver of the {'next' if sensors else 'first'} sensor ({names}; empty: no more): "):
        required = [key for key in keys_of(driver_type(driver).options) if key.required]
        name = ask("its name, such as cup-50m-a: ")
        answers = {}
        for key in required:
            meaning = f", {key.meaning.text}" if key.meaning is not None else ""
            unit = f" ({key.meaning.unit})" if key.meaning is not None and key.meaning.unit else ""
            if answer := ask(f"its {key.name}{meaning}{unit}: "):
                answers[key.name] = override(f"{key.name}={answer}")[1]
        sensors.append(Wanted(name or f"sensor-{len(sensors) + 1}", driver, answers))
    return Answers(
        gateway_id, board, sensors, {"gateway": place, "kafka": {"bootstrap_servers": kafka} if kafka else {}}
    )


def problems_of(text: str) -> tuple[Problem, ...]:
    """What check says of a file with this text."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "gateway.toml"
        path.write_text(text, encoding="utf-8")
        return check(path)[1]


def terminal() -> Ask | None:
    """Questions at the terminal; None where nobody sits at one."""
    return input if sys.stdin.isatty() and sys.stdout.isatty() else None


def _parts(options: str) -> list[str]:
    """What stands between commas, but for those within brackets and quotes."""
    return [part.strip() for part in _PART.findall(options)]


def _keys(driver: str) -> tuple[str, ...]:
    return (*field_names(driver_type(driver).options), *field_names(SensorCommon))


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"fieldgate: {message}\n")
    return code
