"""What has been found so far, kept after each step: a phone that loses the connection costs nothing."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Literal

from buffer.files import sync_directory
from gateway.commands.arguments import CommandError
from gateway.config import Config, SensorConfig
from gateway.system.atomic_file import make_directory, ownership_within, write_atomic
from gateway.system.times import now_text

Outcome = Literal["passed", "confirmed", "fault", "skipped"]
"""``confirmed``: nothing judged it but the installer."""

GOOD: Final = ("passed", "confirmed")
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one check. ``words`` are the program's, ``note`` the installer's."""

    outcome: Outcome
    words: str
    note: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    at: str = ""


def directory_of(config: Config) -> Path:
    """Where sessions and reports of a gateway are: beside its outbox."""
    return config.outbox.path.parent / "commissioning"


def fingerprint(sensor: SensorConfig) -> str:
    """Changes whenever anything of a sensor's table does: then what was found of it counts no more."""
    return hashlib.sha256(repr(sensor).encode()).hexdigest()[:16]


class Busy(CommandError):
    """The gateway is being commissioned in another terminal."""


class Session:
    """The results so far, by sensor and check. Raises OSError where they can't be kept, Busy."""

    def __init__(self, config: Config, chosen: Sequence[str] = ()) -> None:
        """``chosen`` sensors alone: what is found of them is kept apart from a walk over all."""
        self._directory = directory_of(config)
        make_directory(self._directory)
        which = hashlib.sha256("/".join(sorted(chosen)).encode()).hexdigest()[:8]
        self._path = self._directory / (f"session-{which}.json" if chosen else "session.json")
        self._lock = (self._directory / "session.lock").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise Busy("this gateway is being commissioned in another terminal") from error
        self._gateway = config.gateway.id
        self._prints = {sensor.name: fingerprint(sensor) for sensor in config.sensors}
        self.started = now_text("seconds")
        self._results: dict[str, dict[str, Result]] = {}

    @property
    def directory(self) -> Path:
        """Where reports go."""
        return self._directory

    def earlier(self) -> tuple[str, int] | None:
        """When a session that was broken off had begun, and how many of its results still count."""
        told = self._read()
        return None if told is None else (told[0], sum(map(len, told[1].values())))

    def resume(self) -> None:
        """Go on with what was found in the session that was broken off."""
        told = self._read()
        if told is not None:
            self.started, self._results = told

    def of(self, sensor: str) -> Mapping[str, Result]:
        """What was found of a sensor, by check."""
        return self._results.get(sensor, {})

    def note(self, sensor: str, check: str, result: Result) -> None:
        """Keep a result; durable when it returns. Raises OSError."""
        self._results.setdefault(sensor, {})[check] = result
        told = {
            "v": _VERSION,
            "gateway": self._gateway,
            "started": self.started,
            "prints": self._prints,
            "results": {
                name: {check: asdict(each) for check, each in checks.items()}
                for name, checks in self._results.items()
            },
        }
        self.write(self._path, json.dumps(told, indent=1).encode())

    def write(self, path: Path, content: bytes) -> None:
        """A file beside the session's. Raises OSError."""
        write_atomic(path, content, ownership_within(self._directory))

    def end(self) -> None:
        """It is signed: nothing is left to go on with. Raises OSError."""
        self._path.unlink(missing_ok=True)
        sync_directory(self._directory)

    def close(self) -> None:
        """Let others."""
        self._lock.close()

    def _read(self) -> tuple[str, dict[str, dict[str, Result]]] | None:
        try:
            told = json.loads(self._path.read_bytes())
            if (told["v"], told["gateway"]) != (_VERSION, self._gateway):
                return None
            results = {
                name: {check: Result(**fields) for check, fields in checks.items()}
                for name, checks in told["results"].items()
                if told["prints"].get(name) == self._prints.get(name) is not None
            }
            return str(told["started"]), results
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # Nobody has signed it: what can't be read is done again.
            return None
