"""The jobs behind a mirrored Kafka. With ``--full`` only."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from cloud.local.kafka_broker import BrokerError, LocalBroker, jar_directory
from cloud.local.process import Child
from cloud.wire.reading_records import encode_reading, reading_key
from spark_jobs.jobs.ingest import IngestJob
from spark_jobs.platform.settings import Settings
from tests.spark.records import identities, reading, rows_of
from tests.spark.running import started
from tests.support.servers import eventually

pytestmark = pytest.mark.timeout(1800)


def _kill(process: Child) -> None:
    process.kill()
    eventually(lambda: process.exit_code is not None)


def _create(broker: LocalBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])[topic].result(30)


_MIRROR = """\
clusters = field, cloud
field.bootstrap.servers = {field}
cloud.bootstrap.servers = {cloud}
field->cloud.enabled = true
cloud->field.enabled = false
field->cloud.topics = mqtt\\\\..*, gateway\\\\..*
# Topics keep their names: the jobs' --topics and the tables' kafka_topic mean the same on both sides.
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
replication.factor = 1
offset-syncs.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
config.storage.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
refresh.topics.interval.seconds = 2
offset.flush.interval.ms = 5000
"""


def _mirror(directory: Path, field: LocalBroker, cloud: LocalBroker) -> Child:
    directory.mkdir(exist_ok=True)
    properties = directory / "mirror.properties"
    properties.write_text(_MIRROR.format(field=field.bootstrap_servers, cloud=cloud.bootstrap_servers))
    (directory / "log4j2.properties").write_text("rootLogger.level = warn\n")
    command = [
        *("java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-cp", f"{jar_directory('mirror')}/*"),
        f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}",
        *("org.apache.kafka.connect.mirror.MirrorMaker", str(properties)),
    ]
    return Child(command, directory / "mirror.log")


def test_a_mirrored_kafka_gives_each_reading_once(
    spark: SparkSession, settings: Settings, tmp_path: Path, full: bool
) -> None:
    if not full:
        pytest.skip("long: with --full")
    try:
        jar_directory("mirror")
    except BrokerError:
        pytest.skip("no MirrorMaker: make mirror-jars")
    topic = "mqtt.wind_speed"
    with LocalBroker(tmp_path / "field") as field, LocalBroker(tmp_path / "cloud") as cloud:
        _create(field, topic)
        producer = Producer({"bootstrap.servers": field.bootstrap_servers, "acks": "all"})

        def produce(first: int, last: int) -> None:
            for seq in range(first, last + 1):
                item = reading(seq, seq / 7)
                producer.produce(
                    topic,
                    encode_reading(item),
                    reading_key(item.gateway, item.channel),
                    headers=[("mqtt-topic", b"fieldgate/mast-07/cup"), ("replayed", b"1")]
                    if seq % 5 == 0
                    else [],
                )
            assert producer.flush(60) == 0

        def once(servers: str) -> int:
            here = replace(settings, bootstrap_servers=servers)
            query = started(here, IngestJob(spark, here))
            query.awaitTermination()
            assert query.exception() is None
            return len(identities(settings)) if Path(settings.table("readings")).exists() else 0

        produce(1, 2000)
        # The tables are begun from the field's cluster; then the jobs move to the mirror.
        assert once(field.bootstrap_servers) == 2000
        shutil.rmtree(settings.checkpoints)
        mirror = _mirror(tmp_path / "mirror", field, cloud)
        try:
            eventually(lambda: once(cloud.bootstrap_servers) and _end(cloud, topic) >= 2000, 180)
            produce(2001, 4000)
            # Killed in the middle, it repeats what it had not noted as done.
            eventually(lambda: _end(cloud, topic) > 2000, 120, poll_s=0.005)
            _kill(mirror)
            mirror = _mirror(tmp_path / "mirror", field, cloud)
            produce(4001, 5000)
            eventually(lambda: once(cloud.bootstrap_servers), 180, until=lambda rows: rows == 5000)
            repeats = _end(cloud, topic) - 5000
        finally:
            mirror.stop(15)
    found = identities(settings)
    assert found == [("mast-07", "cup.wind_speed", "run-1", seq) for seq in range(1, 5001)]
    rows = rows_of(settings, "readings")
    assert {row["seq"] for row in rows if row["replayed"]} == set(range(5, 5001, 5))
    assert {row["kafka_topic"] for row in rows} == {topic}
    print("mirrored records beyond one each", repeats)  # noqa: T201


def _end(broker: LocalBroker, topic: str) -> int:
    """Records in the topic."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "ends", "log_level": 0})
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20) for number in partitions
        ]
        return sum(end[1] for end in ends)
    finally:
        consumer.close()
