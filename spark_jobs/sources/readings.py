"""The readings of given intervals."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from operator import or_
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from cloud.wire.number_set import NumberSet
from spark_jobs.frames import one_of
from spark_jobs.intervals import SECOND_US, Interval, day_of, moment_of
from spark_jobs.schemas import READINGS
from spark_jobs.settings import Settings
from spark_jobs.transforms.statistics import interval_start, timely

_MAX_SPANS: Final = 32
"""Above so many separate stretches of time the files are pruned by date alone."""
_READING: Final = ("gateway", "channel", "quantity", "unit", "time", "period_ms", "value", "quality")


def timely_readings(changes: DataFrame, most: int) -> Any:
    """The readings of known time in a batch of ``table_changes``; None where they are more than so many.

    An Arrow table: gateway, channel, quantity, unit, time, period_ms, value, quality, and ``added``, whether
    a row is new, and not one of before or after a correction.
    """
    rows = (
        changes.where(timely())
        .select(*_READING, (F.col("_change_type") == "insert").alias("added"))
        .limit(most + 1)
        .toArrow()
    )
    return rows if rows.num_rows <= most else None


def readings_in(
    spark: SparkSession, settings: Settings, wanted: Collection[Interval], keys: DataFrame
) -> DataFrame:
    """All readings of the wanted intervals (``keys`` are the same as a frame), with ``interval_start``.

    Reads the dates they lie in, within them only files that can hold their times.
    """
    length_us = settings.interval_s * SECOND_US
    spans = NumberSet((start_us, start_us + length_us - 1) for _, start_us in wanted)
    time = F.col("time")
    readings = spark.read.format("delta").load(settings.table(READINGS.name))
    readings = readings.where(F.col("date").isin(sorted({day_of(start_us) for _, start_us in wanted})))
    if spans.gaps < _MAX_SPANS:
        inside = ((time >= moment_of(first)) & (time < moment_of(last + 1)) for first, last in spans.spans())
        readings = readings.where(reduce(or_, inside))
    return (
        readings.where(timely() & one_of("gateway", (channel[0] for channel, _ in wanted)))
        .withColumn("interval_start", interval_start(time, settings.interval_s))
        .join(F.broadcast(keys), ["gateway", "channel", "interval_start"], "left_semi")
    )
