"""``fieldgate swap``: another instrument in a sensor's place, in the config and in the running daemon."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gateway.commands.arguments import FAILED, OK, USAGE, CommandError, add_config, fail
from gateway.commands.commissioning.daemon_reload import Reloaded, reload_daemon
from gateway.commands.commissioning.swap import CannotSwap, Plan, Swap, plan
from gateway.commands.commissioning.toml_edit import date_text, number_text, string_text
from gateway.config import Config, check
from gateway.reporting.event_spool import NotSpooled, spool_directory, spool_event
from gateway.system.atomic_file import ownership_of, replacing, write_atomic

EVENT: Final = "sensor-swapped"
_MAX_BYTES: Final = 1 << 20

_TEXTS: Final[tuple[tuple[str, str, Callable[[str], str]], ...]] = (
    ("model", "model", string_text),
    ("serial", "serial", string_text),
    ("lab", "lab", string_text),
    ("certificate", "certificate", string_text),
    ("calibrated", "date", date_text),
    ("expires", "expires", date_text),
    ("slope", "slope", number_text),
    ("offset", "offset", number_text),
)
"""By key: the command line's name of it, and how TOML writes it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sensor, and the new instrument's figures."""
    parser.description = (
        "Another instrument in a sensor's place: its figures into the config, comments and all else kept, and"
        " into the running daemon."
    )
    add_config(parser)
    parser.add_argument("sensor", metavar="SENSOR", help="its name in the config")
    parser.add_argument("--serial", required=True, metavar="TEXT", help="the new one's, as on its label")
    parser.add_argument("--model", metavar="TEXT", help="where it is another than before")
    parser.add_argument("--slope", metavar="NUMBER", help="from its certificate")
    parser.add_argument("--offset", metavar="NUMBER", help="from its certificate")
    parser.add_argument("--date", metavar="YYYY-MM-DD", help="when it was calibrated")
    parser.add_argument("--lab", metavar="TEXT", help="who calibrated it")
    parser.add_argument("--certificate", metavar="TEXT", help="the certificate's number")
    parser.add_argument("--expires", metavar="YYYY-MM-DD", help="the calibration's last day")
    for name, does in (("keep", "the new one has the old one's"), ("remove", "the new one has none")):
        parser.add_argument(
            f"--{name}", action="append", default=[], metavar="KEY", help=f"{does} (repeatable)"
        )
    parser.add_argument("--yes", action="store_true", help="don't ask before writing")


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
        wanted = plan(_content(real), swap)
        if wanted.before == wanted.after:
            config = _checked(real, path)
            _say(f"{path} says so already")
        else:
            _show(wanted, swap)
            config = _write(real, path, wanted, ask=not arguments.yes)
    except OSError as error:
        remedy = ": use sudo" if isinstance(error, PermissionError) else ""
        raise CommandError(f"{error.filename or path}: {error.strerror}{remedy}") from error
    except (EOFError, KeyboardInterrupt):
        raise CannotSwap("nothing written") from None
    _tell_cloud(config, swap, wanted)
    return _tell_daemon(reload_daemon(path, config, swap.sensor), path)


def _swap(arguments: argparse.Namespace) -> Swap:
    values = {}
    for key, name, written in _TEXTS:
        given = getattr(arguments, name)
        if given is not None:
            try:
                values[key] = written(given)
            except ValueError as error:
                raise ValueError(f"--{name}: {error}") from None
    return Swap(arguments.sensor, values, tuple(arguments.keep), tuple(arguments.remove))


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise CannotSwap(f"{path} is larger than {_MAX_BYTES} bytes: not a config")
    return content


def _show(wanted: Plan, swap: Swap) -> None:
    _say(wanted.diff)
    for key, value in wanted.stays.items():
        _say(f"stays: {key} = {value}")
    if "serial" not in wanted.changes:
        _say(f"warning: {swap.sensor} has this serial number already")


def _write(real: Path, path: Path, wanted: Plan, *, ask: bool) -> Config:
    """Replace the file by what check finds good. Raises CannotSwap, OSError, EOFError."""
    found: list[Config] = []

    def accept(written: Path) -> None:
        found.append(_checked(written, path))
        if ask and input(f"write it to {path}? [y/N] ").strip().lower() not in ("y", "yes"):
            raise CannotSwap("nothing written")
        if _content(real) != wanted.before:
            raise CannotSwap(f"{path} was changed by somebody else meanwhile: nothing written, look again")
        backup = real.with_name(f"{real.name}.{datetime.now(UTC):%Y%m%dT%H%M%S%f}.bak")
        write_atomic(backup, wanted.before, ownership)
        _say(f"backup {backup}")

    ownership = ownership_of(real)
    with replacing(real, ownership) as file:
        file.write(wanted.after)
        file.flush()
        accept(Path(file.name))
    _say(f"wrote {path}")
    return found[0]


def _checked(written: Path, path: Path) -> Config:
    """The config of a file; its problems are told as those of ``path``. Raises CannotSwap on an error."""
    config, problems = check(written)
    told = [str(each).replace(str(written), str(path)) for each in problems]
    for each, text in zip(problems, told, strict=True):
        if each.severity == "warning":
            _say(f"warning: {text}")
    if config is None:
        errors = [text for each, text in zip(problems, told, strict=True) if each.severity == "error"]
        raise CannotSwap("\n".join(("check refuses it, nothing written:", *errors)))
    return config


def _tell_cloud(config: Config, swap: Swap, wanted: Plan) -> None:
    if not wanted.changes:
        return
    changes = json.loads(json.dumps(wanted.changes, default=str))
    fields = {"sensor": swap.sensor, "changes": changes, "user": os.environ.get("SUDO_USER")}
    if not config.outbox.path.parent.is_dir():
        _say(f"no event: {config.outbox.path.parent} isn't there before the daemon's first start")
        return
    try:
        spool_event(config.outbox.path, EVENT, fields)
    except NotSpooled as error:
        _say(f"warning: {error}")
    else:
        _say(f"event {EVENT} left in {spool_directory(config.outbox.path)}")


def _tell_daemon(told: Reloaded, path: Path) -> int:
    _say(f"daemon: {told.state}: {told.words}")
    if told.state == "refused":
        _say(f"it goes on with the old figures: mend {path}, or copy the backup back, then reload")
    return OK if told.state in ("taken over", "no daemon") else FAILED


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
