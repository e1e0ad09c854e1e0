"""What has been found so far, stored after each step: a phone that loses the connection costs nothing."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from buffer.files import sync_directory
from cloud.command_line import CommandError
from cloud.wire.fields import UNDECODABLE
from gateway.commands.commissioning.checks import Result
from gateway.config import Config, SensorConfig
from gateway.system.atomic_file import Ownership, as_owner_of, write_atomic
from gateway.system.times import now_text

_VERSION: Final = 1


class _Stored(msgspec.Struct):
    """The file. ``prints`` are the sensors' fingerprints, ``results`` those of each sensor by check."""

    v: int
    gateway: str
    started: str
    prints: dict[str, str]
    results: dict[str, dict[str, Result]]


def fingerprint(sensor: SensorConfig) -> str:
    """Changes whenever anything of a sensor's table does: then what was found of it no longer counts."""
    return hashlib.sha256(repr(sensor).encode()).hexdigest()[:16]


class Session:
    """The results so far, by sensor and check. Raises OSError where they can't be stored.

    Sessions and reports of a gateway are in ``directory``, beside its outbox. Raises CommandError while
    another terminal has it.
    """

    def __init__(self, config: Config, chosen: Sequence[str] = ()) -> None:
        """``chosen`` sensors alone: what is found of them is kept apart from a walk over all."""
        self.directory = config.outbox.path.parent / "commissioning"
        which = hashlib.sha256("/".join(sorted(chosen)).encode()).hexdigest()[:8]
        self._path = self.directory / (f"session-{which}.json" if chosen else "session.json")
        with as_owner_of(config.outbox.path.parent):
            self.directory.mkdir(0o750, exist_ok=True)
            self._lock = (self.directory / "session.lock").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise CommandError("this gateway is being commissioned in another terminal") from error
        self._gateway = config.gateway.id
        self._prints = {sensor.name: fingerprint(sensor) for sensor in config.sensors}
        self.started = now_text("seconds")
        self._results: dict[str, dict[str, Result]] = {}
        self._earlier = self._read()

    def earlier(self) -> tuple[str, int] | None:
        """When a session that was broken off had begun, and how many of its results still count."""
        if self._earlier is None:
            return None
        return self._earlier.started, sum(map(len, self._earlier.results.values()))

    def resume(self) -> None:
        """Go on with what was found in the session that was broken off."""
        if self._earlier is not None:
            self.started, self._results = self._earlier.started, self._earlier.results

    def of(self, sensor: str) -> Mapping[str, Result]:
        """What was found of a sensor, by check."""
        return self._results.get(sensor, {})

    def note(self, sensor: str, check: str, result: Result) -> None:
        """Store a result; durable when it returns. Raises OSError."""
        self._results.setdefault(sensor, {})[check] = result
        stored = _Stored(_VERSION, self._gateway, self.started, self._prints, self._results)
        self.write(self._path, msgspec.json.format(msgspec.json.encode(stored), indent=1))

    def write(self, path: Path, content: bytes) -> None:
        """A file beside the session's. Raises OSError."""
        with as_owner_of(self.directory.parent):
            write_atomic(path, content, Ownership.own(0o640))

    def end(self) -> None:
        """It is signed: nothing is left to go on with. Raises OSError."""
        with as_owner_of(self.directory.parent):
            self._path.unlink(missing_ok=True)
            sync_directory(self.directory)

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def _read(self) -> _Stored | None:
        """The session on the disk, without what was found of sensors that have changed since."""
        try:
            stored = msgspec.json.decode(self._path.read_bytes(), type=_Stored)
        except (FileNotFoundError, *UNDECODABLE):
            # It isn't signed: what can't be read is done again.
            return None
        if (stored.v, stored.gateway) != (_VERSION, self._gateway):
            return None
        for name in list(stored.results):
            if name not in self._prints or stored.prints.get(name) != self._prints[name]:
                del stored.results[name]
        return stored
