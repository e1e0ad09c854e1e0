"""A small lake as an older version's jobs left it, with its checkpoints.

``python -m tests.spark.recorded_lake FILE`` made it, at commit 03d8326: with open intervals, an alert that is
raised, a run that goes on. The checkpoints name topics and offsets, so the records are the same each time:
one partition a topic, always in this order.
"""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.wire.channel_records import ChannelRecord, Period, encode_channel
from cloud.wire.reading_records import Reading, encode_reading, reading_key
from cloud.wire.status_records import StatusRecord, encode_status
from spark_jobs.jobs.alerts import AlertsJob
from spark_jobs.jobs.anomaly import AnomalyJob
from spark_jobs.jobs.ingest import IngestJob
from spark_jobs.jobs.ingest_records import RecordsJob
from spark_jobs.jobs.mast import MastJob
from spark_jobs.jobs.presence import PresenceJob
from spark_jobs.jobs.statistics import StatisticsJob
from spark_jobs.session import spark_session
from spark_jobs.settings import Settings
from tests.spark.records import START_US, reading
from tests.spark.running import started

ARCHIVE: Final = Path(__file__).parents[1] / "fixtures" / "lake-03d8326.tar.xz"
FIRST: Final = range(1, 151)
"""Seqs of each channel that are in the archive's tables."""
ALL: Final = range(1, 271)
CHANNELS: Final = ("cup-a.wind_speed", "cup-b.wind_speed", "box.temperature")
JOBS: Final = (RecordsJob, IngestJob, StatisticsJob, MastJob, PresenceJob, AnomalyJob, AlertsJob)

_TOPIC: Final = "recorded.readings"
_OTHERS: Final = ("recorded-dead", "recorded-raw", "recorded-channels", "recorded-runs", "recorded-status")
_RULES: Final = """
[[rule]]
name = "hot"
kind = "threshold"
quantity = "temperature"
above = 60.0
message = "{channel} at {value:.0f}"
"""


def settings_of(settings: Settings, broker: LocalBroker, place: Path) -> Settings:
    """Settings of the recorded topics, with lake and checkpoints in a folder."""
    rules = place / "rules.toml"
    rules.write_text(_RULES)
    dead, raw, channels, runs, status = _OTHERS
    return replace(
        settings,
        bootstrap_servers=broker.bootstrap_servers,
        topic_pattern=_TOPIC.replace(".", r"\."),
        dead_letter_topic=dead,
        raw_topic=raw,
        channels_topic=channels,
        runs_topic=runs,
        status_topic=status,
        rules=str(rules),
        lake=str(place / "lake"),
        checkpoints=str(place / "lake-checkpoints"),
    )


def readings(seqs: range) -> Iterator[Reading]:
    """Of two cups and an enclosure that is too hot from 100 to 200 s."""
    for seq in seqs:
        for channel in CHANNELS:
            hot = 100 < seq <= 200
            value = (70.0 if hot else 50.0) if channel == CHANNELS[2] else 5.0 + seq % 7
            yield reading(seq, value, channel=channel)


def create_topics(broker: LocalBroker) -> None:
    """The recorded topics, and those that every broker has."""
    provision_topics(broker.bootstrap_servers)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topics = [NewTopic(name, num_partitions=1, replication_factor=1) for name in (_TOPIC, *_OTHERS)]
    for future in admin.create_topics(topics).values():
        future.result(30)


def send(broker: LocalBroker, seqs: range, state: str) -> None:
    """Readings, something that is none, and what a gateway reports of itself meanwhile."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    for item in readings(seqs):
        producer.produce(_TOPIC, encode_reading(item), reading_key(item.gateway, item.channel))
    producer.produce(_TOPIC, b"bad")
    _, raw, channels, runs, status = _OTHERS
    producer.produce(raw, b"4.5", b"shed/fridge", headers=[("mqtt-topic", b"shed/fridge")])
    for sensor, height_m in (("cup-a", 50.0), ("cup-b", 30.0)):
        record = ChannelRecord(
            gateway="mast-07", sensor=sensor, quantity="wind_speed", cal="5d1c0a7e", revision=seqs[-1],
            in_force=True, periods=(Period(START_US),), unit="m/s", driver="hall-anemometer", interval_s=1.0,
            range=(0.0, 75.0), height_m=height_m,
        )  # fmt: skip
        producer.produce(channels, encode_channel(record), f"mast-07/{record.channel}/{record.cal}")
    run = {
        "v": 1, "gateway": "mast-07", "run": "run-1", "previous_run": None, "state": state, "boot": "b-1",
        "started": "2026-05-28T20:00:00.000Z", "revision": seqs[-1], "in_flight": 0, "outbox_records": 0,
        "last_seq": dict.fromkeys(CHANNELS, seqs[-1]), "dropped": [],
    }  # fmt: skip
    producer.produce(runs, json.dumps(run).encode(), b"mast-07/run-1")
    online = StatusRecord("mast-07", "online", "run-1", time_us=START_US, revision=seqs[-1])
    producer.produce(status, encode_status(online), b"mast-07")
    assert producer.flush(30) == 0


def take(spark: SparkSession, settings: Settings, *, finish: bool) -> None:
    """All that Kafka has, through every job; without ``finish`` as it is when the jobs are stopped."""
    for make in JOBS:
        job = make(spark, settings)
        query = started(settings, job)
        query.awaitTermination()
        assert query.exception() is None
        job.tick()
        if finish:
            job.finish()


def record(archive: Path) -> None:
    """Writes what the jobs of these sources leave behind."""
    with TemporaryDirectory() as place, LocalBroker(Path(place) / "kafka") as broker:
        plain = Settings(("ingest",), "", "", "", interval_s=60, trigger_s=0.1, once=True)
        settings = settings_of(plain, broker, Path(place))
        create_topics(broker)
        send(broker, FIRST, "running")
        spark = spark_session(settings)
        take(spark, settings, finish=False)
        spark.stop()
        with tarfile.open(archive, "w:xz") as tar:
            for name in ("lake", "lake-checkpoints"):
                tar.add(Path(place) / name, name)


if __name__ == "__main__":
    record(Path(sys.argv[1]))
