"""Intervals of statistics, and the UTC days they lie in. Times are microseconds since the epoch."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from typing import Final

import pyarrow as pa

SECOND_US: Final = 1_000_000
DAY_US: Final = 86_400 * SECOND_US
FOREVER_US: Final = 1 << 62
"""Before and after all times; differences still fit."""
TIMES: Final = pa.timestamp("us", tz="UTC")
"""The Arrow type of times."""

_FIRST_S: Final = -62_135_596_800
_LAST_S: Final = 253_402_300_799
"""Seconds of the years 1 to 9999, which is what a date can hold."""


def day_of(time_us: int) -> date:
    """The UTC day of a time; the first or last date there is where the time lies beyond."""
    return datetime.fromtimestamp(min(max(time_us // SECOND_US, _FIRST_S), _LAST_S), UTC).date()


def moment_of(time_us: int) -> datetime:
    """A time as Spark takes it."""
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time_us)


def now_us() -> int:
    """The wall clock."""
    return time.time_ns() // 1000
