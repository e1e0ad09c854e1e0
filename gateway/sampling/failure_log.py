"""Logs that a sensor begins to fail, fails in another way, and answers again.

The readings have READ_ERROR each time. A sensor that fails now and then (a DHT11 has some per cent of damaged
frames) would log both all day long: the limit on repeated lines (``system/logs/rate_limit.py``) counts them.
"""

from __future__ import annotations

import logging
import re

log = logging.getLogger(__name__)


class FailureLog:
    """The log of one sensor's failures; owned by its sampler's thread."""

    def __init__(self, sensor: str) -> None:
        self._sensor = sensor
        self._kind: str | None = None

    def failed(self, error: Exception) -> None:
        """Log a failure, unless the reading before failed in the same way."""
        # Numbers make no other kind: codes, voltages, seconds.
        kind = re.sub(r"\d+", "0", str(error))
        level = logging.DEBUG if kind == self._kind else logging.WARNING
        log.log(level, "event=sensor.silent sensor=%s error=%s", self._sensor, error)
        self._kind = kind

    def answered(self) -> None:
        """Log a reading that succeeded after a failure."""
        if self._kind is not None:
            log.warning("event=sensor.answers sensor=%s", self._sensor)
        self._kind = None
