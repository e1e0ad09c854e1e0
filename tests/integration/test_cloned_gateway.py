"""A cloned SD card: two gateways with one id, each with a local broker of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from cloud.kafka import readers
from cloud.kafka.readers import Fenced, KeyReader, Place, TopicRecord, partition_of
from cloud.local.kafka_broker import LocalBroker
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.integration.test_commands import command, mast_config, publish, results
from tests.support.mast import run_gateway
from tests.support.servers import eventually, unique_name


def test_of_two_gateways_with_one_id_one_carries_a_command_out_and_the_other_names_it(
    provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    name = unique_name("mast")
    config = mast_config(name, "read", "switch heater")
    places = [tmp_path / "original", tmp_path / "clone"]
    for place in places:
        place.mkdir()
    with (
        LocalMosquitto(tmp_path / "other") as other,
        run_gateway(places[0], config, name, provisioned, mosquitto) as original,
        run_gateway(places[1], config, name, provisioned, other) as clone,
    ):
        both = original, clone
        for mast in both:
            eventually(mast.sampled)
            eventually(Path(f"{mast.outbox}.commands").exists)
        for number in range(1, 4):
            publish(provisioned, command(name, f"read-{number}", "read"))
            eventually(lambda: len(results(provisioned, name)), until=number.__eq__)
        problems = eventually(
            lambda: [mast.status()["commands"]["problem"] for mast in both], until=lambda found: any(found)
        )
        assert any("another gateway with this id" in (problem or "") for problem in problems)
        assert [len(found) for found in results(provisioned, name).values()] == [1, 1, 1]
        # What each has seen of all: none was done twice, and none by nobody.
        done = [sum(mast.status()["commands"]["results"].values()) for mast in both]
        assert sum(done) == 3


def test_a_reader_is_fenced_off_without_a_record_and_its_place_is_the_last_claimed(
    kafka: LocalBroker, kafka_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_MEMBER", {**readers._MEMBER, "heartbeat.interval.ms": 500})
    topic, servers = kafka_topic("commands", 3), kafka.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    for number in range(3):
        producer.produce(topic, key=b"mast-07", value=b"%d" % number)
    assert producer.flush(30) == 0
    begin, opened = Place(None, None, 1), []

    def joined(run: str, place: Place = begin) -> KeyReader:
        opened.append(KeyReader(servers, {}, topic, b"mast-07", place, member=("group", run)))
        return opened[-1]

    def read(reader: KeyReader) -> TopicRecord:
        found = eventually(lambda: reader.read(0.5), until=lambda one: one is not None)
        assert found is not None
        return found

    try:
        first = joined("run-1")
        taken = read(first)
        assert taken.value == b"0"
        first.claim(taken.then)
        second = joined("run-2")
        assert read(second).value == b"1"
        with pytest.raises(Fenced, match="another gateway with this id"):
            eventually(lambda: first.read(0.5), until=lambda one: one is not None and one.value == b"none")
        with pytest.raises(Fenced):
            first.claim(taken.then)
        # What a run has claimed itself, and maybe not begun, it begins.
        second.claim(Place(taken.then.partition, 2, 0))
        assert read(joined("run-2", taken.then)).value == b"1"
    finally:
        for reader in opened:
            reader.close()


def test_commands_go_on_in_another_partition_once_some_were_added(
    kafka: LocalBroker, kafka_topic: Callable[..., str]
) -> None:
    topic, servers, key = kafka_topic("commands", 1), kafka.bootstrap_servers, b"mast-07"
    more = next(count for count in range(2, 9) if partition_of(key, count) != 0)
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    reader = KeyReader(servers, {}, topic, key, Place(None, None, 0), member=("more", "run"))
    try:
        assert not reader.has_grown()
        admin = AdminClient({"bootstrap.servers": servers})
        [grown] = admin.create_partitions([NewPartitions(topic, more)]).values()
        grown.result(30)
        eventually(reader.has_grown)
        sent_ms = round(time.time() * 1000)
        producer.produce(topic, key=key, value=b"read", partition=partition_of(key, more))
        assert producer.flush(30) == 0
    finally:
        reader.close()
    again = KeyReader(servers, {}, topic, key, Place(0, 0, sent_ms), member=("more", "run"))
    try:
        found = eventually(lambda: again.read(0.5), until=lambda one: one is not None)
        assert found is not None
        assert (found.value, again.has_grown()) == (b"read", False)
    finally:
        again.close()
