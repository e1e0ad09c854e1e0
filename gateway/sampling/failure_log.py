"""Says in the log that a sensor fails and that it answers again, and never fills the log with it.

The readings say READ_ERROR each time; the log says when that begins and ends. A sensor that fails now and
then (a DHT11 has some per cent of damaged frames) would say both all day long: each kind of failure is told
at most once an hour, with how often there was any, unless the sensor stays silent for a minute.
"""

from __future__ import annotations

import logging
import re
from typing import Final

log = logging.getLogger(__name__)

_SILENT_S: Final = 60.0
"""Failing for so long is news, however often it failed before."""
_TOLD_EVERY_S: Final = 3600.0
_MOST_KINDS: Final = 8
"""Further ones are one kind together: a text that is another each time must not fill the log."""


class FailureLog:
    """What the log says of one sensor. Times are monotonic seconds; owned by its sampler's thread."""

    def __init__(self, sensor: str) -> None:
        self._sensor = sensor
        self._failing_since_s: float | None = None
        self._told_s: dict[str, float] = {}
        self._told_silent = False
        self._failures = 0

    def failed(self, error: Exception, now_s: float) -> None:
        """The sensor gave no reading."""
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        self._failures += 1
        silent = not self._told_silent and now_s - self._failing_since_s >= _SILENT_S
        kind = self._kind(error)
        if silent or now_s - self._told_s.get(kind, float("-inf")) >= _TOLD_EVERY_S:
            if self._failures > 1:
                log.warning(
                    "event=sensor.silent sensor=%s error=%s failures=%d", self._sensor, error, self._failures
                )
            else:
                log.warning("event=sensor.silent sensor=%s error=%s", self._sensor, error)
            self._told_s[kind], self._told_silent, self._failures = now_s, True, 0
        else:
            log.debug("event=sensor.silent sensor=%s error=%s", self._sensor, error)

    def answered(self) -> None:
        """The sensor gave a reading."""
        if self._told_silent:
            log.warning("event=sensor.answers sensor=%s", self._sensor)
        self._failing_since_s, self._told_silent = None, False

    def _kind(self, error: Exception) -> str:
        # Figures in it make no other kind: codes, voltages, seconds.
        kind = re.sub(r"\d+", "0", str(error))
        return kind if kind in self._told_s or len(self._told_s) < _MOST_KINDS else ""
