"""Topics that were created again, as when Kafka was rebuilt: their records are read from the beginning."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from cloud.local.kafka_broker import LocalBroker
from cloud.wire.reading_records import encode_reading, reading_key
from spark_jobs.jobs.ingest import IngestJob
from spark_jobs.platform.files import Files
from spark_jobs.platform.settings import Settings
from spark_jobs.streaming.query import TopicIds, TopicsRecreatedError
from tests.spark.records import identities, reading
from tests.spark.running import run_to_end
from tests.support.servers import eventually, unique_name


class Topic:
    """A topic of readings that is deleted and created again."""

    def __init__(self, kafka: LocalBroker) -> None:
        self.name = f"{unique_name('again')}.wind_speed"
        self._kafka: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.bootstrap_servers}
        self.admin = AdminClient(self._kafka)

    def create(self) -> None:
        self.admin.create_topics([NewTopic(self.name, num_partitions=1, replication_factor=1)])[
            self.name
        ].result(30)

    def delete(self) -> None:
        self.admin.delete_topics([self.name])[self.name].result(30)
        eventually(lambda: self.name not in self.admin.list_topics(timeout=10).topics)

    def produce(self, first: int, last: int) -> None:
        producer = Producer(self._kafka)
        for seq in range(first, last + 1):
            each = reading(seq)
            producer.produce(self.name, encode_reading(each), reading_key(each.gateway, each.channel))
        assert producer.flush(30) == 0


@pytest.fixture
def topic(kafka: LocalBroker) -> Iterator[Topic]:
    made = Topic(kafka)
    made.create()
    yield made
    made.delete()


@pytest.mark.parametrize(("before", "after"), [(20, 5), (5, 40)], ids=["shorter", "grown past the old end"])
def test_a_topic_created_again_is_read_from_its_beginning(
    spark: SparkSession,
    settings: Settings,
    kafka: LocalBroker,
    topic: Topic,
    before: int,
    after: int,
    caplog: pytest.LogCaptureFixture,
    full: bool,
) -> None:
    if after < before and not full:
        pytest.skip("only with --full: there Spark itself would have failed")
    settings = replace(
        settings,
        bootstrap_servers=kafka.bootstrap_servers,
        topic_pattern=topic.name.replace(".", "\\."),
        dead_letter_topic="none",
    )
    topic.produce(1, before)
    run_to_end(settings, IngestJob(spark, settings))
    assert len(identities(settings)) == before
    topic.delete()
    topic.create()
    topic.produce(before + 1, before + after)
    with caplog.at_level(logging.WARNING), pytest.raises(TopicsRecreatedError, match="created again"):
        run_to_end(settings, IngestJob(spark, settings))
    assert "event=topic.recreated query=ingest" in caplog.text
    for _ in range(2):
        run_to_end(settings, IngestJob(spark, settings))
        assert sorted(seq for *_, seq in identities(settings)) == list(range(1, before + after + 1))


def test_a_running_query_whose_topic_is_created_again_is_ended(
    spark: SparkSession, settings: Settings, kafka: LocalBroker, topic: Topic
) -> None:
    settings = replace(
        settings,
        bootstrap_servers=kafka.bootstrap_servers,
        topic_pattern=topic.name.replace(".", "\\."),
        dead_letter_topic="none",
    )
    Files(spark).make_folder(settings.checkpoint("ingest"))
    ids = TopicIds(spark, settings, "ingest", settings.topic_pattern)
    ids.check()
    topic.delete()
    ids.check(running=True)
    topic.create()
    with pytest.raises(TopicsRecreatedError, match="created again"):
        ids.check(running=True)
    # Its file was cut short: not known any more, and kept anew.
    kept = Files(spark)
    place = f"{settings.checkpoint('ingest').rpartition('/')[0]}/topics.json"
    whole = kept.read_bytes(place)
    assert whole is not None
    kept.write(place, whole[:-3])
    TopicIds(spark, settings, "ingest", settings.topic_pattern).check(running=True)
    assert kept.read_bytes(place) not in (None, whole[:-3])
