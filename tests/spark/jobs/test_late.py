"""One-second data in any order of arrival: the tables come out the same."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from cloud.wire.reading_records import Reading
from spark_jobs.platform.registry import STREAMING, load
from spark_jobs.platform.schemas import MAST, READINGS, STATISTICS
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.readings import IngestSink
from tests.spark.records import START_US, encoded, kafka_frame, reading
from tests.spark.results import note
from tests.spark.running import started

S: Final = 1_000_000
_DERIVED: Final = ("statistics", "mast")
_ARRIVAL: Final = ("kafka_", "ingested_at", "updated_at", "replayed", "version")
_QUANTITIES: Final = ("wind_speed", "temperature", "wind_direction")

Batches = list[list[Reading]]


def series(channel: str, seconds: int, rng: np.random.Generator) -> list[Reading]:
    """One-second readings with all flags, lost ones, a whole interval lost, a period that changes.

    The second half begins a new run, and from two thirds on the period is 2 s.
    """
    values = np.abs(rng.normal(8, 2, seconds)).round(3)
    flags = rng.choice([1, 2, 3, 4, 9], seconds, p=[0.86, 0.05, 0.04, 0.03, 0.02])
    there = rng.random(seconds) > 0.01
    hole = range(seconds // 4, seconds // 4 + max(130, seconds // 100))
    readings = []
    for at in range(seconds):
        slow = at >= seconds * 2 // 3
        if not there[at] or at in hole or (slow and at % 2):
            continue
        half = at >= seconds // 2
        readings.append(
            reading(
                at + 1 - (seconds // 2 if half else 0),
                float(values[at]),
                channel=channel,
                run="run-2" if half else "run-1",
                at_us=START_US + at * S,
                period_ms=2000 if slow else 1000,
                quality=int(flags[at]),
            )
        )
    return readings


def batched(readings: Sequence[Reading], batches: int) -> Batches:
    return [list(readings[part[0] : part[-1] + 1]) for part in np.array_split(range(len(readings)), batches)]


def twice(readings: Sequence[Reading], rng: np.random.Generator) -> list[Reading]:
    """With a copy of every twentieth some time after it: in the same batch or in a later one."""
    again = set(rng.choice(len(readings), len(readings) // 20, replace=False).tolist())
    places = [(float(at), item) for at, item in enumerate(readings)]
    places += [(at + float(rng.integers(0, len(readings) // 4)), readings[at]) for at in again]
    return [item for _, item in sorted(places, key=lambda placed: placed[0])]


def deliveries(
    readings: list[Reading], seconds: int, batches: int, rng: np.random.Generator
) -> dict[str, Batches]:
    """The same readings in order; with an outage's after newer ones; shuffled; some of them twice."""
    outage = range(START_US + seconds * S * 3 // 8, START_US + seconds * S * 5 // 8)
    # Shuffled within an hour of a day.
    late_us = rng.uniform(0, seconds * S / 24, len(readings))
    shuffled = [readings[at] for at in np.argsort([item.time_us for item in readings] + late_us)]

    def replayed(items: list[Reading]) -> Batches:
        live = [item for item in items if item.time_us not in outage]
        late = [item for item in items if item.time_us in outage]
        return [*batched(live, batches // 2), *batched(late, batches // 2)]

    return {
        "in order": batched(readings, batches // 2),
        "outage replayed": replayed(readings),
        "shuffled": batched(shuffled, batches),
        "5 % twice": batched(twice(readings, rng), batches),
    }


def deliver(spark: SparkSession, settings: Settings, batches: Batches) -> None:
    """The batches one after the other, and after each what follows from it, as running jobs do."""
    sink = IngestSink(spark, settings)
    jobs = [load(STREAMING[name])(spark, settings) for name in _DERIVED]
    queries = [started(settings, job) for job in jobs]
    try:
        offset = 0
        for number, batch in enumerate(batches):
            frame = kafka_frame(spark, encoded(batch), first_offset=offset, kafka_us=START_US + 90_000 * S)
            sink.write(frame, "ingest-test", number)
            offset += len(batch)
            for query in queries:
                query.processAllAvailable()
        for job, query in zip(jobs, queries, strict=True):
            query.processAllAvailable()
            job.finish()
    finally:
        for query in queries:
            query.stop()


def content(settings: Settings, name: str) -> Any:
    """A table but for the columns of arrival, in the order of its key."""
    table = DeltaTable(settings.table(name)).to_pyarrow_table()
    kept = [column for column in table.column_names if not column.startswith(_ARRIVAL)]
    key = {each.name: each.key for each in (READINGS, STATISTICS, MAST)}
    return table.select(kept).sort_by([(column, "ascending") for column in key[name]])


@pytest.mark.timeout(7200)
def test_tables_are_the_same_whatever_the_order_of_arrival(
    spark: SparkSession, settings: Settings, full: bool
) -> None:
    if not full:
        pytest.skip("only with --full: late, missing and repeated readings have tests of their own")
    seconds, channels, batches = 86_400, 4, 8
    settings = replace(settings, once=False, interval_s=600)
    rng = np.random.default_rng(6)
    readings = sorted(
        (
            item
            for number in range(channels)
            for item in series(f"s{number}.{_QUANTITIES[number % 3]}", seconds, rng)
        ),
        key=lambda item: item.time_us,
    )
    began_s = time.monotonic()
    first: dict[str, Any] = {}
    plans = deliveries(readings, seconds, batches, rng)
    for at, (name, plan) in enumerate(plans.items()):
        mine = replace(settings, lake=f"{settings.lake}-{at}", checkpoints=f"{settings.checkpoints}-{at}")
        deliver(spark, mine, plan)
        for table in (READINGS.name, *_DERIVED):
            found = content(mine, table)
            if table not in first:
                first[table] = found
            assert found.num_rows == first[table].num_rows, (name, table)
            assert found.equals(first[table]), (name, table)
    assert first["readings"].num_rows == len(readings)
    missing = pc.sum(pc.equal(first["statistics"]["quality"], 9)).as_py()
    assert missing >= channels
    figures = {"readings": len(readings), "statistics": first["statistics"].num_rows, "missing": missing}
    figures |= {
        "tables": len(first),
        "seconds": round(time.monotonic() - began_s),
        "load": round(os.getloadavg()[0]),
    }
    note("late: a day in four orders of arrival", figures)
