"""The tables: columns as in the contract, and how each is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_STRING: Final = StringType()
_TIME: Final = TimestampType()
_LONG: Final = LongType()
_INT: Final = IntegerType()
_DOUBLE: Final = DoubleType()


def _columns(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


@dataclass(frozen=True)
class Table:
    """A Delta table: its name under the lake, columns, and storage."""

    name: str
    schema: StructType
    partitioned_by_date: bool = False
    change_feed: bool = False


_KAFKA: Final = _columns(
    kafka_topic=_STRING, kafka_partition=_INT, kafka_offset=_LONG, kafka_time=_TIME, ingested_at=_TIME
).fields

_READING: Final = _columns(
    gateway=_STRING,
    channel=_STRING,
    run=_STRING,
    seq=_LONG,
    quantity=_STRING,
    unit=_STRING,
    time=_TIME,
    period_ms=_INT,
    value=_DOUBLE,
    raw=_DOUBLE,
    raw_unit=_STRING,
    quality=_INT,
    reasons=ArrayType(_STRING),
    clock=_STRING,
    cal=_STRING,
    latitude=_DOUBLE,
    longitude=_DOUBLE,
    altitude_m=_DOUBLE,
    replayed=BooleanType(),
    extra=_STRING,
).fields

HEADERS: Final = ArrayType(StructType([StructField("key", _STRING), StructField("value", BinaryType())]))
"""Kafka headers as they are: names may repeat, values are any bytes."""

_REJECTED: Final = _columns(
    reason=_STRING, payload=BinaryType(), payload_bytes=_LONG, key=_STRING, headers=HEADERS, source=_STRING
).fields

PARSED: Final = StructType([*_READING, *_REJECTED, *_KAFKA])
"""A Kafka record after validation: the reading's columns, or ``reason`` and the rejected record's."""

READINGS: Final = Table(
    "readings",
    StructType([*_READING, *_KAFKA, StructField("date", DateType())]),
    partitioned_by_date=True,
    change_feed=True,
)
QUARANTINE: Final = Table("quarantine", StructType([*_REJECTED, *_KAFKA]))

SEEN: Final = Table(
    "_seen",
    _columns(
        gateway=_STRING, channel=_STRING, run=_STRING, first_seq=_LONG, last_seq=_LONG, readings_version=_LONG
    ),
)
"""Ranges of ``seq`` that ``readings`` holds, up to its version ``readings_version``; rows may overlap.

Internal: derived from ``readings`` and rebuilt from it when lost.
"""

STATISTICS: Final = Table(
    "statistics",
    _columns(
        gateway=_STRING,
        channel=_STRING,
        interval_s=_INT,
        interval_start=_TIME,
        quantity=_STRING,
        unit=_STRING,
        avg=_DOUBLE,
        min=_DOUBLE,
        max=_DOUBLE,
        sd=_DOUBLE,
        gust=_DOUBLE,
        max_time=_TIME,
        gust_time=_TIME,
        cube_mean=_DOUBLE,
        count=_LONG,
        expected=_DOUBLE,
        recovery=_DOUBLE,
        n_good=_LONG,
        n_not_evaluated=_LONG,
        n_suspect=_LONG,
        n_fail=_LONG,
        n_missing=_LONG,
        quality=_INT,
        version=_INT,
        updated_at=_TIME,
        date=DateType(),
    ),
    partitioned_by_date=True,
    change_feed=True,
)
