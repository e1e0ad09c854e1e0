"""The numbers of each of a mast's charts: sums of the lake's tables and of the wind's macros."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cloud.errors import CloudError
from cloud.lake.mast import DAY_MS, Channel, Mast, stretches
from cloud.lake.reader import Frame, LakeReader, MastSlice, Missing, Span

POINTS: Final = 800
"""Buckets a series is made of: as many as a wide screen shows apart."""
MOST_LINES: Final = 300_000
"""The bound of a page's file, which is made in memory: five years of ten minutes are less."""


@dataclass(frozen=True)
class View:
    """What a mast's charts are about: a span of statistics, the channel chosen, and what goes with it."""

    mast: Mast
    reader: LakeReader
    span: Span
    channel: Channel

    @property
    def held(self) -> MastSlice:
        """The statistics; an open page that nobody looks at must not keep them in memory."""
        return self.reader.slice(self.span)

    @property
    def cup(self) -> Channel | None:
        """The channel chosen if it is a cup, else the highest."""
        return self._chosen_or_first("wind_speed")

    @property
    def twin(self) -> str | None:
        """The cup's, by name."""
        return self.cup.twin if self.cup else None

    @property
    def vane(self) -> Channel | None:
        """The one nearest to the cup."""
        return self.mast.vane_for(self.cup)

    @property
    def gauge(self) -> Channel | None:
        """The channel chosen if it is a rain gauge, else the first."""
        return self._chosen_or_first("precipitation")

    @property
    def sun(self) -> Channel | None:
        """The highest pyranometer."""
        return next(iter(self.mast.of("irradiance")), None)

    def _chosen_or_first(self, quantity: str) -> Channel | None:
        if self.channel.quantity == quantity:
            return self.channel
        return next(iter(self.mast.of(quantity)), None)

    def need(self, **channels: Channel | None) -> list[str]:
        """Names of channels, given by their quantity. Raises Missing where the mast has one of them not."""
        for quantity, each in channels.items():
            if each is None:
                driver = MEASURED_BY.get(quantity)
                sensor = f' with driver = "{driver}"' if driver else ""
                raise Missing(
                    f"This mast has no channel of {quantity}: a [[sensor]]{sensor} in its gateway.toml "
                    "measures it, a [[channel]] in the mapping of fieldgate import brings it in."
                )
        return [each.name for each in channels.values() if each is not None]

    def need_pair(self) -> tuple[Channel, str]:
        """The cup and its twin's name. Raises Missing."""
        cup = self.cup
        self.need(wind_speed=cup)
        if cup is None or cup.twin is None:
            raise Missing(
                f'{cup.name if cup else "The cup"} has no twin: pair = "NAME" in its [[sensor]] of '
                "gateway.toml, or in its [[channel]] of an import's mapping, names the redundant sensor."
            )
        return cup, cup.twin


MEASURED_BY: Final = {
    "wind_speed": "hall-anemometer",
    "wind_direction": "wind-vane",
    "irradiance": "pyranometer",
    "precipitation": "pulse",
}
"""The driver of a gateway that measures a quantity; others can too."""


def series(view: View, channel: str, begin_ms: int, end_ms: int, points: int = POINTS) -> Frame:
    """A channel over time in at most so many buckets: mean, lowest, highest, and shares of quality.

    Means are weighted by samples, of directions those of vectors; ``accumulated`` ones are sums. A bucket
    without a value is null, as is one without a row.
    """
    step = 1000 * view.span.interval_s
    step *= max(1, math.ceil((end_ms - begin_ms) / step / points))
    phase = view.held.phase_ms
    kind = next((each.kind for each in view.mast.channels if each.name == channel), "linear")
    value = {"direction": VECTOR_MEAN, "accumulated": "sum(sum)"}.get(
        kind, "sum(avg * count) / nullif(sum(count) FILTER (avg IS NOT NULL), 0)"
    )
    return view.held.read(
        f"""WITH buckets AS (
            SELECT (epoch_ms(interval_start) - {phase}) // {step} * {step} + {phase} AS time,
                {value} AS value, min(min) AS low, max(max) AS high, sum(n_good) AS good,
                sum(n_not_evaluated) AS not_evaluated, sum(n_suspect) AS suspect, sum(n_fail) AS fail,
                sum(expected) AS due
            FROM statistics WHERE channel = ? AND epoch_ms(interval_start) >= {begin_ms} AND
                epoch_ms(interval_start) < {end_ms} GROUP BY ALL
        )
        SELECT range AS time, value, low, high, good / due AS good, not_evaluated / due AS not_evaluated,
            suspect / due AS suspect, fail / due AS fail
        FROM range({(begin_ms - phase) // step * step + phase}, {end_ms}, {step})
        LEFT JOIN buckets ON time = range
        ORDER BY 1""",  # noqa: S608 - numbers and texts of ours
        [channel],
    )


def each_interval(view: View) -> Frame:
    """The channel over the span as ``series``, a row for each interval but those of ``stretches``' long gaps.

    Raises CloudError where there are more than MOST_LINES.
    """
    step = 1000 * view.span.interval_s
    parts = _parts(view)
    lines = sum((end_ms - begin_ms) // step for begin_ms, end_ms in parts)
    if lines > MOST_LINES:
        raise CloudError(
            f"The time has {lines:,} intervals, more than the {MOST_LINES:,} of a page's file: choose a "
            "shorter one by from= and to=, or let fieldgate export write them."
        )
    frames = [series(view, view.channel.name, begin_ms, end_ms, lines + 1) for begin_ms, end_ms in parts]
    return Frame(frames[0].columns, [row for frame in frames for row in frame.rows])


def _parts(view: View) -> tuple[tuple[int, int], ...]:
    """The span without the mast's long gaps, on the intervals' grid; an empty part without any."""
    span, step, phase = view.span, 1000 * view.span.interval_s, view.held.phase_ms
    begin_ms = -((phase - span.begin_ms) // step) * step + phase
    starts = (
        f"SELECT (epoch_ms(interval_start) - {phase}) // {step} * {step} + {phase} AS start FROM statistics"  # noqa: S608
    )
    return stretches(view.held.read, starts, begin_ms, span.end_ms, step) or ((begin_ms, begin_ms),)


VECTOR_MEAN: Final = (
    "(degrees(atan2(sum(sin(radians(avg)) * count), sum(cos(radians(avg)) * count))) + 360.0) % 360.0"
)
"""Mean direction of rows of statistics, weighted by samples."""


def wind_rose(view: View) -> Frame:
    """Share of intervals by sector and class of speed, 3 m/s wide."""
    cup, vane = view.need(wind_speed=view.cup, wind_direction=view.vane)
    return view.held.read(
        """WITH placed AS (FROM by_sector($1, $2, 16) WHERE speed + direction IS NOT NULL)
        SELECT sector, least(floor(speed / 3) * 3, 15) AS from_mps, count(*) AS intervals,
            count(*) / (SELECT count(*) FROM placed) AS share, avg(speed) AS mean_speed
        FROM placed GROUP BY ALL ORDER BY ALL""",
        [cup, vane],
    )


def distribution(view: View) -> Frame:
    """Share of intervals by speed, in bins of 1 m/s, and that of the Weibull distribution."""
    (cup,) = view.need(wind_speed=view.cup)
    (moments,) = view.held.read(f"SELECT avg(avg), avg(avg ** 3) {VALID}", [cup]).rows
    fitted = weibull(*moments)
    rows = view.held.read(
        f"SELECT floor(avg) AS from_mps, count(*) AS intervals, count(*) / sum(count(*)) OVER () AS share "
        f"{VALID} GROUP BY ALL ORDER BY 1",
        [cup],
    ).rows
    counted = {row[0]: row for row in rows}
    bins = [counted.get(float(at), (float(at), 0, 0.0)) for at in range(int(max(counted, default=-1)) + 1)]
    cumulated = [_weibull_below(row[0] + 1, fitted) - _weibull_below(row[0], fitted) for row in bins]
    return Frame(
        ("from_mps", "intervals", "share", "weibull_share", "weibull_a_mps", "weibull_k", "mean_mps"),
        [
            (*row, share, *(fitted or (None, None)), moments[0])
            for row, share in zip(bins, cumulated, strict=True)
        ],
    )


IS_COVERED: Final = "version > 0 AND recovery >= 0.5"
"""Closed intervals with half of their samples and more."""
IS_VALID: Final = f"{IS_COVERED} AND avg IS NOT NULL"
"""Closed intervals with a value of half of their samples and more."""
LOWEST_M: Final = 0.1
"""A cup below it isn't one that a profile is made of."""
VALID: Final = f"FROM statistics WHERE channel = ? AND {IS_VALID}"


def weibull(mean: float | None, mean_cube: float | None) -> tuple[float, float] | None:
    """Scale A (m/s) and shape k of the Weibull distribution with this mean and mean cube (method m1/m3).

    None where there is none with k from 0.5 to 15.
    """
    if mean is None or mean_cube is None or mean <= 0 or mean_cube <= 0:
        return None

    def log_ratio(k: float) -> float:
        return math.lgamma(1 + 3 / k) - 3 * math.lgamma(1 + 1 / k)

    target, low, high = math.log(mean_cube / mean**3), 0.5, 15.0
    if not log_ratio(high) <= target <= log_ratio(low):
        return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if log_ratio(middle) > target else (low, middle)
    return mean / math.gamma(1 + 1 / low), low


def _weibull_below(speed: float, fitted: tuple[float, float] | None) -> float:
    return math.nan if fitted is None else -math.expm1(-((speed / fitted[0]) ** fitted[1]))


def diurnal(view: View) -> Frame:
    """The channel by hour of the site's day, and by month where there are several.

    Directions have no band: about north they have no order.
    """
    is_direction = view.channel.is_direction
    mean = VECTOR_MEAN if is_direction else "avg(avg)"
    low, high = ("NULL", "NULL") if is_direction else (f"quantile_cont(avg, {at})" for at in (0.1, 0.9))
    return view.held.read(
        f"""SELECT strftime(local, '%Y-%m') AS month, hour(local) AS hour, {mean} AS mean,
            {low} AS p10, {high} AS p90, count(*) AS intervals
        FROM (SELECT *, (interval_start + to_minutes({view.mast.offset_min}))::TIMESTAMP AS local {VALID})
        GROUP BY month, hour ORDER BY month, hour""",  # noqa: S608 - numbers and texts of ours
        [view.channel.name],
    )


def recovery(view: View) -> Frame:
    """Recovery of each channel on each day, UTC."""
    return view.held.read(
        "SELECT channel, strftime(interval_start::TIMESTAMP, '%Y-%m-%d') AS day, avg(recovery) AS recovery, "
        "sum(count)::BIGINT AS samples FROM statistics WHERE version > 0 GROUP BY ALL ORDER BY ALL"
    )


def shear(view: View) -> Frame:
    """Mean speed at each height where every cup was above 3 m/s, and the mean of ``mast``'s exponents."""
    cups = [each for each in view.mast.of("wind_speed") if (each.height_m or 0.0) >= LOWEST_M]
    primary = {each.height_m or 0.0: each for each in reversed(cups)}
    if len(primary) < 2:
        has = ", ".join(f"{each.name} at {each.height_m:g} m" for each in cups) or "none with a height"
        raise Missing(
            f"Shear needs cups at two heights or more; this mast has {has}. height_m in each [[sensor]] of "
            "gateway.toml, or [[channel]] of an import's mapping, names it; table channels has it."
        )
    names = [each.name for each in primary.values()]
    alpha = view.held.read("SELECT avg(shear_alpha), count(shear_alpha) FROM mast").rows[0]
    means = dict(
        view.held.read(
            """WITH together AS (
                SELECT interval_start FROM statistics WHERE list_contains($1, channel) AND version > 0
                GROUP BY ALL HAVING count(avg) = len($1) AND min(avg) > 3
            )
            SELECT channel, avg(avg) FROM statistics JOIN together USING (interval_start)
            WHERE list_contains($1, channel) GROUP BY channel""",
            [names],
        ).rows
    )
    rows = [
        (height, primary[height].name, means.get(primary[height].name), *alpha) for height in sorted(primary)
    ]
    return Frame(("height_m", "channel", "mean_speed", "shear_alpha", "intervals"), rows)


def turbulence(view: View) -> Frame:
    """Turbulence intensity by bins of 1 m/s: mean and 90th percentile of ``mast``'s, above 3 m/s."""
    (cup,) = view.need(wind_speed=view.cup)
    return view.held.read(
        """SELECT floor(avg + 0.5) AS speed_mps, avg(ti) AS mean, quantile_cont(ti, 0.9) AS p90, count(*)
        AS intervals
        FROM (SELECT interval_start, turbulence_intensity[$1] AS ti FROM mast)
        JOIN statistics USING (interval_start)
        WHERE channel = $1 AND ti IS NOT NULL AND avg > 3 GROUP BY ALL HAVING count(*) >= 3 ORDER BY 1""",
        [cup],
    )


IEC_CLASSES: Final = (("A", 0.16), ("B", 0.14), ("C", 0.12))
"""IEC 61400-1's classes of turbulence by their reference intensity at 15 m/s."""


def iec_turbulence(at_15: float, speed_mps: float) -> float:
    """Intensity by IEC 61400-1's normal turbulence model."""
    return at_15 * (0.75 + 5.6 / speed_mps)


def pair(view: View) -> Frame:
    """A cup and its twin in up to 1,500 intervals."""
    cup, twin = view.need_pair()
    return view.held.read(
        """SELECT epoch_ms(interval_start) AS time, one.avg AS cup, other.avg AS twin
        FROM statistics AS one JOIN statistics AS other USING (interval_start)
        WHERE one.channel = $1 AND other.channel = $2 AND one.avg IS NOT NULL AND other.avg IS NOT NULL
        ORDER BY hash(interval_start) LIMIT 1500""",
        [cup.name, twin],
    )


def shadow(view: View) -> Frame:
    """The ratio of twins by sector, relative to its median (``tower_shadow``)."""
    cup, twin = view.need_pair()
    (vane,) = view.need(wind_direction=view.vane)
    return view.held.read(
        "SELECT sector, intervals, ratio, relative, shadowed FROM tower_shadow($1, $2, $3) ORDER BY sector",
        [cup.name, twin, vane],
    )


def sun(view: View) -> Frame:
    """Irradiance by time of the site's day: of each day, and of all of them the mean and the highest."""
    (name,) = view.need(irradiance=view.sun)
    return view.held.read(
        f"""SELECT strftime(local, '%Y-%m-%d') AS day, hour(local) + minute(local) / 60 AS hour, avg AS value,
            avg(avg) OVER by_time AS mean, max(avg) OVER by_time AS highest
        FROM (SELECT *, (interval_start + to_minutes({view.mast.offset_min}))::TIMESTAMP AS local {VALID})
        WINDOW by_time AS (PARTITION BY hour(local), minute(local)) ORDER BY ALL""",  # noqa: S608 - numbers and texts of ours
        [name],
    )


def insolation(view: View) -> Frame:
    """Sums of ``mast``'s insolation by the site's day."""
    view.need(irradiance=view.sun)
    return view.held.read(
        f"""SELECT strftime((interval_start + to_minutes({view.mast.offset_min}))::TIMESTAMP, '%Y-%m-%d')
        AS day,
            sum(insolation) AS insolation_wh_m2, count(insolation) AS intervals
        FROM mast GROUP BY ALL HAVING count(insolation) > 0 ORDER BY ALL"""  # noqa: S608 - a number of ours
    )


def rain(view: View) -> Frame:
    """Sums of a rain gauge by the site's hour, in spans of more than a week by its day; null without a value.

    ``intervals`` have a value, of so many that are ``due``; ``time`` is the hour's or day's begin, ``local``
    that by the site's clock.
    """
    (name,) = view.need(precipitation=view.gauge)
    span, step = view.span, 1000 * view.span.interval_s
    length = 3_600_000 if span.end_ms - span.begin_ms <= 7 * DAY_MS else DAY_MS
    # A day begins at the site's midnight; an hour too, where local time is ahead by 5:45.
    ahead = 60_000 * view.mast.offset_min
    parts = ", ".join(map(str, _parts(view)))
    place = f"(start + {ahead}) // {length} * {length} - {ahead}"
    return view.held.read(
        f"""SELECT {place} AS time, sum(sum) AS sum_mm, count(sum) AS intervals, count(*) AS due,
            strftime(make_timestamp(1000 * (time + {ahead})), '%Y-%m-%d %H:%M') AS local
        FROM (SELECT unnest(range(first, until, {step})) AS start FROM (VALUES {parts}) AS part(first, until))
        LEFT JOIN (SELECT epoch_ms(interval_start) AS start, sum FROM statistics WHERE channel = ?)
            USING (start)
        GROUP BY ALL ORDER BY 1""",  # noqa: S608 - numbers and texts of ours
        [name],
    )


CHARTS: Final[dict[str, Callable[[View], Frame]]] = {
    "wind-rose": wind_rose, "distribution": distribution, "diurnal": diurnal, "shear": shear,
    "turbulence": turbulence, "pair": pair, "shadow": shadow, "irradiance": sun, "insolation": insolation,
    "rain": rain, "recovery": recovery,
}  # fmt: skip
"""The numbers of each chart, by its name in the CSV's address."""


def channels_of(view: View, name: str) -> list[str]:
    """The channels that a chart is made of by the choice of one; none of charts of the whole mast."""
    cup, vane = view.cup, view.vane
    named: tuple[Channel | None, ...] = {
        "wind-rose": (cup, vane), "distribution": (cup,), "turbulence": (cup,), "diurnal": (view.channel,),
        "series": (view.channel,), "pair": (cup,), "shadow": (cup, vane), "irradiance": (view.sun,),
        "rain": (view.gauge,),
    }.get(name, ())  # fmt: skip
    texts = [each.name for each in named if each is not None]
    if name in ("pair", "shadow") and view.twin:
        texts.insert(1, view.twin)
    return texts


def subject(view: View, name: str) -> str:
    """What a chart is of: its channels, in words."""
    texts = channels_of(view, name)
    if name == "wind-rose":
        texts.append("16 sectors")
    return ", ".join(texts) or {"shear": "cups", "recovery": "all channels"}.get(name, "mast")


def summary(view: View) -> Frame:
    """The span in numbers: wind of the cup, and means of ``mast``; those that can't be had are null."""
    cup = view.cup
    of_mast = "NULL, NULL, NULL, NULL"
    if view.held.has_mast:
        of_mast = (
            "(SELECT avg(turbulence_intensity[$1]) FROM mast), (SELECT avg(shear_alpha) FROM mast), "
            "(SELECT avg(air_density) FROM mast), (SELECT sum(insolation) FROM mast)"
        )
    rows = view.held.read(
        f"""SELECT avg(avg) FILTER (recovery >= 0.5), max(gust), max(max),
            (SELECT avg(recovery) FROM statistics WHERE version > 0), {of_mast}
        FROM statistics WHERE channel = $1 AND version > 0""",  # noqa: S608 - texts of ours
        [cup.name if cup else ""],
    ).rows
    return Frame(("mean", "gust", "highest", "recovery", "ti", "alpha", "density", "insolation"), rows)
