"""``fieldgate swap``: another instrument in a sensor's place, in the config and in the running daemon.

What belongs to one instrument alone (its slope, its certificate) never stays by itself: the new one would
carry the old one's.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from drivers.registry import driver_type
from gateway.commands.arguments import FAILED, OK, USAGE, CommandError, add_config, add_list, fail, os_problem
from gateway.commands.commissioning.toml_edit import (
    CannotEdit,
    date_text,
    edited,
    number_text,
    sensor_table,
    string_text,
)
from gateway.config import Config, check
from gateway.config.keys import field_names
from gateway.reporting.event_spool import NotSpooled, spool_directory, spool_event
from gateway.status.client import daemon_of
from gateway.status.control_socket import RELOAD, ControlError, send_request
from gateway.system.atomic_file import ownership_of, replacing, write_atomic

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


class CannotSwap(CommandError):
    """The swap can't be made. Nothing was changed."""


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
    parser.add_argument("--serial", required=True, metavar="TEXT", help="the new one's, as on its label")
    for key, option, _, metavar, meaning in _OPTIONS:
        parser.add_argument(option, dest=key, metavar=metavar, help=meaning)
    add_list(parser, "--keep", "keep", "KEY", "the new one has the old one's")
    add_list(parser, "--remove", "remove", "KEY", "the new one has none")
    parser.add_argument("--yes", action="store_true", help="write without a confirmation")


def run(arguments: argparse.Namespace) -> int:
    """Change the file and reload the daemon: 0; 2 on wrong values, or without ``--yes`` and a terminal.

    Raises CannotSwap, CommandError, DriverError.
    """
    path: Path = arguments.config
    if not arguments.yes and not (sys.stdin.isatty() and sys.stdout.isatty()):
        return fail("there is no terminal to show the change on: run it on one, or give --yes", USAGE)
    try:
        swap = _swap(arguments)
    except ValueError as error:
        return fail(error, USAGE)
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


def _swap(arguments: argparse.Namespace) -> Swap:
    """Raises ValueError for a value that isn't one."""
    values = {"serial": string_text(arguments.serial)}
    for key, option, written, _, _ in _OPTIONS:
        given = getattr(arguments, key)
        if given is not None:
            try:
                values[key] = written(given)
            except ValueError as error:
                raise ValueError(f"{option}: {error}") from None
    return Swap(arguments.sensor, values, tuple(arguments.keep), tuple(arguments.remove))


def plan(content: bytes, swap: Swap) -> Plan:
    """What a swap does to a config's text. Raises CannotSwap, also where a figure is missing."""
    try:
        table = sensor_table(content, swap.sensor)
        _check(table, swap)
        after = edited(content, swap.sensor, swap.values, swap.remove)
        new = sensor_table(after, swap.sensor)
    except CannotEdit as error:
        raise CannotSwap(str(error)) from error
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
