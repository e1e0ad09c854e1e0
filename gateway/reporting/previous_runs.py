"""Keeps on this machine what a daemon leaves for its successors, and that a reading of its run is safe.

The file for its successors is written at its start and at a clean stop; in between only where a reload makes
the commit interval longer. That a reading is safe decides whether a new version may stay: the file is in
systemd's runtime directory, which is memory, so nothing is written to the card.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from buffer.files import boot_id
from cloud.wire.run_records import Unfinished
from gateway.config import Config
from gateway.ports import Snapshot
from gateway.system.atomic_file import read_state, write_state

log = logging.getLogger(__name__)

# A run that is cut off within a second of its start has not reported the one before it.
_REMEMBERED: Final = 8
# An fsync on an SD card can take that long; what is sampled meanwhile is lost with the commit interval's.
_LONGEST_FSYNC_S: Final = 1.0


def lost_at_most_s(config: Config) -> float:
    """Returns the seconds of readings that a power cut may cost: what isn't on the disk yet."""
    return config.outbox.commit_interval_s + _LONGEST_FSYNC_S


@dataclass(frozen=True, slots=True)
class Predecessors:
    """Names the run before this one, None without one, and the latest runs that did not end themselves."""

    previous_run: str | None = None
    unfinished: tuple[Unfinished, ...] = ()


class PreviousRuns:
    """Writes the file of one run. What can't be read or written is logged; sampling continues."""

    def __init__(self, path: Path, run: str, lost_at_most_s: float) -> None:
        self._path = path
        self._fields: dict[str, Any] = {"run": run, "boot": boot_id(), "lost_at_most_s": lost_at_most_s}

    def begin(self) -> Predecessors:
        """Writes this run over the previous one, which is returned."""
        before = read_state(self._path, _predecessors, Predecessors())
        self._fields["unfinished"] = [asdict(each) for each in before.unfinished]
        self._write(stopped=False)
        return before

    def allow(self, lost_at_most_s: float) -> None:
        """Stores that this run may lose more from now on, should it be cut off; durable when it returns."""
        if lost_at_most_s > self._fields["lost_at_most_s"]:
            self._fields["lost_at_most_s"] = lost_at_most_s
            self._write(stopped=False)

    def end(self) -> None:
        """Stores that this run has ended itself, and that its last record is durable."""
        self._write(stopped=True)

    def _write(self, *, stopped: bool) -> None:
        write_state(self._path, {**self._fields, "stopped": stopped})


def _predecessors(fields: dict[str, Any]) -> Predecessors:
    previous = fields["run"]
    unfinished = [Unfinished(**each) for each in fields["unfinished"]]
    if not fields["stopped"]:
        end: Literal["killed", "reset"] = "killed" if fields["boot"] == boot_id() else "reset"
        unfinished.append(Unfinished(previous, end, fields["lost_at_most_s"]))
    return Predecessors(str(previous), tuple(unfinished[-_REMEMBERED:]))


class FirstReading:
    """Writes systemd's id of this start into ``durable``, once; nothing where systemd hasn't started it.

    Owned by the main thread.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        directory, self._start = environment.get("RUNTIME_DIRECTORY"), environment.get("INVOCATION_ID", "")
        self._path = None if directory is None else Path(directory, "durable")

    def tick(self, snapshot: Snapshot) -> None:
        """Writes it once Kafka or the outbox has the first reading."""
        if self._path is None or not snapshot.durable:
            return
        try:
            self._path.write_text(f"{self._start}\n")
        except OSError as error:
            log.warning("event=state.not_written path=%s error=%s", self._path, error)
        self._path = None
