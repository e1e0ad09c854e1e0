"""The numbers of a report, as rows: sums of one period's statistics and of the lake's other tables."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from cloud.errors import CloudError
from cloud.lake.mast import Channel, Mast, newest_by, records_in_force, utc_offset, within
from cloud.lake.numbers import IS_VALID, VECTOR_MEAN, View, diurnal, shear, weibull
from cloud.lake.reader import STEEPEST, Frame, LakeReader, Missing
from cloud.lake.tables import IN_FORCE, WHOLE_MAST


def calibrations(reader: LakeReader, gateway: str, period: Period) -> list[dict[str, Any]]:
    """Records of channels that were in force in the period, each with its ``periods`` in it (from, to).

    A beginning or an end outside the period, or unknown, is None. Raises Missing, LakeError.
    """
    found = records_in_force(reader, gateway, period.begin_ms, period.end_ms)
    for row in found:
        row["periods"] = [
            (
                begin if begin and begin > period.begin_ms else None,
                end if end and end < period.end_ms else None,
            )
            for begin, end in row["spans"]
        ]
    return found


def flagged(reader: LakeReader, gateway: str, period: Period, interval_s: int) -> Frame:
    """Periods of intervals next to each other with flagged readings of one channel and reason; longest first.

    Quality 3, 4 and 9; ``readings`` is their number, ``worst`` the worst flag. Raises Missing, LakeError.
    """
    step = 1000 * interval_s
    return reader.read(
        "readings",
        f"""WITH flagged AS (
            SELECT channel, epoch_ms(time) // {step} AS slot, quality,
                unnest(if(len(coalesce(reasons, [])) = 0, ['no reason'], reasons)) AS reason
            FROM readings
            WHERE gateway = ? AND quality > 2 AND {within("time", period.begin_ms, period.end_ms)}
        ), slots AS (
            SELECT channel, reason, slot, count(*) AS readings, max(quality) AS worst
            FROM flagged GROUP BY ALL
        ), islands AS (
            SELECT *, slot - row_number() OVER (PARTITION BY channel, reason ORDER BY slot) AS island
            FROM slots
        )
        SELECT channel, reason, min(slot) * {step} AS begin_at, (max(slot) + 1) * {step} AS end_at,
            sum(readings)::BIGINT AS readings, max(worst) AS worst, count(*) AS intervals
        FROM islands GROUP BY channel, reason, island
        ORDER BY intervals DESC, begin_at, channel, reason""",  # noqa: S608 - numbers and texts of ours
        [gateway],
    )


def runs(reader: LakeReader, gateway: str, period: Period) -> list[dict[str, Any]]:
    """Runs of the gateway that reach into the period, and what they dropped, by reason."""
    return reader.read(
        "runs",
        "SELECT run, state, outbox_records, drops_unknown, map_entries(dropped_records) AS drops, "
        "epoch_ms(started) AS begin_at, epoch_ms(ended) AS end_at FROM runs "
        "WHERE gateway = ? AND started::TIMESTAMP < make_timestamp(?) "
        "AND (ended IS NULL OR ended::TIMESTAMP >= make_timestamp(?)) ORDER BY started",
        [gateway, 1000 * period.end_ms, 1000 * period.begin_ms],
    ).dicts()


def losses(reader: LakeReader, gateway: str) -> Frame:
    """Readings that are missing for good, by channel, of all runs until now."""
    return reader.read(
        "presence",
        "SELECT channel, pending, announced, lost FROM presence WHERE gateway = ? AND lost + announced > 0 "
        "ORDER BY channel",
        [gateway],
    )


def alerts(reader: LakeReader, gateway: str, period: Period) -> Frame:
    """Alerts that stood in the period, the first raised first."""
    return reader.read(
        "alerts",
        "SELECT rule, severity, channel, epoch_ms(raised_at) AS begin_at, epoch_ms(cleared_at) AS end_at, "
        "value, detail, historical FROM alerts "
        "WHERE gateway = ? AND raised_at::TIMESTAMP < make_timestamp(?) "
        "AND (cleared_at IS NULL OR cleared_at::TIMESTAMP >= make_timestamp(?)) ORDER BY raised_at, rule",
        [gateway, 1000 * period.end_ms, 1000 * period.begin_ms],
    )


def cleaning(reader: LakeReader, view: PeriodView) -> Frame:
    """Marks of the cleaning log that reach into the period, and how many valid intervals each covers.

    Raises Missing, LakeError.
    """
    period, gateway = view.period, view.mast.gateway
    found = reader.read(
        "cleaning",
        f"""SELECT channel, epoch_ms("begin") AS begin_at, epoch_ms("end") AS end_at, reason, author
        FROM ({IN_FORCE}) WHERE gateway = ? AND "begin"::TIMESTAMP < make_timestamp(?)
            AND ("end" IS NULL OR "end"::TIMESTAMP > make_timestamp(?)) ORDER BY "begin", channel""",  # noqa: S608
        [gateway, 1000 * period.end_ms, 1000 * period.begin_ms],
    )
    step = 1000 * view.span.interval_s
    counted = [
        view.read(
            f"""SELECT count(*) FROM statistics WHERE {IS_VALID}
            AND ($1 IN ('{WHOLE_MAST}', channel) OR starts_with(channel, $1 || '.'))
            AND epoch_ms(interval_start) + {step} > $2 AND epoch_ms(interval_start) < $3""",  # noqa: S608
            channel, begin, period.end_ms if end is None else end,
        ).rows[0][0]
        for channel, begin, end, _, _ in found.rows
    ]  # fmt: skip
    return Frame(
        (*found.columns, "intervals"), [(*row, n) for row, n in zip(found.rows, counted, strict=True)]
    )


def means_without_marks(view: PeriodView) -> Frame:
    """Mean of each linear channel of which intervals are marked, with them and without."""
    sql = f"SELECT channel, avg(avg), count(*) FROM statistics WHERE {IS_VALID} GROUP BY ALL ORDER BY ALL"  # noqa: S608
    clean = replace(view, span=replace(view.span, is_clean=True))
    without = {channel: (mean, count) for channel, mean, count in clean.read(sql).rows}
    around = {each.name for each in view.mast.channels if each.is_direction}
    found = []
    for channel, mean, count in view.read(sql).rows:
        left_mean, left = without.get(channel, (None, 0))
        if left < count and channel not in around:
            found.append((channel, mean, left_mean, count, count - left))
    return Frame(("channel", "with_marked", "without", "intervals", "marked"), found)


HALF_A_DAY_MS: Final = 14 * 3_600_000
"""No place on Earth is further from UTC."""
PERIOD_NAMES: Final = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}
"""How periods are named of a day in them, as strftime has it."""


@dataclass(frozen=True)
class Period:
    """A day, an ISO 8601 week or a month; local time is ``offset_min`` minutes ahead of UTC.

    ``first`` is its first day, ``after`` the next period's. Moments are milliseconds, UTC.
    """

    name: str
    first: date
    after: date
    offset_min: int = 0

    @staticmethod
    def read(text: str) -> Period:
        """Reads a text such as 2026-11-30, 2026-W48 or 2026-11. Raises CloudError."""
        found = re.fullmatch(r"(\d{4})-(?:W(\d{2})|(\d{2})(?:-(\d{2}))?)", text, re.ASCII)
        with suppress(ValueError):
            if found is not None and 1970 < int(found[1]) < 9999:
                year = int(found[1])
                if found[2]:
                    first = date.fromisocalendar(year, int(found[2]), 1)
                    return Period(text, first, first + timedelta(days=7))
                first = date(year, int(found[3]), int(found[4] or 1))
                after = date(year + first.month // 12, first.month % 12 + 1, 1)
                return Period(text, first, first + timedelta(days=1) if found[4] else after)
        raise CloudError(f"{text[:40]} is no day, week or month such as 2026-11-30, 2026-W48 or 2026-11")

    @staticmethod
    def around(day: date, unit: str) -> Period:
        """Reads the day, week or month that a day is in."""
        return Period.read(day.strftime(PERIOD_NAMES[unit]))

    def in_time_of(self, sites: Sequence[dict[str, Any]]) -> Period:
        """The same by the site's offset as it was then; of several masts' sites, by that which is there last.

        ``sites`` are rows of ``read_sites``. A mast that came later counts only where there is no other.
        """
        until_ms = replace(self, offset_min=0).end_ms + HALF_A_DAY_MS
        then = [row for row in sites if (row["valid_from_at"] or 0) < until_ms] or sites
        offsets = (row["utc_offset_min"] or 0 for row in newest_by("gateway", then, until_ms).values())
        return replace(self, offset_min=min(offsets, default=0))

    def __str__(self) -> str:
        return self.name

    @property
    def unit(self) -> str:
        """The word for its length."""
        return {1: "day", 7: "week"}.get(self.days, "month")

    @property
    def title(self) -> str:
        """Such as 30 November 2026, week 48 of 2026, or November 2026."""
        if self.unit == "week":
            return f"week {int(self.name[6:])} of {self.name[:4]}"
        return f"{self.first:{'%-d ' if self.days == 1 else ''}%B %Y}"

    @property
    def begin_ms(self) -> int:
        """Its first moment."""
        return self._first_ms(self.first)

    @property
    def end_ms(self) -> int:
        """The next period's first moment."""
        return self._first_ms(self.after)

    @property
    def days(self) -> int:
        """How many it has."""
        return (self.after - self.first).days

    @property
    def offset(self) -> str:
        """Such as UTC+05:45."""
        return f"UTC{utc_offset(self.offset_min)}"

    def local(self, moment_ms: int | None) -> str:
        """Local time by the minute; empty for none."""
        if moment_ms is None:
            return ""
        at = datetime.fromtimestamp(moment_ms // 1000, UTC) + timedelta(minutes=self.offset_min)
        return f"{at:%Y-%m-%d %H:%M}"

    def _first_ms(self, day: date) -> int:
        return (
            int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)
            - 60_000 * self.offset_min
        )


def intervals_in(begin_ms: int, end_ms: int, interval_s: int) -> int:
    """How many intervals begin in a time; they do at whole multiples of their length in UTC."""
    step = 1000 * interval_s
    return max(0, -(-end_ms // step) + -begin_ms // step)


@dataclass(frozen=True)
class PeriodView(View):
    """One mast's period. ``until_ms`` is its end, of a month that isn't over that of the newest interval."""

    period: Period
    until_ms: int

    @property
    def due(self) -> int:
        """Intervals from the period's beginning until ``until_ms``."""
        return intervals_in(self.period.begin_ms, self.until_ms, self.span.interval_s)

    def read(self, sql: str, *values: Any) -> Frame:
        """Rows of ``statistics`` and ``mast`` of the period. Raises Missing for ``mast`` without one."""
        return self.held.read(sql, values)

    @property
    def local(self) -> str:
        """SQL of an interval's start in the site's time."""
        return f"(interval_start + to_minutes({self.period.offset_min}))::TIMESTAMP"

    def day_of(self, local: str) -> str:
        """SQL of which of the period's days a local time is on, from 1."""
        return f"1 + date_diff('day', DATE '{self.period.first}', ({local})::DATE)"


def recovery(view: PeriodView, others: Collection[str] = ()) -> Frame:
    """Each channel's recovery by intervals and by samples, shares of all that the period had.

    ``others`` are channels that were to measure and may have no row at all.
    """
    return view.read(
        f"""WITH counted AS (
            SELECT channel, count(*) AS rows, count(*) FILTER ({IS_VALID}) AS valid, sum(count) AS samples,
                sum(recovery) AS recovered, sum(n_suspect) AS suspect, sum(n_fail) AS fail,
                sum(n_missing) AS missing
            FROM statistics WHERE version > 0 GROUP BY channel
        ), named AS (SELECT channel FROM counted UNION SELECT unnest($1::VARCHAR[]))
        SELECT channel, {view.due} AS due, coalesce(valid, 0) AS valid,
            coalesce(valid, 0) / due AS by_intervals,
            coalesce(samples, 0)::BIGINT AS samples, coalesce(recovered, 0.0) / due AS by_samples,
            coalesce(suspect, 0)::BIGINT AS suspect, coalesce(fail, 0)::BIGINT AS fail,
            coalesce(missing, 0)::BIGINT AS missing, greatest(0, due - coalesce(rows, 0)) AS without_row
        FROM named LEFT JOIN counted USING (channel) ORDER BY channel""",  # noqa: S608 - texts of ours
        list(others),
    )


def coverage(view: PeriodView) -> Frame:
    """Share of samples of each channel on each of the site's days, of those due on it until now."""
    step = 1000 * view.span.interval_s
    local = f"make_timestamp(1000 * range) + to_minutes({view.period.offset_min})"
    return view.read(
        f"""WITH slots AS (
            SELECT {view.day_of(local)} AS day, count(*) AS due
            FROM range({-(-view.period.begin_ms // step) * step}, {view.until_ms}, {step}) GROUP BY ALL
        ), found AS (
            SELECT channel, {view.day_of(view.local)} AS day, sum(recovery) AS recovered FROM statistics
            WHERE version > 0 GROUP BY ALL
        ), all_channels AS (SELECT DISTINCT channel FROM statistics)
        SELECT channel, day, coalesce(recovered, 0) / due AS recovery
        FROM slots CROSS JOIN all_channels LEFT JOIN found USING (channel, day) ORDER BY ALL"""  # noqa: S608
    )


def means(view: PeriodView) -> Frame:
    """Each channel's mean (of directions of vectors), spread of intervals' means, extremes, and sum."""
    around = [each.name for each in view.mast.channels if each.is_direction]
    return view.read(
        f"""WITH closed AS (
            SELECT channel, any_value(unit) AS unit, min(min) AS lowest, max(max) AS highest,
                epoch_ms(arg_max(max_time, max)) AS highest_at, sum(sum) AS sum
            FROM statistics WHERE version > 0 GROUP BY channel
        ), valid AS (
            SELECT channel, {VECTOR_MEAN} AS direction, avg(avg) AS mean, stddev_samp(avg) AS sd,
                count(*) AS intervals
            FROM statistics WHERE {IS_VALID} GROUP BY channel
        )
        SELECT channel, unit, if(list_contains($1, channel), direction, mean) AS mean,
            if(list_contains($1, channel), NULL, sd) AS sd, lowest, highest, highest_at, sum,
            coalesce(intervals, 0) AS intervals
        FROM closed LEFT JOIN valid USING (channel) ORDER BY channel""",  # noqa: S608 - texts of ours
        around,
    )


def wind(view: PeriodView) -> Frame:
    """Each cup's mean, highest gust, Weibull's A and k, and from ``mast`` power density and turbulence.

    Without that table the last three are null.
    """
    cups = view.mast.of("wind_speed")
    rows = view.read(
        f"""SELECT channel, avg(avg) FILTER ({IS_VALID}) AS mean, avg(avg ** 3) FILTER ({IS_VALID}) AS cube,
            max(gust) AS gust, epoch_ms(arg_max(gust_time, gust)) AS gust_at, max(max) AS highest,
            epoch_ms(arg_max(max_time, max)) AS highest_at
        FROM statistics WHERE version > 0 AND list_contains($1, channel) GROUP BY channel""",  # noqa: S608
        [each.name for each in cups],
    ).dicts()
    by_channel = {row["channel"]: row for row in rows}
    power = _of_map(view, "wind_power_density")
    turbulence = _of_map(view, "turbulence_intensity")
    found = []
    for cup in cups:
        row = by_channel.get(cup.name, {})
        fitted = weibull(row.get("mean"), row.get("cube")) or (None, None)
        found.append(
            (cup.name, cup.height_m, row.get("mean"), *fitted, power.get(cup.name, {}).get("mean"),
             turbulence.get(cup.name, {}).get("mean"), *(row.get(each) for each in
             ("gust", "gust_at", "highest", "highest_at")))
        )  # fmt: skip
    return Frame(
        ("channel", "height_m", "mean", "weibull_a_mps", "weibull_k", "power_density", "turbulence", "gust",
         "gust_at", "highest", "highest_at"), found,
    )  # fmt: skip


def sectors(view: PeriodView, number: int = 12) -> Frame:
    """By sector of the vane: share, mean speed, Weibull's A and k, of intervals with both values."""
    cup, vane = view.need(wind_speed=view.cup, wind_direction=view.vane)
    rows = view.read(
        """WITH placed AS (FROM by_sector($1, $2, $3) WHERE speed + direction IS NOT NULL)
        SELECT sector, count(*) AS intervals, count(*) / sum(count(*)) OVER () AS share, avg(speed) AS mean,
            avg(speed ** 3) AS cube
        FROM placed GROUP BY ALL ORDER BY ALL""",
        cup,
        vane,
        number,
    ).rows
    return Frame(
        ("sector", "intervals", "share", "mean", "weibull_a_mps", "weibull_k"),
        [(*row[:4], *(weibull(row[3], row[4]) or (None, None))) for row in rows],
    )


def profile_exponent(view: PeriodView) -> float | None:
    """The exponent of the power law through the mean speeds of ``shear``, by least squares of logarithms."""
    points = [(math.log(row["height_m"]), math.log(row["mean_speed"]))
              for row in shear(view).dicts() if row["mean_speed"]]  # fmt: skip
    if len(points) < 2:
        return None
    x, y = (sum(each) / len(points) for each in zip(*points, strict=True))
    spread = sum((a - x) ** 2 for a, _ in points)
    slope: float = sum((a - x) * (b - y) for a, b in points) / spread if spread else math.inf
    # Two cups a millimetre apart make any exponent of a small difference.
    return slope if abs(slope) <= STEEPEST else None


def by_hour(view: PeriodView) -> tuple[list[Channel], list[list[float | None]]]:
    """Channels that a mean day is shown of, and for each of the 24 local hours the mean of each."""
    chosen = _of_the_day(view.mast)
    means: list[list[float | None]] = [[None] * len(chosen) for _ in range(24)]
    for at, channel in enumerate(chosen):
        for row in diurnal(replace(view, channel=channel)).dicts():
            means[row["hour"]][at] = row["mean"]
    return chosen, means


def _of_the_day(mast: Mast) -> list[Channel]:
    """A cup of each height, and one of each other quantity that has a course of the day."""
    of_height = {each.height_m: each for each in reversed(mast.of("wind_speed"))}
    cups = sorted(of_height.values(), key=lambda each: -(each.height_m or 0.0))
    others = (mast.of(each)[:1] for each in ("temperature", "humidity", "pressure", "irradiance"))
    return [*cups, *(channel for found in others for channel in found)]


def density(view: PeriodView) -> dict[str, Any]:
    """Air density of ``mast``: mean, lowest, highest, intervals."""
    return view.read(
        "SELECT avg(air_density) AS mean, min(air_density) AS lowest, max(air_density) AS highest, "
        "count(air_density) AS intervals FROM mast"
    ).dicts()[0]


def pairs(view: PeriodView) -> Frame:
    """Each pair's difference in ``mast``, the primary less its twin."""
    twins = {each.name: each.twin for each in view.mast.channels}
    rows = [
        (name, twins.get(name), view.mast.named(name).unit if name in twins else "",  # type: ignore[union-attr]
         row["mean"], row["sd"], row["lowest"], row["highest"], row["intervals"])
        for name, row in sorted(_of_map(view, "pair_difference", needed=True).items())
    ]  # fmt: skip
    return Frame(("primary", "twin", "unit", "mean", "sd", "lowest", "highest", "intervals"), rows)


def gaps(view: PeriodView) -> Frame:
    """Periods of the period in which a channel has no valid reading, with or without rows; the longest first.

    A period of the whole mast, in which no channel has one, is of the channel ''.
    """
    step, phase = 1000 * view.span.interval_s, view.held.phase_ms
    first, end = (-((phase - each) // step) for each in (view.period.begin_ms, view.until_ms))
    return view.read(
        f"""WITH slots AS (SELECT range AS slot FROM range({first}, {end})), measured AS (
            SELECT channel, (epoch_ms(interval_start) - {phase}) // {step} AS slot FROM statistics
            WHERE version > 0 AND count > 0
        ), all_channels AS (SELECT DISTINCT channel FROM statistics),
        silent AS (SELECT '' AS channel, slot FROM slots ANTI JOIN measured USING (slot)),
        absent AS (
            FROM silent UNION ALL
            SELECT channel, slot FROM (FROM slots CROSS JOIN all_channels)
                ANTI JOIN measured USING (channel, slot)
                ANTI JOIN silent USING (slot)
        ), islands AS (
            SELECT *, slot - row_number() OVER (PARTITION BY channel ORDER BY slot) AS island FROM absent
        )
        SELECT channel, min(slot) * {step} + {phase} AS begin_at,
            (max(slot) + 1) * {step} + {phase} AS end_at, count(*) AS intervals
        FROM islands GROUP BY channel, island ORDER BY intervals DESC, begin_at, channel"""  # noqa: S608
    )


def _of_map(view: PeriodView, column: str, *, needed: bool = False) -> dict[str, dict[str, Any]]:
    """Mean, spread and extremes of each key of one of ``mast``'s maps. Raises Missing if it is needed."""
    try:
        rows = view.read(
            f"""SELECT each.key AS channel, avg(each.value) AS mean, stddev_samp(each.value) AS sd,
                min(each.value) AS lowest, max(each.value) AS highest, count(each.value) AS intervals
            FROM (SELECT unnest(map_entries({column})) AS each FROM mast) GROUP BY ALL"""  # noqa: S608
        ).dicts()
    except Missing:
        if needed:
            raise
        return {}
    return {row["channel"]: row for row in rows}
