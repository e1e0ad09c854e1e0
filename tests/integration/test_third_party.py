"""Other devices beside one another on the local broker: what each publishes ends where it should, once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Message
from paho.mqtt import publish

from cloud.wire.reading_records import (
    DEAD_LETTER_TOPIC,
    RAW_TOPIC,
    Reading,
    encode_reading,
    parse_dead_letter,
    parse_reading,
)
from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.config.bridges.model import ForwardConfig
from gateway.mqtt.intake import Intake
from gateway.ports import Ack, Record
from tests.integration.test_forwarder import reading, running
from tests.support.config import config_text
from tests.support.forwarding import arrive, taken_in
from tests.support.mast import GatewayProcess, records, run_gateway
from tests.support.servers import eventually, unique_name

COUNT = 100

RULES = """
[[forward]]
filter = "number/+/temperature"
payload = "number"
quantity = "temperature"
channel = "{1}"
period_s = 10
drop_if = { equals = 85 }
[[forward]]
filter = "json/station"
payload = "json"
path = "data.0.p"
time_path = "at"
quantity = "pressure"
channel = "baro"
scale = 0.1
raw_unit = "hPa"
[[forward]]
filter = "zigbee/+"
payload = "json"
channel = "{1}"
readings = [
  { quantity = "humidity", path = "rh", scale = 100, raw_unit = "1" },
  { quantity = "co2", path = "co2", drop_if = { below = 1 } },
  { quantity = "irradiance", path = "lux", optional = true },
]
[[forward]]
filter = "blobs/+"
payload = "raw"
[[forward]]
filter = "loggers/#"
"""


@contextmanager
def forwarding(directory: Path, kafka: str, mosquitto: LocalMosquitto, name: str) -> Iterator[GatewayProcess]:
    """A gateway without sensors, subscribed."""
    config = config_text(gateway={"id": name}, outbox={"commit_interval_s": 0.5})
    with run_gateway(directory, config + RULES, name, kafka, mosquitto) as mast:
        eventually(lambda: mast.status_now().get("mqtt_connected"))
        yield mast


def send(mosquitto: LocalMosquitto, messages: list[tuple[str, bytes]], *, retain: bool = False) -> None:
    """Publish at QoS 1; returns when the broker has them all."""
    wanted = [{"topic": topic, "payload": payload, "qos": 1, "retain": retain} for topic, payload in messages]
    publish.multiple(wanted, hostname=mosquitto.host, port=mosquitto.port)  # type: ignore[arg-type]


def settled(mast: GatewayProcess, received: int) -> dict[str, Any]:
    """The status once that many messages have come and none is open."""
    return eventually(
        lambda: mast.status_now(),
        until=lambda status: (
            status["received"] >= received and not status["in_flight"] and not status["outbox_records"]
        ),
    )


def headers(message: Message) -> dict[str, bytes]:
    return dict(cast(list[tuple[str, bytes]], message.headers() or []))


def readings(kafka: str, gateway: str, quantity: str) -> list[Reading]:
    found = (parse_reading(message.value() or b"") for message in records(kafka, [f"mqtt.{quantity}"]))
    return sorted((one for one in found if one.gateway == gateway), key=lambda one: one.identity)


def foreign_reading(gateway: str, seq: int) -> bytes:
    return encode_reading(reading(seq, gateway=gateway))


def test_each_kind_beside_the_others_ends_where_it_should_once(
    provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    name, device = unique_name("mast"), unique_name("device")
    bad = {
        "number/shed/temperature": [(b"warm", "NOT_A_NUMBER"), (b"", "EMPTY"), (b"NaN", "NOT_FINITE")],
        "number//temperature": [(b"20", "BAD_TOPIC")],
        "json/station": [
            (b"{", "NOT_JSON"),
            (b'{"data": []}', "NO_SUCH_PATH"),
            (b'{"data": [{"p": "8o1"}], "at": 1763710500}', "NOT_A_NUMBER"),
            (b'{"data": [{"p": 801}], "at": "yesterday"}', "BAD_TIME"),
            (b'{"data": [{"p": 801}], "at": 4102444800}', "TIME_IN_FUTURE"),
            (b'{"data": [{"p": 1e999}], "at": 1763710500}', "NOT_FINITE"),
        ],
        "blobs/large": [(b"\x00" * ((1 << 20) + 1), "TOO_LARGE")],
        "loggers/cup": [(b"21.5", "NOT_AN_OBJECT")],
        "zigbee/hall": [(b'{"co2": 0}', "NO_SUCH_PATH"), (b'{"rh": "wet", "lux": []}', "NOT_A_NUMBER")],
        "zigbee/attic": [(b'{"rh": 0.5, "co2": "-"}', "NOT_A_NUMBER")],
    }
    malformed = [(topic, payload) for topic, expected in bad.items() for payload, _ in expected]
    good: list[tuple[str, bytes]] = []
    for count in range(COUNT):
        good += [
            ("number/shed/temperature", b"%d.25" % count),
            ("number/barn/temperature", b"%d" % -count),
            ("json/station", b'{"data": [{"p": %d}], "at": %d}' % (8000 + count, 1763710500 + count)),
            ("blobs/7", b"\x00\xff%d" % count),
            (f"loggers/{device}/cup", foreign_reading(device, count + 1)),
            ("zigbee/hall", b'{"rh": 0.25, "co2": %d, "lux": null}' % (400 + count)),
        ]
        if count < len(malformed):
            good.append(malformed[count])
    send(mosquitto, [("number/old/temperature", b"19")], retain=True)
    send(mosquitto, [("json/station", b'{"data": [{"p": 7000}], "at": "2025-01-01T00:00:00Z"}')], retain=True)
    with forwarding(tmp_path, provisioned, mosquitto, name) as mast:
        send(mosquitto, good)
        send(mosquitto, [("number/shed/temperature", b"85.0")] * 3)
        status = settled(mast, len(good) + 5)
        assert status["ignored"] == {
            "RETAINED": 1, "DROP_IF": 4, "ABSENT": COUNT + 2, "NO_FORWARD": 0, "FILTERED": 0,
            "FIRST_TOTAL": 0,
        }  # fmt: skip
        assert status["dead_letters"] == len(malformed)
        # What was retained has come: it is no news for the next run.
        eventually(lambda: "true" in (tmp_path / "outbox.db.subscriptions").read_text())
        assert mast.stop() == 0
        record = mast.run_record()
    run = record["run"]
    assert record["last_seq"] == {
        "shed.temperature": COUNT, "barn.temperature": COUNT, "baro.pressure": COUNT + 1,
        "hall.humidity": COUNT, "hall.co2": COUNT, "attic.humidity": 1,
    }  # fmt: skip
    assert record["last_raw_seq"] == {"blobs.raw": COUNT}
    assert record["ignored"] == status["ignored"]
    # A fresh producer may be slow to answer: then the last record waits in the outbox for the next run.
    with forwarding(tmp_path, provisioned, mosquitto, name) as mast:
        assert settled(mast, 0)["sampled"] == 0
        assert mast.stop() == 0
    records_of_runs = [
        json.loads(message.value() or b"") for message in records(provisioned, ["gateway.runs"])
    ]
    (stopped,) = [each for each in records_of_runs if each["run"] == run and each["state"] == "stopped"]
    assert stopped["last_seq"] == record["last_seq"]

    temperatures = readings(provisioned, name, "temperature")
    assert [(one.channel, one.run, one.seq, one.value) for one in temperatures] == [
        *(("barn.temperature", run, count + 1, -count) for count in range(COUNT)),
        *(("shed.temperature", run, count + 1, count + 0.25) for count in range(COUNT)),
    ]
    assert {(one.period_ms, one.quality, one.raw_unit) for one in temperatures} == {(10_000, 2, "Cel")}
    retained, *pressures = readings(provisioned, name, "pressure")
    assert (retained.seq, retained.raw, retained.time_us) == (1, 7000.0, 1_735_689_600_000_000)
    assert [(one.channel, one.seq, one.raw, one.value, one.time_us) for one in pressures] == [
        ("baro.pressure", count + 2, 8000 + count, (8000 + count) * 0.1, (1763710500 + count) * 1_000_000)
        for count in range(COUNT)
    ]
    # In the order of their numbers: some may have taken the way through the outbox.
    raw = sorted(
        (
            found
            for found in records(provisioned, [RAW_TOPIC])
            if headers(found).get("gateway") == name.encode()
        ),
        key=lambda found: int(headers(found)["seq"]),
    )
    assert [(found.key(), found.value()) for found in raw] == [
        (b"blobs/7", b"\x00\xff%d" % count) for count in range(COUNT)
    ]
    assert [headers(found)["seq"] for found in raw] == [b"%d" % (count + 1) for count in range(COUNT)]
    assert {(headers(found)["channel"], headers(found)["run"]) for found in raw} == {
        (b"blobs.raw", run.encode())
    }
    assert [(one.channel, one.seq, one.value) for one in readings(provisioned, name, "co2")] == [
        ("hall.co2", count + 1, 400 + count) for count in range(COUNT)
    ]
    assert [
        (one.channel, one.seq, one.raw, one.value) for one in readings(provisioned, name, "humidity")
    ] == [
        ("attic.humidity", 1, 0.5, 50.0),
        *(("hall.humidity", count + 1, 0.25, 25.0) for count in range(COUNT)),
    ]
    cups = readings(provisioned, device, "wind_speed")
    assert [(one.run, one.seq) for one in cups] == [("devicerun", count + 1) for count in range(COUNT)]
    dead_letters = (
        parse_dead_letter(found.value() or b"") for found in records(provisioned, [DEAD_LETTER_TOPIC])
    )
    assert Counter(
        (letter.source, letter.payload_bytes, letter.reason)
        for letter in dead_letters
        if letter.gateway == name
    ) == Counter(
        (topic, len(payload), reason) for topic, expected in bad.items() for payload, reason in expected
    )


def test_the_identity_is_of_the_first_receipt_and_survives_the_outbox(
    provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path, nowhere: str
) -> None:
    name = unique_name("mast")
    messages = [("number/shed/temperature", b"%d.5" % count) for count in range(COUNT)]
    messages += [("blobs/7", b"%d" % count) for count in range(COUNT)]
    with forwarding(tmp_path, nowhere, mosquitto, name) as mast:
        send(mosquitto, messages)
        eventually(lambda: mast.status_now(), until=lambda status: status["spilled"] >= 2 * COUNT)
        first_run = mast.status()["run"]
        assert mast.stop() == 0
    with forwarding(tmp_path, provisioned, mosquitto, name) as mast:
        settled(mast, 0)
        assert mast.stop() == 0
    found = readings(provisioned, name, "temperature")
    assert [(one.run, one.seq, one.value) for one in found] == [
        (first_run, count + 1, count + 0.5) for count in range(COUNT)
    ]
    raw = [
        found for found in records(provisioned, [RAW_TOPIC]) if headers(found).get("gateway") == name.encode()
    ]
    assert [
        (headers(one)["run"], headers(one)["seq"], headers(one)["replayed"], one.value()) for one in raw
    ] == [(first_run.encode(), b"%d" % (count + 1), b"1", b"%d" % count) for count in range(COUNT)]


FORWARDS = [
    ForwardConfig("fieldgate/#"),
    ForwardConfig("number", "number", "co2", channel="shed"),
    ForwardConfig("blobs", "raw"),
]


@pytest.fixture
def forwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stations of test_forwarder.py with other devices' topics."""
    monkeypatch.setattr(
        "tests.integration.test_forwarder.Intake",
        lambda gateway, issued, topic, clock: Intake(gateway, issued, topic, clock, FORWARDS),
    )


@pytest.mark.usefixtures("forwards")
def test_a_raw_copy_of_our_own_reading_is_not_taken_for_its_echo(tmp_path: Path, nowhere: str) -> None:
    with running(nowhere, "mqtt.{quantity}", tmp_path / "outbox.db") as station:
        station.sequences.draw("cup.wind_speed")
        own = station.intake.records.own(
            reading(1, gateway="mast-07", run="thisrun"), "fieldgate/mast-07/cup"
        )
        station.forwarder.inbox.sampled(own, "fieldgate/mast-07/cup")
        arrive(station.forwarder, "blobs", own.value, Ack(1, 1))
        arrive(station.forwarder, "fieldgate/mast-07/cup", own.value, Ack(1, 2))
        eventually(lambda: sorted(ack.message_id for ack in station.acks), until=lambda ids: ids == [1, 2])
        assert station.forwarder.outbox.records == 2
    assert station.intake.last_raw_seq == {"blobs.raw": 1}


@pytest.mark.usefixtures("forwards")
def test_after_the_last_word_no_message_is_taken_nor_acknowledged(tmp_path: Path, nowhere: str) -> None:
    with running(nowhere, "mqtt.{quantity}", tmp_path / "outbox.db") as station:
        arrive(station.forwarder, "number", b"400", Ack(1, 1))
        taken_in(station.forwarder)

        station.forwarder.take_no_more()
        arrive(station.forwarder, "number", b"401", Ack(1, 2))
        last = json.dumps(station.sequences.snapshot()).encode()
        station.forwarder.inbox.announce(Record("gateway.runs", b"mast-07/thisrun", last, ()))
        station.forwarder.stop(0.5)
        assert [ack.message_id for ack in station.acks] == [1]
        assert station.sequences.snapshot() == {"shed.co2": 1}
