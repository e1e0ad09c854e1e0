"""What goes into a bundle, each part by itself: one that can't be had says why, and the others are there.

Everything is only looked at: nothing is created, locked or sent, but for what ``doctor`` asks of the brokers.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

from gateway.calibration.history import history_path
from gateway.commands.support.bundle import Part
from gateway.commands.support.redaction import Found, config_without_secrets, note, note_from_text
from gateway.config import Config, check
from gateway.config.secrets import DIRECTORY, is_reference
from gateway.config.source import MAX_BYTES, Source

log = logging.getLogger(__name__)

_JOURNAL_S: Final = 30.0
_UNITS: Final = ("fieldgate.service", "mosquitto.service")
_FIELDS: Final = ("__REALTIME_TIMESTAMP", "PRIORITY", "MESSAGE", "_PID", "_SYSTEMD_UNIT", "THREAD_NAME")
_SHOWN: Final = (
    "ActiveState", "SubState", "Result", "NRestarts", "ExecMainStatus", "ExecMainStartTimestamp",
    "MemoryCurrent", "WatchdogUSec", "FragmentPath", "DropInPaths", "UnitFileState",
)  # fmt: skip
_SECRET_BYTES: Final = 64 << 10


class Missing(Exception):
    """A part can't be had; the message says why and who could."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for: the config's path, seconds to wait for Kafka, lines of the journal."""

    config: Path
    timeout_s: float
    lines: int
    position: bool


def gathered(request: Request, found: Found) -> Iterator[Part]:
    """Every part; secrets that are met on the way are noted in ``found``, by the first ones."""
    source = Source(request.config, at_work=False)
    yield _part("config", lambda: _config(source, request, found))
    # Before anything else is written: its problems may name what stands in it.
    _secrets_elsewhere(source, found)
    config, problems = check(request.config)
    yield Part("check", {"ok": config is not None, "problems": [asdict(each) for each in problems]})
    for name, gather in (
        ("versions", _versions),
        ("machine", lambda: _machine(config)),
        ("status", lambda: _status(request.config, config)),
        ("doctor", lambda: _doctor(request)),
        ("outbox", lambda: _outbox(_needed(config))),
        ("calibrations", lambda: _calibrations(_needed(config))),
        ("units", _units),
    ):
        yield _part(name, gather)
    for unit in _UNITS:
        yield _lines_part(f"journal-{unit.partition('.')[0]}", unit, request.lines)


def _part(name: str, gather: Callable[[], Any]) -> Part:
    """A part, or why it can't be had: a bundle is asked for where something is broken, maybe this."""
    try:
        return Part(name, gather())
    except Missing as missing:
        return Part(name, missing=str(missing))
    # Told in the manifest, with its traceback; the other parts are still wanted.
    except Exception as error:  # noqa: BLE001
        return Part(name, missing=f"{error!r}\n{''.join(traceback.format_exception(error))}")


def _needed(config: Config | None) -> Config:
    if config is None:
        raise Missing("the config can't be used: see check.json")
    return config


def _config(source: Source, request: Request, found: Found) -> dict[str, Any]:
    if not source.raw:
        told = "; ".join(str(problem) for problem in source.problems) or "it is empty"
        raise Missing(f"{request.config} can't be shown: {told}")
    return config_without_secrets(source.raw, known_keys(), found, position=request.position)


@cache
def known_keys() -> frozenset[str]:
    """Every key that a config may have, those of installed drivers included."""
    from drivers.registry import driver_names
    from gateway.config.schema import as_text

    def names(schema: Any) -> Iterator[str]:
        if isinstance(schema, Mapping):
            yield from schema.get("properties", {}) if isinstance(schema.get("properties"), Mapping) else ()
            for each in schema.values():
                yield from names(each)
        elif isinstance(schema, list):
            for each in schema:
                yield from names(each)

    return frozenset(names(json.loads(as_text(driver_names()))))


def _secrets_elsewhere(source: Source, found: Found) -> None:
    """Note what stands in the files and credentials that the config names, as far as they can be read."""
    try:
        with source.path.open("rb") as file:
            note_from_text(file.read(MAX_BYTES).decode(errors="replace"), found)
    except (OSError, ValueError) as error:
        log.debug("the config isn't readable here: %s", error)
    credentials = os.environ.get(DIRECTORY)
    # Outside the service: where systemd takes the credentials from.
    loaded = _said("systemctl", "show", _UNITS[0], "--property=LoadCredential", "--value").split()
    for _, _, path in (each.partition(":") for each in loaded):
        _note_file(Path(path), found)
    for reference in _references(source.raw):
        for kind, name in reference.items():
            if not isinstance(name, str) or "\0" in name or (kind == "credential" and credentials is None):
                continue
            folder = source.path.absolute().parent if kind == "file" else Path(credentials or "")
            _note_file(folder / name, found)


def _note_file(path: Path, found: Found) -> None:
    try:
        with path.open("rb") as opened:
            note(opened.read(_SECRET_BYTES).decode(errors="replace").strip("\r\n"), found)
    except OSError as error:
        # Who can't read it can't have it in the bundle by way of it.
        log.debug("a secret isn't readable here: %s", error)


def _references(value: Any) -> Iterator[Mapping[str, Any]]:
    if is_reference(value):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def _versions() -> dict[str, Any]:
    from gateway.system.host import installed_version

    return {
        "fieldgate": installed_version() or "unknown",
        "python": sys.version,
        "packages": dict(sorted((each.metadata["Name"], each.version) for each in distributions())),
        "mosquitto": _said("mosquitto", "-h").splitlines()[:1],
        "debian_package": _said("dpkg-query", "-W", "fieldgate").strip(),
    }


def _machine(config: Config | None) -> dict[str, Any]:
    from gateway.clock.system_clock import kernel_synchronised
    from gateway.commands.doctor.host import Host
    from gateway.system.host import vitals

    host = Host()
    here = Path("/") if config is None else config.outbox.path
    disks: dict[str, Any] = {}
    for path in dict.fromkeys((Path("/"), here.parent, Path("/var/log"))):
        try:
            disks[str(path)] = shutil.disk_usage(path)._asdict()
        except OSError as error:
            disks[str(path)] = str(error)
    return {
        "board": host.model,
        "kernel": " ".join(platform.uname()),
        "os": host.text("/etc/os-release"),
        "user": host.user,
        "vitals": vitals(here).fields(),
        "memory": host.text("/proc/meminfo"),
        "throttled": _said("vcgencmd", "get_throttled").strip() or None,
        "disks": disks,
        "mounts": host.text("/proc/mounts"),
        "clock_synchronised": kernel_synchronised(),
        "timedatectl": _said("timedatectl", "show").splitlines(),
        "gpio": host.names("/dev/gpiochip*"),
        "i2c": host.names("/dev/i2c-*"),
    }


def _status(path: Path, config: Config | None) -> dict[str, Any]:
    from gateway.status.client import NoStatus, fetch, listen_address

    try:
        listen = listen_address(path, chosen=False) if config is None else config.status.listen
        if not listen:
            raise Missing("the status page is off: [status] listen")
        return fetch(listen)
    except NoStatus as error:
        raise Missing(str(error)) from error


def _doctor(request: Request) -> list[dict[str, Any]]:
    from gateway.commands.doctor.examine import examine

    return [asdict(finding) for finding in examine(request.config, request.timeout_s)]


def _outbox(config: Config) -> dict[str, Any]:
    from buffer.errors import OutboxError
    from gateway.commands.outbox.stats import collect
    from gateway.commands.progress import Progress

    beside = {}
    for file in sorted(config.outbox.path.parent.glob(config.outbox.path.name + "*")):
        beside[file.name] = file.stat().st_size
    try:
        return {"files": beside, **asdict(collect(config, Progress("records read")))}
    except OutboxError as error:
        return {"files": beside, "unreadable": str(error)}


def _calibrations(config: Config) -> Any:
    path = history_path(config)
    try:
        with path.open("rb") as file:
            return json.loads(file.read(MAX_BYTES * 4))
    except FileNotFoundError as error:
        raise Missing(f"there is no {path}: no daemon has run with this outbox yet") from error
    except OSError as error:
        raise Missing(f"{path}: {error.strerror}: use sudo") from error


def _units() -> dict[str, Any]:
    return {
        unit: dict(
            line.partition("=")[::2]
            for line in _said("systemctl", "show", unit, f"--property={','.join(_SHOWN)}").splitlines()
        )
        for unit in _UNITS
    }


def _lines_part(name: str, unit: str, lines: int) -> Part:
    try:
        return Part(name, lines=tuple(journal_lines(unit, lines)))
    except Missing as missing:
        return Part(name, missing=str(missing))


def journal_lines(unit: str, lines: int) -> Iterator[dict[str, Any]]:
    """The newest lines of a unit's journal, the oldest of them first. Raises Missing."""
    command = ("journalctl", "--no-pager", "-q", "-o", "json", "-u", unit, "-n", str(lines))
    try:
        told = subprocess.run(command, capture_output=True, timeout=_JOURNAL_S, check=False)
    except FileNotFoundError as error:
        raise Missing("there is no journalctl here") from error
    except subprocess.TimeoutExpired as error:
        raise Missing(f"journalctl did not answer within {_JOURNAL_S:g} s") from error
    said = told.stderr.decode(errors="replace").strip()
    entries = told.stdout.splitlines()
    if not entries:
        rights = "" if os.geteuid() == 0 else "; use sudo, or become a member of the group systemd-journal"
        why = f": {said}" if said else ""
        raise Missing(f"the journal has no lines of {unit} for this user{why}{rights}")
    for entry in entries:
        try:
            yield _line(json.loads(entry))
        except (ValueError, TypeError) as error:
            yield {"unreadable": str(error)}


def _line(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What is wanted of an entry. A message that isn't text comes as a list of bytes."""
    kept = {key: entry[key] for key in entry if key in _FIELDS or key.startswith(("FIELDGATE_", "CODE_"))}
    message = kept.get("MESSAGE")
    if isinstance(message, list):
        kept["MESSAGE"] = bytes(message).decode(errors="replace")
    return kept


def _said(*command: str) -> str:
    """What a program prints; nothing where it isn't there or fails."""
    try:
        told = subprocess.run(command, capture_output=True, timeout=10.0, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout.decode(errors="replace")
