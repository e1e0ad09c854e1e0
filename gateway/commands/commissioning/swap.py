"""``fieldgate commission swap``: another instrument in a sensor's place, also in the running daemon.

What belongs to one instrument alone (its slope, its certificate) never stays by itself: the new one would
carry the old one's.

The change leaves every other byte of the TOML text as it is: values of one ``[[sensor]]`` are replaced where
they stand; what is between them is copied. The result is parsed again and must have
exactly the values that were meant, else nothing is given back: an unforeseen style is refused, never damaged,
and so are sensors between braces.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import os
import re
import sys
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from cloud.command_line import FAILED, OK, USAGE, CommandError, add_config, add_list, fail, os_problem
from cloud.toml_lines import Scan
from cloud.toml_models import field_names
from cloud.toml_problems import nearest
from drivers.registry import driver_type
from gateway.config import Config, check
from gateway.reporting.event_spool import NotSpooled, spool_directory, spool_event
from gateway.status.client import daemon_of
from gateway.status.control_socket import RELOAD, ControlError, send_request
from gateway.system.atomic_file import ownership_of, replacing, write_atomic

_BOM: Final = "\ufeff"
_NUMBER_LIKE: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

ORDER: Final = (
    "model", "serial", "lab", "certificate", "calibrated", "expires", "recalibrate_months", "slope", "offset",
)  # fmt: skip
"""Keys of a calibration. A missing one goes behind the last of these that is there, else behind the name."""


class CannotSwap(CommandError):
    """The swap can't be made; the message has the reason. Nothing was changed."""


class _Pair(NamedTuple):
    """A key of the sensor's table and its value, in characters of the text."""

    start: int
    value: int
    end: int


def number_text(text: str) -> str:
    """A number as TOML writes it, digits as they were typed. Raises ArgumentTypeError."""
    typed = text.strip()
    if not _NUMBER_LIKE.fullmatch(typed):
        hint = " (with a decimal point)" if "," in typed else ""
        raise argparse.ArgumentTypeError(f"{text!r} is not a number{hint}")
    try:
        value = tomllib.loads(f"x = {typed}")["x"]
    except tomllib.TOMLDecodeError:
        # .765, 1. and 007 are numbers to people.
        value = float(typed)
        typed = repr(value)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return typed


def string_text(text: str) -> str:
    """A string as TOML writes it, quoted."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def date_text(text: str) -> str:
    """A date as TOML writes it. Raises ArgumentTypeError."""
    try:
        return date.fromisoformat(text.strip()).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date such as 2026-03-12") from None


def sensor_table(content: bytes, name: str) -> dict[str, Any]:
    """A sensor's table. Raises CannotSwap."""
    raw = _parsed(_text(content))
    table: dict[str, Any] = raw["sensor"][_position(raw, name)]
    return table


def edited(content: bytes, name: str, values: Mapping[str, str], removed: Collection[str] = ()) -> bytes:
    """The text with these values, as TOML, of a sensor's keys, and without the removed keys.

    A removed key takes its line's comment with it. Raises CannotSwap.
    """
    text = _text(content)
    wanted = _parsed(text)
    position = _position(wanted, name)
    table = wanted["sensor"][position]
    for key in removed:
        if key in table:
            del table[key]
            text = _without(text, position, key)
    for key in sorted(values, key=lambda each: ORDER.index(each) if each in ORDER else len(ORDER)):
        value = tomllib.loads(f"x = {values[key]}")["x"]
        # One typed with other digits stays as it is written.
        if key not in table or table[key] != value:
            table[key] = value
            text = _with(text, position, key, values[key])
    try:
        good = _parsed(text) == wanted
    except CannotSwap:
        good = False
    if not good:
        raise CannotSwap("the file's style is one that can't be edited safely: change it by hand")
    return (_BOM if content.startswith(_BOM.encode()) else "").encode() + text.encode()


def _with(text: str, position: int, key: str, value: str) -> str:
    pairs = _pairs(text, position)
    if key in pairs:
        return text[: pairs[key].value] + value + text[pairs[key].end :]
    known = [pair for each, pair in pairs.items() if each in ORDER]
    anchor = max(known) if known else pairs.get("name")
    if anchor is None:
        raise CannotSwap(f"there is no place for {key}: add it by hand")
    indent = text[text.rfind("\n", 0, anchor.start) + 1 : anchor.start]
    line = f"{indent}{key} = {value}"
    end = text.find("\n", anchor.end)
    if end < 0:
        return text + _newline(text, len(text)) + line
    return text[: end + 1] + line + _newline(text, end) + text[end + 1 :]


def _newline(text: str, at: int) -> str:
    """What ends a line here: what ends this one, else what ends the first one."""
    end = at if at < len(text) else text.find("\n")
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def _without(text: str, position: int, key: str) -> str:
    pair = _pairs(text, position).get(key)
    if pair is None:
        raise CannotSwap(f"{key} can't be removed from here: do it by hand")
    end = text.find("\n", pair.end)
    return text[: text.rfind("\n", 0, pair.start) + 1] + (text[end + 1 :] if end >= 0 else "")


def _text(content: bytes) -> str:
    try:
        return content.decode().removeprefix(_BOM)
    except UnicodeDecodeError as error:
        raise CannotSwap(f"the file is no TOML: {error}") from error


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CannotSwap(f"the file is no TOML: {error}") from error


def _position(raw: Mapping[str, Any], name: str) -> int:
    sensors = raw.get("sensor")
    tables = sensors if isinstance(sensors, list) else []
    names = [each.get("name") if isinstance(each, dict) else None for each in tables]
    if names.count(name) == 1:
        return names.index(name)
    if name in names:
        raise CannotSwap(f"there are {names.count(name)} sensors called {name!r}")
    known = [each for each in names if isinstance(each, str)]
    near = nearest(name, known)
    hint = f" (did you mean {near}?)" if near else f"; there are {', '.join(known)}" if known else ""
    raise CannotSwap(f"no sensor {name!r}{hint}")


def _pairs(text: str, position: int) -> dict[str, _Pair]:
    """A sensor's own undotted keys. Raises CannotSwap."""
    scan = Scan(text)
    sensor = ("sensor", position)
    if sensor in scan.values:
        raise CannotSwap("sensors between braces can't be edited: change them by hand, or write [[sensor]]")
    return {
        str(path[2]): _Pair(scan.keys[path], *place)
        for path, place in scan.values.items()
        if len(path) == 3 and path[:2] == sensor
    }


EVENT: Final = "sensor-swapped"

_OPTIONS: Final[tuple[tuple[str, str, Callable[[str], str], str, str], ...]] = (
    ("model", "--model", string_text, "TEXT", "where it is another than before"),
    ("slope", "--slope", number_text, "NUMBER", "from its certificate"),
    ("offset", "--offset", number_text, "NUMBER", "from its certificate"),
    ("calibrated", "--date", date_text, "YYYY-MM-DD", "when it was calibrated"),
    ("lab", "--lab", string_text, "TEXT", "who calibrated it"),
    ("certificate", "--certificate", string_text, "TEXT", "the certificate's number"),
    ("expires", "--expires", date_text, "YYYY-MM-DD", "the calibration's last day"),
)
"""Key, option, how TOML writes it, and its help."""
_OPTION_OF: Final = {key: option for key, option, *_ in _OPTIONS}
_OF_ONE: Final = ("slope", "offset", "calibrated", "certificate", "expires")
"""Keys of one instrument alone."""
_STAYS: Final = ("model", "lab", "accuracy", "range", "recalibrate_months")

_RELOAD_S: Final = 40.0
"""Longer than the daemon waits for its main loop."""
_print = partial(print, flush=True)


@dataclass(frozen=True, slots=True)
class Swap:
    """A sensor's new figures, as TOML by key; ``keep`` and ``remove`` are of the old one's."""

    sensor: str
    values: Mapping[str, str]
    keep: Collection[str] = ()
    remove: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The file before and after; what stays of the old one; what the event reports."""

    before: bytes
    after: bytes
    stays: Mapping[str, Any]
    changes: Mapping[str, tuple[Any, Any]]

    @property
    def diff(self) -> str:
        """What changes, as ``diff -u`` shows it."""
        old, new = (
            each.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").splitlines()
            for each in (self.before, self.after)
        )
        lines = list(difflib.unified_diff(old, new, "before", "after", n=2, lineterm=""))
        return "\n".join(lines[2:])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sensor, and the new instrument's figures."""
    parser.description = (
        "Another instrument in a sensor's place: its figures into the config, comments and all else kept, and"
        " into the running daemon."
    )
    add_config(parser)
    parser.add_argument("sensor", metavar="SENSOR", help="its name in the config")
    meaning = "the new one's, as on its label"
    parser.add_argument("--serial", type=string_text, required=True, metavar="TEXT", help=meaning)
    for key, option, kind, metavar, meaning in _OPTIONS:
        parser.add_argument(option, type=kind, dest=key, metavar=metavar, help=meaning)
    add_list(parser, "--keep", "keep", "KEY", "the new one has the old one's")
    add_list(parser, "--remove", "remove", "KEY", "the new one has none")
    parser.add_argument("--yes", action="store_true", help="write without a confirmation")


def run(arguments: argparse.Namespace) -> int:
    """Change the file and reload the daemon: 0; 2 without ``--yes`` and a terminal.

    Raises CannotSwap, CommandError, DriverError.
    """
    path: Path = arguments.config
    if not arguments.yes and not (sys.stdin.isatty() and sys.stdout.isatty()):
        return fail("there is no terminal to show the change on: run it on one, or give --yes", USAGE)
    given = {key: getattr(arguments, key) for key in ("serial", *_OPTION_OF)}
    values = {key: value for key, value in given.items() if value is not None}
    swap = Swap(arguments.sensor, values, arguments.keep, arguments.remove)
    try:
        # A link stays one: the file that it names is replaced.
        real = path.resolve(strict=True)
        wanted = plan(real.read_bytes(), swap)
        if wanted.before == wanted.after:
            config = _checked(real, path)
            _print(f"{path} has these figures already")
        else:
            _show(wanted, swap)
            config = _write(real, path, wanted, confirm=not arguments.yes)
    except OSError as error:
        raise CommandError(os_problem(error, path)) from error
    except (EOFError, KeyboardInterrupt):
        raise CannotSwap("nothing written") from None
    _report(config, swap, wanted)
    return _reload(path, config)


def plan(content: bytes, swap: Swap) -> Plan:
    """What a swap does to a config's text. Raises CannotSwap, also where a figure is missing."""
    table = sensor_table(content, swap.sensor)
    _check(table, swap)
    after = edited(content, swap.sensor, swap.values, swap.remove)
    new = sensor_table(after, swap.sensor)
    pairs = {key: (table.get(key), new.get(key)) for key in ("serial", *_OPTION_OF)}
    changes = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
    stays = {key: table[key] for key in (*_STAYS, *swap.keep) if key in table and table[key] == new.get(key)}
    return Plan(content, after, stays, changes)


def _check(table: Mapping[str, Any], swap: Swap) -> None:
    known = driver_type(str(table.get("driver")))
    options = field_names(known.options)
    for key in ("slope", "offset"):
        if key in swap.values and key not in options:
            has = "has its slopes in channels" if "channels" in options else f"has no {key}"
            raise CannotSwap(f"{swap.sensor}: {known.name} {has}: leave {_OPTION_OF[key]} out, edit the file")
    for key in (*swap.keep, *swap.remove):
        if key not in _OF_ONE and key not in _STAYS:
            those = ", ".join((*_OF_ONE, *_STAYS))
            raise CannotSwap(f"{key} isn't one of a certificate ({those}): edit the file")
    for key in swap.remove:
        if key in swap.values or key in swap.keep:
            raise CannotSwap(f"{key} can't be removed and given or kept at once")
    open_ = [key for key in _OF_ONE if key in table and key not in {*swap.values, *swap.keep, *swap.remove}]
    if open_:
        lines = "\n".join(f"  {key} = {table[key]}: {_OPTION_OF[key]} …" for key in open_)
        raise CannotSwap(
            f"{swap.sensor} still has the old one's:\n{lines}\n"
            f"give the new one's, or --keep {open_[0]} where it is the same, or --remove {open_[0]}"
        )


def _show(wanted: Plan, swap: Swap) -> None:
    _print(wanted.diff)
    for key, value in wanted.stays.items():
        _print(f"stays: {key} = {value}")
    if "serial" not in wanted.changes:
        _print(f"warning: {swap.sensor} has this serial number already")


def _write(real: Path, path: Path, wanted: Plan, *, confirm: bool) -> Config:
    """Replace the file where check accepts the new one. Raises CannotSwap, OSError, EOFError."""
    ownership = ownership_of(real)
    with replacing(real, ownership) as file:
        file.write(wanted.after)
        file.flush()
        config = _checked(Path(file.name), path)
        if confirm and input(f"write it to {path}? [y/N] ").strip().lower() not in ("y", "yes"):
            raise CannotSwap("nothing written")
        if real.read_bytes() != wanted.before:
            raise CannotSwap(
                f"{path} was changed by another program meanwhile: nothing written, run it again"
            )
        backup = real.with_name(f"{real.name}.{datetime.now(UTC):%Y%m%dT%H%M%S%f}.bak")
        write_atomic(backup, wanted.before, ownership)
        _print(f"backup {backup}")
    _print(f"wrote {path}")
    return config


def _checked(written: Path, path: Path) -> Config:
    """The config of a file; its problems are printed as those of ``path``. Raises CannotSwap on an error."""
    config, problems = check(written)
    texts = [(each.severity, str(each).replace(str(written), str(path))) for each in problems]
    for severity, text in texts:
        if severity == "warning":
            _print(f"warning: {text}")
    if config is None:
        errors = (text for severity, text in texts if severity == "error")
        raise CannotSwap("\n".join(("check refuses it, nothing written:", *errors)))
    return config


def _report(config: Config, swap: Swap, wanted: Plan) -> None:
    """Leave the event for the cloud."""
    if not wanted.changes:
        return
    changes = json.loads(json.dumps(wanted.changes, default=str))
    fields = {"sensor": swap.sensor, "changes": changes, "user": os.environ.get("SUDO_USER")}
    try:
        spool_event(config.outbox.path, EVENT, fields)
    except NotSpooled as error:
        _print(f"warning: {error}")
    else:
        _print(f"event {EVENT} left in {spool_directory(config.outbox.path)}")


def _reload(path: Path, config: Config) -> int:
    """Have the running daemon take the file over, and print what became of it; the exit code."""
    try:
        pid = daemon_of(config)
        if pid is None:
            _print("daemon: no daemon: no daemon runs: it will find the new figures at its start")
            return OK
        request = {"do": RELOAD, "config": str(path.absolute())}
        refused = send_request(config.outbox.path, request, _RELOAD_S)["refused"]
    except (ControlError, PermissionError) as error:
        _print(f"daemon: not reloaded: {error}: sudo systemctl reload fieldgate, then fieldgate calibrations")
        return FAILED
    if refused is not None:
        _print(f"daemon: refused: {refused}")
        _print(f"it goes on with the old figures: mend {path}, or copy the backup back, then reload")
        return FAILED
    _print(f"daemon: taken over: the daemon (process {pid}) measures with it")
    return OK
