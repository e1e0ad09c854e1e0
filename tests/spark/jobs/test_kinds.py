"""Statistics by kind of readings that come late, shuffled and twice, against independent computations."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from pyspark.sql import SparkSession

from cloud.wire.reading_records import Reading
from spark_jobs.jobs.statistics import StatisticsJob
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.readings import IngestSink
from tests.spark.records import START_US, encoded, kafka_frame, reading, rows_of
from tests.spark.running import started
from tests.support.directions import apart, by_pairs

VANE, RAIN, PUMP, LEAF = "vane.wind_direction", "rain.precipitation", "pump.state", "tree.leaf_turn"
SECONDS = 180
M = 60_000_000


def made() -> list[Reading]:
    """Three minutes: a vane about north, rain, a pump, and a quantity of a config's own."""
    rng = np.random.default_rng(17)
    values = {
        VANE: rng.normal(1.0, 15.0, SECONDS) % 360,
        RAIN: rng.poisson(0.3, SECONDS) * 0.2,
        PUMP: (rng.random(SECONDS) < 0.3).astype(float),
        LEAF: rng.normal(359.0, 5.0, SECONDS) % 360,
    }
    return [
        reading(
            at + 1,
            float(values[channel][at]),
            channel=channel,
            quality=int(rng.choice([1, 2, 3], p=[0.8, 0.1, 0.1])),
            extra={"quantity_kind": "direction"} if channel == LEAF else None,
        )
        for at in range(SECONDS)
        for channel in values
    ]


def test_late_and_doubled_readings_of_each_kind(spark: SparkSession, settings: Settings) -> None:
    settings = replace(settings, once=False)
    readings, rng = made(), np.random.default_rng(18)
    shuffled = [readings[at] for at in rng.permutation(len(readings))]
    # The second half has some of the first again, and of its own.
    first, second = shuffled[: len(shuffled) // 2], shuffled[len(shuffled) // 2 :]
    batches = [first, second + first[::4] + second[::5]]
    sink, job = IngestSink(spark, settings), StatisticsJob(spark, settings)
    query = started(settings, job)
    try:
        for number, batch in enumerate(batches):
            frame = kafka_frame(spark, encoded(batch), first_offset=number * 1000)
            sink.write(frame, "ingest-test", number)
            query.processAllAvailable()
    finally:
        query.stop()
    job.finish()

    counted: dict[tuple[str, int], list[float]] = defaultdict(list)
    for each in readings:
        if each.quality <= 2 and each.value is not None:
            counted[each.channel, (each.time_us - START_US) // M].append(each.value)
    rows = rows_of(settings, "statistics")
    assert len(rows) == len(counted) == 12
    for row in rows:
        minute = (round(row["interval_start"].timestamp() * 1e6) - START_US) // M
        values = counted[row["channel"], minute]
        assert row["count"] == len(values)
        if row["channel"] in (VANE, LEAF):
            avg, sd = by_pairs(values)
            assert avg is not None
            assert apart(row["avg"], avg) < 1e-9
            assert row["sd"] == pytest.approx(sd, abs=1e-9)
            assert (row["sum"], row["rate"], row["changes"], row["max"]) == (None, None, None, None)
        elif row["channel"] == RAIN:
            assert row["sum"] == pytest.approx(math.fsum(values), rel=1e-12)
            assert row["rate"] == pytest.approx(math.fsum(values) * 3600 / len(values), rel=1e-12)
        else:
            assert row["avg"] == pytest.approx(sum(values) / len(values), rel=1e-12)
            assert row["changes"] == sum(a != b for a, b in itertools.pairwise(values))
