"""Moments as text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal


def utc_text(moment: datetime, timespec: Literal["seconds", "milliseconds"] = "milliseconds") -> str:
    """RFC 3339 in UTC, with a Z."""
    return moment.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def now_text(timespec: Literal["seconds", "milliseconds"] = "milliseconds") -> str:
    """The time of this machine as RFC 3339 in UTC."""
    return utc_text(datetime.now(UTC), timespec)
