"""When a failed read is repeated within its period, and a late-answering sensor primed ahead of it. Pure.

Times are in nanoseconds of event time. A sensor has a least time between two requests; a period has room for
some, or for none: a DHT11 (2 s) read every 2 s is never read twice, one read every 10 s is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_RETRIES: Final = 3
_JITTER: Final = 0.25
"""A retry is up to a quarter of the spacing late: a periodic disturbance needn't hit it too."""


@dataclass(frozen=True, slots=True)
class Retries:
    """The retries that one sensor's period has room for.

    ``spacing_ns`` is the least between the beginnings of two requests, None where a failed read isn't
    repeated. With ``late`` an answer is the measurement that the previous request began, so one request is
    made ahead of each reading.
    """

    period_ns: int
    spacing_ns: int | None
    late: bool = False

    def ahead_ns(self) -> int | None:
        """How long before a reading its measurement is begun; None where the previous reading begins it."""
        if not self.late or self.spacing_ns is None or self.period_ns < 2 * self.spacing_ns:
            return None
        return self.spacing_ns

    def again_ns(self, begin_ns: int, requested_ns: int, retries: int, jitter: float) -> int | None:
        """When to repeat a request of ``requested_ns`` in the period from ``begin_ns``; None: no more.

        ``jitter`` is a random number from 0 to 1.
        """
        if self.spacing_ns is None or retries >= MOST_RETRIES:
            return None
        earliest_ns = requested_ns + self.spacing_ns
        # The next request must not come too soon after.
        latest_ns = begin_ns + self.period_ns - (self.ahead_ns() or 0) - self.spacing_ns
        if earliest_ns > latest_ns:
            return None
        return earliest_ns + round(jitter * min(self.spacing_ns * _JITTER, latest_ns - earliest_ns))

    def has_room(self, begin_ns: int, requested_ns: int, again_ns: int, now_ns: int) -> bool:
        """Whether a request at ``again_ns`` that takes as long as the last one would end in the period.

        That one was made at ``requested_ns`` and failed at ``now_ns``. After a sensor's time-out a repeated
        request could make the next period late, and its reading missing.
        """
        end_ns = max(again_ns, now_ns) + now_ns - requested_ns
        return end_ns <= begin_ns + self.period_ns - (self.ahead_ns() or 0)
