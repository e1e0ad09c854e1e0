"""Trends of what wears: of daily values a line, the day on which it gets to its limit, and how sure that is.

The line is Theil's and Sen's: the median of the slopes between all pairs of points, with Sen's confidence
interval of 95 % (Sen 1968, J. Am. Stat. Assoc. 63:1379), so a few days that are wrong change little. Points
are medians of some days each, for the weather of neighbouring days is alike; where residuals still are, the
variance of Kendall's S is inflated by (1 + r) / (1 - r), r of lag 1 (Yue and Wang 2004, Water Resour. Manag.
18:201).

The queries are in the SQL that DuckDB and Spark share, so commands and jobs have the same daily values. Pure.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from statistics import median, quantiles
from typing import Any, Final, NamedTuple

HISTORY_DAYS: Final = 180
"""What is looked at: the reference a value is compared with is in it."""
MONTH_DAYS: Final = 30
_FEWEST: Final = 5
"""Points of a line, at least: with fewer, no slope is sure at 95 %."""
_Z: Final = 1.96
_FURTHEST_DAYS: Final = 3650
"""Its flattest slope isn't followed further; the line itself no further than twice its length."""


class Line(NamedTuple):
    """A line through points: its value at time 0, and its slope with the bounds that hold at 95 %."""

    level: float
    slope: float
    low: float
    high: float

    @property
    def is_sure(self) -> bool:
        """Whether it rises, or falls, throughout its interval."""
        return self.low > 0 or self.high < 0


def theil_sen(points: Sequence[tuple[float, float]]) -> Line | None:
    """The line through points (time, value) of ascending times; None of fewer than five."""
    n = len(points)
    if n < _FEWEST:
        return None
    slopes = sorted((y - y0) / (x - x0) for at, (x, y) in enumerate(points) for x0, y0 in points[:at])
    slope = median(slopes)
    residuals = [y - slope * x for x, y in points]
    centre = median(residuals)
    left = [each - centre for each in residuals]
    squares = math.fsum(each * each for each in left)
    r = max(0.0, math.fsum(map(math.prod, pairwise(left))) / squares) if squares else 0.0
    ties = Counter(y for _, y in points).values()
    variance = (n * (n - 1) * (2 * n + 5) - sum(k * (k - 1) * (2 * k + 5) for k in ties)) / 18
    spread = _Z * math.sqrt(variance * (1 + r) / (1 - r))
    first, last = round((len(slopes) - spread) / 2) - 1, round((len(slopes) + spread) / 2)
    within = first >= 0 and last < len(slopes)
    low, high = (slopes[first], slopes[last]) if within else (-math.inf, math.inf)
    return Line(centre, slope, low, high)


@dataclass(frozen=True)
class Kind:
    """What may wear: ``limit`` of the value, below it or above; each point is of ``days`` days.

    A value that is ``relative`` is a change in % from its reference: the median of the first points of the
    history, or where it ``cleans`` or charges again, what a quarter of them reach.
    """

    name: str
    words: str
    unit: str
    limit: float
    is_below: bool
    days: int
    points: int = 10
    relative: bool = False
    cleans: bool = False


KINDS: Final[Mapping[str, Kind]] = {
    each.name: each
    for each in (
        # Two calibrations of a cup may differ by 0.1 m/s from 6 to 12 m/s (IEC 61400-12-1): 1 to 2 %.
        Kind("twins", "speed beside its twin", "%", -3.0, True, 7, relative=True),
        # Haze alone changes the clear sky by some percent from week to week.
        Kind("soiling", "clear-sky index", "%", -10.0, True, 7, relative=True, cleans=True),
        # A lead-acid battery of 12.7 V when full has 11.4 V when it is empty.
        Kind("supply", "lowest voltage of the day", "%", -10.0, True, 7, relative=True, cleans=True),
        Kind("charge", "lowest charge of the day", "%", 20.0, True, 7),
        Kind("errors", "readings that fail", "%", 10.0, False, 3),
        Kind("outbox", "outbox", "%", 90.0, False, 1, points=14),
        Kind("disk", "free disk", "MB", 200.0, True, 1, points=14),
    )
}
"""What trends are made of, by name."""


class Daily(NamedTuple):
    """A day's value of a mast's channel ('': of the whole mast), by ``n`` intervals or reports.

    Ratios to a ``twin`` are of the day's wind from one ``sector``.
    """

    gateway: str
    channel: str
    kind: str
    day: date
    value: float
    n: int
    sector: float = 0.0
    twin: str | None = None


@dataclass(frozen=True)
class Trend:
    """How a value changes: now, a month, and when it gets to its ``limit``; None is never, or not known.

    ``crosses`` is between ``crosses_from`` and ``crosses_until`` at 95 %. ``count`` intervals or reports of
    ``days`` days since ``since`` made it.
    """

    gateway: str
    channel: str | None
    kind: str
    day: date
    value: float
    reference: float | None
    unit: str
    a_month: float | None
    a_month_low: float | None
    a_month_high: float | None
    limit_value: float
    crosses: date | None
    crosses_from: date | None
    crosses_until: date | None
    since: date
    days: int
    count: int
    detail: str

    @property
    def days_left(self) -> int | None:
        """Days until the limit, 0 beyond it; None where it may never get there."""
        if self.crosses is None or self.crosses_until is None:
            return None
        return (self.crosses - self.day).days


def trends(daily: Iterable[Daily], until: date) -> Iterator[Trend]:
    """The trend of each series of daily values up to a day; of those that ended longer ago, none."""
    series: dict[tuple[str, str, str], dict[tuple[date, float], Daily]] = defaultdict(dict)
    for each in daily:
        if math.isfinite(each.value):
            # The last report of a day counts.
            series[each[:3]][each.day, each.sector] = each
            if each.twin is not None:
                turned = each._replace(channel=each.twin, value=1 / each.value)
                series[turned[:3]][each.day, each.sector] = turned
    for key in sorted(series):
        kind, days = KINDS[key[2]], [each for _, each in sorted(series[key].items())]
        if (until - days[-1].day).days < 2 * kind.days + 1:
            yield _trend(kind, days, until)


_SHADOW: Final = 0.04
"""Sectors whose ratio of twins is further from the others' lie in the tower's shadow (docs/numbers.md)."""


def _points(kind: Kind, days: Sequence[Daily], until: date) -> list[tuple[float, float]]:
    """The medians of some days each over time, which ends at 0, without what sectors differ by.

    Lattice and booms make sectors differ, and seasons have their own winds: the differences come from a
    median polish of the table of times and sectors (Tukey 1977).
    """
    cells: dict[int, dict[float, list[Daily]]] = defaultdict(lambda: defaultdict(list))
    for each in days:
        cells[((until - each.day).days - 1) // kind.days][each.sector].append(each)
    # A day alone is no week.
    fewest = min(kind.days, 6) / 3
    table = {
        at: {sector: median(each.value for each in part) for sector, part in row.items()}
        for at, row in sorted(cells.items(), reverse=True)
        if len({each.day for part in row.values() for each in part}) >= fewest
    }
    effects = dict.fromkeys((each.sector for each in days), 0.0)
    for _ in range(10):
        levels = {at: median(each - effects[by] for by, each in row.items()) for at, row in table.items()}
        for sector in effects:
            own = [row[sector] - levels[at] for at, row in table.items() if sector in row]
            effects[sector] = median(own) if own else 0.0
    middle = median(effects.values())
    free = {by: each - middle for by, each in effects.items() if abs(each - middle) <= _SHADOW}
    return [
        (-(at + 0.5) * kind.days, median(values))
        for at, row in table.items()
        if (values := [each - free[by] for by, each in row.items() if by in free])
    ]


def _trend(kind: Kind, days: Sequence[Daily], until: date) -> Trend:
    found = _points(kind, days, until) or [(0.0, days[-1].value)]
    values, reference = [value for _, value in found], None
    if kind.relative:
        cleaned = kind.cleans and len(values) > 1
        reference = quantiles(values, n=4)[2] if cleaned else median(values[:4])
        values = [100 * (each / reference - 1) for each in values]
    length = kind.points * kind.days
    recent = [(at, value) for (at, _), value in zip(found, values, strict=True) if at > -length]
    # A change from a reference that is half of the line would be the weather's.
    line = theil_sen(recent) if len(recent) >= 8 or not kind.relative else None
    within = [each for each in days if (until - each.day).days <= length] or [days[-1]]
    level = line.level if line else values[-1]
    crosses, begin, end = _crossing(kind, level, line, until)
    bounds = line[1:] if line else (math.nan,) * 3
    slope, low, high = (each * MONTH_DAYS if math.isfinite(each) else None for each in bounds)
    first, count = within[0].day, len({each.day for each in within})
    return Trend(
        days[-1].gateway, days[-1].channel or None, kind.name, until, level, reference, kind.unit,
        slope, low, high, kind.limit, crosses, begin, end, first, count, sum(each.n for each in within),
        _words(kind, (level, slope, crosses, begin, end), until, f"{count} days since {first}"),
    )  # fmt: skip


def _crossing(
    kind: Kind, level: float, line: Line | None, until: date
) -> tuple[date | None, date | None, date | None]:
    """When the line gets to the limit, and when its steepest and its flattest slope do."""
    if line is None:
        return None, None, None
    to_go = level - kind.limit if kind.is_below else kind.limit - level
    if to_go <= 0:
        return until, until, until
    towards = sorted(-each if kind.is_below else each for each in (line.low, line.slope, line.high))
    flat, likely, steep = (to_go / each if each > 0 else math.inf for each in towards)
    if likely > 2 * kind.points * kind.days:
        return None, None, None
    days = (likely, steep, min(flat, _FURTHEST_DAYS + 1))
    first, begin, end = (until + timedelta(days=each) for each in days)
    return first, begin, end if flat <= _FURTHEST_DAYS else None


def _words(kind: Kind, trend: tuple[Any, ...], until: date, evidence: str) -> str:
    level, a_month, crosses, begin, end = trend
    text = f"{kind.words} {level:{'+' * kind.relative}.3g} {kind.unit}"
    if a_month is None:
        return f"{text}: no trend yet ({evidence})"
    text += f", {a_month:+{'.0f' if abs(a_month) >= 10 else '.2g'}} a month"
    if crosses == until:
        text += f": past its limit of {kind.limit:g} {kind.unit}"
    elif crosses is not None:
        text += f": {kind.limit:g} {kind.unit} on {crosses}"
        text += f" ({begin or '…'} to {end or 'never'})" if begin != end else ""
    return f"{text}, by {evidence}"


def queries(until: date, gateway: str | None = None) -> Mapping[str, str]:
    """SQL of daily values as ``Daily`` has them, but for ``reports``, whose rows ``reported`` takes.

    Of the days before and without ``until``, of all masts or one. Each reads tables that the lake may lack:
    ``statistics`` and ``channels``, for ``soiling`` ``sites`` too, for ``reports`` ``health``.
    """
    values = {
        "since": f"DATE '{until - timedelta(days=HISTORY_DAYS)}'",
        "until": f"DATE '{until}'",
        "whose": "true" if gateway is None else "gateway = '{}'".format(gateway.replace("'", "''")),
    }
    found = {name: sql if name == "reports" else _COMMON + sql for name, sql in _QUERIES.items()}
    return {name: sql.format(**values) for name, sql in found.items()}


_FIRST: Final = "TIMESTAMP '1970-01-01 00:00:00'"
_COMMON: Final = f"""WITH records AS (
        SELECT gateway, channel, quantity, pair, height_m, settings['tilt_deg'] AS tilt,
            coalesce(valid_from, {_FIRST}) AS since, row_number() OVER (
                PARTITION BY gateway, channel ORDER BY valid_from DESC NULLS LAST, updated_at DESC) AS place
        FROM channels WHERE {{whose}} AND coalesce(valid_from, {_FIRST}) < {{until}}
    ), valid AS (
        SELECT gateway, channel, quantity, interval_s, interval_start, date, avg, sd FROM statistics
        WHERE {{whose}} AND date >= {{since}} AND date < {{until}} AND version > 0
            AND coalesce(recovery, 1.0) >= 0.5 AND avg BETWEEN -1000.0 AND 3000.0
    )"""  # noqa: S608 - texts of ours
"""Each channel's newest record, with the time since which it is in force, and valid intervals."""
_QUERIES: Final = {
    "twins": """, pairs AS (
        SELECT DISTINCT a.gateway, least(a.channel, b.channel) AS cup, greatest(a.channel, b.channel) AS twin,
            greatest(a.since, b.since) AS since, coalesce(a.height_m, 0.0) AS height_m
        FROM records AS a JOIN records AS b
            ON a.gateway = b.gateway AND b.channel = concat(a.pair, '.', a.quantity)
        WHERE a.place = 1 AND b.place = 1 AND a.quantity = 'wind_speed'
    ), vanes AS (
        SELECT pairs.*, v.channel AS vane, row_number() OVER (PARTITION BY pairs.gateway, cup, twin
            ORDER BY abs(coalesce(v.height_m, 0.0) - pairs.height_m), v.channel) AS place
        FROM pairs LEFT JOIN records AS v
            ON v.gateway = pairs.gateway AND v.quantity = 'wind_direction' AND v.place = 1
    ), ratios AS (
        SELECT p.gateway, p.cup, p.twin, s.date AS day, s.avg / t.avg AS ratio,
            CAST(coalesce(floor(v.avg / 15.0), -1) AS DOUBLE) AS sector
        FROM vanes AS p
        JOIN valid AS s ON s.gateway = p.gateway AND s.channel = p.cup
        JOIN valid AS t ON t.gateway = p.gateway AND t.channel = p.twin
            AND t.interval_s = s.interval_s AND t.interval_start = s.interval_start
        LEFT JOIN valid AS v ON v.gateway = p.gateway AND v.channel = p.vane
            AND v.interval_s = s.interval_s AND v.interval_start = s.interval_start
        WHERE p.place = 1 AND s.interval_start >= p.since AND s.avg > 4.0 AND t.avg > 4.0
    )
    SELECT gateway, cup AS channel, 'twins' AS kind, day, median(ratio) AS value, count(*) AS n, sector, twin
    FROM ratios GROUP BY gateway, cup, twin, day, sector HAVING count(*) >= 3""",
    # Clear sky by Haurwitz (1945, J. Meteorol. 2:154): 1098 cos z exp(-0.057 / cos z) W/m2; declination and
    # equation of time by Masters (2004, Renewable and Efficient Electric Power Systems, 7.6 and 7.12). Clear
    # is what is steady; what is steady and far below it is overcast.
    "soiling": """, places AS (
        SELECT gateway, latitude, longitude, row_number() OVER (
            PARTITION BY gateway ORDER BY valid_from DESC) AS place
        FROM sites WHERE valid_from < {until} AND latitude IS NOT NULL AND longitude IS NOT NULL
    ), times AS (
        SELECT v.gateway, v.channel, v.date AS day, v.avg, v.sd, radians(latitude) AS phi, longitude,
            radians(23.45 * sin(radians(360.0 * (dayofyear(v.date) - 81) / 365.0))) AS delta,
            radians(360.0 * (dayofyear(v.date) - 81) / 364.0) AS b,
            hour(v.interval_start) + minute(v.interval_start) / 60.0 + v.interval_s / 7200.0 AS utc
        FROM valid AS v JOIN places AS p ON p.gateway = v.gateway AND p.place = 1
        LEFT JOIN records AS r ON r.gateway = v.gateway AND r.channel = v.channel AND r.place = 1
        WHERE v.quantity = 'irradiance' AND v.avg > 200.0 AND (r.since IS NULL OR v.interval_start >= r.since)
            AND coalesce(r.tilt, '0') IN ('0', '0.0', 'null')
    ), heights AS (
        SELECT gateway, channel, day, avg, sd, sin(phi) * sin(delta) + cos(phi) * cos(delta) * cos(radians(
            15.0 * (utc - 12.0) + longitude + (9.87 * sin(2.0 * b) - 7.53 * cos(b) - 1.5 * sin(b)) / 4.0
            )) AS cos_z
        FROM times
    ), clear AS (
        SELECT gateway, channel, day, avg / (1098.0 * cos_z * exp(-0.057 / cos_z)) AS ratio FROM heights
        WHERE cos_z > 0.5 AND coalesce(sd, 0.0) <= 0.02 * avg
    )
    SELECT gateway, channel, 'soiling' AS kind, day, median(ratio) AS value, count(*) AS n
    FROM clear WHERE ratio BETWEEN 0.65 AND 1.25 GROUP BY gateway, channel, day HAVING count(*) >= 3""",
    "supply": """SELECT v.gateway, v.channel,
        CASE v.quantity WHEN 'voltage' THEN 'supply' ELSE 'charge' END AS kind,
        v.date AS day, min(v.avg) AS value, count(*) AS n
    FROM valid AS v
    LEFT JOIN records AS r ON r.gateway = v.gateway AND r.channel = v.channel AND r.place = 1
    WHERE v.quantity IN ('voltage', 'battery_level') AND (r.since IS NULL OR v.interval_start >= r.since)
    GROUP BY v.gateway, v.channel, v.quantity, v.date HAVING min(v.avg) > 0.0""",
    # A clock that is ahead would make reports of days to come.
    "reports": """SELECT gateway, CAST(least(time, kafka_time) AS DATE) AS day, recovery,
        1e2 * outbox_bytes / nullif(outbox_max_bytes, 0) AS outbox, disk_free_bytes / 1e6 AS disk
    FROM health WHERE {whose} AND date >= {since} AND date < {until} AND daemon IS NULL
    ORDER BY least(time, kafka_time)""",
}


def reported(
    rows: Iterable[tuple[str, date, Mapping[str, float | None] | None, float | None, float | None]],
) -> Iterator[Daily]:
    """The daily values of rows of daily reports, as ``reports`` selects them."""
    for gateway, day, recovery, outbox, disk in rows:
        for channel, share in dict(recovery or {}).items():
            if share is not None:
                yield Daily(gateway, channel, "errors", day, 100 * (1 - share), 1)
        for kind, value in (("outbox", outbox), ("disk", disk)):
            if value is not None:
                yield Daily(gateway, "", kind, day, value, 1)
