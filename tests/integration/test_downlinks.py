"""A Kafka topic's records on the local broker: each at least once, whoever is killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from cloud.kafka.librdkafka import DEFAULTS
from cloud.wire.reading_records import EVENTS_TOPIC
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.integration.test_commands import command, publish, results, subscribed
from tests.support.config import config_text, cup
from tests.support.mast import GatewayProcess, records, run_gateway
from tests.support.servers import eventually, unique_name

COUNT = 400


def text(name: str, topic: str, **more: Any) -> str:
    table = {"topic": topic, "mqtt_topic": "set/{key}", "key_prefix": f"{name}/", **more}
    return config_text(gateway={"id": name}, downlink=[table])


def send(kafka: str, topic: str, messages: list[tuple[str | None, bytes | None]]) -> None:
    producer = Producer({**DEFAULTS, "bootstrap.servers": kafka})
    for key, value in messages:
        producer.produce(topic, key=key, value=value)
    assert producer.flush(30) == 0


def counts(mast: GatewayProcess, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = mast.status_now()["downlinks"]["topics"][topic]
    return found


def refusals(kafka: str, name: str) -> list[int]:
    """How many records each event has."""
    events = (json.loads(each.value() or b"") for each in records(kafka, [EVENTS_TOPIC]))
    return [
        each["records"] for each in events if (each["gateway"], each["event"]) == (name, "downlink-refused")
    ]


def test_each_record_comes_across_kills_of_the_gateway_and_a_broker_that_is_away(
    provisioned: str, kafka_topic: Callable[..., str], mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    name, topic = unique_name("mast"), kafka_topic("settings", partitions=3)
    send(provisioned, topic, [(f"{name}/{number % 7}", b"%d" % number) for number in range(COUNT)])
    config = text(name, topic, begin="earliest", retain=True)
    with (
        subscribed(mosquitto, "set/#") as payloads,
        run_gateway(tmp_path, config, name, provisioned, mosquitto) as mast,
    ):
        for _ in range(2):
            before = len(payloads)
            eventually(lambda: len(payloads) > before + 20, poll_s=0.001)  # noqa: B023
            mast.kill()
            mast.launch()
        eventually(lambda: set(map(int, payloads)), until=lambda found: found == set(range(COUNT)))
        eventually(lambda: counts(mast, topic)["lag"], until=lambda lag: lag == 0)
        assert len(payloads) < 3 * COUNT
        # All is committed: a clean restart brings none again.
        assert mast.stop() == 0
        total = len(payloads)
        mast.launch()
        strange = [(f"{name}/+", b"x"), (f"{name}/", b"x"), ("another-mast/7", b"x"), (None, b"x")]
        send(provisioned, topic, [*strange, (f"{name}/6", None)])
        eventually(lambda: counts(mast, topic)["received"], until=lambda received: received == 5)
        found = eventually(lambda: counts(mast, topic), until=lambda found: found["published"] == 1)
        assert found["refused"] == {"BAD_KEY": 1, "NO_KEY": 1}
        eventually(lambda: payloads[total:], until=lambda more: more == [b""])
        mosquitto.kill()
        eventually(lambda: not mast.status()["mqtt_connected"])
        send(provisioned, topic, [(f"{name}/away", b"again")])
        mosquitto.start()
        with subscribed(mosquitto, "set/#") as later:
            eventually(lambda: later, until=lambda found: found == [b"again"])
        # In one event, or in two where the main loop turned between them.
        eventually(lambda: sum(refusals(provisioned, name)), until=lambda found: found == 2)


def test_a_new_one_begins_at_the_end_and_a_reload_takes_one_over(
    provisioned: str, kafka_topic: Callable[..., str], mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    name, topic = unique_name("mast"), kafka_topic("settings")
    send(provisioned, topic, [(f"{name}/fan", b"before")])
    with (
        subscribed(mosquitto, "set/#") as payloads,
        run_gateway(tmp_path, config_text(gateway={"id": name}), name, provisioned, mosquitto) as mast,
    ):
        eventually(
            lambda: mast.status_now()["downlinks"], until=lambda now: now == {"problem": None, "topics": {}}
        )
        assert mast.reload(text(name, "nowhere")) is None
        eventually(
            lambda: mast.status()["downlinks"]["problem"] or "", until=lambda text: "nowhere: " in text
        )
        assert mast.reload(text(name, topic)) is None
        eventually(lambda: counts(mast, topic))
        send(provisioned, topic, [(f"{name}/fan", b"after")])
        eventually(lambda: payloads, until=lambda found: found == [b"after"])


def test_on_a_metered_uplink_records_and_commands_come_with_the_batches(
    provisioned: str, kafka_topic: Callable[..., str], mosquitto: LocalMosquitto, tmp_path: Path, full: bool
) -> None:
    if not full:
        pytest.skip("a minute")
    name, topic = unique_name("mast"), kafka_topic("settings", partitions=2)
    config = config_text(
        cup(),
        gateway={"id": name},
        downlink=[{"topic": topic, "mqtt_topic": "set/{key}", "begin": "earliest"}],
        commands={"allow": ["self-test"]},
        uplink={"mode": "metered", "batch_s": 4},
        outbox={"commit_interval_s": 0.2},
    )
    send(provisioned, topic, [("a", b"1"), ("b", b"2")])
    with (
        subscribed(mosquitto, "set/#") as payloads,
        run_gateway(tmp_path, config, name, provisioned, mosquitto) as mast,
    ):
        eventually(lambda: set(payloads), until=lambda found: found == {b"1", b"2"})
        eventually(lambda: mast.status()["confirmed"])
        send(provisioned, topic, [("a", b"3")])
        for number in range(2):
            publish(provisioned, command(name, f"c{number}", "self-test"))
            eventually(lambda: results(provisioned, name), until=lambda found: f"c{number}" in found)  # noqa: B023
        eventually(lambda: set(payloads), 120, until=lambda found: found == {b"1", b"2", b"3"})
    assert {of[0].outcome for of in results(provisioned, name).values()} == {"done"}
