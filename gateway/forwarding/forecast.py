"""How many days the outbox would still hold if Kafka went away now, for those who look at a running gateway.

What a reading takes is measured once for each config, by a process of its own at the first question: that
takes a second or two of a small processor, which no sampler should wait for.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

from buffer.errors import OutboxError
from buffer.files import free_bytes
from gateway.config import Config
from gateway.forwarding import capacity, capacity_process

log = logging.getLogger(__name__)

Measure = Callable[[Config], float]


class Forecast:
    """Any thread may ask."""

    def __init__(self, measure: Measure = capacity_process.bytes_per_reading) -> None:
        self._measure = measure
        self._config: Config | None = None
        self._per_reading: float | None = None
        self._lock = threading.Lock()

    def days_left(self, config: Config, used_bytes: int, records: int) -> float | None:
        """Days until the first reading would be dropped; None where it isn't known or nothing is sampled.

        ``used_bytes`` is the outbox's size, ``records`` what waits in it.
        """
        per_reading = self._bytes_per_reading(config)
        if not per_reading:
            return None
        try:
            free = free_bytes(config.outbox.path.parent)
        except OSError:
            return None
        room = capacity.room_bytes(config, used_bytes, free)
        # A file doesn't shrink when it is emptied: what waits counts, not the file.
        days = capacity.days(max(room - records * per_reading, 0.0), config, per_reading)
        return round(days, 2) if math.isfinite(days) else None

    def _bytes_per_reading(self, config: Config) -> float | None:
        with self._lock:
            if config is not self._config:
                self._config, self._per_reading = config, None
                threading.Thread(target=self._find, args=(config,), name="forecast", daemon=True).start()
            return self._per_reading

    def _find(self, config: Config) -> None:
        try:
            found = self._measure(config)
        except (OutboxError, OSError) as error:
            log.warning("event=forecast.unknown error=%s", error)
            return
        with self._lock:
            if config is self._config:
                self._per_reading = found
