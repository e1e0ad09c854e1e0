"""A device that may publish to its own topics alone can't publish a reading as the mast's, by any way in."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

from paho.mqtt import publish

from buffer.reader import OutboxReader
from cloud.wire.reading_records import (
    DEAD_LETTER_TOPIC,
    Reading,
    encode_reading,
    parse_dead_letter,
    parse_reading,
)
from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.commands.provision.mosquitto_files import Device, access
from gateway.forwarding.records import from_bytes
from tests.support.config import ID, baro, config_text
from tests.support.mast import run_gateway
from tests.support.servers import eventually
from tests.unit.cloud.wire.test_reading_records import READING

FORGED = replace(
    READING, gateway=ID, channel="baro.pressure", quantity="pressure", unit="kPa", value=12.0, raw=None,
    raw_unit=None, run="anearlierrun", seq=1,
)  # fmt: skip


def test_a_device_forges_no_reading_of_the_masts(tmp_path: Path, nowhere: str) -> None:
    rights = tmp_path / "acl"
    rights.write_text("user mast\ntopic readwrite #\nuser logger\ntopic write loggers/#\n")
    with LocalMosquitto(tmp_path / "mosquitto", settings=f"acl_file {rights}\n") as mosquitto:

        def send(topic: str, payload: bytes, user: str = "logger") -> None:
            publish.single(
                topic, payload, 1, hostname=mosquitto.host, port=mosquitto.port, auth={"username": user}
            )

        text = config_text(
            baro(),
            mqtt={"username": "mast"},
            http={"listen": "127.0.0.1:0"},
            forward=[{"filter": "loggers/#"}],
        )
        with run_gateway(tmp_path, text, ID, nowhere, mosquitto) as gateway:
            status = eventually(gateway.status, 30, until=lambda found: bool(found["mqtt_connected"]))
            before = status["dead_letters"]
            sent = [replace(FORGED, value=12.0 + at) for at in range(3)]
            own = replace(FORGED, run=status["run"])
            other = replace(FORGED, gateway="logger-3", value=20.0)
            send("loggers/1", encode_reading(sent[0]))
            send(f"loggers/{ID}/baro/pressure", encode_reading(sent[1]))
            send("loggers/1", encode_reading(own))
            # Its own of an earlier run: the broker has kept it for the gateway.
            earlier = replace(FORGED, run="theearlierun", value=80.0)
            send(f"fieldgate/{ID}/baro/pressure", encode_reading(earlier), "mast")
            # Its topic, and a channel that isn't the topic's.
            send(f"fieldgate/{ID}/else/pressure", encode_reading(sent[2]), "mast")
            send("loggers/logger-3/1", encode_reading(other))
            eventually(gateway.status, 30, until=lambda found: found["dead_letters"] >= before + 4)
            port = gateway.status()["http"]["port"]
            with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
                body = encode_reading(sent[0])
                connection.request("POST", "/v1/readings", body, {"Content-Type": "application/json"})
                answered = connection.getresponse().read()
            assert b"FORGED" in answered
            assert gateway.stop() == 0
            with OutboxReader(gateway.outbox) as reader:
                stored = [from_bytes(each) for _, each in reader.records()]
    letters = [parse_dead_letter(each.value) for each in stored if each.topic == DEAD_LETTER_TOPIC]
    refused_payloads = [each.payload for each in letters if each.reason == "FORGED"]
    assert sorted(refused_payloads) == sorted(map(encode_reading, (*sent, own)))
    readings = [parse_reading(each.value) for each in stored if each.topic == "mqtt.pressure"]
    assert [each for each in readings if each.run == FORGED.run and each.gateway == ID] == []
    assert {earlier, other} <= {each for each in readings if each.run != status["run"]}


def test_a_device_forges_no_reading_of_another_device(tmp_path: Path, nowhere: str) -> None:
    """By the access that ``provision mosquitto`` writes, and by what the gateway makes of topics."""
    rights = tmp_path / "acl"
    rights.write_text(
        access([Device.parse("soil"), Device.parse("logger-3")]) + "user mast\ntopic readwrite #\n"
    )
    with LocalMosquitto(tmp_path / "mosquitto", settings=f"acl_file {rights}\n") as mosquitto:

        def send(user: str, topic: str, reading: Reading) -> None:
            publish.single(
                topic, encode_reading(reading), 1, hostname=mosquitto.host, port=mosquitto.port,
                auth={"username": user},
            )  # fmt: skip

        text = config_text(baro(), mqtt={"username": "mast"}, forward=[{"filter": "devices/#"}])
        with run_gateway(tmp_path, text, ID, nowhere, mosquitto) as gateway:
            eventually(gateway.status, 30, until=lambda found: bool(found["mqtt_connected"]))
            before = gateway.status()["dead_letters"]
            anothers = [replace(FORGED, gateway="logger-3", value=30.0 + at) for at in range(3)]
            own = replace(FORGED, gateway="logger-3", value=40.0)
            # To the other's topic, which the broker refuses; and in the other's name to topics of its own.
            send("soil", "devices/logger-3/1", anothers[0])
            send("soil", "devices/soil/1", anothers[1])
            send("soil", "devices/soil/logger-3", anothers[2])
            send("logger-3", "devices/logger-3/1", own)
            eventually(gateway.status, 30, until=lambda found: found["dead_letters"] >= before + 2)
            assert gateway.stop() == 0
            with OutboxReader(gateway.outbox) as reader:
                stored = [from_bytes(each) for _, each in reader.records()]
    letters = [parse_dead_letter(each.value) for each in stored if each.topic == DEAD_LETTER_TOPIC]
    assert [each.payload for each in letters if each.reason == "FOREIGN"] == [
        *map(encode_reading, anothers[1:])
    ]
    readings = [parse_reading(each.value) for each in stored if each.topic == "mqtt.pressure"]
    assert [each for each in readings if each.gateway == "logger-3"] == [own]
