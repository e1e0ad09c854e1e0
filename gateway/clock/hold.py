"""Which records wait for the clock, and what leaves of them once their boot's time is known or given up.

A boot has one verdict, for good: the wall time at its beginning, or that it is unknown. This boot's is open
until the clock is synchronised or the hold ends; a boot that is over without one is unknown.

Owned by the forwarder's thread, but for ``news``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final

from cloud.wire.schema import InvalidReading, parse_reading
from gateway.clock.repair import boot_of, repaired, unmarked
from gateway.ports import Record

# A forger's boots have no end.
_MOST_BOOTS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """A boot's wall time at its beginning, ms since the epoch; None: nobody knows it."""

    boot: str
    offset_ms: int | None


@dataclass(frozen=True, slots=True)
class Released:
    """Records of a boot have begun to leave by its verdict; ``first`` is ``run channel seq`` of the first."""

    verdict: Verdict
    first: str


class ClockHold:
    """``boot`` is this boot's id, ``verdicts`` what is known of it and of earlier ones."""

    def __init__(self, boot: str = "", verdicts: Mapping[str, int | None] | None = None) -> None:
        self._boot = boot
        self._verdicts = dict(verdicts or {})
        self._told: set[str] = set()
        self.news: SimpleQueue[Released] = SimpleQueue()
        """One for each boot; any thread may take it."""
        self.repaired = 0
        self.unsynced = 0

    @property
    def active(self) -> bool:
        """Whether this boot's verdict is open."""
        return self._boot != "" and self._boot not in self._verdicts

    def judge(self, verdict: Verdict) -> None:
        """A boot's time is known, or nobody waits for it any longer. The first verdict stands."""
        self._verdicts.setdefault(verdict.boot, verdict.offset_ms)

    def holds(self, record: Record) -> bool:
        """Whether a record must not leave yet."""
        return self.active and boot_of(record) == self._boot

    def release(self, record: Record) -> Record:
        """The record as it leaves: the same object where its time is its own."""
        boot = boot_of(record)
        if boot is None:
            return record
        offset_ms = self._verdicts.get(boot)
        if boot not in self._told and len(self._told) < _MOST_BOOTS:
            self._told.add(boot)
            self.news.put(Released(Verdict(boot, offset_ms), _identity(record)))
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
