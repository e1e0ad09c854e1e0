"""One packed batch into ``readings`` and ``quarantine``, each record once.

Order of a batch: quarantine, readings, now and then the seen ranges. The first two carry the app id and the
batch number, so a batch that runs again after a crash repeats nothing. The app id carries the checkpoint's
generation (the query id, new when a checkpoint is lost), because a new checkpoint counts batches from 0
again. What is new is decided by content: for readings by the seen ranges, for rejects by their places.

The stored ranges may be behind ``readings``: each row says up to which version of it they are complete, and
what came after that, from whomever, is taken up from its change feed.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.schemas import READINGS, SEEN
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import ensure_table, latest_version, table_version, write, write_once
from spark_jobs.sinks.partition_offsets import Place
from spark_jobs.sinks.quarantine import QuarantineSink
from spark_jobs.state.seen import Contents, Range, SeenRanges
from spark_jobs.transforms.dedupe import unseen_readings
from spark_jobs.transforms.packing import Identity, identity_ranges, readings_of, rejects_of, rows_in

log = logging.getLogger("fieldgate.jobs.ingest")

_COMPACT_EVERY: Final = 100
"""Writes after which the log of seen ranges is written anew as what it amounts to."""
_STORE_EVERY_S: Final = 10.0
"""The seen ranges are stored so often at most: a commit takes longer than to read them up again."""
_STORE_AT_ONCE: Final = 10_000
"""Ranges that are not left unstored for so long."""
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


class _Batch:
    """A packed batch with what it says of itself."""

    def __init__(self, spark: SparkSession, packed: DataFrame) -> None:
        self._spark = spark
        self._packed = packed
        told = packed.where(F.col("identities").isNotNull()).toArrow()
        self.contents = Contents()
        for identities in told["identities"]:
            self.contents.add(rows_in(identities.as_buffer()))
        self.places: dict[Place, tuple[int, int]] = {}
        self.reasons = Counter[str]()
        self.late = sum(told["late"].to_pylist())
        self.newest_us: int | None = max(told["newest_us"].drop_null().to_pylist(), default=None)
        for places in told["places"].drop_null():
            self._take_places(rows_in(places.as_buffer()))
        self._told = told

    def _take_places(self, table: Any) -> None:
        for topic, partition, reason, first, last, rows in zip(
            *(column.to_pylist() for column in table.columns), strict=True
        ):
            lowest, highest = self.places.get((topic, partition), (first, last))
            self.places[topic, partition] = min(first, lowest), max(last, highest)
            self.reasons[reason] += rows

    def readings_frame(self) -> DataFrame:
        """The batch's readings."""
        here = self._here("readings", self.contents.rows)
        return readings_of(self._packed) if here is None else here

    def rejects_frame(self) -> DataFrame:
        """The batch's rejects."""
        here = self._here("rejects", self.reasons.total())
        return rejects_of(self._packed) if here is None else here

    def _here(self, column: str, rows: int) -> DataFrame | None:
        """All rows of a small batch, which came along with what it says; None where some didn't."""
        tables = [rows_in(packed.as_buffer()) for packed in self._told[column].drop_null()]
        if sum(table.num_rows for table in tables) < rows:
            return None
        return self._spark.createDataFrame(pa.concat_tables(tables).combine_chunks())


class IngestSink:
    """Writes packed batches. Owned by the thread that runs the query's batches."""

    def __init__(
        self, spark: SparkSession, settings: Settings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._spark = spark
        self._clock = clock
        is_new = not any(
            DeltaTable.isDeltaTable(spark, settings.table(table.name)) for table in (READINGS, SEEN)
        )
        self._readings = ensure_table(spark, settings, READINGS)
        self._quarantine = QuarantineSink(spark, settings)
        self._seen_table = ensure_table(spark, settings, SEEN)
        self._seen = SeenRanges()
        self._unstored: list[tuple[Identity, Range]] = []
        self._stored_at_s = clock()
        self._stores = 0
        # The version of readings that the ranges in memory are complete for. What was just made has no rows.
        self._covered = 0 if is_new else self._load_seen()
        self._take_up(latest_version(spark, self._readings))

    def write(self, packed: DataFrame, app: str, batch: int) -> BatchCounts:
        """Stores one batch; doing it again with the same app and batch changes nothing."""
        packed = packed.persist()
        try:
            found = _Batch(self._spark, packed)
            rows = found.contents.rows
            new_reasons = Counter[str]()
            if found.reasons:
                new_reasons = self._quarantine.write(found.rejects_frame(), found.places, app, batch)
            new_rows = self._write_readings(found, app, batch) if rows else 0
        finally:
            packed.unpersist()
        if self._clock() - self._stored_at_s >= _STORE_EVERY_S or len(self._unstored) >= _STORE_AT_ONCE:
            self.flush()
        rejects, new_rejects = found.reasons.total(), new_reasons.total()
        return BatchCounts(
            records=rows + rejects,
            readings=new_rows,
            quarantined=new_rejects,
            repeated=rows - new_rows + rejects - new_rejects,
            reasons=new_reasons,
            late=found.late,
            newest_us=found.newest_us,
        )

    def remembered(self) -> int:
        """How many ranges of seqs are in memory."""
        return sum(1 for _ in self._seen.ranges())

    def flush(self) -> None:
        """Stores the seen ranges that are not stored yet."""
        self._stored_at_s = self._clock()
        if not self._unstored:
            return
        compact = self._stores % _COMPACT_EVERY == _COMPACT_EVERY - 1
        rows = _local_seen(self._spark, self._seen.ranges() if compact else self._unstored, self._covered)
        write(rows, self._seen_table, mode="overwrite" if compact else "append")
        self._stores += 1
        self._unstored = []

    def _write_readings(self, found: _Batch, app: str, batch: int) -> int:
        # Another job (a replay) may have added readings.
        self._take_up(latest_version(self._spark, self._readings))
        ranges, twice = found.contents.ranges, found.contents.twice
        repeating = [
            (key, tuple(self._seen[key].spans()))
            for key, seqs in ranges.items()
            if key in twice or any(self._seen[key].overlaps(*span) for span in seqs.spans())
        ]
        added: list[tuple[Identity, Range]] = []
        new_rows = 0
        for key, seqs in ranges.items():
            before = len(self._seen[key])
            self._seen[key].update(seqs)
            if grown := len(self._seen[key]) - before:
                new_rows += grown
                added += [(key, span) for span in seqs.spans()]
        if new_rows:
            fresh = found.readings_frame()
            if repeating:
                seen = _local_ranges(self._spark, repeating)
                fresh = unseen_readings(fresh, seen, copies=bool(twice))
            small = found.contents.rows <= _SMALL_BATCH
            write_once(fresh.coalesce(1) if small else fresh, self._readings, app, batch)
            self._unstored += added
            version = table_version(self._spark, self._readings)
            if version > self._covered + 1:
                self._take_up(version)
            self._covered = version
        return new_rows

    def _load_seen(self) -> int:
        """Takes up the ranges as stored; gives the version of ``readings`` that they are complete for."""
        covered = -1
        for row in self._spark.read.format("delta").load(self._seen_table).toLocalIterator():
            self._seen[row.gateway, row.channel, row.run].add(row.first_seq, row.last_seq)
            covered = max(covered, row.readings_version)
        return covered

    def _take_up(self, version: int) -> None:
        """Takes up what ``readings`` got after the version covered, up to this one."""
        if version == self._covered:
            return
        reader = self._spark.read.format("delta")
        if 0 <= self._covered < version:
            feed = reader.option("readChangeFeed", "true").option("startingVersion", self._covered + 1)
            try:
                found = _ranges_in(feed.load(self._readings))
            except (PySparkException, Py4JJavaError) as error:
                # Vacuumed, or its log cleaned: what the feed no longer gives the table itself does.
                log.warning("event=ingest.feed_gone after_version=%d %s", self._covered, str(error)[:200])
                found = _ranges_in(reader.load(self._readings))
        else:
            found = _ranges_in(self._spark.read.format("delta").load(self._readings))
        for key, span in found:
            self._seen[key].add(*span)
        self._unstored += found
        self._covered = version


def _ranges_in(readings: DataFrame) -> list[tuple[Identity, Range]]:
    table = identity_ranges(readings).toArrow()
    return [
        ((gateway, channel, run), (first, last))
        for gateway, channel, run, first, last, _ in zip(
            *(column.to_pylist() for column in table.columns), strict=True
        )
    ]


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
