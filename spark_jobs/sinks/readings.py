"""One batch of Kafka records into ``readings`` and ``quarantine``, each record once.

Order of a batch: quarantine, readings, now and then the seen ranges. What is new is decided by content: for
readings by the seen ranges, for rejects by their places; so a batch that runs again after a crash, or from
a checkpoint that was lost, repeats nothing. All writes carry a number of the writer's lease
(``streaming.lease``): a process that has lost it can't write.

The stored ranges may be behind ``readings``: each row has the version of it up to which they are complete,
and what came after that, from whichever job, is taken up from its change feed. Those of identities that got
something lately are in memory; others are looked up when they return, so what is in memory doesn't grow
with the runs that have ended. Workers make the files of large batches, and the driver commits them as one
transaction; it does nothing for each reading but in small batches, and where some were seen before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions as F

from cloud.wire.identities import NOBODY, Identities
from spark_jobs.platform.frames import rows_in
from spark_jobs.platform.intervals import FOREVER_US
from spark_jobs.platform.schemas import QUARANTINE, READINGS, SEEN
from spark_jobs.platform.session import task_slots
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import append_files, ensure_table, overwrite_once, rows_after, write_once
from spark_jobs.sinks.quarantine import QuarantineSink
from spark_jobs.sinks.reading_schemas import ReadingSchemas
from spark_jobs.transforms.dedupe import joined_ranges
from spark_jobs.transforms.packing import files_of, packed, readings_in, validated
from spark_jobs.transforms.seen import IDENTITY, RANGE, SeenRanges, identity_ranges, keyed, unseen
from spark_jobs.transforms.validate import Parse, parse_batch

log = logging.getLogger("fieldgate.jobs.ingest")

_COMPACT_EVERY: Final = 100
"""Writes after which the log of seen ranges is replaced by their union."""
_STORE_EVERY_S: Final = 10.0
"""The seen ranges are stored so often at most: a commit takes longer than to read them up again."""
_STORE_AT_ONCE: Final = 200_000
"""Ranges that are not left unstored for so long."""
_REMEMBERED_S: Final = 3600
"""Identities that get nothing for so long leave memory."""
_SMALL_BATCH: Final = 50_000
"""Up to here the driver makes one file per date, as that is better than one per task."""
_FEW: Final = 256
"""Gateways and runs up to which a filter finds what is stored of them."""
_GIVEN: Final = 20_000
"""Ranges up to which workers are given all that is in memory: more would be a file on the disk each batch."""


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
    """A packed batch in the driver: ranges of its readings, reasons of its rejects, and its files."""

    def __init__(self, packed: DataFrame) -> None:
        self._chunks = chunks = packed.toArrow()
        tables = [rows_in(ranges.as_buffer()) for ranges in chunks["ranges"]]
        # An Arrow table, None where nothing can be new.
        self.ranges: Any = keyed(pa.concat_tables(tables)) if any(map(len, tables)) else None
        self._chunk = np.repeat(np.arange(len(tables)), np.array([*map(len, tables)], int))
        self.rows = sum(chunks["read"].to_pylist())
        # Why records were rejected, and Kafka's time of the first of them.
        self.reasons, self.rejects_since_us = Counter[str](), FOREVER_US
        for reason, first_us, rows in (row.values() for row in chain(*chunks["reasons"].to_pylist())):
            self.reasons[reason] += rows
            self.rejects_since_us = min(self.rejects_since_us, first_us)
        self.late = sum(chunks["late"].to_pylist())
        self.unknown = set(chain.from_iterable(chunks["unknown"].to_pylist()))
        self.newest_us: int | None = max(chunks["newest_us"].drop_null().to_pylist(), default=None)

    def rejects(self) -> Any:
        """The batch's rejects, an Arrow table; None where they are too large for the driver."""
        tables = [rows_in(rejects.as_buffer()) for rejects in self._chunks["rejects"].drop_null()]
        if sum(map(len, tables)) < self.reasons.total():
            return None
        return pa.concat_tables(tables).combine_chunks()

    def new(self, seen: SeenRanges) -> tuple[list[dict[str, Any]], Any]:
        """The files of what is new of the batch, and its ranges.

        Files of a chunk are made anew where one of its identities has a number that was seen, or that
        another chunk has too.
        """
        opened = set(self._chunk[seen.repeated(self.ranges)].tolist())
        files, tables, whole = [], [], []
        for number, (made, few) in enumerate(zip(*self._chunks.select(["files", "readings"]), strict=True)):
            if few.is_valid:
                tables.append(rows_in(few.as_buffer()))
            elif number in opened:
                tables += (unseen(readings_in(file), seen)[0] for file in made.as_py())
            else:
                files += made.as_py()
                whole.append(number)
        ranges = self.ranges.filter(pa.array(np.isin(self._chunk, whole)))
        if tables:
            rows, others = unseen(pa.concat_tables(tables), seen)
            files, ranges = files + files_of(rows), pa.concat_tables([ranges, keyed(others)])
        return files, ranges


_MANY: Final = 50
"""A date with this many small files is worth joining."""
_JOINED_BYTES: Final = 8 << 20


class SmallFiles:
    """Joins small files beside their writer, whose thread owns it.

    Delta's auto-compaction does that within the commit of a partition's fiftieth small file, and all readings
    wait for it: 5 to 7 s at 1,000 a second on two cores (docs/performance.md).
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        # Limits of file sizes are set on it, which are for no other job.
        self._spark = spark.newSession()
        self._spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(_JOINED_BYTES // 2))
        self._spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(_JOINED_BYTES))
        self._location = location
        self._added = Counter[str]()
        self._thread = threading.Thread()

    def add(self, files: Sequence[Mapping[str, Any]]) -> None:
        """Takes the files of a commit (``date``, ``content``); joins those of dates that have many by now."""
        self._added.update(str(each["date"]) for each in files if len(each["content"]) < _JOINED_BYTES // 2)
        due = [date for date, count in self._added.items() if count >= _MANY]
        if not due or self._thread.is_alive():
            return
        for date in due:
            del self._added[date]
        self._thread = threading.Thread(target=self._join, args=(due,), name="small-files", daemon=True)
        self._thread.start()

    def _join(self, dates: Sequence[str]) -> None:
        where = ", ".join(f"'{each}'" for each in dates)
        try:
            self._spark.sql(f"optimize delta.`{self._location}` where date in ({where})").collect()
        except (PySparkException, Py4JError, OSError) as error:
            # It changes no row: the next fifty, or upkeep, join them as well.
            reason = next(iter(str(error).splitlines()), "")[:200]
            log.info("event=ingest.not_joined dates=%d error=%s", len(dates), reason)


class IngestSink:
    """Writes batches of Kafka records. Owned by the thread that runs the query's batches."""

    def __init__(
        self, spark: SparkSession, settings: Settings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._spark = spark
        self._clock = clock
        self._dead_letter_topic = settings.dead_letter_topic
        self._schemas = ReadingSchemas(spark, settings, clock=clock)
        self._readings = ensure_table(spark, settings, READINGS)
        # A process that soon ends would do it in each of its lives.
        self._small_files = None if settings.once else SmallFiles(spark, self._readings)
        self._quarantine = QuarantineSink(spark, settings)
        self._seen_table = ensure_table(spark, settings, SEEN)
        self._seen = SeenRanges()
        # Arrow tables: gateway, channel, run, first, last.
        self._unstored: list[Any] = []
        self._writer: tuple[str, int] | None = None
        self._stored_at_s = clock()
        self._stores = 0
        # The version of readings that the ranges stored and in memory are complete for.
        stored = spark.read.format("delta").load(self._seen_table).agg(F.max("readings_version"))
        covered = stored.collect()[0][0]
        self._covered = -1 if covered is None else int(covered)
        self._take_up()

    def write(
        self, records: DataFrame, app: str, number: int, identities: Identities = NOBODY
    ) -> BatchCounts:
        """Validates and stores one batch of Kafka records, as the source gives them.

        Readings of those of ``identities`` that don't prove to be theirs are rejects. Doing it again changes
        nothing. Raises FencedError (see ``write_once``).
        """
        self._writer = app, number
        parse = partial(parse_batch, dead_letter_topic=self._dead_letter_topic, identities=identities)
        found = self._packed(records, partial(parse, schemas=self._schemas.known))
        if found.unknown and self._schemas.learn(found.unknown):
            # The first of a new schema, once: what was found with it is known from now on.
            found = self._packed(records, partial(parse, schemas=self._schemas.known))
        new_reasons = Counter[str]()
        if found.reasons:
            if (table := found.rejects()) is not None:
                rejects = self._spark.createDataFrame(table)
            else:
                rejects = validated(records, partial(parse, schemas=self._schemas.known), QUARANTINE)
            new_reasons = self._quarantine.write(rejects, found.rejects_since_us, app, number)
        new_rows = 0 if found.ranges is None else self._write_readings(found, app, number)
        unstored = sum(table.num_rows for table in self._unstored)
        if self._clock() - self._stored_at_s >= _STORE_EVERY_S or unstored >= _STORE_AT_ONCE:
            self.flush()
        rejected, new_rejects = found.reasons.total(), new_reasons.total()
        return BatchCounts(
            records=found.rows + rejected,
            readings=new_rows,
            quarantined=new_rejects,
            repeated=found.rows - new_rows + rejected - new_rejects,
            reasons=new_reasons,
            late=found.late,
            newest_us=found.newest_us,
        )

    def remembered(self) -> int:
        """How many ranges of seqs are in memory."""
        return len(self._seen)

    def flush(self) -> None:
        """Stores the seen ranges that are not stored yet, and forgets those that nothing was added to."""
        self._stored_at_s = self._clock()
        # Before the first write they are what the next start finds as well.
        if not self._unstored or self._writer is None:
            return
        # Spark loses the last of several chunks where one is empty.
        frame = self._spark.createDataFrame(pa.concat_tables(self._unstored).combine_chunks()).coalesce(1)
        is_joined = self._stores % _COMPACT_EVERY == _COMPACT_EVERY - 1
        if is_joined:
            frame = joined_ranges(self._stored().union(frame))
        frame = frame.withColumn("version", F.lit(self._covered).cast("long")).toDF(*SEEN.schema.names)
        (overwrite_once if is_joined else write_once)(frame, self._seen_table, *self._writer)
        self._stores += 1
        self._unstored = []
        self._seen.forget(int(self._stored_at_s) - _REMEMBERED_S)

    def _packed(self, records: DataFrame, parse: Parse) -> _Batch:
        seen = self._seen if len(self._seen) <= _GIVEN else SeenRanges()
        return _Batch(packed(records, parse, seen, _SMALL_BATCH // task_slots(self._spark)))

    def _write_readings(self, found: _Batch, app: str, number: int) -> int:
        # Another job (a replay) may have added readings.
        self._take_up()
        self._look_up(found.ranges)
        files, ranges = found.new(self._seen)
        if not files:
            return 0
        version = append_files(self._spark, self._readings, app, number, files)
        if self._small_files is not None:
            self._small_files.add(files)
        self._seen.add(ranges, int(self._clock()))
        self._unstored.append(ranges.select(RANGE))
        if version > self._covered + 1:
            self._take_up()
        else:
            self._covered = version
        return sum(file["rows"] for file in files)

    def _look_up(self, ranges: Any) -> None:
        """Takes up what is stored of those identities that are not in memory."""
        wanted = ranges.filter(pa.array(self._seen.unknown(ranges))).select(IDENTITY)
        if not wanted.num_rows:
            return
        stored = self._stored()
        gateways, runs = (wanted[name].unique().to_pylist() for name in ("gateway", "run"))
        if max(len(gateways), len(runs)) <= _FEW:
            # Perhaps with other channels of these runs. It takes two jobs fewer than a join.
            stored = stored.where(F.col("gateway").isin(gateways) & F.col("run").isin(runs))
        else:
            names = F.broadcast(self._spark.createDataFrame(wanted.combine_chunks()))
            stored = stored.join(names, list(IDENTITY), "left_semi")
        self._seen.add(keyed(stored.toArrow()), int(self._clock()))

    def _take_up(self) -> None:
        """Takes up what ``readings`` got after the version covered."""
        rows, self._covered = rows_after(self._spark, self._readings, self._covered, identity_ranges)
        if rows:
            table = pa.table({name: [row[name] for row in rows] for name in RANGE})
            self._unstored.append(table)
            # First what was stored before of identities that are not in memory.
            self._look_up(keyed(table))
            self._seen.add(keyed(table), int(self._clock()))

    def _stored(self) -> DataFrame:
        """Rows of ``_seen`` as ranges."""
        return self._spark.read.format("delta").load(self._seen_table).drop("readings_version").toDF(*RANGE)
