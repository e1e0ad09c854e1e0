"""The bounds of numbers on the wire, the same for MQTT, HTTP, files and Kafka.

Whatever lies outside is refused at the gateway and quarantined by the jobs. Inside, no sum, difference or
square that a job makes leaves the type it is made in:

- Numbers: no quantity of this field comes near 1e24 (a 64-bit counter ends at 1.8e19). Fourth powers are
  1e96, and 2^63 of them 1e115; a double ends at 1.8e308.
- Counts: 1,000 readings a second take 4,000 years to 2^47. A record of 1 MiB has at most 45,000 channels,
  whose sum is below 2^63.
- Times: years that fit into 64 bits of nanoseconds (1677 to 2262), which Arrow and pandas count in.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Final

from msgspec import Meta

MAX_NUMBER: Final = 1e24
MAX_COUNT: Final = (1 << 47) - 1
MAX_INT32: Final = (1 << 31) - 1
MAX_INT53: Final = (1 << 53) - 1
"""Exact in every JSON reader; of revisions, which are only compared."""
MAX_MONO_MS: Final = 100 * 366 * 86_400_000
"""Milliseconds since a machine's start: a hundred years."""

FIRST_YEAR, LAST_YEAR = 1900, 2199
TIMES_US: Final = range(-2_208_988_800_000_000, 7_258_118_400_000_000)
"""Microseconds since the epoch, of the years 1900 to 2199 in UTC."""
_LAST_DAY: Final = date(LAST_YEAR, 12, 31)

Number = Annotated[float, Meta(ge=-MAX_NUMBER, le=MAX_NUMBER)]
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Seq = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
Revision = Annotated[int, Meta(ge=1, le=MAX_INT53)]
PeriodMs = Annotated[int, Meta(ge=1, le=MAX_INT32)]
IntervalS = Annotated[float, Meta(ge=0.001, le=MAX_INT32 / 1000)]
"""Seconds that are whole milliseconds of a ``PeriodMs``."""
HeightM = Annotated[float, Meta(ge=-12_000, le=100_000)]
"""Above ground or above the sea: from the deepest sea to where balloons and sounding rockets go."""
Degrees = Annotated[float, Meta(ge=-360, le=360)]


def is_within(value: Any) -> bool:
    """Whether a number is finite and within bounds; what is no number is."""
    return not isinstance(value, int | float) or -MAX_NUMBER <= value <= MAX_NUMBER


def is_day(day: date | None) -> bool:
    """Whether a day, if there is one, is of these years."""
    return day is None or date(FIRST_YEAR, 1, 1) <= day <= _LAST_DAY
