"""Each record once, whatever is repeated, lost or interrupted."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.settings import Settings
from spark_jobs.sinks import readings as readings_sink
from spark_jobs.sinks.readings import BatchCounts, IngestSink
from spark_jobs.transforms.packing import packed
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
    return sink.write(packed(frame, DEAD), app, batch)


def counted(late: int, reasons: dict[str, int] | None = None, **counts: int) -> BatchCounts:
    """Kafka has all records of these tests an hour after the first reading: all are late."""
    return BatchCounts(reasons=reasons or {}, late=late, newest_us=KAFKA_US, **counts)


def expected(*seqs: int) -> list[tuple[str, str, str, int]]:
    return [("mast-07", "cup.wind_speed", "run-1", seq) for seq in seqs]


def test_good_and_bad_go_their_ways(spark: SparkSession, settings: Settings) -> None:
    sink = opened(spark, settings)
    counts = feed(sink, spark, [*encoded([reading(1), reading(2)]), b"bad", None], 0)
    assert counts == counted(
        late=2, reasons={"NOT_JSON": 1, "EMPTY": 1}, records=4, readings=2, quarantined=2, repeated=0
    )
    assert identities(settings) == expected(1, 2)
    assert sorted((row["kafka_offset"], row["reason"]) for row in rows_of(settings, "quarantine")) == [
        (2, "NOT_JSON"),
        (3, "EMPTY"),
    ]
    assert {str(row["date"]) for row in rows_of(settings, "readings")} == {"2026-05-28"}


def test_repeats_within_and_across_batches_are_left_out(spark: SparkSession, settings: Settings) -> None:
    sink = opened(spark, settings)
    feed(sink, spark, encoded([reading(1), reading(2), reading(2), reading(5)]), 0)
    counts = feed(sink, spark, encoded(reading(seq) for seq in (2, 3, 3, 4, 5, 6)), 1, offset=4)
    assert counts == counted(late=6, records=6, readings=3, quarantined=0, repeated=3)
    assert identities(settings) == expected(1, 2, 3, 4, 5, 6)
    # Of copies in one batch the first that Kafka took is kept.
    offsets = {row["seq"]: row["kafka_offset"] for row in rows_of(settings, "readings")}
    assert offsets == {1: 0, 2: 1, 5: 3, 3: 5, 4: 7, 6: 9}


def test_another_run_or_channel_may_use_the_same_seq(spark: SparkSession, settings: Settings) -> None:
    sink = opened(spark, settings)
    feed(sink, spark, encoded([reading(1)]), 0)
    other = [reading(1, run="run-2"), reading(1, channel="dht.temperature"), reading(1, gateway="mast-08")]
    assert feed(sink, spark, encoded(other), 1, offset=1).readings == 3
    assert len(identities(settings)) == 4


def test_a_restarted_job_remembers(spark: SparkSession, settings: Settings) -> None:
    values = [*encoded(reading(seq) for seq in range(1, 6)), b"bad"]
    feed(opened(spark, settings), spark, values, 0)
    before = rows_of(settings, "readings"), rows_of(settings, "quarantine")
    # The same batch again (killed before its commit), then a lost checkpoint: batches count from 0 again.
    for app in ("ingest-a", "ingest-b"):
        counts = feed(opened(spark, settings), spark, values, 0, app=app)
        assert counts == counted(late=5, records=6, readings=0, quarantined=0, repeated=6)
    assert (rows_of(settings, "readings"), rows_of(settings, "quarantine")) == before


def test_killed_between_the_writes_and_the_checkpoint_lost_too(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    sink = opened(spark, settings)
    feed(sink, spark, encoded([reading(1)]), 0)
    sink.flush()
    shutil.copytree(settings.table("_seen"), tmp_path / "seen-before")
    values = [*encoded(reading(seq) for seq in (2, 3)), b"bad"]
    feed(opened(spark, settings), spark, values, 1, offset=1)
    # As a kill leaves it: readings of batch 1 stored, its ranges not.
    assert stored_ranges(settings) == [(1, 1)]
    shutil.rmtree(settings.table("_seen"))
    shutil.copytree(tmp_path / "seen-before", settings.table("_seen"))
    forget(spark)
    all_values = [*encoded([reading(1)]), *values, *encoded([reading(4)])]
    counts = feed(opened(spark, settings), spark, all_values, 0, app="ingest-b")
    assert counts == counted(late=4, records=5, readings=1, quarantined=0, repeated=4)
    assert identities(settings) == expected(1, 2, 3, 4)
    assert len(rows_of(settings, "quarantine")) == 1


def test_lost_ranges_are_rebuilt_from_the_readings(spark: SparkSession, settings: Settings) -> None:
    values = encoded(reading(seq) for seq in (1, 2, 5))
    sink = opened(spark, settings)
    feed(sink, spark, values, 0)
    sink.flush()
    shutil.rmtree(settings.table("_seen"))
    forget(spark)
    assert feed(opened(spark, settings), spark, values, 0, app="ingest-b").readings == 0
    assert identities(settings) == expected(1, 2, 5)


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
    spark: SparkSession, settings: Settings
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
    # A start has none in memory but what was not stored.
    again = opened(spark, settings)
    assert again.remembered() <= 3
    assert feed(again, spark, encoded([reading(2, run="run-2")]), 0, app="ingest-b").repeated == 1
    seqs = [(row["run"], row["seq"]) for row in rows_of(settings, "readings")]
    assert sorted(seqs) == [("run-1", seq) for seq in (1, 2, 3, 5, 6)] + [("run-2", n) for n in (1, 2, 3)]


def test_what_was_not_stored_when_it_died_is_stored_by_the_next(
    spark: SparkSession, settings: Settings
) -> None:
    feed(opened(spark, settings), spark, encoded([reading(1)]), 0)
    forget(spark)
    # Dies twice before it stores any range; the third stores all of them.
    feed(opened(spark, settings), spark, encoded([reading(3)]), 1, offset=1)
    forget(spark)
    sink = opened(spark, settings)
    feed(sink, spark, encoded([reading(5)]), 2, offset=2)
    sink.flush()
    assert stored_ranges(settings) == [(1, 1), (3, 3), (5, 5)]
    forget(spark)
    values = encoded(reading(seq) for seq in range(1, 6))
    assert feed(opened(spark, settings), spark, values, 0, app="ingest-b").readings == 2
    assert identities(settings) == expected(1, 2, 3, 4, 5)


def test_readings_that_another_job_added_are_taken_up(spark: SparkSession, settings: Settings) -> None:
    sink, other = opened(spark, settings), opened(spark, settings)
    feed(sink, spark, encoded([reading(1)]), 0)
    feed(other, spark, encoded([reading(2)]), 0, app="replay")
    assert feed(sink, spark, encoded([reading(2), reading(3)]), 1, offset=1).readings == 1
    assert identities(settings) == expected(1, 2, 3)


def test_a_topic_created_again_begins_its_offsets_again(spark: SparkSession, settings: Settings) -> None:
    feed(opened(spark, settings), spark, [b"old", b"old"], 0, kafka_us=1_780_000_000_000_000)
    counts = feed(opened(spark, settings), spark, [b"new"], 0, app="ingest-b", kafka_us=1_780_000_900_000_000)
    assert counts.quarantined == 1
    assert sorted(row["payload"] for row in rows_of(settings, "quarantine")) == [b"new", b"old", b"old"]


def test_the_order_of_arrival_changes_nothing(spark: SparkSession, settings: Settings) -> None:
    values = encoded(reading(seq, value=float(seq)) for seq in range(1, 31))
    sink = opened(spark, settings)
    feed(sink, spark, values[20:] + values[:5], 0)
    feed(sink, spark, values[2:22], 1, offset=15)
    feed(sink, spark, values[::-1], 2, offset=35)
    assert identities(settings) == expected(*range(1, 31))
    assert sorted(row["value"] for row in rows_of(settings, "readings")) == [
        float(seq) for seq in range(1, 31)
    ]


def forget(spark: SparkSession) -> None:
    """Delta's cache of tables, which a new process would not have."""
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
