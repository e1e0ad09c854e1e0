"""Readings and intervals for the rules, from Spark into the driver's memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from cloud.wire.identities import NOBODY, Identities
from cloud.wire.reading_records import UNSYNCED
from spark_jobs.alerting.gateway_state import Sample
from spark_jobs.sinks.reading_schemas import ReadingSchemas
from spark_jobs.transforms.validate import parse_batch

_START_US: Final = "unix_micros(interval_start) as start_us"


def collect_samples(
    records: DataFrame, dead_letter_topic: str, schemas: ReadingSchemas, identities: Identities = NOBODY
) -> list[Sample]:
    """What may be evaluated of Kafka records: readings, those of a channel in their order.

    One whose clock was not set has no value and is late: it shows that its gateway is there.

    One Spark job brings the records; they are validated here, in the driver: a Python worker's round trip is
    longer than what a second's records take.
    """
    table = records.select("value", "key", "topic", "partition", "offset", "timestamp", "headers").toArrow()
    samples: list[Sample] = []
    for batch in table.combine_chunks().to_batches():
        if not batch.num_rows:
            continue
        parsed = parse_batch(batch, dead_letter_topic, identities, schemas.known)
        if parsed.unknown and schemas.learn(parsed.unknown):
            parsed = parse_batch(batch, dead_letter_topic, identities, schemas.known)
        samples += _samples(parsed.readings)
    return samples


def _samples(readings: Any) -> Iterator[Sample]:
    names = ("gateway", "channel", "time", "period_ms", "value", "quality", "replayed", "kafka_time")
    columns = {
        name: column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for name, column in ((name, readings[name]) for name in names)
    }
    unsynced = pc.equal(readings["clock"], UNSYNCED)
    columns["value"] = pc.if_else(unsynced, None, columns["value"])
    columns["replayed"] = pc.or_(unsynced, columns["replayed"])
    columns["period_ms"] = pc.multiply(columns["period_ms"].cast(pa.int64()), 1000)
    return map(Sample, *(columns[name].to_pylist() for name in names))


def recovery_rows(changes: DataFrame, interval_s: int) -> DataFrame:
    """Closed intervals of ``statistics`` of one length."""
    closed = changes.where(f"interval_s = {interval_s} and version >= 1 and recovery is not null")
    return closed.selectExpr("gateway", "channel", _START_US, "recovery as measure", "version")


def presence_rows(changes: DataFrame, interval_s: int) -> DataFrame:
    """Each time of each gateway; the measure is 1 where two with its name run at once."""
    return changes.selectExpr(
        "gateway", "cast(null as string) as channel", "unix_micros(updated_at) as start_us",
        "cast(state = 'cloned' as double) as measure", "1 as version",
    ).distinct()  # fmt: skip


def anomaly_rows(changes: DataFrame, interval_s: int) -> DataFrame:
    """Scored intervals of one length; the measure is the score as a multiple of its threshold."""
    scored = changes.where(f"interval_s = {interval_s} and threshold > 0 and score is not null")
    return scored.selectExpr(
        "gateway", "cast(null as string) as channel", _START_US, "score / threshold as measure",
        "version", "try_element_at(channels, 1).channel as about",
    )  # fmt: skip
