"""One parsed batch into ``readings`` and ``quarantine``, each record once.

Order of a batch: quarantine, readings, seen ranges; each write carries the same app id and batch number, so
a batch that runs again after a crash repeats nothing. The app id carries the checkpoint's generation (the
query id, new when a checkpoint is lost), because a new checkpoint counts batches from 0 again. What is new
is decided by content: for readings by the seen ranges, for rejects by looking into ``quarantine`` itself
when their offsets are not above all it holds (only after a lost checkpoint, or on a topic that was created
anew).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.metrics import LATE_S
from spark_jobs.schemas import QUARANTINE, READINGS, SEEN
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import ensure_table, table_version, write_once
from spark_jobs.state.seen import Identity, Range, SeenRanges, ranges_of
from spark_jobs.transforms.dedupe import readings_of, rejects_of, unquarantined, unseen_readings

_COMPACT_EVERY: Final = 100
"""Batches after which the log of seen ranges is written anew as what it amounts to."""
_SMALL_BATCH: Final = 50_000
"""Up to here one file per batch and date is better than one per task."""


@dataclass(frozen=True)
class BatchCounts:
    """What became of one batch's records; they add up to ``records``.

    ``reasons`` are those of the quarantined; ``late`` of the batch's readings were so, repeats included;
    ``newest_us`` is the highest timestamp Kafka gave to one of its records.
    """

    records: int
    readings: int
    quarantined: int
    repeated: int
    reasons: Mapping[str, int]
    late: int
    newest_us: int | None


@dataclass
class _Contents:
    """What a batch holds: seqs per (gateway, channel, run), offsets of rejects per (topic, partition)."""

    seqs: dict[Identity, Any] = field(default_factory=dict)
    offsets: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    late: int = 0
    newest_us: int | None = None


class IngestSink:
    """Writes parsed batches. Owned by the thread that runs the query's batches."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        self._readings = ensure_table(spark, settings, READINGS)
        self._quarantine = ensure_table(spark, settings, QUARANTINE)
        self._seen_table = ensure_table(spark, settings, SEEN)
        self._seen = self._load_seen()
        self._quarantined = self._load_quarantined()

    def write(self, parsed: DataFrame, app: str, batch: int) -> BatchCounts:
        """Stores one batch; doing it again with the same app and batch changes nothing."""
        parsed = parsed.persist()
        try:
            contents = _contents(parsed)
            rejects, new_reasons = contents.reasons.total(), Counter[str]()
            if rejects:
                new_reasons = self._write_rejects(parsed, contents, app, batch)
            rows, new_rows = sum(map(len, contents.seqs.values())), 0
            if rows:
                new_rows = self._write_readings(parsed, contents, rows, app, batch)
        finally:
            parsed.unpersist()
        new_rejects = new_reasons.total()
        return BatchCounts(
            records=rows + rejects,
            readings=new_rows,
            quarantined=new_rejects,
            repeated=rows - new_rows + rejects - new_rejects,
            reasons=new_reasons,
            late=contents.late,
            newest_us=contents.newest_us,
        )

    def remembered(self) -> int:
        """How many ranges of seqs are in memory."""
        return len(self._seen)

    def _write_readings(self, parsed: DataFrame, contents: _Contents, rows: int, app: str, batch: int) -> int:
        ranges = {key: ranges_of(seqs) for key, seqs in contents.seqs.items()}
        repeating = [
            (key, self._seen.of(key))
            for key, (found, twice) in ranges.items()
            if twice or any(self._seen.overlaps(key, first, last) for first, last in found)
        ]
        fresh = readings_of(parsed)
        if repeating:
            fresh = unseen_readings(fresh, _local_ranges(self._spark, repeating))
        added: list[tuple[Identity, Range]] = []
        new_rows = 0
        for key, (found, _) in ranges.items():
            before = self._seen.count(key)
            for first, last in found:
                self._seen.add(key, first, last)
            if grown := self._seen.count(key) - before:
                new_rows += grown
                added += [(key, span) for span in found]
        if new_rows:
            write_once(fresh.coalesce(1) if rows <= _SMALL_BATCH else fresh, self._readings, app, batch)
            self._write_seen(added, app, batch)
        return new_rows

    def _write_seen(self, added: list[tuple[Identity, Range]], app: str, batch: int) -> None:
        version = table_version(self._spark, self._readings)
        compact = batch % _COMPACT_EVERY == _COMPACT_EVERY - 1
        rows = _local_seen(self._spark, self._seen if compact else added, version)
        write_once(rows, self._seen_table, app, batch, mode="overwrite" if compact else "append")

    def _write_rejects(self, parsed: DataFrame, contents: _Contents, app: str, batch: int) -> Counter[str]:
        rejects = rejects_of(parsed)
        new = contents.reasons
        if any(min(found) <= self._quarantined.get(part, -1) for part, found in contents.offsets.items()):
            known = self._spark.read.format("delta").load(self._quarantine)
            rejects = unquarantined(rejects, known).persist()
            counted = rejects.groupBy("reason").count().collect()
            new = Counter({row["reason"]: row["count"] for row in counted})
        if new:
            write_once(rejects.coalesce(1), self._quarantine, app, batch)
        for part, found in contents.offsets.items():
            self._quarantined[part] = max(self._quarantined.get(part, -1), *found)
        return new

    def _load_quarantined(self) -> dict[tuple[str, int], int]:
        """Highest offset in quarantine per (topic, partition)."""
        rows = (
            self._spark.read.format("delta")
            .load(self._quarantine)
            .groupBy("kafka_topic", "kafka_partition")
            .agg(F.max("kafka_offset").alias("offset"))
            .collect()
        )
        return {(row.kafka_topic, row.kafka_partition): row.offset for row in rows}

    def _load_seen(self) -> SeenRanges:
        """The ranges as stored, and what ``readings`` took since they were stored."""
        seen = SeenRanges()
        covered = -1
        for row in self._spark.read.format("delta").load(self._seen_table).toLocalIterator():
            seen.add((row.gateway, row.channel, row.run), row.first_seq, row.last_seq)
            covered = max(covered, row.readings_version)
        missing = self._readings_after(covered)
        if missing is None:
            return seen
        found = _contents(missing.withColumn("reason", F.lit(None)).withColumn("kafka_partition", F.lit(0)))
        for key, seqs in found.seqs.items():
            for first, last in ranges_of(seqs)[0]:
                seen.add(key, first, last)
        return seen

    def _readings_after(self, version: int) -> DataFrame | None:
        """Readings stored after that version of the table: all of them for -1, None when there are none."""
        latest = table_version(self._spark, self._readings)
        if version == latest:
            return None
        reader = self._spark.read.format("delta")
        if 0 <= version < latest:
            reader = reader.option("readChangeFeed", "true").option("startingVersion", version + 1)
        return reader.load(self._readings)


def _contents(parsed: DataFrame) -> _Contents:
    """One pass over the batch: its identities, 8 bytes a reading, and the offsets of its rejects."""
    good = F.col("reason").isNull()
    late = F.unix_micros("kafka_time") - F.unix_micros("time") > LATE_S * 1_000_000
    rows = (
        parsed.groupBy(
            good.alias("good"),
            F.when(good, F.col("gateway")).otherwise(F.col("kafka_topic")).alias("first"),
            F.col("channel"),
            F.col("run"),
            F.when(good, F.lit(None)).otherwise(F.col("kafka_partition")).alias("partition"),
            F.col("reason"),
        )
        .agg(
            F.collect_list(F.when(good, F.col("seq")).otherwise(F.col("kafka_offset"))).alias("numbers"),
            F.count_if(good & (F.col("replayed") | late)).alias("late"),
            F.max(F.unix_micros("kafka_time")).alias("newest_us"),
        )
        .toArrow()
        .to_pylist()
    )
    contents = _Contents()
    for row in rows:
        if row["good"]:
            contents.seqs[row["first"], row["channel"], row["run"]] = row["numbers"]
        else:
            contents.offsets.setdefault((row["first"], row["partition"]), []).extend(row["numbers"])
            contents.reasons[row["reason"]] += len(row["numbers"])
        contents.late += row["late"]
        if row["newest_us"] is not None:
            contents.newest_us = max(row["newest_us"], contents.newest_us or row["newest_us"])
    return contents


def _local_ranges(spark: SparkSession, seen: Iterable[tuple[Identity, tuple[Range, ...]]]) -> DataFrame:
    rows = [
        {
            "gateway": key[0],
            "channel": key[1],
            "run": key[2],
            "seen": [{"first": first, "last": last} for first, last in ranges],
        }
        for key, ranges in seen
    ]
    spans = pa.list_(pa.struct([("first", pa.int64()), ("last", pa.int64())]))
    columns = [("gateway", pa.string()), ("channel", pa.string()), ("run", pa.string()), ("seen", spans)]
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=pa.schema(columns)))


def _local_seen(spark: SparkSession, seen: Iterable[tuple[Identity, Range]], version: int) -> DataFrame:
    rows = [(*key, first, last, version) for key, (first, last) in seen]
    columns = dict(zip(SEEN.schema.names, zip(*rows, strict=True), strict=True))
    return spark.createDataFrame(pa.table(columns)).coalesce(1)
