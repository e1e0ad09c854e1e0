"""A period again, from Kafka or from quarantine: what was missing comes, what was there stays as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from cloud.local.kafka_broker import LocalBroker
from cloud.wire.reading_records import Reading, encode_reading, reading_key
from spark_jobs.jobs.ingest import LEASE, TABLES, IngestJob
from spark_jobs.jobs.replay import ReplayedPeriod, period_of, replay_kafka, replay_quarantine
from spark_jobs.platform.errors import JobError, SettingsError
from spark_jobs.platform.schemas import QUARANTINE
from spark_jobs.platform.settings import Settings, moment_us, parse_command
from spark_jobs.sinks.delta import ensure_table
from spark_jobs.streaming.lease import Lease, LeaseTakenError
from tests.spark.records import KAFKA_US, START_US, identities, reading, rows_of
from tests.spark.running import run_to_end

HOUR_US = 3_600_000_000


def produce(kafka: LocalBroker, topic: str, kafka_us: int, records: Sequence[Reading | bytes]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all"})
    for item in records:
        value = encode_reading(item) if isinstance(item, Reading) else item
        key = (
            reading_key(item.gateway, item.channel)
            if isinstance(item, Reading)
            else b"mast-07/cup.wind_speed"
        )
        producer.produce(topic, value, key, timestamp=kafka_us // 1000)
    assert producer.flush(30) == 0


def test_a_period_from_kafka(
    spark: SparkSession, settings: Settings, kafka: LocalBroker, kafka_topic: Callable[..., str]
) -> None:
    # Times of the test's own choosing, by which the broker would expire the records at once.
    topic = kafka_topic("replay", 2, {"message.timestamp.type": "CreateTime", "retention.ms": "-1"})
    settings = replace(settings, bootstrap_servers=kafka.bootstrap_servers, topic_pattern=topic)
    hour = [[reading(seq) for seq in range(first, first + 5)] for first in (1, 6, 11)]
    produce(kafka, topic, KAFKA_US, hour[0])
    produce(kafka, topic, KAFKA_US + HOUR_US, [*hour[1], reading(6, gateway="mast-08"), b"bad"])
    produce(kafka, topic, KAFKA_US + 2 * HOUR_US, [*hour[2], *hour[1]])
    period = ReplayedPeriod(KAFKA_US + HOUR_US, KAFKA_US + 2 * HOUR_US, "mast-07")
    lease = Lease(spark, settings, LEASE, "replay")

    everyone = replace(period, gateway=None)
    assert replay_kafka(spark, settings, everyone, lease, dry_run=True) == Counter(records=7)
    with lease.held(TABLES):
        done = replay_kafka(spark, settings, period, lease)
        assert done == Counter(records=6, readings=5, quarantined=1)
        assert identities(settings) == [item.identity for item in hour[1]]
        # A period that holds nothing, after the end of the topic.
        late = ReplayedPeriod(KAFKA_US + 9 * HOUR_US, KAFKA_US + 10 * HOUR_US)
        assert replay_kafka(spark, settings, late, lease) == Counter()
        with pytest.raises(LeaseTakenError, match=r"replay \(process"):
            IngestJob(spark, settings)

    run_to_end(settings, IngestJob(spark, settings))
    everything = [item.identity for each in hour for item in each]
    assert identities(settings) == sorted([*everything, ("mast-08", "cup.wind_speed", "run-1", 6)])
    assert [row["payload"] for row in rows_of(settings, "quarantine")] == [b"bad"]
    # What came first is what stays: the replayed rows are as they were.
    offsets = {row["seq"]: row["kafka_time"].timestamp() * 1e6 for row in rows_of(settings, "readings")}
    assert offsets[7] == KAFKA_US + HOUR_US


def test_what_is_a_reading_by_now_leaves_quarantine(spark: SparkSession, settings: Settings) -> None:
    with pytest.raises(JobError, match="is --lake right"):
        replay_quarantine(spark, settings, ReplayedPeriod(0, 1), Lease(spark, settings, LEASE, "replay"))
    whole = encode_reading(reading(3))
    rows = [
        ("mqtt.wind_speed", whole, len(whole), 1),
        ("mqtt.wind_speed", b"bad", 3, 2),
        # The same reading a second time: one row, and both leave.
        ("mqtt.wind_speed", whole, len(whole), 3),
        # Only the beginning was kept; a gateway refused it; it is after the period.
        ("mqtt.wind_speed", whole, len(whole) + 1, 4),
        (settings.dead_letter_topic, whole, len(whole), 5),
        ("mqtt.wind_speed", encode_reading(reading(4)), len(whole), 6),
    ]
    location = ensure_table(spark, settings, QUARANTINE)
    table = pa.table(
        {
            "reason": ["OLD_RULE"] * 6,
            "payload": [payload for _, payload, _, _ in rows],
            "payload_bytes": [size for _, _, size, _ in rows],
            "key": ["mast-07/cup.wind_speed"] * 6,
            "kafka_topic": [topic for topic, _, _, _ in rows],
            "kafka_partition": pa.array([0] * 6, pa.int32()),
            "kafka_offset": [offset for _, _, _, offset in rows],
            "kafka_time": pa.array(
                [KAFKA_US if offset < 6 else KAFKA_US + HOUR_US for _, _, _, offset in rows],
                pa.timestamp("us", tz="UTC"),
            ),
        }
    )
    spark.createDataFrame(table).write.format("delta").mode("append").save(location)
    lease = Lease(spark, settings, LEASE, "replay")
    period = ReplayedPeriod(0, KAFKA_US + HOUR_US)

    def left() -> list[int]:
        return sorted(row["kafka_offset"] for row in rows_of(settings, "quarantine"))

    counted = replay_quarantine(spark, settings, period, lease, dry_run=True)
    assert (counted, left()) == (Counter(records=3, left_quarantine=2), [1, 2, 3, 4, 5, 6])
    before = rows_of(settings, "quarantine")
    with lease.held(TABLES):
        done = replay_quarantine(spark, settings, period, lease)
        assert done == Counter(records=3, readings=1, repeated=1, left_quarantine=2)
        assert left() == [2, 4, 5, 6]
        assert identities(settings) == [reading(3).identity]
        (stored,) = rows_of(settings, "readings")
        assert (stored["value"], stored["time"].timestamp() * 1e6) == (7.25, START_US + 2_000_000)
        assert stored["kafka_time"].timestamp() * 1e6 == KAFKA_US
        # As a kill between the two tables leaves it: in both. It leaves, and is there once.
        rest = [row for row in before if row["kafka_offset"] == 1]
        names = [field.name for field in QUARANTINE.schema if field.name in rest[0]]
        again = spark.createDataFrame([tuple(row[name] for name in names) for row in rest], QUARANTINE.schema)
        again.write.format("delta").mode("append").save(location)
        assert replay_quarantine(spark, settings, period, lease) == Counter(
            records=2, repeated=1, left_quarantine=1
        )
        assert replay_quarantine(spark, settings, period, lease) == Counter(records=1)
    assert (left(), len(rows_of(settings, "readings"))) == ([2, 4, 5, 6], 1)


def test_times_and_options() -> None:
    assert moment_us("2026-05-28") == START_US - (20 * 60 + 27) * 60_000_000
    assert moment_us("2026-05-28T22:27:00+02:00") == START_US
    options, _ = parse_command("replay", ["--from", "2026-05-28", "--to", "2026-05-29", "--gateway", "m"])
    assert period_of(options, 0) == ReplayedPeriod(moment_us("2026-05-28"), moment_us("2026-05-29"), "m")
    for arguments in (["--source", "quarantine"], ["--from", "quarantine"]):
        options, _ = parse_command("replay", arguments)
        assert (period_of(options, 5), options.source) == (ReplayedPeriod(0, 5), "quarantine")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--from is missing"),
        (["--from", "2026-05-28", "--to", "2026-05-28"], "--from must be before --to"),
        (["--from", "2026-05-28T10:00"], "is no time such as"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        period_of(parse_command("replay", arguments)[0], 1)
