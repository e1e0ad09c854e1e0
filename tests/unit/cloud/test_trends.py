"""Lines through what wears: their slopes, how sure they are, and the day of the limit."""

from __future__ import annotations

import math
from datetime import date, timedelta
from typing import Final

import numpy as np
import pytest
from scipy.stats import theilslopes  # type: ignore[import-untyped]

from cloud.trends import Daily, Trend, theil_sen, trends

UNTIL: Final = date(2026, 9, 1)


@pytest.mark.parametrize("seed", range(20))
def test_the_line_is_that_of_others(seed: int) -> None:
    chance = np.random.default_rng(seed)
    n = int(chance.integers(6, 30))
    times = np.cumsum(chance.uniform(0.5, 2, n))
    # Noise that changes its sign has no memory, so that the interval is Sen's own.
    values = 0.1 * times + chance.uniform(0.2, 1, n) * (-1.0) ** np.arange(n)
    line = theil_sen(list(zip(times.tolist(), values.tolist(), strict=True)))
    theirs = theilslopes(values, times, alpha=0.95)
    assert line is not None
    assert (line.slope, line.low, line.high) == pytest.approx(
        (theirs.slope, theirs.low_slope, theirs.high_slope)
    )


def test_what_remembers_is_less_sure() -> None:
    times = [float(at) for at in range(24)]
    noise = [math.sin(at / 3) for at in times]
    turned = [noise[at * 7 % 24] for at in range(24)]
    slow, quick = (
        theil_sen([(at, 0.03 * at + each) for at, each in zip(times, given, strict=True)])
        for given in (noise, turned)
    )
    assert slow is not None
    assert quick is not None
    assert slow.high - slow.low > 1.5 * (quick.high - quick.low)
    assert not slow.is_sure


def test_two_wrong_weeks_change_little() -> None:
    values = [-0.25 * at for at in range(12)]
    values[4], values[9] = 40.0, -70.0
    line = theil_sen([(float(at), each) for at, each in enumerate(values)])
    assert line is not None
    assert line.slope == pytest.approx(-0.25)
    assert line.level == pytest.approx(0)
    assert line.is_sure
    assert theil_sen([(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]) is None
    assert theil_sen([(float(at), 7.0) for at in range(9)]) == (7.0, 0.0, 0.0, 0.0)


def of(kind: str, values: list[float], *, last: int = 1, channel: str = "a.wind_speed") -> list[Daily]:
    """Daily values, the newest so many days before ``UNTIL``."""
    first = UNTIL - timedelta(days=last + len(values) - 1)
    return [
        Daily("mast-07", channel, kind, first + timedelta(days=at), value, 10)
        for at, value in enumerate(values)
    ]


def only(daily: list[Daily]) -> Trend:
    [found] = trends(daily, UNTIL)
    return found


def test_the_day_of_the_limit() -> None:
    found = only(of("outbox", [10 + 3.0 * at for at in range(14)], channel=""))
    # The last day's middle was half a day ago.
    assert found.channel is None
    assert found.value == pytest.approx(50.5)
    assert found.a_month == pytest.approx(90.0)
    assert found.crosses == found.crosses_from == found.crosses_until == UNTIL + timedelta(days=13)
    assert (found.days_left, found.days, found.count) == (13, 14, 140)
    assert found.detail == "outbox 50.5 %, +90 a month: 90 % on 2026-09-14, by 14 days since 2026-08-18"
    # Not followed further than twice its length.
    assert only(of("outbox", [10 + 1.0 * at for at in range(14)], channel="")).crosses is None
    below = only(of("outbox", [60 - 3.0 * at for at in range(14)], channel=""))
    assert (below.crosses, below.days_left) == (None, None)
    beyond = only(of("outbox", [95.0] * 14, channel=""))
    assert (beyond.days_left, beyond.crosses_until) == (0, UNTIL)
    assert beyond.detail.startswith("outbox 95 %, +0 a month: past its limit of 90 %, by 14 days")


def test_a_line_that_may_not_get_there_gives_no_days() -> None:
    chance = np.random.default_rng(5)
    noisy = [float(50 + 0.7 * at + 12 * chance.normal()) for at in range(14)]
    found = only(of("outbox", noisy, channel=""))
    assert found.crosses is not None
    assert (found.crosses_until, found.days_left) == (None, None)
    assert "to never" in found.detail


def test_a_series_that_is_too_short_or_over() -> None:
    short = only(of("outbox", [10.0, 20.0, 30.0, 40.0], channel=""))
    assert (short.a_month, short.crosses, short.days_left) == (None, None, None)
    assert "no trend yet (4 days since" in short.detail
    assert list(trends(of("outbox", [10 + 3.0 * at for at in range(14)], last=4), UNTIL)) == []
    assert list(trends([], UNTIL)) == []
    assert list(trends(of("twins", [math.nan] * 60), UNTIL)) == []


def test_of_several_reports_of_a_day_the_last_counts() -> None:
    right = of("disk", [20_000 - 1000.0 * at for at in range(14)], channel="")
    wrong = [each._replace(value=7.0) for each in right]
    assert only([each for both in zip(wrong, right, strict=True) for each in both]) == only(right)


def twins(sectors: list[tuple[float, float]], wear: float, winds: list[int]) -> list[Daily]:
    """Ratios on 168 days: what each sector has, less the wear of a day; by ``winds`` the day's sector."""
    return [
        Daily("mast-07", "a.wind_speed", "twins", UNTIL - timedelta(days=168 - at),
              sectors[wind][1] * (1 - wear * max(0, at - 84)), 10, sectors[wind][0], "b.wind_speed")
        for at in range(168) for wind in (winds[at], (winds[at] + 1) % len(sectors))
    ]  # fmt: skip


def test_sectors_differ_and_seasons_have_their_own_winds() -> None:
    sectors = [(0.0, 1.015), (15.0, 0.99), (30.0, 1.0), (45.0, 0.8), (60.0, 1.01)]
    # The wind turns once from one sector to the last one.
    winds = [at // 34 for at in range(168)]
    calm, twin = trends(twins(sectors, 0.0, winds), UNTIL)
    assert (calm.channel, twin.channel) == ("a.wind_speed", "b.wind_speed")
    assert calm.value == pytest.approx(0, abs=0.05)
    assert calm.a_month == pytest.approx(0, abs=0.05)
    worn, other = trends(twins(sectors, 0.01 / 30, winds), UNTIL)
    assert worn.a_month == pytest.approx(-1.0, abs=0.1)
    assert worn.value == pytest.approx(-2.8, abs=0.2)
    assert worn.days_left is not None
    assert worn.days_left < 14
    assert other.days_left is None
    assert other.a_month == pytest.approx(1.0, abs=0.1)
