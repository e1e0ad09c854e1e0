"""The last reading of each channel, own and forwarded, for status pages and metrics."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Collection
from typing import Any, Final

from cloud.wire.reading_records import FAIL, GOOD, NOT_EVALUATED, Reading
from gateway.clock.hold import repaired_reading
from gateway.status.status import Channel

RECENT: Final = 120
"""Readings kept of each own channel: two minutes at 1 Hz, 10 kB."""
MOST_FORWARDED: Final = 256
"""Forwarded channels kept, those read last: other devices may name any number."""


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

    def valid(self, channel: str) -> int:
        """How many readings of an own channel were good or not evaluated in this run."""
        return self._valid[channel]

    def own(self, given_offset_ms: int | None = None) -> dict[str, Channel]:
        """The last reading of each own channel, as it leaves where the boot's time was given.

        ``given_offset_ms``: the wall time at boot that was entered by hand, ms since the epoch.
        """
        with self._lock:
            readings = dict(self._own)
        if given_offset_ms is not None:
            readings = {
                channel: reading if reading.mono_ms is None else repaired_reading(reading, given_offset_ms)
                for channel, reading in readings.items()
            }
        return {channel: Channel.of(reading) for channel, reading in readings.items()}

    def forwarded(self) -> dict[str, Channel]:
        """The last reading of each forwarded channel; another gateway's with ``gateway/`` before it."""
        with self._lock:
            readings = dict(self._forwarded)
        return {name: Channel.of(reading) for name, reading in readings.items()}
