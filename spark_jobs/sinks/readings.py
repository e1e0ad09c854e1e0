"""One packed batch into ``readings`` and ``quarantine``, each record once.

Order of a batch: quarantine, readings, now and then the seen ranges. What is new is decided by content: for
readings by the seen ranges, for rejects by their places; so a batch that runs again after a crash, or from
a checkpoint that was lost, repeats nothing. All writes carry a number of the writer's lease
(``sinks.lease``): a process that has lost it can't write.

The stored ranges may be behind ``readings``: each row has the version of it up to which they are complete,
and what came after that, from whichever job, is taken up from its change feed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.frames import rows_frame
from spark_jobs.schemas import READINGS, SEEN, columns
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import ensure_table, rows_after, table_version, write_once
from spark_jobs.sinks.partition_offsets import Partition
from spark_jobs.sinks.quarantine import QuarantineSink
from spark_jobs.state.seen import Contents, Range, SeenRanges
from spark_jobs.transforms.dedupe import unseen_readings
from spark_jobs.transforms.packing import Identity, identity_ranges, readings_of, rejects_of, rows_in

_COMPACT_EVERY: Final = 100
"""Writes after which the log of seen ranges is replaced by their union."""
_STORE_EVERY_S: Final = 10.0
"""The seen ranges are stored so often at most: a commit takes longer than to read them up again."""
_STORE_AT_ONCE: Final = 10_000
"""Ranges that are not left unstored for so long."""
_SMALL_BATCH: Final = 50_000
"""Up to here one file per batch and date is better than one per task."""
_SEEN_SPANS: Final = columns("gateway channel run: string, seen: spans", spans="first last: long")


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
    """A packed batch with its summary: contents, spans and reasons of rejects, late readings."""

    def __init__(self, spark: SparkSession, packed: DataFrame) -> None:
        self._spark, self._packed = spark, packed
        self._summary = packed.where(F.col("identities").isNotNull()).toArrow()
        self.contents = Contents()
        for identities in self._summary["identities"]:
            self.contents.add(rows_in(identities.as_buffer()))
        self.spans: dict[Partition, tuple[int, int]] = {}
        self.reasons = Counter[str]()
        for places in self._summary["places"].drop_null():
            columns = rows_in(places.as_buffer()).columns
            for topic, partition, reason, first, last, rows in zip(
                *(column.to_pylist() for column in columns), strict=True
            ):
                lowest, highest = self.spans.get((topic, partition), (first, last))
                self.spans[topic, partition] = min(first, lowest), max(last, highest)
                self.reasons[reason] += rows
        self.late = sum(self._summary["late"].to_pylist())
        self.newest_us: int | None = max(self._summary["newest_us"].drop_null().to_pylist(), default=None)

    def readings_frame(self) -> DataFrame:
        """The batch's readings."""
        return self._here("readings", self.contents.rows) or readings_of(self._packed)

    def rejects_frame(self) -> DataFrame:
        """The batch's rejects."""
        return self._here("rejects", self.reasons.total()) or rejects_of(self._packed)

    def _here(self, column: str, rows: int) -> DataFrame | None:
        """All rows of a small batch, which came along with the summary; None where some didn't."""
        tables = [rows_in(packed.as_buffer()) for packed in self._summary[column].drop_null()]
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
        self._writer: tuple[str, int] | None = None
        self._stored_at_s = clock()
        self._stores = 0
        # The version of readings that the ranges in memory are complete for. What was just made has no rows.
        self._covered = 0 if is_new else self._load_seen()
        self._take_up()

    def write(self, packed: DataFrame, app: str, number: int) -> BatchCounts:
        """Stores one batch; doing it again changes nothing. Raises FencedError (see ``write_once``)."""
        self._writer = app, number
        packed = packed.persist()
        try:
            found = _Batch(self._spark, packed)
            rows = found.contents.rows
            new_reasons = Counter[str]()
            if found.reasons:
                new_reasons = self._quarantine.write(found.rejects_frame(), found.spans, app, number)
            new_rows = self._write_readings(found, app, number) if rows else 0
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
        # Before the first write they are what the next start finds as well.
        if not self._unstored or self._writer is None:
            return
        compact = self._stores % _COMPACT_EVERY == _COMPACT_EVERY - 1
        ranges = self._seen.ranges() if compact else self._unstored
        rows = ((*key, first, last, self._covered) for key, (first, last) in ranges)
        frame = rows_frame(self._spark, SEEN.schema, rows).coalesce(1)
        write_once(frame, self._seen_table, *self._writer, mode="overwrite" if compact else "append")
        self._stores += 1
        self._unstored = []

    def _write_readings(self, found: _Batch, app: str, number: int) -> int:
        # Another job (a replay) may have added readings.
        self._take_up()
        ranges, twice = found.contents.ranges, found.contents.twice
        repeating = [
            (*key, [{"first": first, "last": last} for first, last in self._seen[key].spans()])
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
                seen = rows_frame(self._spark, _SEEN_SPANS, repeating)
                fresh = unseen_readings(fresh, seen, copies=bool(twice))
            small = found.contents.rows <= _SMALL_BATCH
            write_once(fresh.coalesce(1) if small else fresh, self._readings, app, number)
            self._unstored += added
            version = table_version(self._spark, self._readings)
            if version > self._covered + 1:
                self._take_up()
            else:
                self._covered = version
        return new_rows

    def _load_seen(self) -> int:
        """Takes up the ranges as stored; gives the version of ``readings`` that they are complete for."""
        covered = -1
        for row in self._spark.read.format("delta").load(self._seen_table).toLocalIterator():
            self._seen[row.gateway, row.channel, row.run].add(row.first_seq, row.last_seq)
            covered = max(covered, row.readings_version)
        return covered

    def _take_up(self) -> None:
        """Takes up what ``readings`` got after the version covered."""
        rows, self._covered = rows_after(self._spark, self._readings, self._covered, identity_ranges)
        for row in rows:
            gateway, channel, run, first, last = row.values()
            self._seen[gateway, channel, run].add(first, last)
            self._unstored.append(((gateway, channel, run), (first, last)))
