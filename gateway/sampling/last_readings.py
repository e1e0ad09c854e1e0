"""The last reading of each channel, own and forwarded, for status pages and metrics."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Collection
from typing import Any, Final

from cloud.wire.reading_records import FAIL, GOOD, NOT_EVALUATED, Reading, format_time
from gateway.clock.hold import repaired_reading

RECENT: Final = 120
"""Readings kept of each own channel: two minutes at 1 Hz, 10 kB."""
MOST_FORWARDED: Final = 256
"""Forwarded channels kept, those read last: other devices may name any number."""
_FIELDS: Final = ("period_ms", "value", "unit", "raw", "raw_unit", "quality", "reasons", "seq")


def reading_fields(reading: Reading) -> dict[str, Any]:
    """A channel's last reading as the status has it."""
    return {"time": format_time(reading.time_us), **{name: getattr(reading, name) for name in _FIELDS}}


class LastReadings:
    """Written by samplers and the forwarder, read by status pages; any thread."""

    def __init__(self, gateway: str = "") -> None:
        self._gateway = gateway
        self._own: dict[str, Reading] = {}
        self._recent: dict[str, deque[tuple[int, float | None]]] = {}
        self._valid: Counter[str] = Counter()
        self._forwarded: dict[str, Reading] = {}
        self._lock = threading.Lock()

    def note(self, reading: Reading) -> None:
        """Store a reading as its channel's last."""
        with self._lock:
            self._own[reading.channel] = reading
            self._valid[reading.channel] += reading.quality in (GOOD, NOT_EVALUATED)
            recent = self._recent.setdefault(reading.channel, deque(maxlen=RECENT))
            recent.append((reading.time_us // 1000, reading.value))

    def note_forwarded(self, reading: Reading) -> None:
        """Store a reading of another device as its channel's last."""
        channel = reading.channel
        name = channel if reading.gateway == self._gateway else f"{reading.gateway}/{channel}"
        with self._lock:
            self._forwarded.pop(name, None)
            self._forwarded[name] = reading
            if len(self._forwarded) > MOST_FORWARDED:
                del self._forwarded[next(iter(self._forwarded))]

    def keep(self, channels: Collection[str]) -> None:
        """Delete all other own channels: a sensor that is gone, or has a new driver, has no last reading."""
        with self._lock:
            for channel in [each for each in self._own if each not in channels]:
                del self._own[channel], self._recent[channel]

    def clear_forwarded(self) -> None:
        """Delete the forwarded channels: other messages are forwarded from now on."""
        with self._lock:
            self._forwarded.clear()

    def recent(self) -> dict[str, list[list[Any]]]:
        """The last readings of each own channel, oldest first: time in ms since the epoch, value or null."""
        with self._lock:
            return {channel: list(map(list, values)) for channel, values in self._recent.items()}

    def located(self) -> Reading | None:
        """The newest last reading with a fix, of any GPS, if there is one."""
        with self._lock:
            gps = [each for each in self._own.values() if each.quantity == "location"]
        fixes = [each for each in gps if each.latitude is not None and each.quality < FAIL]
        return max(fixes, key=lambda each: each.time_us, default=None)

    def __len__(self) -> int:
        """How many own channels there are."""
        return len(self._own)

    def own(self, given_offset_ms: int | None = None) -> dict[str, dict[str, Any]]:
        """The fields of each channel's last reading, as it leaves where the boot's time was given.

        ``given_offset_ms``: the wall time at boot that was entered by hand, ms since the epoch.
        ``valid``: how many of this run were good or not evaluated.
        """
        with self._lock:
            readings, valid = dict(self._own), Counter(self._valid)
        if given_offset_ms is not None:
            readings = {
                channel: reading if reading.mono_ms is None else repaired_reading(reading, given_offset_ms)
                for channel, reading in readings.items()
            }
        return {
            channel: {**reading_fields(reading), "valid": valid[channel]}
            for channel, reading in readings.items()
        }

    def forwarded(self) -> dict[str, dict[str, Any]]:
        """Returns the last reading's fields by channel; another gateway's with ``gateway/`` before it."""
        with self._lock:
            readings = dict(self._forwarded)
        return {
            name: {**reading_fields(reading), "source": "forwarded"} for name, reading in readings.items()
        }
