"""Readings and Kafka records made for the tests, and the tables read back without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from cloud.wire.avro_readings import SCHEMA, head, to_avro
from cloud.wire.quantities import QUANTITIES
from cloud.wire.reading_records import Reading, encode_reading
from spark_jobs.platform.schemas import READINGS, Table
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table
from spark_jobs.sinks.records import RecordSink
from spark_jobs.transforms.records import record_rows
from spark_jobs.transforms.validate import parse_batch

START_US = 1_780_000_020_000_000
"""2026-05-28T20:27:00Z: the beginning of a minute."""
KAFKA_US = START_US + 3_600_000_000


def reading(
    seq: int,
    value: float | None = 7.25,
    *,
    gateway: str = "mast-07",
    channel: str = "cup.wind_speed",
    run: str = "run-1",
    at_us: int | None = None,
    period_ms: int = 1000,
    quality: int = 1,
    clock: str = "synced",
    extra: dict[str, Any] | None = None,
) -> Reading:
    quantity = channel.partition(".")[2]
    return Reading(
        gateway=gateway,
        channel=channel,
        quantity=quantity,
        unit=QUANTITIES[quantity].unit if quantity in QUANTITIES else "1",
        time_us=START_US + (seq - 1) * period_ms * 1000 if at_us is None else at_us,
        period_ms=period_ms,
        value=None if quality == 9 else value,
        raw=9.5,
        raw_unit="Hz",
        quality=quality,
        reasons=("READ_ERROR",) if quality == 9 else (),
        run=run,
        seq=seq,
        clock=clock,
        cal="5d1c0a7e",
        extra=extra,
    )


_PLAIN_COLUMNS = pa.schema(
    [
        ("gateway", pa.string()),
        ("channel", pa.string()),
        ("run", pa.string()),
        ("seq", pa.int64()),
        ("quantity", pa.string()),
        ("unit", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("period_ms", pa.int32()),
        ("value", pa.float64()),
        ("quality", pa.int32()),
        ("clock", pa.string()),
        ("extra", pa.string()),
        ("ingested_at", pa.timestamp("us", tz="UTC")),
    ]
)


def reading_table(readings: Iterable[Reading]) -> Any:
    """Readings as an Arrow table, with what statistics need of the table ``readings``."""
    places = {"time": "time_us", "ingested_at": "time_us"}
    rows = [
        {
            **{name: getattr(each, places.get(name, name)) for name in _PLAIN_COLUMNS.names},
            "extra": json.dumps(each.extra) if each.extra else None,
        }
        for each in readings
    ]
    return pa.Table.from_pylist(rows, schema=_PLAIN_COLUMNS)


KAFKA_ROWS = pa.schema(
    [
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def kafka_frame(spark: SparkSession, values: Sequence[bytes | None], **more: Any) -> DataFrame:
    """Records as the Kafka source gives them, in one partition; ``more`` as of ``kafka_table``."""
    return spark.createDataFrame(kafka_table(values, **more))


def kafka_table(
    values: Sequence[bytes | None],
    first_offset: int = 0,
    topic: str = "mqtt.wind_speed",
    kafka_us: int = KAFKA_US,
    headers: list[dict[str, Any]] | None = None,
    key: bytes | None = b"mast-07/cup.wind_speed",
) -> Any:
    """Kafka records as an Arrow table."""
    rows = [
        {
            "value": value,
            "key": key,
            "topic": topic,
            "partition": 0,
            "offset": first_offset + at,
            "timestamp": kafka_us,
            "headers": headers,
        }
        for at, value in enumerate(values)
    ]
    return pa.Table.from_pylist(rows, schema=KAFKA_ROWS)


def encoded(readings: Iterable[Reading]) -> list[bytes]:
    return [encode_reading(item) for item in readings]


SCHEMAS: Final = {7: SCHEMA}
"""What a registry has given the id 7 to."""


def in_avro(given: Reading, schema_id: int = 7) -> bytes:
    """A reading as Avro, by the schema of this version."""
    value = to_avro(encode_reading(given), head(schema_id))
    assert value is not None
    return value


def append_readings(
    spark: SparkSession, settings: Settings, readings: Iterable[Reading], kafka_us: int = KAFKA_US
) -> None:
    """A commit of ``readings``, made by delta-rs of the rows that ``ingest`` makes.

    For tests of what follows the table: its own sink takes a second of CPU for each batch, this nothing.
    """
    location = settings.table(READINGS.name)
    if not DeltaTable.is_deltatable(location):
        ensure_table(spark, settings, READINGS)
    (batch,) = kafka_table(encoded(readings), kafka_us=kafka_us).to_batches()
    write_deltalake(location, pa.Table.from_batches([parse_batch(batch, "dead").readings]), mode="append")


def append_rows(spark: SparkSession, settings: Settings, table: Table, rows: list[dict[str, Any]]) -> None:
    """A commit of a table, by delta-rs too, of rows with some of its columns."""
    location = ensure_table(spark, settings, table)
    write_deltalake(location, pa.Table.from_pylist(rows, schema=to_arrow_schema(table.schema)), mode="append")


def merge_records(sink: RecordSink, records: DataFrame) -> tuple[int, list[dict[str, Any]]]:
    """Kafka's records into the table of a kind, as ingest-records does."""
    return sink.merge(record_rows(records, sink.kind).toArrow().to_pylist())


def rows_of(settings: Settings, table: str) -> list[dict[str, Any]]:
    """A table's rows, in no order."""
    rows: list[dict[str, Any]] = DeltaTable(settings.table(table)).to_pyarrow_table().to_pylist()
    return rows


def identities(settings: Settings) -> list[tuple[str, str, str, int]]:
    """Identities in ``readings``, ascending, repeats kept."""
    return sorted(
        (row["gateway"], row["channel"], row["run"], row["seq"]) for row in rows_of(settings, "readings")
    )


_ARRIVAL = ("kafka_", "ingested_at", "updated_at", "replayed", "version")


def contents(settings: Settings, table: str) -> list[dict[str, Any]]:
    """A table without the columns of how and when rows arrived, in a fixed order."""
    rows = [
        {name: value for name, value in row.items() if not name.startswith(_ARRIVAL)}
        for row in rows_of(settings, table)
    ]
    return sorted(rows, key=repr)
