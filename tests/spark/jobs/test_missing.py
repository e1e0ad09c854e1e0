"""Missing intervals against the definition, whatever order readings and records arrive in."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cloud.wire.reading_records import Reading
from spark_jobs.jobs import statistics
from spark_jobs.platform.frames import rows_frame
from spark_jobs.platform.intervals import FOREVER_US, now_us
from spark_jobs.platform.schemas import CHANNELS, columns
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table
from spark_jobs.sinks.merge import merge_changed
from spark_jobs.transforms.missing import (
    LONGEST_US,
    changed_times,
    missing_intervals,
    next_due_us,
    stretches,
    times_in_force,
)
from spark_jobs.transforms.statistics import missing_statistics
from tests.spark.records import append_readings, reading, rows_of
from tests.spark.running import started

S = 1_000_000
M = 60 * S
DAY = 86_400 * S
EPOCH = 1_767_225_600 * S
"""2026-01-01T00:00Z."""
UNITS = {"cup.wind_speed": "m/s", "dht.temperature": "Cel"}

Channel = tuple[str, str]
Interval = tuple[Channel, int]
Span = tuple[int, int]
Row = tuple[bool, int, str]
"""Whether of readings, the period in force, the unit."""


def expected_rows(
    readings: Mapping[Interval, int], records: Mapping[Channel, tuple[Span, ...]], interval_s: int
) -> dict[Interval, Row]:
    """The definition, interval by interval."""
    length_us = interval_s * S
    wanted: dict[Interval, Row] = {
        key: (True, period_ms, UNITS[key[0][1]]) for key, period_ms in readings.items()
    }
    for gateway in {channel[0] for channel, _ in readings}:
        mine = {channel for channel, _ in readings if channel[0] == gateway}
        mine |= {channel for channel in records if channel[0] == gateway}
        starts = [start_us for channel, start_us in readings if channel[0] == gateway]
        for channel in mine:
            own = sorted(start_us for known, start_us in readings if known == channel)
            spans = records.get(channel)
            for start_us in range(min(starts), max(starts) + length_us, length_us):
                span = next(
                    (each for each in spans or () if each[0] <= start_us and start_us + length_us <= each[1]),
                    None,
                )
                before = max((start for start in own if start < start_us), default=None)
                if start_us in own or (spans is not None and not span):
                    continue
                if before is not None:
                    since_us, period_ms = before, readings[channel, before]
                elif span and span[0] != -FOREVER_US:
                    begin = -(-span[0] // length_us) * length_us
                    since_us, period_ms = max(min(starts), begin), 1000
                else:
                    continue
                due = any(at % (period_ms * 1000) == 0 for at in range(start_us, start_us + length_us, S))
                if start_us - since_us < LONGEST_US and due:
                    wanted[channel, start_us] = (False, period_ms, UNITS[channel[1]])
    return wanted


@dataclass
class Round:
    """What arrives together."""

    readings: list[Interval] = field(default_factory=list)
    records: dict[Channel, tuple[Span, ...]] = field(default_factory=dict)


@dataclass
class Case:
    """Readings of two masts, the records as they are in the end, and rounds that bring them in some order."""

    readings: dict[Interval, int]
    records: dict[Channel, tuple[Span, ...]]
    rounds: list[Round]

    @classmethod
    def made(cls, number: int, rounds: int) -> Case:
        dice = random.Random(number)
        one, two = f"case-{number}-a", f"case-{number}-b"
        channels = [(one, "cup.wind_speed"), (one, "dht.temperature"), (two, "cup.wind_speed")]
        readings = {
            (dice.choice(channels), EPOCH + dice.randrange(16) * M): dice.choice([1000, 2000, 120_000])
            for _ in range(dice.randint(1, 14))
        }
        records = {channel: cls._spans(dice, channel) for channel in channels if dice.random() < 0.6}
        case = cls(readings, records, [Round() for _ in range(rounds)])
        order = dice.sample(sorted(readings), len(readings))
        places = sorted(dice.randrange(rounds) for _ in order)
        for at, interval in zip(places, order, strict=True):
            case.rounds[at].readings.append(interval)
        for channel, spans in records.items():
            first, last = sorted(dice.choices(range(rounds), k=2))
            if first < last:
                case.rounds[first].records[channel] = cls._spans(dice, channel)
            case.rounds[last].records[channel] = spans
        return case

    @staticmethod
    def _spans(dice: random.Random, channel: Channel) -> tuple[Span, ...]:
        bounds = [EPOCH + at * M // 2 for at in sorted(dice.sample(range(33), dice.randint(1, 4)))]
        if channel[0].endswith("b"):
            bounds[0] = -FOREVER_US
        return tuple(zip(bounds[::2], [*bounds[1:], FOREVER_US][::2], strict=True))


def record_rows(records: Mapping[Channel, tuple[Span, ...]]) -> list[dict[str, Any]]:
    def time(at: int) -> datetime | None:
        return None if abs(at) == FOREVER_US else datetime.fromtimestamp(at / S, UTC)

    return [
        {
            "gateway": gateway, "channel": channel, "cal": "5d1c0a7e", "revision": 1, "interval_s": 1.0,
            "periods": [{"begin": time(begin), "end": time(end)} for begin, end in spans],
            "in_force": spans[-1][1] == FOREVER_US, "unit": UNITS[channel],
        }
        for (gateway, channel), spans in records.items()
    ]  # fmt: skip


def put_records(spark: SparkSession, settings: Settings, records: Mapping[Channel, tuple[Span, ...]]) -> None:
    location = ensure_table(spark, settings, CHANNELS)
    if records:
        rows = spark.createDataFrame(record_rows(records), CHANNELS.without("updated_at"))
        merge_changed(location, CHANNELS, rows)


def found_rows(settings: Settings) -> dict[Interval, Row]:
    found = {}
    for row in rows_of(settings, "statistics"):
        start_us = round(row["interval_start"].timestamp() * S)
        key = (row["gateway"], row["channel"]), start_us
        assert key not in found
        found[key] = (row["n_good"] > 0, row["period_ms"], row["unit"])
    return found


def test_missing_rows_follow_from_readings_and_records_whatever_their_order(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """Many masts at once, each with an order of its own; now and then silence, or another start."""
    settings = replace(settings, once=False)
    rounds, numbers = (10, range(400)) if full else (2, range(20))
    cases = [Case.made(number, rounds) for number in numbers]
    later_s = 0.0
    monkeypatch.setattr(statistics, "now_us", lambda: now_us() + int(later_s * S))
    job = statistics.StatisticsJob(spark, settings)
    query = started(settings, job)
    for at in range(rounds):
        put_records(
            spark, settings, {key: spans for case in cases for key, spans in case.rounds[at].records.items()}
        )
        arrived: list[Reading] = [
            reading(at + 1, 1.0, gateway=gateway, channel=channel, run=f"run-{start_us}", at_us=start_us,
                    period_ms=case.readings[(gateway, channel), start_us])
            for case in cases
            for (gateway, channel), start_us in case.rounds[at].readings
        ]  # fmt: skip
        append_readings(spark, settings, arrived)
        query.processAllAvailable()
        later_s += 100.0
        if at % 3 == 0:
            job.settle()
        if at % 3 == 1:
            query.stop()
            job = statistics.StatisticsJob(spark, settings)
            query = started(settings, job)
    query.processAllAvailable()
    query.stop()
    job.finish()
    found = found_rows(settings)
    for case in cases:
        gateways = {channel[0] for channel, _ in case.readings}
        mine = {key: row for key, row in found.items() if key[0][0] in gateways}
        assert mine == expected_rows(case.readings, case.records, 60)
    assert sum(not row[0] for row in found.values()) > 5 * len(cases)


def anchors_of(spark: SparkSession, *starts: tuple[int, int]) -> DataFrame:
    names = "gateway channel: string, start_us: long, period_ms: int, unit: string, rank: int"
    rows = [("m1", "cup.wind_speed", start_us, period_ms, "m/s", 0) for start_us, period_ms in starts]
    return rows_frame(spark, names, rows)


def missing_starts(
    spark: SparkSession, until_us: int, interval_s: int, *starts: tuple[int, int]
) -> list[int]:
    """Starts of the intervals missing up to a time, of a channel without records."""
    window = rows_frame(
        spark,
        "gateway channel: string, begin_us end_us gateway_us: long, is_first: bool",
        [("m1", "cup.wind_speed", starts[0][0], until_us, starts[0][0], True)],
    )
    records = times_in_force(spark.createDataFrame([], CHANNELS.schema))
    window = window.join(records, ["gateway", "channel"], "left")
    found = missing_intervals(stretches(anchors_of(spark, *starts), window, interval_s), interval_s)
    return sorted(row.start_us for row in found.collect())


def test_a_reading_of_a_wrong_date_makes_rows_for_a_day_and_an_outage_for_400(spark: SparkSession) -> None:
    found = missing_starts(spark, EPOCH + 9000 * DAY, 600, (EPOCH, 1000), (EPOCH + 9000 * DAY, 1000))
    assert found == [EPOCH + at * 10 * M for at in range(1, 144)]
    # Nothing follows it but the rest of its gateway.
    assert missing_starts(spark, EPOCH + 9000 * DAY, 600, (EPOCH, 1000)) == found
    found = missing_starts(spark, EPOCH + 400 * DAY, 600, (EPOCH, 1000), (EPOCH + 400 * DAY, 1000))
    assert (found[0], found[-1], len(found)) == (EPOCH + 10 * M, EPOCH + 400 * DAY - 10 * M, 400 * 144 - 1)


def test_an_hourly_sensor_misses_only_the_intervals_it_has_samples_in(spark: SparkSession) -> None:
    found = missing_starts(spark, EPOCH + DAY, 600, (EPOCH, 3_600_000))
    assert found == [EPOCH + hour * 60 * M for hour in range(1, 24)]
    # The first of them is what comes next.
    due = anchors_of(spark, (EPOCH, 3_600_000), (EPOCH, 1000)).select(next_due_us(600).alias("due_us"))
    assert [row.due_us - EPOCH for row in due.collect()] == [60 * M, 10 * M]


def test_a_row_of_a_missing_interval(spark: SparkSession) -> None:
    names = "gateway channel: string, start_us: long, period_ms: int, unit: string"
    minutes = rows_frame(spark, names, [("m1", "cup.wind_speed", EPOCH + M, 400, "m/s")])
    (row,) = missing_statistics(minutes, 60).toArrow().to_pylist()
    named = {"gateway": "m1", "channel": "cup.wind_speed", "quantity": "wind_speed", "unit": "m/s"}
    counts = dict.fromkeys(
        ("count", "n_good", "n_not_evaluated", "n_suspect", "n_fail", "n_missing", "recovery"), 0
    )
    by_kind = ("sum", "rate", "changes")
    nothing = dict.fromkeys(
        ("avg", "min", "max", "sd", "gust", "cube_mean", "max_time", "gust_time", *by_kind, "ingested_from")
    )
    assert row == {
        **named,
        **counts,
        **nothing,
        "interval_start": datetime(2026, 1, 1, 0, 1, tzinfo=UTC),
        "date": date(2026, 1, 1),
        "interval_s": 60,
        "expected": 150.0,
        "period_ms": 400,
        "quality": 9,
    }


RECORD = columns(
    "gateway channel: string, in_force: bool, revision: long, interval_s: double, unit: string, "
    "periods: periods",
    periods="begin end: time",
)


def test_a_record_of_an_interval_without_end_has_the_longest_period(spark: SparkSession) -> None:
    row = ("m1", "cup.wind_speed", True, 1, 1e300, "m/s", [(None, None)])
    (found,) = times_in_force(spark.createDataFrame([row], RECORD)).collect()
    assert found.record_ms == 2**31 - 1


def in_force(
    spark: SparkSession, *records: tuple[str, bool, list[tuple[int | None, int | None]]]
) -> DataFrame:
    """Times of records by channel: whether in force, and periods in seconds after 1970."""

    def time(at: int | None) -> datetime | None:
        return None if at is None else datetime.fromtimestamp(at, UTC)

    rows = [
        ("m1", channel, force, revision, 0.5, "m/s", [(time(begin), time(end)) for begin, end in periods])
        for revision, (channel, force, periods) in enumerate(records)
    ]
    return times_in_force(spark.createDataFrame(rows, RECORD))


def test_when_a_channel_was_configured(spark: SparkSession) -> None:
    found = in_force(
        spark,
        # A calibration replaced by another is one time in force; a swap back makes another.
        ("swap", False, [(10, 20), (40, 50)]),
        ("swap", True, [(20, 30), (50, None)]),
        # Unknown begins and ends: a gateway without a clock.
        ("begin", True, [(None, 20)]),
        ("end", False, [(10, None), (40, None)]),
        ("within", True, [(10, 90), (20, 30), (90, 100)]),
        ("never", False, []),
    )
    assert {
        row.channel: (row.record_ms, [(span.begin_us, span.end_us) for span in row.spans])
        for row in found.collect()
    } == {
        "swap": (500, [(10 * S, 30 * S), (40 * S, FOREVER_US)]),
        "begin": (500, [(-FOREVER_US, 20 * S)]),
        "end": (500, [(10 * S, 40 * S)]),
        "within": (500, [(10 * S, 100 * S)]),
        "never": (500, []),
    }


def test_in_which_time_records_hold_otherwise(spark: SparkSession) -> None:
    before = in_force(
        spark, ("same", True, [(10, None)]), ("ended", True, [(10, None)]), ("gap", True, [(10, None)])
    )
    after = in_force(
        spark,
        ("same", False, [(10, 20)]),
        ("same", True, [(20, None)]),
        ("ended", False, [(10, 50)]),
        ("gap", True, [(10, 30), (40, None)]),
        ("new", True, [(5, None)]),
    )
    assert {row.channel: (row.begin_us, row.end_us) for row in changed_times(before, after).collect()} == {
        "ended": (50 * S, FOREVER_US),
        "gap": (30 * S, 40 * S),
        "new": (-FOREVER_US, FOREVER_US),
    }
