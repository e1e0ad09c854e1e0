"""What rules on tables are evaluated on: the fields of ``IntervalRow``, but for the length, of each table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, functions as F

from cloud.trends import theil_sen
from spark_jobs.alerting.rules import (
    REPORTED,
    Anomaly,
    Calibration,
    Cloned,
    Event,
    Health,
    Recovery,
    Rule,
    Wear,
)
from spark_jobs.platform import schemas
from spark_jobs.platform.intervals import now_us
from spark_jobs.platform.schemas import CHANNELS, EVENTS, HEALTH, PRESENCE, RUNS, STATISTICS, TRENDS, Table

_START_US: Final = "unix_micros(interval_start) as start_us"
# A clock that was ahead once would make all that follows older than it.
_WHEN: Final = ("unix_micros(least(time, kafka_time)) as start_us", "unix_micros(kafka_time) as arrived_us")
_OF_GATEWAY: Final = "cast(null as string) as channel"
_DAY_S: Final = 86_400
_TREND_DAYS: Final = 14
_MOST_DETAIL: Final = 200
_MOST_FIELDS: Final = 4000
"""Characters of an event's fields of which a message can have some."""
_ABSENT: Final = "coalesce(quality = 9 and n_missing = 0, false)"
"""SQL: whether an interval is one without a reading of any quality."""


def _recovery(changes: DataFrame, table: DataFrame, interval_s: int) -> DataFrame:
    """Closed intervals of ``statistics`` of one length, but those in which nothing at all came of a gateway.

    Such an outage is its silence: all its channels would say it again.
    """
    of_length = f"interval_s = {interval_s}"
    closed = changes.where(f"{of_length} and version >= 1 and recovery is not null")
    where = closed.where(_ABSENT).select("gateway", "date").distinct().collect()
    key, came = ("gateway", "interval_start"), table.where(f"{of_length} and not {_ABSENT}")
    for at, name in enumerate(("gateway", "date")):
        came = came.where(F.col(name).isin(list({row[at] for row in where})))
    came = came.select(*key).distinct()
    absent = closed.where(_ABSENT).join(came, list(key), "left_semi").select(*closed.columns)
    found = closed.where(f"not {_ABSENT}").union(absent) if where else closed
    return found.selectExpr("gateway", "channel", _START_US, "recovery as measure", "version")


def _presence(changes: DataFrame, table: DataFrame, interval_s: int) -> DataFrame:
    """Each time of each gateway; the measure is 1 where two with its name run at once."""
    return changes.selectExpr(
        "gateway", _OF_GATEWAY, "unix_micros(updated_at) as start_us",
        "cast(state = 'cloned' as double) as measure", "1 as version",
    ).distinct()  # fmt: skip


def _anomalies(changes: DataFrame, table: DataFrame, interval_s: int) -> DataFrame:
    """Scored intervals of one length; the measure is the score as a multiple of its threshold."""
    scored = changes.where(f"interval_s = {interval_s} and threshold > 0 and score is not null")
    return scored.selectExpr(
        "gateway", _OF_GATEWAY, _START_US, "score / threshold as measure",
        "version", "try_element_at(channels, 1).channel as about",
    )  # fmt: skip


_OF_A_DAY_S: Final = 20 * 3600
"""What a report covers at least that is a day's: its timer is spread, and daylight saving takes an hour."""


def _events(changes: DataFrame, table: DataFrame, interval_s: int) -> DataFrame:
    """Events as their gateways announced them; a day's report is one where it counts no under-voltage."""
    # A mast whose supply fails each night reports an hour after each boot, of that hour.
    covers_s = "try_cast(get_json_object(fields, '$.since_s') AS double)"
    is_well = f"get_json_object(fields, '$.under_voltage') = '0' and {covers_s} >= {_OF_A_DAY_S}"
    return changes.where(f"kind <> 'report' or {is_well}").selectExpr(
        "gateway", _OF_GATEWAY, *_WHEN, "1d as measure", "1 as version",
        "if(kind = 'report', 'day-without-under-voltage', kind) as name",
        f"if(kind <> 'report' and length(fields) <= {_MOST_FIELDS}, fields, '{{}}') as detail",
    ).distinct()  # fmt: skip


def _starts(changes: DataFrame, table: DataFrame, interval_s: int) -> DataFrame:
    """New runs, as events: what a run has announced is over, or the next one announces it again."""
    begun = changes.where("_change_type = 'insert'") if "_change_type" in changes.columns else changes
    # The record may reach Kafka long after what the run has announced.
    return begun.where("reported_at is not null").selectExpr(
        "gateway", _OF_GATEWAY, "unix_micros(least(started, reported_at)) as start_us",
        "unix_micros(reported_at) as arrived_us", "1d as measure", "1 as version",
        "'run-started' as name", "'{}' as detail",
    )  # fmt: skip


def _figures(reports: DataFrame) -> DataFrame:
    """Each figure of each report as a row: gateway, channel, start_us, name, measure."""
    whole = {name: sql for name, sql in REPORTED.items() if name != "recovery"}
    pairs = ", ".join(f"'{name}', {sql}" for name, sql in whole.items())
    of_gateway = reports.selectExpr(
        "gateway", _OF_GATEWAY, *_WHEN, f"stack({len(whole)}, {pairs}) as (name, measure)"
    )
    of_channels = reports.selectExpr("gateway", *_WHEN, "explode(recovery) as (channel, measure)").selectExpr(
        "gateway", "channel", "start_us", "arrived_us", "'recovery' as name", "measure"
    )
    return of_gateway.union(of_channels).where("measure is not null")


def _health(changes: DataFrame, table: DataFrame, interval_s: int) -> DataFrame:
    """Figures of daily reports, each with those of two weeks, the last one of each day, as ``past``."""
    key, since = ("gateway", "channel", "name"), F.date_sub(F.current_date(), _TREND_DAYS)
    past = _figures(table.where((F.col("date") >= since) & (F.col("time") >= since)))
    day = F.floor(F.col("start_us") / (_DAY_S * 1_000_000))
    last = F.max_by(F.struct("start_us", "measure"), "start_us").alias("last")
    pasts = (
        past.groupBy(*key, day.alias("day")).agg(last).groupBy(*key).agg(F.collect_list("last").alias("past"))
    )
    same = [F.col(f"f.{name}").eqNullSafe(F.col(f"t.{name}")) for name in key]
    joined = _figures(changes).distinct().alias("f").join(pasts.alias("t"), same, "left")
    return joined.select("f.*", "t.past", F.lit(1).alias("version"))


def _with_slope(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A figure with its change a day, where two weeks' reports lie about a line that surely has one."""
    points = {each["start_us"] / (_DAY_S * 1e6): each["measure"] for each in row["past"] or ()}
    line = theil_sen(sorted(points.items()))
    slope = line.slope if line is not None and line.is_sure else None
    return {**{name: each for name, each in row.items() if name != "past"}, "slope": slope}


def _wear(changes: DataFrame, table: DataFrame, interval_s: int) -> DataFrame:
    """Trends of a day; the measure is the days that are left until the limit, endless where none are."""
    left = F.when(F.col("crosses_until").isNotNull(), F.datediff("crosses", "date").cast("double"))
    # A calm leaves too few weeks for a line: of what was near its limit, that is no end.
    return changes.where("a_month is not null or value / limit_value < 0.5").select(
        "gateway", "channel", F.unix_micros(F.col("date").cast("timestamp")).alias("start_us"),
        F.coalesce(left, F.lit(float("inf"))).alias("measure"), F.lit(1).alias("version"),
        F.col("kind").alias("name"), "detail",
    ).distinct()  # fmt: skip


def _calibrations(changes: DataFrame, table: DataFrame, interval_s: int) -> DataFrame:
    """The day on which each changed channel's calibration expires; endless where none in force does."""
    last = F.max(F.when(F.expr("coalesce(in_force, true)"), F.unix_date("expires")))
    day = F.coalesce(last.cast("double"), F.lit(float("inf"))).alias("measure")
    changed = table.join(changes.select("gateway", "channel").distinct(), ["gateway", "channel"], "left_semi")
    return changed.groupBy("gateway", "channel").agg(day, F.lit(1).alias("version"))


def _with_days(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A calibration with the days that are left of it, by the clock of all rules."""
    at_us = now_us()
    return {**row, "start_us": at_us, "measure": row["measure"] - at_us // (_DAY_S * 1_000_000)}


def _as_they_are(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return row


def _described(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """An event's row with its fields as a text that a message can have."""
    given = json.loads(row["detail"])
    words = {name: each if isinstance(each, str) else json.dumps(each) for name, each in given.items()}
    fields = ", ".join(f"{name} {each}" for name, each in words.items() if given[name] is not None)
    text = f"{row['name']}: {fields}" if fields else row["name"]
    printable = "".join(each if each.isprintable() else " " for each in text)
    return {**row, "detail": printable[:_MOST_DETAIL]}


class Feed(NamedTuple):
    """Which rows of a table rules of a kind are evaluated on, those that changed since the last time.

    ``rows`` makes them of the changes, the whole table and the statistics' interval in seconds; each is of
    ``length_s``, else of such an interval. ``by_days``: now and then all of them, for the days pass.
    """

    table: Table
    rows: Callable[[DataFrame, DataFrame, int], DataFrame]
    length_s: int | None = None
    completed: Callable[[Mapping[str, Any]], Mapping[str, Any]] = _as_they_are
    by_days: bool = False


FEEDS: Final[Sequence[tuple[type[Rule], Feed]]] = (
    (Recovery, Feed(STATISTICS, _recovery)),
    (Anomaly, Feed(schemas.ANOMALIES, _anomalies)),
    (Cloned, Feed(PRESENCE, _presence)),
    (Event, Feed(EVENTS, _events, _DAY_S, _described)),
    (Event, Feed(RUNS, _starts, _DAY_S, _described)),
    (Health, Feed(HEALTH, _health, _DAY_S, _with_slope)),
    (Wear, Feed(TRENDS, _wear, _DAY_S)),
    (Calibration, Feed(CHANNELS, _calibrations, _DAY_S, _with_days, by_days=True)),
)
"""The kinds of rules, each with what it is evaluated on."""
