"""Files that workers make of readings, beside those that Delta's own writer makes of the same rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from spark_jobs.platform.schemas import READINGS
from spark_jobs.platform.session import task_slots
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks import readings as readings_sink
from spark_jobs.sinks.delta import append_files, ensure_table, write_once
from spark_jobs.sinks.readings import IngestSink
from spark_jobs.transforms.packing import files_of, readings_in
from spark_jobs.transforms.validate import parse_batch
from tests.spark.records import (
    KAFKA_US,
    START_US,
    encoded,
    identities,
    kafka_frame,
    kafka_table,
    reading,
    rows_of,
)
from tests.support.servers import eventually

DAY_US = 86_400_000_000
LONG = "m" * 31 + "-of-a-very-long-name"


def rows() -> Any:
    """Readings of two days, with nulls, fields without a column, and names that bounds cut off."""
    made = [
        reading(1, 1.5, gateway=LONG, at_us=START_US + 999_999),
        reading(2, quality=9),
        reading(3, 3.0, extra={"sky": "clear"}, at_us=START_US + 1),
        reading(4, at_us=START_US + DAY_US, channel=f"{'z' * 40}.temperature"),
    ]
    (batch,) = kafka_table(encoded(made), kafka_us=KAFKA_US + DAY_US).to_batches()
    parsed = parse_batch(batch, "dead")
    assert not parsed.rejects.num_rows
    return pa.Table.from_batches([parsed.readings])


def added(location: str) -> dict[str, dict[str, Any]]:
    """What the log's last commit adds, by date."""
    (text,) = sorted(Path(location, "_delta_log").glob("*.json"))[-1:]
    actions = [json.loads(line) for line in text.read_text().splitlines()]
    return {each["add"]["partitionValues"]["date"]: each["add"] for each in actions if "add" in each}


def test_files_are_like_deltas_own(spark: SparkSession, settings: Settings) -> None:
    other = replace(settings, lake=f"{settings.lake}-other")
    ours, theirs = (ensure_table(spark, each, READINGS) for each in (settings, other))
    table = rows()
    append_files(spark, ours, "app", 1, files_of(table))
    write_once(spark.createDataFrame(table).coalesce(1), theirs, "app", 1)
    found, expected = added(ours), added(theirs)
    assert list(found) == list(expected) == ["2026-05-28", "2026-05-29"]
    for date, file in found.items():
        own = expected[date]
        assert file.keys() == own.keys()
        assert json.loads(file["stats"]) == json.loads(own["stats"])
        assert file["size"] == Path(ours, file["path"]).stat().st_size
        schemas = [
            pq.read_schema(Path(place, each["path"])).remove_metadata()
            for place, each in ((ours, file), (theirs, own))
        ]
        assert schemas[0] == schemas[1]
        metadata = pq.read_metadata(Path(ours, file["path"])).row_group(0).column(0)
        assert metadata.compression == "SNAPPY"
    for each in (rows_of(settings, "readings"), spark.read.format("delta").load(ours).toArrow().to_pylist()):
        assert sorted(each, key=repr) == sorted(rows_of(other, "readings"), key=repr)
    assert pa.concat_tables(map(readings_in, files_of(table))).sort_by("seq") == table.sort_by("seq")
    # Bounds lead to one file.
    wanted = DeltaTable(ours).to_pyarrow_table(filters=[("gateway", "=", LONG)])
    assert wanted["seq"].to_pylist() == [1]
    assert spark.read.format("delta").load(ours).where(f"gateway = '{LONG}'").count() == 1


def test_small_files_are_joined_beside_their_writer(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings_sink, "_MANY", 3)
    sink = IngestSink(spark, replace(settings, once=False))
    for number in range(1, 7):
        assert sink.write(kafka_frame(spark, encoded([reading(number)])), "ingest", number).readings == 1
    location = settings.table(READINGS.name)
    eventually(lambda: len(DeltaTable(location).file_uris()), until=lambda count: count < 6)
    # A commit in between is no readings of another job, and nothing is stored again.
    again = sink.write(kafka_frame(spark, encoded(map(reading, range(1, 8)))), "ingest", 7)
    assert (again.readings, again.repeated) == (1, 6)
    assert identities(settings) == [("mast-07", "cup.wind_speed", "run-1", seq) for seq in range(1, 8)]


def test_large_chunks_and_small_ones_hold_each_reading_once(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks have files of their own; where two have a number, or one was seen, these are made anew."""
    monkeypatch.setattr(readings_sink, "_SMALL_BATCH", 3 * task_slots(spark))
    sink = IngestSink(spark, settings, clock=lambda: 0.0)
    records = kafka_frame(spark, []).unionByName(kafka_frame(spark, encoded(map(reading, (1, 2, 3, 4, 5)))))
    assert sink.write(records, "ingest", 1).readings == 5
    # Three partitions: one that is plain, one with what was seen and what the third, a small one, has too.
    plain = kafka_frame(spark, encoded(reading(at, run="run-2") for at in range(1, 5)), first_offset=10)
    again = kafka_frame(spark, encoded(map(reading, (5, 6, 7, 8, 9))), first_offset=20)
    small = kafka_frame(spark, [*encoded([reading(9), reading(11)]), b"bad"], first_offset=15)
    # What is in no memory, as after an hour, is looked up.
    sink = IngestSink(spark, settings, clock=lambda: 0.0)
    counts = sink.write(plain.union(again).union(small), "ingest", 2)
    assert (counts.readings, counts.repeated, counts.quarantined, counts.records) == (9, 2, 1, 12)
    found = [("mast-07", "cup.wind_speed", "run-1", seq) for seq in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11)]
    assert identities(settings) == [
        *found,
        *(("mast-07", "cup.wind_speed", "run-2", at) for at in range(1, 5)),
    ]
    (nine,) = [row for row in rows_of(settings, "readings") if row["seq"] == 9]
    assert nine["kafka_offset"] == 15
    sink.flush()
    assert sink.write(plain.union(again).union(small), "ingest", 3).repeated == 12
    # A batch without records, and one without a reading, even if its rejects are too large for the driver.
    empty = sink.write(kafka_frame(spark, []), "ingest", 4)
    assert (empty.records, empty.newest_us) == (0, None)
    monkeypatch.setattr(readings_sink._Batch, "rejects", lambda batch: None)
    garbage = sink.write(kafka_frame(spark, [b"{", b"", b"x" * 100], first_offset=50), "ingest", 5)
    assert (garbage.quarantined, garbage.readings) == (3, 0)
    assert len(rows_of(settings, "quarantine")) == 4
