"""The last readings of each channel, for status pages and metrics."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Collection
from typing import Any, Final

from cloud.wire.reading_records import GOOD, NOT_EVALUATED, Reading, format_time

RECENT: Final = 120
"""Readings kept of each channel: two minutes at 1 Hz, 10 kB."""


def reading_fields(reading: Reading) -> dict[str, Any]:
    """A channel's last reading as the status has it."""
    return {
        "time": format_time(reading.time_us),
        "period_ms": reading.period_ms,
        "value": reading.value,
        "unit": reading.unit,
        "raw": reading.raw,
        "raw_unit": reading.raw_unit,
        "quality": reading.quality,
        "reasons": reading.reasons,
        "seq": reading.seq,
    }


class LastReadings:
    """Written by samplers, read by status pages; any thread."""

    def __init__(self) -> None:
        self._readings: dict[str, Reading] = {}
        self._recent: dict[str, deque[tuple[int, float | None]]] = {}
        self._valid: Counter[str] = Counter()
        self._lock = threading.Lock()

    def note(self, reading: Reading) -> None:
        """Store a reading as its channel's last."""
        with self._lock:
            self._readings[reading.channel] = reading
            self._valid[reading.channel] += reading.quality in (GOOD, NOT_EVALUATED)
            recent = self._recent.setdefault(reading.channel, deque(maxlen=RECENT))
            recent.append((reading.time_us // 1000, reading.value))

    def keep(self, channels: Collection[str]) -> None:
        """Delete all other channels: a sensor that is gone, or has another driver, has no last reading."""
        with self._lock:
            for channel in [each for each in self._readings if each not in channels]:
                del self._readings[channel], self._recent[channel]

    def recent(self) -> dict[str, list[list[Any]]]:
        """By channel the last readings, oldest first: time in ms since the epoch, and value or null."""
        with self._lock:
            return {channel: list(map(list, values)) for channel, values in self._recent.items()}

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """By channel the fields of its last reading.

        ``valid``: how many of this run were good or not evaluated.
        """
        with self._lock:
            readings, valid = dict(self._readings), Counter(self._valid)
        return {
            channel: {**reading_fields(reading), "valid": valid[channel]}
            for channel, reading in readings.items()
        }
