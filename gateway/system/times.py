"""Moments and durations as text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal

_UNITS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def utc_text(moment: datetime, timespec: Literal["seconds", "milliseconds"] = "milliseconds") -> str:
    """RFC 3339 in UTC, with a Z."""
    return moment.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def now_text(timespec: Literal["seconds", "milliseconds"] = "milliseconds") -> str:
    """The time of this machine as RFC 3339 in UTC."""
    return utc_text(datetime.now(UTC), timespec)


def duration_text(seconds: float) -> str:
    """A duration in the largest unit of which there are at least two: 119 s, 2 min, 47 h, 3 d."""
    unit_s, unit = next((each for each in _UNITS if seconds >= 2 * each[0]), (1.0, "s"))
    return f"{seconds / unit_s:.0f} {unit}"
