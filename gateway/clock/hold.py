"""Holds records until their boot's time is decided, and repairs or unmarks them then.

A boot's time is decided once: its wall time at boot, or unknown. This boot's is open until the clock is
synchronised or the hold ends; an earlier boot without one is unknown.

Owned by the forwarder's thread, except ``released``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final

from cloud.wire.reading_records import InvalidReading, parse_reading
from gateway.clock.repair import boot_of, repaired, unmarked
from gateway.ports import Record

# Forged records may name any number of boots.
_MOST_BOOTS: Final = 1_000


@dataclass(frozen=True, slots=True)
class BootTime:
    """The wall time at a boot, ms since the epoch; None where it is unknown for good."""

    boot: str
    offset_ms: int | None


@dataclass(frozen=True, slots=True)
class Released:
    """The first record of a boot was released; ``first`` is its ``run channel seq``."""

    boot_time: BootTime
    first: str


class ClockHold:
    """``boot`` is this boot's id, ``boot_times`` the times decided, by boot."""

    def __init__(self, boot: str = "", boot_times: Mapping[str, int | None] | None = None) -> None:
        self._boot = boot
        self._boot_times = dict(boot_times or {})
        self._reported: set[str] = set()
        self.released: SimpleQueue[Released] = SimpleQueue()
        """One for each boot; any thread may take it."""
        self.repaired = 0
        self.unsynced = 0
        self.active = boot != "" and boot not in self._boot_times
        """Whether this boot's time is undecided."""

    def decide(self, boot_time: BootTime) -> None:
        """Decide a boot's time; the first decision stays."""
        self._boot_times.setdefault(boot_time.boot, boot_time.offset_ms)
        self.active = self.active and boot_time.boot != self._boot

    def holds(self, record: Record) -> bool:
        """Whether a record must wait."""
        return self.active and boot_of(record) == self._boot

    def release(self, record: Record) -> Record:
        """The record to send: the same object where it never waited for a time."""
        boot = boot_of(record)
        if boot is None:
            return record
        offset_ms = self._boot_times.get(boot)
        if boot not in self._reported and len(self._reported) < _MOST_BOOTS:
            self._reported.add(boot)
            self.released.put(Released(BootTime(boot, offset_ms), _identity(record)))
        if offset_ms is None:
            self.unsynced += 1
            return unmarked(record)
        self.repaired += 1
        return repaired(record, offset_ms)


def _identity(record: Record) -> str:
    try:
        reading = parse_reading(record.value, unrepaired=True)
    except InvalidReading:
        return ""
    return f"{reading.run} {reading.channel} {reading.seq}"
