"""``fieldgate support-bundle`` writes one file to send to whoever supports you.

Each part is gathered by itself: where one can't be read, the others are there. Everything is only read:
nothing is created, locked or sent, but for what ``doctor`` requests of the brokers. The parts become a
.tar.gz with one file for each, and a manifest of what is in it and what is not.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

import msgspec

from cloud.command_line import OK, CommandError, add_config, add_timeout, count, os_problem, without_logs
from cloud.toml_problems import KeyPath
from cloud.toml_source import MAX_BYTES
from gateway.calibration.history import history_path
from gateway.commands.support.redaction import Redactor, shown_config, shown_entry, values_in
from gateway.config import Config, check
from gateway.config.named_files import is_reference, read_secret
from gateway.config.source import Source
from gateway.status.client import NoStatus, fetch, listen_address
from gateway.system.host import installed_version, throttled_bits, vitals

try:
    from systemd.journal import Reader
except ImportError:
    Reader = None

_UNITS: Final = ("fieldgate.service", "mosquitto.service")
_SHOWN: Final = (
    "ActiveState", "SubState", "Result", "NRestarts", "ExecMainStatus", "ExecMainStartTimestamp",
    "MemoryCurrent", "WatchdogUSec", "FragmentPath", "DropInPaths", "UnitFileState",
)  # fmt: skip
_SECRET_CHARACTERS: Final = 64 << 10
MANIFEST: Final = "manifest.json"
MAX_PART_BYTES: Final = 2 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds where it goes and how much goes into it."""
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="must not be there yet (default: named by time)"
    )
    add_config(parser)
    parser.add_argument(
        "--lines", type=count, default=5000, metavar="N", help="of each journal (default: 5000)"
    )
    parser.add_argument("--position", action="store_true", help="with the mast's coordinates")
    add_timeout(parser)


def run(arguments: argparse.Namespace) -> int:
    """Writes the bundle and lists what is missing in it. Raises CommandError where no file can be written."""
    request = Request(arguments.config, arguments.timeout, arguments.lines, arguments.position)
    # What goes wrong stands in the manifest.
    without_logs("gateway", "drivers", "cloud")
    now = datetime.now(UTC)
    name = f"fieldgate-support-{now:%Y%m%dT%H%M%SZ}"
    target: Path = arguments.file or Path(f"{name}.tar.gz")
    hidden: set[str] = set()
    parts = list(gathered(request, hidden))
    about = {
        "made": now.isoformat(timespec="seconds"),
        "fieldgate": installed_version() or "unknown",
        "config": str(request.config),
        "hidden": "secrets, comments of the config" + ("" if request.position else ", the mast's position"),
    }
    files = files_of(parts, Redactor(hidden), about)
    content = archive(files, name, int(now.timestamp()))
    try:
        # Not over a file that is there, and readable by its owner alone.
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
    except OSError as error:
        raise CommandError(f"{target}: {error.strerror or error}") from error
    print(f"wrote {target}: {len(content):,} bytes, {len(files)} files")
    for each in msgspec.json.decode(files[MANIFEST])["missing"]:
        print(f"missing {each['part']}: {each['why'].splitlines()[0]}")
    print("Secrets, comments and the position are left out; read it before you send it.")
    return OK


class Missing(Exception):
    """A part can't be read; the message gives the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Part:
    """Holds one part by its name without ending: a JSON value, or lines of a log, the newest last.

    ``missing`` is the reason why it can't be read.
    """

    name: str
    content: Any = None
    lines: tuple[Any, ...] | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """States what the bundle is to have: the config, seconds to wait for Kafka, lines of each journal."""

    config: Path
    timeout_s: float
    lines: int
    position: bool


def gathered(request: Request, hidden: set[str]) -> Iterator[Part]:
    """Yields every part; the first one adds to ``hidden`` the texts that no part may show."""
    yield _part("config", lambda: _config(request, hidden))
    config, problems = check(request.config)
    yield Part(
        "check",
        {"ok": config is not None and not config.problems, "problems": [asdict(each) for each in problems]},
    )
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
        yield _part(f"journal-{unit.partition('.')[0]}", partial(_journal, unit, request.lines))


def _part(name: str, gather: Callable[[], Any]) -> Part:
    """Returns a part, or why it can't be read: a bundle is made where something is broken, maybe this."""
    try:
        found = gather()
        return Part(name, lines=found) if isinstance(found, tuple) else Part(name, found)
    except (Missing, NoStatus) as missing:
        return Part(name, missing=str(missing))
    # In the manifest, with the places in the code; the other parts are still wanted.
    except Exception as error:  # noqa: BLE001
        places = (
            f"{Path(each.filename).name}:{each.lineno}" for each in traceback.extract_tb(error.__traceback__)
        )
        return Part(name, missing=f"{type(error).__name__} at {' '.join(places)}")


def _needed(config: Config | None) -> Config:
    if config is None:
        raise Missing("the config can't be used: see check.json")
    return config


def _config(request: Request, hidden: set[str]) -> dict[str, Any]:
    source = Source(request.config, at_work=False)
    loaded = _output("systemctl", "show", _UNITS[0], "--property=LoadCredential", "--value").split()
    for credential in (Path(each.partition(":")[2]) for each in loaded):
        with suppress(OSError):
            hidden.add(credential.read_text(errors="replace")[:_SECRET_CHARACTERS])
    if not source.raw:
        with suppress(OSError):
            hidden |= values_in(request.config.read_text(errors="replace")[:MAX_BYTES])
        reason = "; ".join(str(problem) for problem in source.problems) or "it is empty"
        raise Missing(f"{request.config} can't be shown: {reason}")
    shown, texts = shown_config(source.raw, position=request.position)
    hidden |= texts
    # What the config names, as far as it can be read here.
    for path, reference in _references(source.raw):
        hidden.add(read_secret(source, path, reference) or "")
    return shown


def _references(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    """Yields the tables that name a secret."""
    if is_reference(value):
        yield path, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _references(each, (*path, key))


def _versions() -> dict[str, Any]:
    return {
        "fieldgate": installed_version() or "unknown",
        "python": sys.version,
        "packages": dict(sorted((each.metadata["Name"], each.version) for each in distributions())),
        "mosquitto": _output("mosquitto", "-h").splitlines()[:1],
        "debian_package": _output("dpkg-query", "-W", "fieldgate").strip(),
    }


def _machine(config: Config | None) -> dict[str, Any]:
    from gateway.clock.system_clock import kernel_synchronised
    from gateway.commands.doctor.machine import Host

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
        "vitals": msgspec.to_builtins(vitals(here)),
        "memory": host.text("/proc/meminfo"),
        "throttled": throttled_bits(),
        "disks": disks,
        "mounts": host.text("/proc/mounts"),
        "clock_synchronised": kernel_synchronised(),
        "timedatectl": _output("timedatectl", "show").splitlines(),
        "gpio": host.names("/dev/gpiochip*"),
        "i2c": host.names("/dev/i2c-*"),
    }


def _status(path: Path, config: Config | None) -> Any:
    listen = listen_address(path, chosen=False)[0] if config is None else config.status.listen
    return msgspec.to_builtins(fetch(listen))


def _doctor(request: Request) -> Any:
    from gateway.commands.doctor.command import examine

    return msgspec.to_builtins(list(examine(request.config, request.timeout_s)))


def _outbox(config: Config) -> dict[str, Any]:
    from buffer.errors import OutboxError
    from gateway.commands.outbox.stats import collect

    beside = {}
    for file in sorted(config.outbox.path.parent.glob(config.outbox.path.name + "*")):
        beside[file.name] = file.stat().st_size
    try:
        return {"files": beside, **collect(config, lambda records: None)}
    except OutboxError as error:
        return {"files": beside, "unreadable": str(error)}


def _calibrations(config: Config) -> Any:
    path = history_path(config)
    if not path.exists():
        raise Missing(f"there is no {path}: no daemon has run with this outbox yet")
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(MAX_BYTES * 4))
    except OSError as error:
        raise Missing(os_problem(error)) from error


def _units() -> dict[str, Any]:
    return {
        unit: dict(
            line.partition("=")[::2]
            for line in _output("systemctl", "show", unit, f"--property={','.join(_SHOWN)}").splitlines()
        )
        for unit in _UNITS
    }


def _journal(unit: str, lines: int) -> tuple[dict[str, Any], ...]:
    """Returns the newest entries of a unit's journal, the oldest of them first. Raises Missing."""
    if Reader is None:
        raise Missing("systemd-python isn't installed: apt-get install python3-systemd")
    entries: list[Mapping[str, Any]] = []
    with Reader() as reader:
        reader.add_match(_SYSTEMD_UNIT=unit)
        reader.add_disjunction()
        # The service manager's own messages about the unit.
        reader.add_match(UNIT=unit)
        reader.seek_tail()
        while len(entries) < lines and (entry := reader.get_previous()):
            entries.append(entry)
    if not entries:
        rights = "" if os.geteuid() == 0 else "; use sudo, or become a member of the group systemd-journal"
        raise Missing(f"the journal has no lines of {unit} for this user{rights}")
    return tuple(map(shown_entry, reversed(entries)))


def _output(*command: str) -> str:
    """Returns what a program prints; nothing where it isn't installed or fails."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def files_of(parts: Iterable[Part], redactor: Redactor, about: dict[str, Any]) -> dict[str, bytes]:
    """Returns a bundle's files by name, as they may be shown; the manifest first, which ``about`` begins."""
    files: dict[str, bytes] = {}
    missing: list[dict[str, str]] = []
    for part in parts:
        why = None
        if part.missing is not None:
            why = redactor.text(part.missing)
        elif part.lines is not None:
            kept = _newest(part.lines, redactor)
            files[f"{part.name}.jsonl"] = b"".join(kept)
            if len(kept) < len(part.lines):
                why = f"all but the newest {len(kept)} of {len(part.lines)} lines"
        elif len(content := _encoded(redactor.value(part.content))) <= MAX_PART_BYTES:
            files[f"{part.name}.json"] = content
        else:
            why = f"{len(content)} bytes; a part may have {MAX_PART_BYTES}"
        if why is not None:
            missing.append({"part": part.name, "why": why})
    sizes = {name: len(content) for name, content in files.items()}
    manifest = {**redactor.value(about), "files": sizes, "missing": missing}
    return {MANIFEST: _encoded(manifest), **files}


def _newest(lines: Sequence[Any], redactor: Redactor) -> list[bytes]:
    """Returns the newest lines that fit into a part."""
    kept: list[bytes] = []
    size = 0
    for line in reversed(lines):
        encoded = json.dumps(redactor.value(line), ensure_ascii=False).encode(errors="replace") + b"\n"
        size += len(encoded)
        if size > MAX_PART_BYTES:
            break
        kept.append(encoded)
    return kept[::-1]


def _encoded(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, indent=1, default=str)
    return text.encode(errors="replace") + b"\n"


def archive(files: Mapping[str, bytes], folder: str, time_s: int) -> bytes:
    """Packs the files as a .tar.gz, in one folder; ``time_s`` is their time, in seconds since the epoch."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), time_s, 0o640
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
