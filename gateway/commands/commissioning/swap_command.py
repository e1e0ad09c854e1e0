"""``fieldgate swap``: another instrument in a sensor's place, in the config and in the running daemon."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from gateway.commands.arguments import FAILED, OK, USAGE, CommandError, add_config, add_list, fail, os_problem
from gateway.commands.commissioning.daemon_reload import Reloaded, reload_daemon
from gateway.commands.commissioning.swap import CannotSwap, Plan, Swap, plan
from gateway.commands.commissioning.toml_edit import date_text, number_text, string_text
from gateway.config import Config, check
from gateway.reporting.event_spool import NotSpooled, spool_directory, spool_event
from gateway.system.atomic_file import ownership_of, replacing, write_atomic

EVENT: Final = "sensor-swapped"
_MAX_BYTES: Final = 1 << 20

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

_print = partial(print, flush=True)


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
        wanted = plan(_content(real), swap)
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
    return _print_reloaded(reload_daemon(path, config, swap.sensor), path)


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


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise CannotSwap(f"{path} is larger than {_MAX_BYTES} bytes: not a config")
    return content


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
        if _content(real) != wanted.before:
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
    if not config.outbox.path.parent.is_dir():
        _print(f"no event: {config.outbox.path.parent} isn't there before the daemon's first start")
        return
    try:
        spool_event(config.outbox.path, EVENT, fields)
    except NotSpooled as error:
        _print(f"warning: {error}")
    else:
        _print(f"event {EVENT} left in {spool_directory(config.outbox.path)}")


def _print_reloaded(reloaded: Reloaded, path: Path) -> int:
    _print(f"daemon: {reloaded.state}: {reloaded.words}")
    if reloaded.state == "refused":
        _print(f"it goes on with the old figures: mend {path}, or copy the backup back, then reload")
    return OK if reloaded.state in ("taken over", "no daemon") else FAILED
