"""Each record once, whatever is repeated, lost or interrupted."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from spark_jobs.platform.settings import Settings
from spark_jobs.sinks import readings as readings_sink
from spark_jobs.sinks.readings import BatchCounts, IngestSink
from spark_jobs.transforms.dedupe import joined_ranges
from tests.spark.records import KAFKA_US, encoded, identities, kafka_frame, reading, rows_of

DEAD = "gateway.dead-letter"


def opened(spark: SparkSession, settings: Settings) -> IngestSink:
    """A sink for which no time passes: it stores its ranges when it is flushed."""
    return IngestSink(spark, settings, clock=lambda: 0.0)


def feed(
    sink: IngestSink,
    spark: SparkSession,
    values: Sequence[bytes | None],
    batch: int,
    *,
    app: str = "ingest-a",
    offset: int = 0,
    kafka_us: int = KAFKA_US,
) -> BatchCounts:
    frame = kafka_frame(spark, values, first_offset=offset, kafka_us=kafka_us)
    return sink.write(frame, app, batch)


def counted(late: int, reasons: dict[str, int] | None = None, **counts: int) -> BatchCounts:
    """Kafka has all records of these tests an hour after the first reading: all are late."""
    return BatchCounts(reasons=reasons or {}, late=late, newest_us=KAFKA_US, **counts)


def expected(*seqs: int) -> list[tuple[str, str, str, int]]:
    return [("mast-07", "cup.wind_speed", "run-1", seq) for seq in seqs]


def test_good_and_bad_go_their_ways_once(spark: SparkSession, settings: Settings) -> None:
    sink = opened(spark, settings)
    counts = feed(sink, spark, [*encoded(reading(seq, float(seq)) for seq in (2, 1, 2, 5)), b"bad", None], 0)
    reasons = {"NOT_JSON": 1, "EMPTY": 1}
    assert counts == counted(late=4, reasons=reasons, records=6, readings=3, quarantined=2, repeated=1)
    # Repeats of that batch and of this one, and what has the same number on another run, channel or gateway.
    again = encoded(reading(seq, float(seq)) for seq in (2, 3, 3, 4, 5, 6))
    other = [reading(1, run="run-2"), reading(1, channel="dht.temperature"), reading(1, gateway="mast-08")]
    counts = feed(sink, spark, [*again, *encoded(other)], 1, offset=6)
    assert counts == counted(late=9, records=9, readings=6, quarantined=0, repeated=3)
    assert identities(settings) == sorted([*expected(*range(1, 7)), *(item.identity for item in other)])
    rows = rows_of(settings, "readings")
    # Of copies in one batch the first that Kafka took is kept.
    found = {row["seq"]: (row["kafka_offset"], row["value"]) for row in rows if row["kafka_offset"] < 12}
    assert found == {2: (0, 2.0), 1: (1, 1.0), 5: (3, 5.0), 3: (7, 3.0), 4: (9, 4.0), 6: (11, 6.0)}
    assert {str(row["date"]) for row in rows} == {"2026-05-28"}

    # A topic that is created again begins its offsets again.
    later_us = KAFKA_US + 900_000_000
    counts = feed(opened(spark, settings), spark, [b"new"], 0, app="ingest-b", offset=4, kafka_us=later_us)
    assert counts.quarantined == 1
    refused = [
        (row["kafka_offset"], row["reason"], row["payload"]) for row in rows_of(settings, "quarantine")
    ]
    assert sorted(refused) == [(4, "NOT_JSON", b"bad"), (4, "NOT_JSON", b"new"), (5, "EMPTY", b"")]


def test_the_highest_number_there_is_has_no_next(spark: SparkSession) -> None:
    schema, top = "gateway string, channel string, run string, first bigint, last bigint", 2**63 - 1
    rows = [("m", "c", "r", *span) for span in ((top, top), (5, 6), (top, top), (1, 4), (top - 1, top))]
    found = joined_ranges(spark.createDataFrame(rows, schema)).collect()
    assert sorted((row.first, row.last) for row in found) == [(1, 6), (top - 1, top)]


def stored_ranges(settings: Settings) -> list[tuple[int, int]]:
    return sorted((row["first_seq"], row["last_seq"]) for row in rows_of(settings, "_seen"))


def test_ranges_are_stored_now_and_then_and_compacted(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings_sink, "_COMPACT_EVERY", 2)
    now_s = [0.0]
    sink = IngestSink(spark, settings, clock=lambda: now_s[0])
    for batch, at_s, stored in [(0, 9.9, []), (1, 10.0, [(1, 2), (3, 4)]), (2, 19.9, [(1, 2), (3, 4)])]:
        now_s[0] = at_s
        feed(sink, spark, encoded([reading(batch * 2 + 1), reading(batch * 2 + 2)]), batch, offset=batch * 2)
        assert stored_ranges(settings) == stored
    sink.flush()
    assert stored_ranges(settings) == [(1, 6)]
    again = feed(opened(spark, settings), spark, encoded([reading(6), reading(7)]), 3, offset=6)
    assert again.readings == 1


def test_identities_that_got_nothing_for_an_hour_leave_memory_and_are_looked_up_again(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    sink = IngestSink(spark, settings, clock=lambda: now_s[0])
    feed(sink, spark, encoded([*map(reading, (1, 2, 5)), reading(1, run="run-2")]), 0)
    assert sink.remembered() == 3
    # The second run goes on.
    for batch, at_s in enumerate((1800.0, 3700.0), start=1):
        now_s[0] = at_s
        feed(sink, spark, encoded([reading(batch + 1, run="run-2")]), batch, offset=batch * 10)
    assert sink.remembered() == 1
    counts = feed(sink, spark, encoded(map(reading, (2, 3, 5, 6))), 3, offset=30)
    assert (counts.readings, counts.repeated, sink.remembered()) == (2, 2, 3)
    # A start has none in memory but what was not stored. Of very many gateways a join finds them.
    monkeypatch.setattr(readings_sink, "_FEW", 0)
    again = opened(spark, settings)
    assert again.remembered() <= 3
    assert feed(again, spark, encoded([reading(2, run="run-2")]), 0, app="ingest-b").repeated == 1
    seqs = [(row["run"], row["seq"]) for row in rows_of(settings, "readings")]
    assert sorted(seqs) == [("run-1", seq) for seq in (1, 2, 3, 5, 6)] + [("run-2", n) for n in (1, 2, 3)]


def test_what_was_not_stored_when_it_died_is_stored_by_the_next(
    spark: SparkSession, settings: Settings
) -> None:
    first = [*encoded([reading(1)]), b"bad"]
    feed(opened(spark, settings), spark, first, 0)
    forget(spark)
    # It dies twice before it stores any range; the batch that Spark had not counted as done comes again.
    sink = opened(spark, settings)
    assert feed(sink, spark, first, 0) == counted(late=1, records=2, readings=0, quarantined=0, repeated=2)
    feed(sink, spark, encoded([reading(3)]), 1, offset=2)
    forget(spark)
    # The third stores all of them.
    sink = opened(spark, settings)
    feed(sink, spark, encoded([reading(5)]), 2, offset=3)
    sink.flush()
    assert stored_ranges(settings) == [(1, 1), (3, 3), (5, 5)]

    # Checkpoint and ranges are lost: batches count from 0 again, and ranges are rebuilt from the readings.
    shutil.rmtree(settings.table("_seen"))
    forget(spark)
    values = [*first, *encoded(map(reading, (2, 3, 4, 5)))]
    counts = feed(opened(spark, settings), spark, values, 0, app="ingest-b")
    assert counts == counted(late=5, records=6, readings=2, quarantined=0, repeated=4)
    assert identities(settings) == expected(1, 2, 3, 4, 5)
    assert len(rows_of(settings, "quarantine")) == 1


def test_readings_that_another_job_added_are_taken_up(spark: SparkSession, settings: Settings) -> None:
    sink, other = opened(spark, settings), opened(spark, settings)
    feed(sink, spark, encoded([reading(1)]), 0)
    feed(other, spark, encoded([reading(2)]), 0, app="replay")
    assert feed(sink, spark, encoded([reading(2), reading(3)]), 1, offset=1).readings == 1
    assert identities(settings) == expected(1, 2, 3)


def forget(spark: SparkSession) -> None:
    """Delta's cache of tables, which a new process would not have."""
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
