"""Logs that a sensor fails and that it answers again, without filling the log.

The readings have READ_ERROR each time; the log has the beginning and the end. A sensor that fails now and
then (a DHT11 has some per cent of damaged frames) would log both all day long: each kind of failure is logged
at most once an hour, with the count of failures, unless the sensor stays silent for a minute.
"""

from __future__ import annotations

import logging
import re
from typing import Final

log = logging.getLogger(__name__)

_SILENT_S: Final = 60.0
"""Failing for so long is logged however often it failed before."""
_LOG_EVERY_S: Final = 3600.0
_MOST_KINDS: Final = 8
"""Further ones are one kind together: a text that differs each time must not fill the log."""


class FailureLog:
    """The log of one sensor's failures. Times are monotonic seconds; owned by its sampler's thread."""

    def __init__(self, sensor: str) -> None:
        self._sensor = sensor
        self._failing_since_s: float | None = None
        self._logged_s: dict[str, float] = {}
        self._logged_silent = False
        self._failures = 0

    def failed(self, error: Exception, now_s: float) -> None:
        """Count, and maybe log, a reading that failed."""
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        self._failures += 1
        silent = not self._logged_silent and now_s - self._failing_since_s >= _SILENT_S
        kind = self._kind(error)
        if not silent and now_s - self._logged_s.get(kind, float("-inf")) < _LOG_EVERY_S:
            log.debug("event=sensor.silent sensor=%s error=%s", self._sensor, error)
            return
        if self._failures > 1:
            log.warning(
                "event=sensor.silent sensor=%s error=%s failures=%d", self._sensor, error, self._failures
            )
        else:
            log.warning("event=sensor.silent sensor=%s error=%s", self._sensor, error)
        self._logged_s[kind], self._logged_silent, self._failures = now_s, True, 0

    def answered(self) -> None:
        """Note a reading that succeeded, and log it after a logged failure."""
        if self._logged_silent:
            log.warning("event=sensor.answers sensor=%s", self._sensor)
        self._failing_since_s, self._logged_silent = None, False

    def _kind(self, error: Exception) -> str:
        # Numbers make no other kind: codes, voltages, seconds.
        kind = re.sub(r"\d+", "0", str(error))
        return kind if kind in self._logged_s or len(self._logged_s) < _MOST_KINDS else ""
