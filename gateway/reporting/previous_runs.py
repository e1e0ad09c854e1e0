"""What a daemon remembers of its predecessors. Written at its start and at a clean stop.

In between only where a reload makes the commit interval longer.

A file written without fsync comes back full of zeros after a power cut, so: temporary file, fsync, rename,
fsync of the directory.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from cloud.wire.run_records import Unfinished

log = logging.getLogger(__name__)

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# A run that is cut off within a second of its start has told nobody of the one before it.
_REMEMBERED: Final = 8


def boot_id() -> str:
    """The kernel's id of this boot (random(4))."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"


@dataclass(frozen=True, slots=True)
class Predecessors:
    """The run before this one, None without one, and the latest runs that did not end themselves."""

    previous_run: str | None = None
    unfinished: tuple[Unfinished, ...] = ()


class PreviousRuns:
    """The file of one run. What can't be read or written is logged: it is no reason not to sample."""

    def __init__(self, path: Path, run: str, lost_at_most_s: float) -> None:
        self._path = path
        self._fields: dict[str, Any] = {"run": run, "boot": boot_id(), "lost_at_most_s": lost_at_most_s}

    def begin(self) -> Predecessors:
        """Write this run over the previous one, which is told."""
        before = self._read()
        self._fields["unfinished"] = [asdict(each) for each in before.unfinished]
        self._write(stopped=False)
        return before

    def allow(self, lost_at_most_s: float) -> None:
        """Let this run lose more from now on, should it be cut off; durable when it returns."""
        if lost_at_most_s > self._fields["lost_at_most_s"]:
            self._fields["lost_at_most_s"] = lost_at_most_s
            self._write(stopped=False)

    def end(self) -> None:
        """Write that this run has ended itself, and that its last record is durable."""
        self._write(stopped=True)

    def _read(self) -> Predecessors:
        try:
            fields = json.loads(self._path.read_text())
            previous = fields["run"]
            unfinished = [Unfinished(**each) for each in fields.get("unfinished", ())]
            # A file of an earlier version doesn't know how its run ended.
            if fields.get("stopped") is False:
                end: Literal["killed", "reset"] = "killed" if fields["boot"] == boot_id() else "reset"
                unfinished.append(Unfinished(previous, end, fields["lost_at_most_s"]))
        except FileNotFoundError:
            return Predecessors()
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("event=state.unreadable path=%s error=%s", self._path, error)
            return Predecessors()
        return Predecessors(str(previous), tuple(unfinished[-_REMEMBERED:]))

    def _write(self, *, stopped: bool) -> None:
        try:
            write_durably(self._path, json.dumps({**self._fields, "stopped": stopped}))
        except OSError as error:
            log.error("event=state.not_written path=%s error=%s", self._path, error)


def write_durably(path: Path, text: str) -> None:
    """Replace a small file; it is on disk, or as it was, whenever the power goes. Raises OSError."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
