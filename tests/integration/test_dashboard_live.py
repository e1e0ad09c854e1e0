"""What is live on the pages: one reader of Kafka, which goes on when Kafka returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from cloud.config import CloudConfig, DashboardConfig, KafkaConfig
from cloud.dashboard.behind import behind_of
from cloud.dashboard.fleet import FleetReader
from cloud.dashboard.live import LiveReader, LiveReadings
from cloud.kafka.provision import provision_topics
from cloud.kafka.topic_scan import Tail
from cloud.lake.reader import Frame, LakeReader
from cloud.local.kafka_broker import LocalBroker
from cloud.wire.reading_records import Reading, encode_reading, reading_key
from tests.support.servers import eventually, unique_name
from tests.unit.cloud.lake.test_checkpoints import DELTA, put

CHANNEL = "cup-50m-a.wind_speed"
NOWHERE = KafkaConfig.model_validate({"bootstrap_servers": "127.0.0.1:1"})


def produce(servers: str, gateway: str, *values: float | None) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        now_us = time.time_ns() // 1000
        reading = Reading(
            gateway, CHANNEL, "wind_speed", "m/s", now_us, 1000, value, None, None,
            9 if value is None else 1, (), "r1", now_us % (1 << 40), "synced", None,
        )  # fmt: skip
        # The key keeps them in order.
        producer.produce("mqtt.wind_speed", encode_reading(reading), reading_key(gateway, CHANNEL))
    assert producer.flush(20) == 0


@contextmanager
def reading(servers: list[str]) -> Iterator[LiveReadings]:
    """Of the last of the ``servers``, at each opening."""
    live = LiveReadings(lambda: Tail(servers[-1], {}, 60.0, 1.0))
    live.start()
    try:
        yield live
    finally:
        live.stop()
        assert not live.is_alive()


def test_kafka_that_is_away_is_said_and_read_once_it_answers(
    provisioned: str, nowhere: str, tmp_path: Path
) -> None:
    ours, others = unique_name("ours"), unique_name("others")
    produce(provisioned, ours, 6.0, 7.0)
    produce(provisioned, others, 1.0)
    servers = [nowhere]
    with reading(servers) as live:
        of_all, of_one = LiveReader(live, ("*",)), LiveReader(live, (f"{ours[:-1]}*",))
        problem = eventually(lambda: of_one.problem, 20)
        assert problem is not None
        assert problem.startswith("since 2")
        assert f" UTC: no answer from Kafka at {nowhere}: " in problem
        assert of_one.of(ours) == {}
        servers.append(provisioned)
        # From before it answered: it begins a minute ago.
        eventually(lambda: {ours, others} <= of_all.last_seen_ms().keys(), 20)
        eventually(lambda: of_one.problem is None, 20)
        produce(provisioned, ours, None)
        eventually(lambda: of_one.of(ours)[CHANNEL].reading.quality, 20, until=lambda quality: quality == 9)
        shown = of_one.of(ours)[CHANNEL]
        assert (shown.reading.value, shown.values) == (None, (6.0, 7.0))
        assert of_one.of(others) == {}
        assert list(of_one.last_seen_ms()) == [ours]
        # In the fleet a mast is seen when Kafka has seen it, though no table has it yet.
        (tmp_path / "lake").mkdir()
        fleet = FleetReader(LakeReader({"lake": (str(tmp_path / "lake"), None)}), of_one).read()
        assert [(mast["gateway"], mast["state"]) for mast in fleet.masts] == [(ours, "unknown")]
        assert abs(fleet.masts[0]["last_seen_at"] - time.time() * 1000) < 30_000
    # A client that nobody holds is closed, and its answer never comes.
    admin = AdminClient({"bootstrap.servers": provisioned})
    listed = admin.list_consumer_groups().result(20)
    assert not [group for group in listed.valid if group.group_id.startswith("fieldgate-accounting")]


def test_how_far_jobs_are_behind(kafka_topic: Callable[..., str], provisioned: str, tmp_path: Path) -> None:
    topic = kafka_topic("behind", partitions=2, config={"message.timestamp.type": "CreateTime"})
    producer = Producer({"bootstrap.servers": provisioned})
    now_ms = round(time.time() * 1000)
    for partition, age_s in ((0, 900), (0, 600), (0, 300), (1, 100)):
        producer.produce(topic, b"x", partition=partition, timestamp=now_ms - 1000 * age_s)
    assert producer.flush(20) == 0
    for query, first in (("alerts", {"0": 1, "1": 1}), ("ingest", {"0": 0}), ("records", {"0": 3, "1": 1})):
        put(tmp_path / query / "v1", 0, {topic: first})
    put(tmp_path / "gone/v1", 0, {"mqtt.deleted": {"0": 7}})
    put(tmp_path / "mast-600s/v1", 0, DELTA)
    config = CloudConfig(kafka=KafkaConfig.model_validate({"bootstrap_servers": provisioned}))
    behind = behind_of(config, {"lake": ("no-lake", None)}, str(tmp_path))
    found = behind.read()
    assert isinstance(found, Frame)
    rows = {
        job: (records, oldest_s and round(oldest_s, -2), note)
        for job, records, oldest_s, _, note in found.rows
    }
    assert rows == {
        "alerts": (2, 600, ""),
        "gone": (0, 0, "Kafka doesn't show mqtt.deleted"),
        # It has a partition that is new to it.
        "ingest": (4, 900, ""),
        "mast-600s": (None, None, "follows tables of the lake"),
        "records": (0, 0, ""),
    }
    # Whoever else asks meanwhile gets the same look.
    assert behind.read() is found


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (CloudConfig(), "No Kafka is given: --bootstrap-servers, or [kafka] in cloud.toml."),
        (
            CloudConfig(kafka=NOWHERE, dashboard=DashboardConfig(live=False)),
            "Kafka is left alone: live = false in [dashboard].",
        ),
        (
            CloudConfig(kafka=NOWHERE),
            "no checkpoints at ./lake-checkpoints: name the jobs' own with --checkpoints",
        ),
    ],
)
def test_why_nobody_says_how_far_jobs_are_behind(config: CloudConfig, words: str) -> None:
    assert behind_of(config, {"lake": ("./lake", None)}, None).read() == words


def test_a_broker_that_dies_and_returns(tmp_path: Path, full: bool) -> None:
    if not full:
        pytest.skip("only with --full: a broker of its own; the test above begins without one")
    with LocalBroker(tmp_path / "kafka") as broker:
        servers = broker.bootstrap_servers
        provision_topics(servers, partitions=1, replication=1)
        produce(servers, "mast-07", 6.0)
        with reading([servers]) as live:
            eventually(lambda: live.of("mast-07"), 20)
            broker.stop()
            eventually(lambda: live.problem, 60)
            assert live.of("mast-07")[CHANNEL].values == (6.0,)
            broker.start()
            eventually(lambda: live.problem is None, 60)
            produce(servers, "mast-07", 7.0)
            eventually(lambda: live.of("mast-07")[CHANNEL].values, 60, until=lambda each: each == (6.0, 7.0))
