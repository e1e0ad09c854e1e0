"""Interval statistics against pandas, and against worked examples."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession, functions as F

from cloud.wire.reading_records import Reading
from spark_jobs.transforms.statistics import begin_of, interval_statistics, touched_intervals
from tests.spark.records import START_US, reading, reading_table

S = 1_000_000


def statistics(
    spark: SparkSession, readings: Iterable[Reading], interval_s: int = 60
) -> dict[tuple[str, int], dict[str, Any]]:
    """Statistics by channel and interval start in microseconds."""
    frame = spark.createDataFrame(reading_table(readings)).repartition(2)
    frame = frame.withColumn("start_us", begin_of(F.unix_micros("time"), interval_s))
    result = interval_statistics(frame, interval_s).toArrow()
    starts = result["interval_start"].cast(pa.int64()).to_pylist()
    return {(row["channel"], start_us): row for row, start_us in zip(result.to_pylist(), starts, strict=True)}


def micros(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * S)


def random_channel(rng: np.random.Generator, channel: str, period_ms: int, seconds: int) -> list[Reading]:
    """On the grid, with gaps, invalid and missing readings, and ties."""
    readings = []
    for seq in range(1, seconds * 1000 // period_ms + 1):
        if rng.random() < 0.02:
            continue
        quality = int(rng.choice([1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4, 9]))
        if rng.random() < 0.8:
            quality = 1
        value = max(round(float(rng.normal(8, 3)), 1), 0.0)
        readings.append(reading(seq, value, channel=channel, period_ms=period_ms, quality=quality))
    return readings


def pandas_statistics(readings: list[Reading], interval_s: int) -> dict[int, dict[str, Any]]:
    """The same by other means: a dense grid of slots, NaN where nothing valid is, and pandas' functions."""
    frame = pd.DataFrame(
        {
            "t": [item.time_us for item in readings],
            "v": [np.nan if item.value is None else item.value for item in readings],
            "q": [item.quality for item in readings],
        }
    )
    period_us = readings[0].period_ms * 1000
    length_us = interval_s * S
    out = {}
    for start, part in frame.groupby(frame.t // length_us * length_us):
        start_us = int(str(start))
        valid = part[part.q <= 2]
        slots = pd.Series(np.nan, index=range(start_us, start_us + length_us, period_us))
        slots.loc[valid.t] = valid.v.to_numpy()
        needed = math.ceil(3 * S / period_us)
        gusts = slots.rolling(needed).mean() if period_us <= S else slots * np.nan
        gust_end = None if gusts.isna().all() else int(gusts.round(9).idxmax())
        flags = set(part.q)
        out[start_us] = {
            "avg": valid.v.mean(),
            "min": valid.v.min(),
            "max": valid.v.max(),
            "sd": valid.v.std(ddof=1),
            "cube_mean": (valid.v**3).mean(),
            "gust": gusts.max(),
            "gust_time": None if gust_end is None else gust_end - (needed - 1) * period_us,
            "max_time": int(valid.sort_values("t", kind="stable").set_index("t").v.idxmax()),
            "count": len(valid),
            "expected": length_us / period_us,
            "recovery": min(1.0, len(valid) / (length_us / period_us)),
            **{
                name: int((part.q == flag).sum())
                for name, flag in (
                    ("n_good", 1), ("n_not_evaluated", 2), ("n_suspect", 3), ("n_fail", 4), ("n_missing", 9)
                )
            },
            "quality": next(flag for flag in (4, 3, 1, 2, 9) if flag in flags),
        }  # fmt: skip
    return out


def test_random_channels_equal_pandas(spark: SparkSession) -> None:
    rng = np.random.default_rng(20261121)
    channels = {
        f"p{period_ms}.wind_speed": random_channel(rng, f"p{period_ms}.wind_speed", period_ms, 300)
        for period_ms in (100, 400, 500, 750, 1000, 1500, 2000)
    }
    # Its spread is tiny beside its mean.
    channels["steady.wind_speed"] = [
        reading(seq, 78.4 + rng.normal(0, 1e-6), channel="steady.wind_speed") for seq in range(1, 301)
    ]
    everything = [item for items in channels.values() for item in items]
    rng.shuffle(everything)
    result = statistics(spark, everything)
    assert len(result) == 8 * 5
    for channel, readings in channels.items():
        for start_us, wanted in pandas_statistics(readings, 60).items():
            row = result[channel, start_us]
            for name, value in wanted.items():
                got = micros(row[name]) if name.endswith("_time") else row[name]
                if value is None or (isinstance(value, float) and math.isnan(value)):
                    assert got is None, (channel, name, got)
                else:
                    assert got == pytest.approx(value, rel=1e-9, abs=1e-12), (channel, name)


def test_the_order_of_arrival_changes_no_digit(spark: SparkSession) -> None:
    rng = np.random.default_rng(7)
    readings = random_channel(rng, "cup.wind_speed", 100, 120)
    first = statistics(spark, readings)
    assert statistics(spark, readings[::-1]) == first
    assert statistics(spark, [readings[at] for at in rng.permutation(len(readings))]) == first


def test_worked_example(spark: SparkSession) -> None:
    values = [4.0, 6.0, 8.0, 8.0, 2.0, None, 9.0, 9.0]
    readings = [
        reading(seq, value, quality=9 if value is None else 1) for seq, value in enumerate(values, start=1)
    ]
    readings.append(reading(9, 99.0, quality=4))
    row = statistics(spark, readings)["cup.wind_speed", START_US]
    assert (row["quantity"], row["unit"], row["interval_s"]) == ("wind_speed", "m/s", 60)
    assert row["avg"] == pytest.approx(46 / 7)
    assert (row["min"], row["max"]) == (2.0, 9.0)
    # The two 9.0 stand beside a missing and a failed one: 3 s of them are nowhere.
    assert row["gust"] == pytest.approx(22 / 3)
    assert micros(row["gust_time"]) == START_US + 1 * S
    assert micros(row["max_time"]) == START_US + 6 * S
    assert row["sd"] == pytest.approx(np.std([4, 6, 8, 8, 2, 9, 9], ddof=1))
    assert row["cube_mean"] == pytest.approx(np.mean(np.array([4, 6, 8, 8, 2, 9, 9]) ** 3.0))
    assert (row["count"], row["expected"], row["recovery"]) == (7, 60.0, pytest.approx(7 / 60))
    assert (row["n_good"], row["n_fail"], row["n_missing"], row["quality"]) == (7, 1, 1, 4)
    assert row["date"] == datetime(2026, 5, 28, tzinfo=UTC).date()


def test_special_channels_and_intervals(spark: SparkSession) -> None:
    """Several small cases in one run: each on a channel of its own."""
    at = START_US
    cases = [
        # Nothing valid: counts, no values.
        reading(1, channel="gone.temperature", quality=9),
        reading(2, channel="gone.temperature", quality=9),
        # One valid reading has no standard deviation.
        reading(1, 5.0, channel="one.temperature", quality=2),
        # A gust doesn't cross the border of an interval.
        *(reading(seq, 9.0, channel="edge.wind_speed", at_us=at + (57 + seq) * S) for seq in range(1, 5)),
        # As many readings as 3 s need, but bunched up: not 3 s.
        *(reading(seq, 9.0, channel="bunch.wind_speed", at_us=at + seq * 100_000) for seq in range(3)),
        # 1-s period for 30 s, then 2 s: 30 + 15 samples due.
        *(reading(seq + 1, 1.0, channel="change.wind_speed", at_us=at + seq * S) for seq in range(30)),
        *(
            reading(seq + 31, 1.0, channel="change.wind_speed", at_us=at + (30 + 2 * seq) * S, period_ms=2000)
            for seq in range(15)
        ),
        # Two runs measured the same seconds: more than expected is still a recovery of 1.
        *(reading(seq, 1.0, channel="twice.wind_speed") for seq in range(1, 61)),
        *(reading(seq, 1.0, channel="twice.wind_speed", run="run-2") for seq in range(1, 61)),
        # Degrees are never averaged: north, not 121.
        *(reading(seq, deg, channel="vane.wind_direction") for seq, deg in enumerate((350.0, 5.0, 8.0), 1)),
        reading(4, 180.0, channel="vane.wind_direction", quality=3),
        # From everywhere: no direction, and the highest spread there is.
        *(reading(seq, 90.0 * seq, channel="calm.wind_direction") for seq in range(1, 5)),
        reading(1, 359.9999999999999, channel="once.wind_direction"),
        # The period changes in the interval, is another in the run after, and changes back.
        *(reading(seq, 1.0, channel="thrice.wind_speed", at_us=at + seq * S) for seq in range(1, 11)),
        *(
            reading(
                seq, 1.0, channel="thrice.wind_speed", at_us=at + (15 + 5 * (seq - 11)) * S, period_ms=5000
            )
            for seq in range(11, 17)
        ),
        *(
            reading(seq, 1.0, channel="thrice.wind_speed", run="run-2", at_us=at + (50 + seq) * S)
            for seq in range(5)
        ),
    ]
    result = statistics(spark, cases)
    gone = result["gone.temperature", at]
    assert [gone[name] for name in ("avg", "min", "max", "sd", "gust", "max_time", "gust_time")] == [None] * 7
    assert (gone["count"], gone["n_missing"], gone["recovery"], gone["quality"]) == (0, 2, 0.0, 9)
    one = result["one.temperature", at]
    assert (one["avg"], one["sd"], one["cube_mean"], one["count"], one["quality"]) == (5.0, None, None, 1, 2)
    assert result["edge.wind_speed", at]["gust"] is None
    assert result["edge.wind_speed", at + 60 * S]["gust"] is None
    assert result["bunch.wind_speed", at]["gust"] is None
    change = result["change.wind_speed", at]
    assert (change["expected"], change["count"], change["recovery"]) == (pytest.approx(45.0), 45, 1.0)
    twice = result["twice.wind_speed", at]
    assert (twice["count"], twice["expected"], twice["recovery"]) == (120, 60.0, 1.0)
    assert change["period_ms"] == 2000
    # 15 s from the interval's start to the first 5-s reading at 1 s, 35 s at 5 s, the last 10 s at 1 s again.
    thrice = result["thrice.wind_speed", at]
    assert (thrice["expected"], thrice["count"]) == (pytest.approx(15 + 35 / 5 + 10), 21)
    assert thrice["period_ms"] == 1000
    vane = result["vane.wind_direction", at]
    angles = np.radians([350.0, 5.0, 8.0])
    mean = np.exp(1j * angles).mean()
    assert vane["avg"] == pytest.approx(np.degrees(np.angle(mean)) % 360, rel=1e-9)
    epsilon = math.sqrt(1 - abs(mean) ** 2)
    assert vane["sd"] == pytest.approx(math.degrees(math.asin(epsilon)) * (1 + 0.1547 * epsilon**3), rel=1e-5)
    # For so small a spread it is the standard deviation of the angles themselves, with n.
    assert vane["sd"] == pytest.approx(np.std([-10.0, 5.0, 8.0]), rel=2e-3)
    assert [vane[name] for name in ("min", "max", "gust", "max_time", "cube_mean")] == [None] * 5
    assert (vane["count"], vane["n_good"], vane["n_suspect"]) == (3, 3, 1)
    calm = result["calm.wind_direction", at]
    assert (calm["avg"], calm["sd"]) == (None, pytest.approx(90 * 2 / math.sqrt(3)))
    once = result["once.wind_direction", at]
    assert once["sd"] is None
    assert 359.9 < once["avg"] < 360 or once["avg"] == 0.0


def test_an_unsynchronised_clock_touches_nothing_and_a_repaired_one_does(spark: SparkSession) -> None:
    rows = [reading(1, clock="unsynced", quality=3), reading(61), reading(121, clock="repaired")]
    frame = spark.createDataFrame(reading_table(rows))
    assert sorted(touched_intervals(frame, 60).toArrow()["start_us"].to_pylist()) == [
        START_US + 60 * S,
        START_US + 120 * S,
    ]


def test_tasks_have_their_parts_and_all_are_there(spark: SparkSession) -> None:
    rng = np.random.default_rng(7)
    readings = [
        each for number in range(20) for each in random_channel(rng, f"cup-{number}.wind_speed", 1000, 150)
    ]
    frame = spark.createDataFrame(reading_table(readings)).repartition(3)
    frame = frame.withColumn("start_us", begin_of(F.unix_micros("time"), 60))
    once, parted = (interval_statistics(frame, 60, about).toArrow() for about in (0, 5_000_000))
    order = [(name, "ascending") for name in ("channel", "interval_start")]
    assert parted.sort_by(order) == once.sort_by(order)
    assert once.num_rows == 60
