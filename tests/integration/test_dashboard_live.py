"""What is live on the pages: one reader of Kafka, which goes on when Kafka returns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from cloud.dashboard.fleet import FleetReader
from cloud.dashboard.live import LiveReader, LiveReadings
from cloud.kafka.provision import provision_topics
from cloud.kafka.tail import Tail
from cloud.local.kafka_broker import LocalBroker
from cloud.masts.reading import LakeReader
from cloud.wire.reading_records import Reading, encode_reading, reading_key
from tests.support.servers import eventually, unique_name

CHANNEL = "cup-50m-a.wind_speed"


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
        assert of_one.problem is None
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
    listed = AdminClient({"bootstrap.servers": provisioned}).list_consumer_groups().result(20)
    assert not [group for group in listed.valid if group.group_id.startswith("fieldgate-accounting")]


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
