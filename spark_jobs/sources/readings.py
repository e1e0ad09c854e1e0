"""The readings of given intervals."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession, functions as F

from cloud.wire.number_set import NumberSet
from spark_jobs.frames import few_of, one_of
from spark_jobs.intervals import SECOND_US, day_of, moment_of
from spark_jobs.schemas import READINGS
from spark_jobs.settings import Settings
from spark_jobs.transforms.statistics import CHANNEL, begin_of, timely

_MAX_SPANS: Final = 32
"""Above so many separate stretches of time the files are pruned by date alone."""


def readings_in(
    spark: SparkSession, settings: Settings, wanted: DataFrame, starts: Collection[Row]
) -> DataFrame:
    """All readings of the wanted intervals (gateway, channel, start_us), with ``start_us``.

    ``starts`` are those that occur: start_us, and the ``first`` and ``last`` of the gateways. Reads the dates
    they lie in, within them only files that can hold their times and gateways.
    """
    starts_us = [row.start_us for row in starts]
    gateways = {name for row in starts for name in (row.first, row.last)}
    length_us = settings.interval_s * SECOND_US
    spans = NumberSet((start_us, start_us + length_us - 1) for start_us in starts_us)
    time = F.col("time")
    readings = spark.read.format("delta").load(settings.table(READINGS.name))
    readings = readings.where(F.col("date").isin(sorted({day_of(start_us) for start_us in starts_us})))
    if spans.gaps < _MAX_SPANS:
        inside = ((time >= moment_of(first)) & (time < moment_of(last + 1)) for first, last in spans.spans())
        readings = readings.where(reduce(or_, inside))
    # Which they are takes a Spark job, unless it is one.
    by_gateway = one_of("gateway", gateways) if len(gateways) == 1 else few_of("gateway", wanted)
    return (
        readings.where(timely() & by_gateway)
        .withColumn("start_us", begin_of(F.unix_micros(time), settings.interval_s))
        .join(F.broadcast(wanted.select(*CHANNEL, "start_us")), [*CHANNEL, "start_us"], "left_semi")
    )
