"""A fault in each job that no validator knows: what causes it is set aside, all else is done, once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.wire.reading_records import Reading, encode_reading, reading_key
from spark_jobs.alerting.engine import Engine
from spark_jobs.jobs import anomaly, ingest, mast, statistics
from spark_jobs.jobs.alerts import AlertsJob
from spark_jobs.jobs.anomaly import AnomalyJob
from spark_jobs.jobs.ingest import IngestJob, RecordsJob
from spark_jobs.jobs.mast import MastJob
from spark_jobs.jobs.presence import PresenceJob
from spark_jobs.jobs.statistics import StatisticsJob
from spark_jobs.platform import metrics
from spark_jobs.platform.schemas import RUNS, STATISTICS
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks import readings as readings_sink
from spark_jobs.streaming.query import Job
from tests.spark.records import append_readings, append_rows, identities, reading, rows_of
from tests.spark.running import run_to_end
from tests.support.servers import unique_name

BAD = 666.5
MASTS = [f"mast-{number:02}" for number in range(5)]
START = datetime(2026, 5, 28, 20, 20, tzinfo=UTC)


def failing(frame: DataFrame, column: str, mark: str) -> DataFrame:
    """The rows, which fail in a worker where a value has the mark."""

    def check(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for value in batch[column].to_pylist():
                text = value.decode() if isinstance(value, bytes) else str(value)
                if mark in text:
                    raise OverflowError("a planted fault")
            yield batch

    return frame.mapInArrow(check, frame.schema)


def plant(patch: pytest.MonkeyPatch, place: object, name: str, column: str, mark: str, at: int = 0) -> None:
    """From now on this function of frames fails for rows with the mark."""
    made: Callable[..., DataFrame] = getattr(place, name)

    def planted(*frames: Any, **more: Any) -> DataFrame:
        given = list(frames)
        given[at] = failing(given[at], column, mark)
        return made(*given, **more)

    patch.setattr(place, name, planted)


def readings(values: dict[str, list[float]]) -> list[Reading]:
    return [
        reading(seq, value, gateway=mast_id)
        for mast_id, of_mast in values.items()
        for seq, value in enumerate(of_mast, start=1)
    ]


def set_aside(settings: Settings) -> list[tuple[str, str, bytes | None]]:
    rows = rows_of(settings, "quarantine")
    return sorted((row["gateway"], row["reason"], row["payload"]) for row in rows)


def counted(query: str) -> float | None:
    return metrics.REGISTRY.get_sample_value("fieldgate_jobs_set_aside_total", {"query": query})


@pytest.fixture
def place(settings: Settings, kafka: LocalBroker, kafka_topic: Callable[..., str]) -> Settings:
    provision_topics(kafka.bootstrap_servers)
    return replace(
        settings,
        bootstrap_servers=kafka.bootstrap_servers,
        topic_pattern=kafka_topic("aside"),
        dead_letter_topic=unique_name("dead"),
        raw_topic=kafka_topic("aside-raw"),
        channels_topic=kafka_topic("aside-channels"),
        runs_topic=kafka_topic("aside-runs"),
        status_topic=kafka_topic("aside-status"),
        sites_topic=kafka_topic("aside-sites"),
        events_topic=kafka_topic("aside-events"),
    )


def send(settings: Settings, topic: str, records: Iterable[tuple[bytes, bytes]]) -> None:
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "enable.idempotence": True})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0


def send_readings(settings: Settings, values: dict[str, list[float]]) -> list[Reading]:
    made = readings(values)
    records = [(reading_key(each.gateway, each.channel), encode_reading(each)) for each in made]
    send(settings, settings.topic_pattern, records)
    return made


def test_ingest(spark: SparkSession, place: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = send_readings(place, {name: [1.0, 2.0, BAD if name == MASTS[2] else 3.0, 4.0] for name in MASTS})
    before = counted("ingest") or 0
    with monkeypatch.context() as patch:
        plant(patch, readings_sink, "packed", "value", str(BAD))
        run_to_end(place, IngestJob(spark, place))
        (bad,) = (each for each in sent if each.value == BAD)
        assert identities(place) == sorted(each.identity for each in sent if each is not bad)
        reason = "BATCH_FAILED: ingest: OverflowError: a planted fault"
        assert set_aside(place) == [(MASTS[2], reason, encode_reading(bad))]
        assert counted("ingest") == before + 1
        # A restart goes on behind it; a lost checkpoint finds all of it where it is.
        run_to_end(place, IngestJob(spark, place))
        again = replace(place, checkpoints=place.checkpoints + "-lost")
        run_to_end(again, IngestJob(spark, again))
    assert len(identities(place)) == len(sent) - 1
    assert len(set_aside(place)) == 1


def test_records(spark: SparkSession, place: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, ingest, "messages", "value", str(BAD))
    values = [(f"{name}/x".encode(), f"{name} {at}".encode()) for name in MASTS for at in range(3)]
    # Keys that are no UTF-8 are anybody's: a healthy one is stored, and a bad one set aside.
    bad = str(BAD).encode()
    strange = [(b"\xff/x", b"healthy"), (b"\xfe\xfe", bad)]
    send(place, place.raw_topic, [*values[:7], (b"mast-02/x", bad), *strange, *values[7:]])
    run_to_end(place, RecordsJob(spark, place))
    run_to_end(place, RecordsJob(spark, place))
    stored = sorted(row["payload"] for row in rows_of(place, "messages"))
    assert stored == sorted([b"healthy", *(value for _, value in values)])
    reason = "BATCH_FAILED: ingest-records: OverflowError: a planted fault"
    assert set_aside(place) == [("mast-02", reason, bad), ("\ufffd\ufffd", reason, bad)]


def test_alerts(spark: SparkSession, place: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nname = "gale"\nkind = "threshold"\nabove = 25.0\n')
    place = replace(place, rules=str(rules))
    evaluate = Engine._evaluate

    def planted(self: Engine, channel: Any, sample: Any, value: float, *more: Any) -> None:
        evaluate(self, channel, sample, value, *more)
        if value == BAD:
            # Half of its work is done.
            raise OverflowError("a planted fault")

    monkeypatch.setattr(Engine, "_evaluate", planted)
    names = [f"{unique_name('gale')}-{number}" for number in range(3)]
    send_readings(place, {names[0]: [1.0, 30.0], names[1]: [1.0, BAD, 2.0], names[2]: [30.0, 1.0]})
    run_to_end(place, AlertsJob(spark, place))
    found = sorted((row["gateway"], row["cleared_at"] is None) for row in rows_of(place, "alerts"))
    assert found == sorted([(names[0], True), (names[2], False)])
    assert [row[:2] for row in set_aside(place)] == [
        (names[1], "BATCH_FAILED: alerts: OverflowError: a planted fault")
    ]
    run_to_end(place, AlertsJob(spark, place))
    assert len(rows_of(place, "alerts")) == 2


def table_job(spark: SparkSession, settings: Settings, make: Callable[[SparkSession, Settings], Job]) -> None:
    """The job to its end, twice: what one start sets aside the next one doesn't meet."""
    for _ in range(2):
        job = make(spark, settings)
        run_to_end(settings, job)
    reason = f"BATCH_FAILED: {job.name}: OverflowError: a planted fault"
    assert set_aside(settings) == [(MASTS[2], reason, None)]


def test_statistics(spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, statistics, "interval_statistics", "value", str(BAD))
    append_readings(spark, settings, readings({name: [BAD if name == MASTS[2] else 3.0] for name in MASTS}))
    table_job(spark, settings, StatisticsJob)
    rows = rows_of(settings, "statistics")
    assert {row["gateway"]: row["version"] for row in rows} == {n: 1 for n in MASTS if n != MASTS[2]}


def interval_rows(spark: SparkSession, settings: Settings) -> None:
    rows = [
        {
            "gateway": name, "channel": "cup.wind_speed", "interval_s": settings.interval_s, "avg": 8.0,
            "interval_start": START, "quantity": "wind_speed", "unit": "m/s", "sd": 0.8, "cube_mean": 512.0,
            "count": 60, "expected": 60.0, "recovery": 1.0, "period_ms": 1000, "n_good": 60, "version": 1,
            "n_not_evaluated": 0, "n_suspect": 0, "n_fail": 0, "n_missing": 0, "quality": 1,
            "date": START.date(), "updated_at": START,
        }
        for name in MASTS
    ]  # fmt: skip
    append_rows(spark, settings, STATISTICS, rows)


@pytest.mark.parametrize(
    ("make", "place_of", "function", "table"),
    [(MastJob, mast, "mast_rows", "mast"), (AnomalyJob, anomaly, "anomaly_rows", "anomalies")],
)
def test_of_intervals(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch,
    make: Callable[[SparkSession, Settings], Job], place_of: object, function: str, table: str,
) -> None:  # fmt: skip
    plant(monkeypatch, place_of, function, "gateway", MASTS[2])
    interval_rows(spark, settings)
    table_job(spark, settings, make)
    assert sorted(row["gateway"] for row in rows_of(settings, table)) == [n for n in MASTS if n != MASTS[2]]


def test_presence(spark: SparkSession, settings: Settings) -> None:
    """All is counted of the tables each time: a gateway whose records can't be counted keeps its figures."""
    # No validator lets such a record through.
    append_rows(spark, settings, RUNS, [{"gateway": MASTS[2], "run": "r", "state": "sampling"}])
    append_readings(spark, settings, readings({name: [3.0] for name in MASTS}))
    before = counted("presence") or 0
    run_to_end(settings, PresenceJob(spark, settings))
    rows = {row["gateway"]: row["pending"] + row["lost"] for row in rows_of(settings, "presence")}
    assert rows == dict.fromkeys(MASTS, 0)
    assert counted("presence") == before + 1
