"""Interval statistics of a real mast against numpy, how they merge, and what whole pulses add to them."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyspark.sql import SparkSession, functions as F

from drivers.hall_anemometer import HallAnemometerOptions, wind_speed_mps
from spark_jobs.transforms.statistics import begin_of, interval_statistics
from tests.support.servers import shared_data

S = 1_000_000


def by_spark(
    spark: SparkSession, series: dict[str, tuple[Any, Any, Any]], interval_s: int
) -> dict[tuple[str, int], dict[str, Any]]:
    """Statistics by channel and interval start in microseconds, of (time in s, value, quality) by channel."""
    tables = []
    for channel, (times_s, values, flags) in series.items():
        n = len(times_s)
        tables.append(
            pa.table(
                {
                    "gateway": pa.array(["m1"] * n),
                    "channel": pa.array([channel] * n),
                    "run": pa.array(["run"] * n),
                    "seq": pa.array(np.arange(1, n + 1)),
                    "quantity": pa.array([channel.partition(".")[2]] * n),
                    "unit": pa.array(["m/s"] * n),
                    "time": pa.array((np.asarray(times_s) * S).astype(np.int64)).cast(
                        pa.timestamp("us", "UTC")
                    ),
                    "period_ms": pa.array(np.full(n, 1000, dtype=np.int32)),
                    "value": pa.array(values, from_pandas=True),
                    "quality": pa.array(np.asarray(flags, dtype=np.int32)),
                    "clock": pa.array(["synced"] * n),
                    "extra": pa.nulls(n, pa.string()),
                    "ingested_at": pa.array(np.zeros(n, np.int64)).cast(pa.timestamp("us", "UTC")),
                }
            )
        )
    frame = spark.createDataFrame(pa.concat_tables(tables)).repartition(2, "seq")
    frame = frame.withColumn("start_us", begin_of(F.unix_micros("time"), interval_s))
    rows = interval_statistics(frame, interval_s).toArrow()
    starts = rows["interval_start"].cast(pa.int64()).to_pylist()
    return {(row["channel"], start): row for row, start in zip(rows.to_pylist(), starts, strict=True)}


def by_numpy(times_s: Any, values: Any, flags: Any, start_s: int, interval_s: int) -> dict[str, Any]:
    """One interval's statistics of a channel of 1-s readings, from the definitions; in long doubles."""
    inside = (times_s >= start_s) & (times_s < start_s + interval_s)
    t, v, q = times_s[inside], values[inside], flags[inside]
    valid = np.isin(q, (1, 2))
    x = v[valid].astype(np.longdouble)
    at = dict(zip(t[valid].tolist(), v[valid].tolist(), strict=True))
    gusts = [(sum(at[s + k] for k in range(3)) / 3, -s) for s in at if s + 1 in at and s + 2 in at]
    n = len(x)
    mean = x.sum() / n if n else None
    return {
        "count": n,
        "avg": None if mean is None else float(mean),
        "sd": None if mean is None or n < 2 else float(np.sqrt(((x - mean) ** 2).sum() / (n - 1))),
        "min": float(x.min()) if n else None,
        "max": float(x.max()) if n else None,
        "cube_mean": float((x**3).sum() / n) if n else None,
        "gust": max(gusts)[0] if gusts else None,
        "gust_time": -max(gusts)[1] if gusts else None,
        "max_time": min(s for s, each in at.items() if each == max(at.values())) if at else None,
        "recovery": n / interval_s,
        "n_good": int((q == 1).sum()),
        "n_not_evaluated": int((q == 2).sum()),
        "n_suspect": int((q == 3).sum()),
        "n_fail": int((q == 4).sum()),
        "n_missing": int((q == 9).sum()),
    }


def agree(row: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        got = row[name]
        if isinstance(got, datetime):
            got = got.timestamp()
        if name == "cube_mean" and row["quantity"] != "wind_speed":
            assert got is None
        elif value is None:
            assert got is None, name
        else:
            assert got == pytest.approx(value, rel=1e-9, abs=1e-12), name


def test_statistics_equal_numpy_on_made_and_on_real_data(spark: SparkSession) -> None:
    rng = np.random.default_rng(11)
    begin_s = 1_780_000_200
    seconds = np.arange(begin_s, begin_s + 1200)
    series: dict[str, tuple[Any, Any, Any]] = {}
    # A pressure, whose spread is tiny beside its mean, a wind, and readings of all flags with gaps.
    for name, values in (
        ("baro.pressure", 78.4 + rng.normal(0, 1e-6, 1200)),
        ("cup.wind_speed", np.abs(rng.normal(8, 2, 1200))),
        ("bad.wind_speed", rng.normal(8, 2, 1200)),
    ):
        flags = rng.choice([1, 2, 3, 4, 9], 1200, p=[0.7, 0.1, 0.1, 0.05, 0.05])
        flags = np.where(seconds < begin_s + 600, flags, 3) if name.startswith("bad") else flags
        there = rng.random(1200) > 0.05
        values = np.where(flags == 9, np.nan, values)
        series[name] = seconds[there], values[there], flags[there]
    path = shared_data("mast_1s_20min.csv")
    if path is not None:
        with path.open(newline="") as file:
            lines = list(csv.DictReader(file))
        times = np.array([round(datetime.fromisoformat(line["timestamp"]).timestamp()) for line in lines])
        for column in lines[0].keys() - {"timestamp"}:
            values = np.array([float(line[column] or "nan") for line in lines])
            quantity = "wind_speed" if column.startswith("wind_speed") else column
            series[f"{column}.{quantity}"] = times, values, np.where(np.isnan(values), 9, 1)
    rows = by_spark(spark, series, 600)
    checked = 0
    for channel, (times, values, flags) in series.items():
        for start_s in sorted(set((times // 600 * 600).tolist())):
            agree(rows[channel, start_s * S], by_numpy(times, values, flags, start_s, 600))
            checked += 1
    assert checked == len(rows)
    assert checked >= 6 if path is None else checked >= 20

    # Minutes merge into the ten minutes they make up.
    minutes = by_spark(spark, {"cup.wind_speed": series["cup.wind_speed"]}, 60)
    for start_s in (begin_s, begin_s + 600):
        whole = rows["cup.wind_speed", start_s * S]
        parts = [minutes["cup.wind_speed", (start_s + 60 * n) * S] for n in range(10)]
        merged = reduce(merge, [Moments.of_row(part) for part in parts])
        assert merged.n == whole["count"]
        assert merged.mean == pytest.approx(whole["avg"], rel=1e-9)
        assert math.sqrt(merged.m2 / (merged.n - 1)) == pytest.approx(whole["sd"], rel=1e-9)
        assert (merged.low, merged.high) == (whole["min"], whole["max"])


@dataclass(frozen=True)
class Moments:
    """Count, mean, sum of squared deviations, lowest, highest."""

    n: int
    mean: float
    m2: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Moments:
        mean = math.fsum(values) / len(values)
        return cls(len(values), mean, math.fsum((v - mean) ** 2 for v in values), min(values), max(values))

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> Moments:
        n = row["count"]
        return cls(n, row["avg"], (row["sd"] or 0.0) ** 2 * (n - 1), row["min"], row["max"])


def merge(a: Moments, b: Moments) -> Moments:
    """Both together, by their central moments (Chan, Golub, LeVeque 1979)."""
    n = a.n + b.n
    delta = b.mean - a.mean
    return Moments(
        n,
        a.mean + delta * b.n / n,
        a.m2 + b.m2 + delta * delta * a.n * b.n / n,
        min(a.low, b.low),
        max(a.high, b.high),
    )


some = st.lists(st.floats(-100, 100), min_size=1, max_size=30)


@given(some, some, some)
def test_moments_merge_in_any_grouping_and_order(a: list[float], b: list[float], c: list[float]) -> None:
    x, y, z = Moments.of(a), Moments.of(b), Moments.of(c)
    whole = Moments.of(a + b + c)
    for merged in (merge(merge(x, y), z), merge(x, merge(y, z)), merge(merge(z, x), y)):
        assert (merged.n, merged.low, merged.high) == (whole.n, whole.low, whole.high)
        assert merged.mean == pytest.approx(whole.mean, rel=1e-9, abs=1e-10)
        assert merged.m2 == pytest.approx(whole.m2, rel=1e-9, abs=1e-8)


def counted(speeds_mps: Any, cup: HallAnemometerOptions, steps: int) -> Any:
    """What a cup reports of a wind given ``steps`` times a second: whole pulses of each second."""
    turns = np.concatenate(([0.37], 0.37 + np.cumsum((speeds_mps - cup.offset) / cup.slope / steps)))
    pulses = np.diff(np.floor(turns[::steps]))
    return np.array([wind_speed_mps(hz, cup) for hz in pulses])


def test_whole_pulses_add_noise_to_sd() -> None:
    rng = np.random.default_rng(40)
    cup = HallAnemometerOptions(pin=4, slope=0.765, offset=0.35)
    steps, seconds = 10, 200_000
    # A gusty wind of 8 m/s: the mean speed of each second is that of an ideal counter.
    gusts = rng.normal(0, 0.8, seconds)
    speeds = np.repeat(8.0 + gusts, steps)
    ideal = speeds.reshape(seconds, steps).mean(axis=1)
    noise = counted(speeds, cup, steps) - ideal
    # Each end of a second lies somewhere between two pulses: slope/sqrt(12) an end, sqrt(2) of it for both.
    one_end = cup.slope / math.sqrt(12)
    assert one_end == pytest.approx(0.2208, abs=1e-4)
    assert np.std(noise) == pytest.approx(math.sqrt(2) * one_end, rel=0.01)
    # It adds to sd in squares, and takes nothing from the mean.
    measured = counted(speeds, cup, steps)
    assert np.var(measured) == pytest.approx(np.var(ideal) + 2 * one_end**2, rel=0.01)
    assert abs(noise.mean()) <= cup.slope / seconds

    # A count that begins with a pulse has but one such end; it is low by half a pulse.
    fresh = cup.slope * np.floor((ideal - cup.offset) / cup.slope) + cup.offset - ideal
    assert np.std(fresh) == pytest.approx(one_end, rel=0.01)
    assert fresh.mean() == pytest.approx(-cup.slope / 2, rel=0.01)


def test_in_a_steady_wind_the_noise_depends_on_the_fraction_of_a_pulse() -> None:
    cup = HallAnemometerOptions(pin=4, slope=0.765, offset=0.35)
    for fraction in (0.0, 0.1, 0.5, 0.8):
        speed_mps = cup.offset + cup.slope * (10 + fraction)
        measured = counted(np.full(20_000, speed_mps), cup, 1)
        expected = cup.slope * math.sqrt(fraction * (1 - fraction))
        assert np.std(measured) == pytest.approx(expected, rel=0.01, abs=1e-9)
