"""Moments and durations as text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

from cloud.values import duration_text
from gateway.system.times import now_text, utc_text


def test_moments_are_utc_with_a_z() -> None:
    kathmandu = timezone(timedelta(hours=5, minutes=45))
    moment = datetime(2026, 11, 22, 3, 4, 5, 678_900, kathmandu)
    assert utc_text(moment) == "2026-11-21T21:19:05.678Z"
    assert utc_text(moment.astimezone(UTC), "seconds") == "2026-11-21T21:19:05Z"
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", now_text("seconds"))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (119.0, "119 s"),
        (120.0, "2 min"),
        (7_199.0, "120 min"),
        (7_200.0, "2 h"),
        (3 * 86_400, "3 d"),
    ],
)
def test_durations_have_the_largest_unit_of_which_there_are_two(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
