"""One batch of Kafka records into ``readings`` and ``quarantine``, each record once.

Order of a batch: quarantine, readings, now and then the seen ranges. What is new is decided by content: for
readings by the seen ranges, for rejects by their places; so a batch that runs again after a crash, or from
a checkpoint that was lost, repeats nothing. All writes carry a number of the writer's lease
(``streaming.lease``): a process that has lost it can't write.

The stored ranges may be behind ``readings``: each row has the version of it up to which they are complete,
and what came after that, from whichever job, is taken up from its change feed. Those of identities that got
something lately are in memory; others are looked up when they return, so what is in memory doesn't grow
with the runs that have ended. The driver does nothing for each reading, and makes no object of it.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, functions as F

from cloud.wire.identities import NOBODY, Identities
from cloud.wire.number_set import NumberSet
from spark_jobs.platform.frames import rows_frame
from spark_jobs.platform.intervals import FOREVER_US
from spark_jobs.platform.schemas import READINGS, SEEN, columns
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table, overwrite_once, rows_after, write_once
from spark_jobs.sinks.quarantine import QuarantineSink
from spark_jobs.sinks.reading_schemas import ReadingSchemas
from spark_jobs.transforms.dedupe import joined_ranges, unseen_readings
from spark_jobs.transforms.packing import IDENTITY, identity_ranges, packed, readings_of, rejects_of, rows_in

_COMPACT_EVERY: Final = 100
"""Writes after which the log of seen ranges is replaced by their union."""
_STORE_EVERY_S: Final = 10.0
"""The seen ranges are stored so often at most: a commit takes longer than to read them up again."""
_STORE_AT_ONCE: Final = 200_000
"""Ranges that are not left unstored for so long."""
_REMEMBERED_S: Final = 3600
"""Identities that get nothing for so long leave memory."""
_SMALL_BATCH: Final = 50_000
"""Up to here one file per batch and date is better than one per task."""
_FEW: Final = 256
"""Gateways and runs up to which a filter finds what is stored of them."""
_RANGE: Final = (*IDENTITY, "first", "last")
_SEEN_SPANS: Final = columns("gateway channel run: string, seen: spans", spans="first last: long")


_NOWHERE: Final = -(1 << 62)

Range = tuple[int, int]
"""First and last seq, both inside."""


_KEY: Final = os.urandom(16)


def identity_keys(table: Any) -> Any:
    """A number of 64 bits for each row's gateway, channel and run, its own in each process.

    Sums of digests of the three, of which few are different. Two of a million identities have the same
    number with a chance of 1 in 37 million, and no sender can choose names by it.
    """
    total = np.zeros(table.num_rows, np.uint64)
    for name in IDENTITY if table.num_rows else ():
        column = table[name].combine_chunks().dictionary_encode()
        values = column.dictionary.to_pylist()
        made = (blake2b(text.encode(), digest_size=8, key=_KEY, person=name.encode()) for text in values)
        digests = np.frombuffer(b"".join(digest.digest() for digest in made), np.uint64)
        total += digests[column.indices.to_numpy()]
    return total


@dataclass(frozen=True)
class Ranges:
    """Ranges of identities, ascending by identity and first seq.

    ``table`` has them in another order, with gateway, channel and run: row ``order[n]`` is range n.
    ``begins`` are the first ranges of each identity; ``twice``: whether that identity has a number twice.
    """

    table: Any
    order: Any
    keys: Any
    firsts: Any
    lasts: Any
    begins: Any
    twice: Any

    @classmethod
    def of(cls, table: Any) -> Ranges:
        """Of an Arrow table as ``ranges_of`` gives them, or of several of them, one after the other."""
        keys = identity_keys(table)
        firsts, lasts, rows = (table[name].to_numpy() for name in ("first", "last", "rows"))
        order = np.lexsort((firsts, keys))
        keys, firsts, lasts = keys[order], firsts[order], lasts[order]
        is_first = np.ones(len(keys), bool)
        is_first[1:] = keys[1:] != keys[:-1]
        twice = rows[order] > lasts - firsts + 1
        # One that an earlier one reaches over has neighbours that overlap too: it suffices for the identity.
        twice[1:] |= ~is_first[1:] & (firsts[1:] <= lasts[:-1])
        begins = np.flatnonzero(is_first)
        of_identity = np.logical_or.reduceat(twice, begins) if len(begins) else twice
        return cls(table, order, keys, firsts, lasts, begins, of_identity)

    @property
    def identities(self) -> Any:
        """Gateway, channel and run of each identity, in the order of ``begins``: an Arrow table."""
        return self.table.select(list(IDENTITY)).take(self.order[self.begins])


class SeenRanges:
    """The seqs seen of identities. Memory grows with the identities, and with the gaps in them.

    ``seq`` is dense, so a run of readings is one range however long it gets, and a repeat is found without
    looking at the big table. The highest range of each identity lies in arrays; what continues it is added
    to all identities of a batch at once; the ranges below, which gaps leave, and what falls into them are few
    and taken one by one. Owned by the one thread that runs the batches of ``ingest``.
    """

    def __init__(self) -> None:
        self._keys = np.empty(0, np.uint64)
        self._firsts, self._lasts, self._used = (np.empty(0, np.int64) for _ in range(3))
        self._below: dict[int, NumberSet] = {}

    def __len__(self) -> int:
        return len(self._keys) + sum(seqs.gaps + 1 for seqs in self._below.values())

    def unknown(self, ranges: Ranges) -> Any:
        """Which of the identities are not here."""
        return ~self._find(ranges.keys[ranges.begins])[1]

    def spans(self, key: int) -> list[Range]:
        """The ranges of an identity."""
        (at,), (here,) = self._find(np.array([key], np.uint64))
        if not here:
            return []
        below = self._below.get(key)
        return [*(below.spans() if below else ()), (int(self._firsts[at]), int(self._lasts[at]))]

    def repeated(self, ranges: Ranges) -> Any:
        """Finds the identities of which some numbers were seen before."""
        at, here = self._find(ranges.keys)
        firsts, lasts = self._bounds(at, here)
        found = here & (ranges.firsts <= lasts) & (ranges.lasts >= firsts)
        for row in np.flatnonzero(here & (ranges.lasts < firsts)).tolist():
            below = self._below.get(int(ranges.keys[row]))
            found[row] = below is not None and below.overlaps(int(ranges.firsts[row]), int(ranges.lasts[row]))
        return np.logical_or.reduceat(found, ranges.begins) if len(found) else found

    def add(self, ranges: Ranges, now: int) -> int:
        """Takes up ranges at a time (whole seconds), whatever overlaps; how many numbers are new."""
        begins = ranges.begins
        if not len(begins):
            return 0
        ends = np.append(begins[1:], len(ranges.keys)) - 1
        keys = ranges.keys[begins]
        at, here = self._find(keys)
        _, lasts = self._bounds(at, here)
        begin_seqs, end_seqs = ranges.firsts[begins], ranges.lasts[ends]
        gaps = np.zeros(len(ranges.keys), bool)
        gaps[1:] = ranges.firsts[1:] > ranges.lasts[:-1] + 1
        gaps[begins] = False
        # Without a gap: the identity's highest range goes on, or its first one begins.
        whole = ~ranges.twice & ~np.logical_or.reduceat(gaps, begins)
        simple = whole & (~here | (begin_seqs == lasts + 1))
        goes_on, new = simple & here, simple & ~here
        self._lasts[at[goes_on]] = end_seqs[goes_on]
        self._used[at[goes_on]] = now
        self._insert(at[new], keys[new], begin_seqs[new], end_seqs[new], now)
        added = int((end_seqs - begin_seqs + 1)[simple].sum())
        for number in np.flatnonzero(~simple).tolist():
            span = slice(begins[number], ends[number] + 1)
            added += self._add_one(int(keys[number]), ranges.firsts[span], ranges.lasts[span], now)
        return added

    def forget(self, before: int) -> None:
        """Lets go of the identities that got nothing since a time."""
        kept = self._used >= before
        for key in self._keys[~kept].tolist():
            self._below.pop(key, None)
        self._keys, self._used = self._keys[kept], self._used[kept]
        self._firsts, self._lasts = self._firsts[kept], self._lasts[kept]

    def _find(self, keys: Any) -> tuple[Any, Any]:
        """Where these keys are or would be, and whether they are here."""
        at = np.searchsorted(self._keys, keys)
        here = at < len(self._keys)
        here[here] = self._keys[at[here]] == keys[here]
        return at, here

    def _bounds(self, at: Any, here: Any) -> tuple[Any, Any]:
        """The highest range of those that are here."""
        firsts, lasts = (np.full(len(at), _NOWHERE) for _ in range(2))
        firsts[here], lasts[here] = self._firsts[at[here]], self._lasts[at[here]]
        return firsts, lasts

    def _insert(self, at: Any, keys: Any, firsts: Any, lasts: Any, now: int) -> None:
        if len(keys):
            self._keys = np.insert(self._keys, at, keys)
            self._firsts = np.insert(self._firsts, at, firsts)
            self._lasts = np.insert(self._lasts, at, lasts)
            self._used = np.insert(self._used, at, now)

    def _add_one(self, key: int, firsts: Any, lasts: Any, now: int) -> int:
        seqs = NumberSet(self.spans(key))
        before = len(seqs)
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            seqs.add(first, last)
        *below, (first, last) = seqs.spans()
        at, here = self._find(np.array([key], np.uint64))
        if not here[0]:
            self._insert(at, [key], [first], [last], now)
        self._firsts[at], self._lasts[at], self._used[at] = first, last, now
        self._below.pop(key, None)
        if below:
            self._below[key] = NumberSet(below)
        return len(seqs) - before


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
    """A packed batch with its summary: identities, reasons of rejects, late readings, unknown schemas."""

    def __init__(self, spark: SparkSession, packed: DataFrame) -> None:
        self._spark, self._packed = spark, packed
        self._summary = packed.where(F.col("identities").isNotNull()).toArrow()
        tables = [rows_in(identities.as_buffer()) for identities in self._summary["identities"]]
        self.ranges = Ranges.of(pa.concat_tables(tables)) if tables else None
        self.rows = 0 if self.ranges is None else int(self.ranges.table["rows"].to_numpy().sum())
        # Why records were rejected, and Kafka's time of the first of them.
        self.reasons, self.rejects_since_us = Counter[str](), FOREVER_US
        for reasons in self._summary["reasons"].drop_null():
            for reason, first_us, rows in zip(
                *rows_in(reasons.as_buffer()).to_pydict().values(), strict=True
            ):
                self.reasons[reason] += rows
                self.rejects_since_us = min(self.rejects_since_us, first_us)
        self.late = sum(self._summary["late"].to_pylist())
        self.unknown = set(chain.from_iterable(self._summary["unknown"].drop_null().to_pylist()))
        self.newest_us: int | None = max(self._summary["newest_us"].drop_null().to_pylist(), default=None)

    def readings_frame(self) -> DataFrame:
        """The batch's readings."""
        return self._collected("readings", self.rows) or readings_of(self._packed)

    def rejects_frame(self) -> DataFrame:
        """The batch's rejects."""
        return self._collected("rejects", self.reasons.total()) or rejects_of(self._packed)

    def _collected(self, column: str, rows: int) -> DataFrame | None:
        """All rows of a small batch, which came along with the summary; None where some didn't."""
        tables = [rows_in(packed.as_buffer()) for packed in self._summary[column].drop_null()]
        if sum(table.num_rows for table in tables) < rows:
            return None
        return self._spark.createDataFrame(pa.concat_tables(tables).combine_chunks())


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
        batch = self._packed(records, identities)
        try:
            found = _Batch(self._spark, batch)
            if found.unknown and self._schemas.learn(found.unknown):
                # The first of a new schema, once: what was found with it is known from now on.
                batch.unpersist()
                batch = self._packed(records, identities)
                found = _Batch(self._spark, batch)
            rows = found.rows
            new_reasons = Counter[str]()
            if found.reasons:
                rejects, since_us = found.rejects_frame(), found.rejects_since_us
                new_reasons = self._quarantine.write(rejects, since_us, app, number)
            new_rows = self._write_readings(found, found.ranges, app, number) if found.ranges and rows else 0
        finally:
            batch.unpersist()
        unstored = sum(table.num_rows for table in self._unstored)
        if self._clock() - self._stored_at_s >= _STORE_EVERY_S or unstored >= _STORE_AT_ONCE:
            self.flush()
        rejected, new_rejects = found.reasons.total(), new_reasons.total()
        return BatchCounts(
            records=rows + rejected,
            readings=new_rows,
            quarantined=new_rejects,
            repeated=rows - new_rows + rejected - new_rejects,
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
        unstored = pa.concat_tables(self._unstored)
        version = pa.repeat(pa.scalar(self._covered, pa.int64()), unstored.num_rows)
        table = unstored.append_column("readings_version", version).rename_columns(SEEN.schema.names)
        frame = self._spark.createDataFrame(table).coalesce(1)
        if self._stores % _COMPACT_EVERY == _COMPACT_EVERY - 1:
            frame = joined_ranges(self._stored().union(_plain(frame)))
            frame = frame.withColumn("readings_version", F.lit(self._covered).cast("long")).toDF(
                *SEEN.schema.names
            )
            overwrite_once(frame, self._seen_table, *self._writer)
        else:
            write_once(frame, self._seen_table, *self._writer)
        self._stores += 1
        self._unstored = []
        self._seen.forget(int(self._stored_at_s) - _REMEMBERED_S)

    def _packed(self, records: DataFrame, identities: Identities) -> DataFrame:
        return packed(records, self._dead_letter_topic, identities, self._schemas.known).persist()

    def _write_readings(self, found: _Batch, ranges: Ranges, app: str, number: int) -> int:
        # Another job (a replay) may have added readings.
        self._take_up()
        self._look_up(ranges)
        repeated = np.flatnonzero(ranges.twice | self._seen.repeated(ranges))
        names = ranges.identities.take(repeated).to_pylist()
        keys = ranges.keys[ranges.begins[repeated]].tolist()
        repeating = [
            (*name.values(), [{"first": first, "last": last} for first, last in self._seen.spans(key)])
            for name, key in zip(names, keys, strict=True)
        ]
        new_rows = self._seen.add(ranges, int(self._clock()))
        if new_rows:
            fresh = found.readings_frame()
            if repeating:
                seen = rows_frame(self._spark, _SEEN_SPANS, repeating)
                fresh = unseen_readings(fresh, seen, copies=bool(ranges.twice.any()))
            small = found.rows <= _SMALL_BATCH
            version = write_once(fresh.coalesce(1) if small else fresh, self._readings, app, number)
            self._unstored.append(ranges.table.select(_RANGE))
            if version > self._covered + 1:
                self._take_up()
            else:
                self._covered = version
        return new_rows

    def _look_up(self, ranges: Ranges) -> None:
        """Takes up what is stored of those identities that are not in memory."""
        wanted = ranges.identities.filter(pa.array(self._seen.unknown(ranges)))
        if not wanted.num_rows:
            return
        stored = self._stored()
        gateways, runs = (wanted[name].unique().to_pylist() for name in ("gateway", "run"))
        if max(len(gateways), len(runs)) <= _FEW:
            # Perhaps with other channels of these runs. It takes two jobs fewer than a join.
            stored = stored.where(F.col("gateway").isin(gateways) & F.col("run").isin(runs))
        else:
            names = F.broadcast(self._spark.createDataFrame(wanted))
            stored = stored.join(names, list(IDENTITY), "left_semi")
        self._add(stored.toArrow())

    def _take_up(self) -> None:
        """Takes up what ``readings`` got after the version covered."""
        rows, self._covered = rows_after(self._spark, self._readings, self._covered, identity_ranges)
        if rows:
            table = pa.table({name: [row[name] for row in rows] for name in _RANGE})
            self._unstored.append(table)
            # First what was stored before of identities that are not in memory.
            self._look_up(_ranges(table))
            self._add(table)

    def _add(self, table: Any) -> None:
        self._seen.add(_ranges(table), int(self._clock()))

    def _stored(self) -> DataFrame:
        return _plain(self._spark.read.format("delta").load(self._seen_table))


def _plain(seen: DataFrame) -> DataFrame:
    """Rows of ``_seen`` as ranges."""
    return seen.drop("readings_version").toDF(*_RANGE)


def _ranges(table: Any) -> Ranges:
    """Ranges in which each number is once."""
    rows = pc.add(pc.subtract(table["last"], table["first"]), 1)
    return Ranges.of(table.append_column("rows", rows))
