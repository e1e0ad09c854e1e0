"""Readings of a clock that was not set: marked, held until their boot's time is decided, then repaired.

A boot's time is decided once: its wall time at boot, or unknown. This boot's is open until the clock is
synchronised or the hold ends; an earlier boot without one is unknown.

The repair depends only on the record's own bytes and the boot's time, so that a second copy of a reading
(from the broker, or read again after a crash) is sent with the same bytes as the first.

The forwarder's thread owns ``ClockHold``, except ``released``; the functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Final

from cloud.wire.reading_records import (
    CLOCK_UNSYNCED,
    GOOD,
    MISSING,
    NOT_EVALUATED,
    REPAIRED,
    UNSYNCED,
    InvalidReading,
    Reading,
    encode_reading,
    parse_reading,
)
from gateway.calibration.record import EXPIRES, field_expiry_reasons
from gateway.ports import Record
from gateway.quality.qartod import worst_flag

UNREPAIRED: Final = "unrepaired"
"""Name of the header of a record whose time is not known yet: its boot. It is never sent."""
RECEIVED_AT: Final = "received-at"
_UNTESTED: Final = b" untested"


def mark_unsynced(reading: Reading, *, tested: bool = True) -> tuple[tuple[str, bytes], ...]:
    """The header of a reading that has to wait for its time; none for any other.

    ``tested``: its value has been compared with a range, so it is good if it has no other reason.
    """
    if reading.clock != UNSYNCED or reading.boot is None or reading.mono_ms is None:
        return ()
    return ((UNREPAIRED, reading.boot.encode() + (b"" if tested else _UNTESTED)),)


def boot_of(record: Record) -> str | None:
    """The boot whose time a record waits for; None where it needs none."""
    for name, value in record.headers:
        if name == UNREPAIRED:
            return value.removesuffix(_UNTESTED).decode(errors="replace")
    return None


def unmarked(record: Record) -> Record:
    """The record without the mark: its time stays unknown."""
    headers = tuple(header for header in record.headers if header[0] != UNREPAIRED)
    return Record(record.topic, record.key, record.value, headers)


def repaired(record: Record, offset_ms: int) -> Record:
    """The record with its time, by the wall time at boot (ms since the epoch).

    Its header ``received-at``, by the clock as it was, is removed. A record without a time since boot, or
    with a time that no calendar has, is only unmarked.
    """
    untested = any(name == UNREPAIRED and value.endswith(_UNTESTED) for name, value in record.headers)
    try:
        reading = parse_reading(record.value, unrepaired=True)
        value = encode_reading(repaired_reading(reading, offset_ms, tested=not untested))
    except (ValueError, OverflowError, OSError):
        return unmarked(record)
    headers = tuple(header for header in record.headers if header[0] not in (UNREPAIRED, RECEIVED_AT))
    return Record(record.topic, record.key, value, headers)


def repaired_reading(reading: Reading, offset_ms: int, *, tested: bool = True) -> Reading:
    """The reading with its time, by the wall time at boot (ms since the epoch).

    Raises ValueError where it has no time since boot.
    """
    if reading.mono_ms is None:
        raise ValueError("a reading without a time since boot")
    time_us = (reading.mono_ms + offset_ms) * 1000
    reasons = tuple(reason for reason in reading.reasons if reason != CLOCK_UNSYNCED)
    if reading.value is not None:
        reasons = tuple(dict.fromkeys((*reasons, *field_expiry_reasons(reading.extra, time_us))))
    extra = {name: field for name, field in (reading.extra or {}).items() if name != EXPIRES}
    return replace(
        reading,
        time_us=time_us,
        clock=REPAIRED,
        boot=None,
        mono_ms=None,
        reasons=reasons,
        extra=extra or None,
        quality=_quality(reading, reasons, tested=tested),
    )


def _quality(reading: Reading, reasons: tuple[str, ...], *, tested: bool) -> int:
    """The flag that the reading would have had with a synchronised clock."""
    if reading.value is None:
        return MISSING
    if reasons:
        # OVER_RANGE is the sensor's range (fail) or the site's (suspect): the reading's flag decides.
        return min(reading.quality, worst_flag(reasons))
    return GOOD if tested else NOT_EVALUATED


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
