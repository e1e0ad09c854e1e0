"""Statistics running on from batch to batch: against the same computed whole, and when they are let go."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cloud.wire.reading_records import Reading
from spark_jobs.state.running_intervals import RunningIntervals
from spark_jobs.transforms.interval_sums import ReadingsByInterval, merged, nothing, sums_of
from spark_jobs.transforms.statistics import interval_start, interval_statistics
from tests.spark.records import START_US, reading, reading_table

S = 1_000_000
CUP = ("mast-07", "cup.wind_speed")


def batch(readings: Iterable[Reading], *, added: bool = True, interval_s: int = 60) -> ReadingsByInterval:
    rows = reading_table(readings)
    return ReadingsByInterval.of_changes(
        rows.append_column("added", pa.array([added] * rows.num_rows, pa.bool_())), interval_s
    )


def by_key(rows: Any) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {(row["gateway"], row["channel"], row["interval_start"]): row for row in rows.to_pylist()}


def random_channel(rng: np.random.Generator, channel: str, period_ms: int, seconds: int) -> list[Reading]:
    """Near the grid, with gaps, readings bunched up, and all qualities."""
    at_us = START_US + (np.arange(seconds * 1000 // period_ms) + 0.2) * period_ms * 1000
    at_us += rng.uniform(-0.6, 0.6, len(at_us)) * period_ms * 1000 * (rng.random(len(at_us)) < 0.1)
    times = sorted(set(at_us[rng.random(len(at_us)) > 0.03].astype(int).tolist()))
    values = (
        rng.uniform(0, 360, len(times)) if channel.endswith("direction") else rng.normal(8, 3, len(times))
    )
    return [
        reading(
            seq,
            float(value),
            channel=channel,
            period_ms=period_ms,
            at_us=time_us,
            quality=int(rng.choice([1, 2, 3, 4, 9], p=[0.9, 0.04, 0.02, 0.02, 0.02])),
        )
        for seq, (time_us, value) in enumerate(zip(times, values, strict=True), start=1)
    ]


def test_rows_from_sums_are_those_computed_whole(spark: SparkSession) -> None:
    rng = np.random.default_rng(20261122)
    readings = [
        each
        for period_ms in (100, 300, 500, 750, 1000, 1500, 4000)
        for quantity in ("wind_speed", "wind_direction", "temperature")
        for each in random_channel(rng, f"p{period_ms}.{quantity}", period_ms, 150)
    ]
    readings.sort(key=lambda each: each.time_us)
    running = RunningIntervals(60)
    seen: list[Reading] = []
    compared = 0
    for cut_s in (0.4, 3.1, 3.2, 20, 41, 61, 63, 64.5, 100, 119.95, 120.01, 150):
        until_us = START_US + round(cut_s * S)
        new = [each for each in readings[len(seen) :] if each.time_us < until_us]
        seen += new
        arrived = batch([new[at] for at in rng.permutation(len(new))])
        assert running.add(arrived, set(arrived.intervals)) == set(arrived.intervals)
        if cut_s not in (3.2, 64.5, 119.95, 150):
            continue
        frame = spark.createDataFrame(reading_table(seen)).withColumn(
            "interval_start", interval_start(F.col("time"), 60)
        )
        whole = interval_statistics(frame, 60).toArrow()
        mine = running.rows(arrived.intervals).select(whole.column_names).cast(whole.schema)
        expected = by_key(whole)
        for key, row in by_key(mine).items():
            for name, value in expected[key].items():
                wanted = pytest.approx(value, rel=1e-9, abs=1e-9) if isinstance(value, float) else value
                assert row[name] == wanted, (cut_s, key, name)
            compared += 1
    assert compared > 4 * 15


some = st.lists(st.tuples(st.floats(-100, 100), st.sampled_from([1, 2, 3, 4, 9])), max_size=20)


@given(some, some, some, st.sampled_from(["temperature", "wind_speed", "wind_direction"]))
def test_sums_merge_in_any_grouping_and_order(
    a: list[tuple[float, int]], b: list[tuple[float, int]], c: list[tuple[float, int]], quantity: str
) -> None:
    def sums(readings: list[tuple[float, int]], from_us: int) -> Any:
        if not readings:
            return nothing(1)
        values, quality = zip(*readings, strict=True)
        return sums_of(
            np.array([0]),
            from_us + np.arange(len(readings)),
            np.array(values),
            np.array(quality, np.int32),
            np.array([quantity == "wind_direction"]),
            np.array([quantity == "wind_speed"]),
        )

    x, y, z = sums(a, 0), sums(b, 100), sums(c, 200)
    # Each of other times than the others', so the whole is in their order.
    whole = sums([*a, *b, *c], 0)
    times = np.array([*range(len(a)), *range(100, 100 + len(b)), *range(200, 200 + len(c))])
    whole["highest_us"] = times[whole["highest_us"]] if np.isfinite(whole["highest"][0]) else 0
    for together in (
        merged(merged(x, y), z),
        merged(x, merged(y, z)),
        merged(merged(z, x), y),
        merged(merged(merged(x, y), z), nothing(1)),
    ):
        for name in whole.dtype.names:
            got, wanted = together[name][0], whole[name][0]
            if name in ("mean", "squares", "cubes", "east", "north"):
                assert math.isclose(got, wanted, rel_tol=1e-9, abs_tol=1e-6 if name == "cubes" else 1e-7), (
                    name
                )
            else:
                assert got == wanted, name


def seconds(*at_s: float, **others: Any) -> list[Reading]:
    return [
        reading(round(each * 1000), float(each), at_us=START_US + round(each * S), **others) for each in at_s
    ]


def counts(running: RunningIntervals) -> int:
    return int(running.rows([(CUP, START_US)])["count"].to_pylist()[0])


def test_only_an_interval_that_had_no_reading_before_is_taken_up() -> None:
    running = RunningIntervals(60)
    assert running.add(batch(seconds(1, 2)), set()) == set()
    assert running.add(batch(seconds(3)), {(CUP, START_US + 60 * S)}) == set()
    assert running.add(batch(seconds(61)), {(CUP, START_US + 60 * S)}) == {(CUP, START_US + 60 * S)}
    assert running.add(batch([]), set()) == set()


@pytest.mark.parametrize(
    ("readings", "added"),
    [
        (seconds(2.5), True),
        (seconds(3), True),
        (seconds(4, 4), True),
        (seconds(4), False),
        (seconds(4, period_ms=500), True),
        ([*seconds(4), *seconds(5, period_ms=500)], True),
        ([reading(9, math.nan, at_us=START_US + 4 * S)], True),
        ([reading(9, None, at_us=START_US + 4 * S)], True),
    ],
    ids=["late", "same-time", "twice", "corrected", "other-period", "period-changes", "no-number", "null"],
)
def test_what_does_not_continue_it_drops_an_interval_for_good(readings: list[Reading], added: bool) -> None:
    born = {(CUP, START_US)}
    running = RunningIntervals(60)
    assert running.add(batch(seconds(1, 2, 3)), born) == born
    assert counts(running) == 3
    assert running.add(batch(readings, added=added), set()) == set()
    assert running.add(batch(seconds(10, 11)), set()) == set()


def test_a_gust_counts_until_a_reading_more_than_its_three_falls_into_its_seconds() -> None:
    born = {(CUP, START_US)}
    running = RunningIntervals(60)
    running.add(batch([reading(1, 90.0, at_us=START_US), *seconds(0.9, 1.8)]), born)
    row = running.rows(born).to_pylist()[0]
    assert row["gust"] == pytest.approx((90.0 + 0.9 + 1.8) / 3)
    running.add(batch(seconds(2.7)), set())
    row = running.rows(born).to_pylist()[0]
    assert row["gust"] == pytest.approx((0.9 + 1.8 + 2.7) / 3)
    # Now nothing can change the second one any more.
    running.add(batch(seconds(8)), set())
    assert running.rows(born).to_pylist()[0]["gust"] == row["gust"]


def test_an_interval_closed_is_no_more() -> None:
    running = RunningIntervals(60)
    born = {(CUP, START_US)}
    running.add(batch(seconds(1)), born)
    assert running.add(batch(seconds(2)), set()) == born
    running.drop(born)
    assert running.add(batch(seconds(3)), set()) == set()
