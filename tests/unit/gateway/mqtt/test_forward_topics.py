"""Forwards with a Kafka topic, a key and steps of their own: what is sent where, and what is counted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cloud.wire.reading_records import encode_reading, parse_reading
from gateway.config.bridges.model import ForwardConfig, ForwardReading, Step
from gateway.mqtt.intake import Intake
from gateway.ports import Record
from gateway.sequences import Sequences
from tests.unit.cloud.wire.test_reading_records import READING
from tests.unit.gateway.mqtt.test_intake import FixedClock, letter, made, only, refused

PLANT = ForwardConfig(
    "plant/+/state", "raw", channel="plant", topic="plant.{1}", key="{1}",
    steps=(
        Step(unless={"type": "heartbeat"}),
        Step(drop=("password",)),
        Step(set={"site": "north", "source.topic": "{topic}", "source.device": "{1}"}),
    ),
)  # fmt: skip


def intake(*forwards: ForwardConfig, topic: str = "mqtt.{quantity}", synced: bool = True) -> Intake:
    return Intake("mast-07", Sequences("thisrun"), topic, FixedClock(synced=synced), forwards)


def headers(record: Record) -> dict[str, bytes]:
    return dict(record.headers)


def places(records: Sequence[Record] | None) -> list[tuple[str, bytes]]:
    return [(record.topic, record.key) for record in records or ()]


def test_a_raw_message_goes_to_its_forwards_topic_with_its_key_as_the_steps_made_it() -> None:
    station = intake(PLANT)
    record = only(station.accept("plant/pump/state", b'{"state": "on", "password": "x", "level": 2.50}'))
    assert (record.topic, record.key) == ("plant.pump", b"pump")
    assert record.value == (
        b'{"state":"on","level":2.50,"site":"north","source":{"topic":"plant/pump/state","device":"pump"}}'
    )
    assert headers(record)["mqtt-topic"] == b"plant/pump/state"


def test_the_numbers_of_a_forward_go_on_over_its_topics_and_not_over_what_is_not_sent() -> None:
    station = intake(PLANT)
    numbers = []
    for device in ("pump", "valve", "pump"):
        for payload in (b'{"type": "heartbeat"}', b"not json", b'{"state": "on"}'):
            for record in station.accept(f"plant/{device}/state", payload) or ():
                if record.topic != "gateway.dead-letter":
                    numbers.append((record.topic, headers(record)["channel"], headers(record)["seq"]))
    assert numbers == [
        ("plant.pump", b"plant.raw", b"1"),
        ("plant.valve", b"plant.raw", b"2"),
        ("plant.pump", b"plant.raw", b"3"),
    ]
    assert station.last_raw_seq == {"plant.raw": 3}
    assert station.ignored["FILTERED"] == 3


def test_without_steps_a_payload_of_any_bytes_goes_to_its_topic_untouched() -> None:
    station = intake(ForwardConfig("blobs/#", "raw", topic="blobs.{1}"))
    record = only(station.accept("blobs/a/b", b"\x00\xff"))
    assert (record.topic, record.key, record.value) == ("blobs.a.b", b"blobs/a/b", b"\x00\xff")


@pytest.mark.parametrize("payload", [b"not json", b"[1]", b'{"password": "secret"', b'{"source": "secret"}'])
def test_the_dead_letter_of_a_forward_that_hides_fields_has_no_bytes_of_the_message(payload: bytes) -> None:
    found = letter(intake(PLANT).accept("plant/pump/state", payload))
    assert found.reason in ("NOT_JSON", "NOT_AN_OBJECT")
    assert found.payload == b""
    assert (found.payload_bytes, found.sha256) == (len(payload), hashlib.sha256(payload).hexdigest())
    assert "secret" not in found.detail
    shown = replace(PLANT, steps=(Step(rename={"a": "b"}),))
    if found.reason == "NOT_JSON":
        assert letter(intake(shown).accept("plant/pump/state", payload)).payload == payload


def test_after_its_steps_a_refused_message_is_in_its_dead_letter_as_they_made_it() -> None:
    found = letter(intake(PLANT).accept("plant/a b/state", b'{"password": "secret", "n": 1}'))
    assert (found.reason, found.seq) == ("BAD_TOPIC", 1)
    assert found.detail == (
        "Kafka's topic 'plant.a b' must be 1 to 249 letters, digits, dots, underscores and hyphens"
    )
    assert json.loads(found.payload)["n"] == 1
    assert b"secret" not in found.payload


@pytest.mark.parametrize(
    ("topic", "kafka_topic"),
    [
        ("gateway/runs", "gateway.runs"),
        ("gateway/dead-letter", "gateway.dead-letter"),
        ("__consumer/offsets", "__consumer.offsets"),
        ("mqtt/wind_speed", "mqtt.wind_speed"),
        ("acme/co2", "acme.co2"),
        ("é/x", "é.x"),
        ("/", "."),
        ("x" * 125 + "/" + "x" * 125, ""),
    ],
)
def test_no_device_reaches_the_gateways_own_topics_nor_one_that_kafka_refuses(
    topic: str, kafka_topic: str
) -> None:
    station = intake(ForwardConfig("#", "raw", topic="{1}"), topic="acme.{quantity}")
    found = letter(station.accept(topic, b"x"))
    assert found.reason == "BAD_TOPIC"
    assert kafka_topic in found.detail
    assert station.last_raw_seq == {}
    assert places(station.accept("mqtt/raw", b"x")) == [("mqtt.raw", b"mqtt/raw")]


def test_topics_of_a_run_are_bounded_and_the_known_ones_go_on() -> None:
    station = intake(ForwardConfig("plant/+", "raw", topic="plant.{1}"))
    sent = 0
    while only(station.accept(f"plant/{sent}", b"x")).topic != "gateway.dead-letter":
        sent += 1
    # One is that of the readings.
    assert sent == 255
    assert refused(station.accept("plant/new", b"x")) == "TOO_MANY_TOPICS"
    assert only(station.accept("plant/0", b"x")).topic == "plant.0"


ZIGBEE = ForwardConfig(
    "zigbee/+", "json", channel="{1}", topic="plant.{quantity}", key="{1}",
    steps=(Step(where={"ok": True}), Step(set={"site": "north", "device": "{1}"})),
    readings=(ForwardReading("temperature", "t"), ForwardReading("humidity", "h", optional=True)),
)  # fmt: skip


def test_readings_made_here_go_to_the_topic_of_their_quantity_with_the_fields_that_are_set() -> None:
    station = intake(ZIGBEE)
    records = station.accept("zigbee/shed", b'{"t": 21.5, "h": 40, "ok": true}')
    assert places(records) == [("plant.temperature", b"shed"), ("plant.humidity", b"shed")]
    readings = [parse_reading(record.value) for record in records or ()]
    assert [(one.channel, one.seq, one.extra) for one in readings] == [
        ("shed.temperature", 1, {"site": "north", "device": "shed"}),
        ("shed.humidity", 1, {"site": "north", "device": "shed"}),
    ]
    assert station.accept("zigbee/shed", b'{"t": 21.5, "ok": false}') == ()
    assert station.accept("zigbee/shed", b"21.5") == ()
    assert (station.ignored["FILTERED"], station.ignored["ABSENT"]) == (2, 0)


def test_readings_elsewhere_than_in_mqtt_are_named_for_the_accounts() -> None:
    station = intake(ZIGBEE, replace(PLANT, steps=()))
    assert station.reading_topics == []
    station.accept("plant/pump/state", b"x")
    station.accept("zigbee/shed", b'{"t": 21.5, "ok": true}')
    assert "plant.temperature" in station.reading_topics
    assert all(topic.startswith("plant.") for topic in station.reading_topics)
    assert "plant.pump" not in station.reading_topics
    # Readings that were sent before a reload stay where they are.
    station.apply("acme.{quantity}", [])
    assert {"plant.co2", "acme.co2"} <= set(station.reading_topics)


def test_a_devices_reading_is_changed_but_for_what_makes_it_one() -> None:
    steps = Step(drop=("owner",)), Step(set={"site": "north"})
    loggers = ForwardConfig("loggers/+", topic="mqtt.loggers.{quantity}", key="{1}", steps=steps)
    station = intake(loggers)
    payload = encode_reading(replace(READING, gateway="other", extra={"owner": "bob", "rssi": -70}))
    record = only(station.accept("loggers/other", payload))
    assert (record.topic, record.key) == ("mqtt.loggers.wind_speed", b"other")
    assert parse_reading(record.value) == replace(
        READING, gateway="other", extra={"rssi": -70, "site": "north"}
    )
    assert refused(station.accept("loggers/7", b"{}")) == "MISSING_FIELD"


def test_a_number_with_fields_that_waits_for_its_time_keeps_topic_key_and_fields() -> None:
    shed = ForwardConfig(
        "shed", "number", "co2", topic="plant.co2", key="shed", steps=(Step(set={"site": "north"}),)
    )
    record = only(intake(shed, synced=False).accept("shed", b"400"))
    assert (record.topic, record.key) == ("plant.co2", b"shed")
    assert made([record]).extra == {"site": "north"}


@pytest.mark.parametrize("forward", [PLANT, ZIGBEE])
def test_a_reading_of_our_own_never_takes_a_forwards_way(forward: ForwardConfig) -> None:
    own: Any = intake(forward).records.own(READING, "fieldgate/mast-07/cup/wind_speed")
    assert (own.topic, own.key) == ("mqtt.wind_speed", b"mast-07/cup-50m-a.wind_speed")
