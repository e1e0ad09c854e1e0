"""What new readings and rejects mean for presence: when channels sent last, and which numbers are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it
from pyspark.sql.types import LongType, StringType, StructField, StructType

from cloud.wire.reading_records import claimed_identity
from spark_jobs.transforms.statistics import timely

_IDENTITY: Final = ("gateway", "channel", "run")


def arrivals(readings: DataFrame) -> DataFrame:
    """One row per (gateway, channel): last_seen_us (arrival), and time_us, value, period_ms of the newest.

    The newest is by the readings' own time; of one whose clock was not set it isn't known.
    """
    newest = F.max_by(
        F.struct("time", "value", "period_ms"), F.when(timely(), F.struct("time", "run", "seq"))
    )
    return (
        readings.groupBy("gateway", "channel")
        .agg(F.unix_micros(F.max("kafka_time")).alias("last_seen_us"), newest.alias("newest"))
        .select(
            "gateway",
            "channel",
            "last_seen_us",
            F.unix_micros("newest.time").alias("time_us"),
            "newest.value",
            "newest.period_ms",
        )
    )


_CLAIMED: Final = StructType(
    [*(StructField(name, StringType()) for name in _IDENTITY), StructField("seq", LongType())]
)


def _claims(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        found = [claimed_identity(payload) for payload in batch["payload"].to_pylist() if payload]
        columns = list(zip(*filter(None, found), strict=True)) or [()] * 4
        arrays = [pa.array(values, pa.string()) for values in columns[:3]]
        yield pa.RecordBatch.from_arrays([*arrays, pa.array(columns[3], pa.int64())], names=_CLAIMED.names)


def claimed(rejects: DataFrame) -> DataFrame:
    """The readings that rejects claim to be, as far as they do: gateway, channel, run, seq.

    A forged one claims what its gateway never issued.
    """
    issued = rejects.where("overflow is null and reason <> 'FORGED'")
    return issued.select("payload").mapInArrow(_claims, _CLAIMED)
