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


RIGHTS = "user mast\ntopic readwrite #\nuser logger\ntopic write loggers/#\n"


def test_a_device_forges_no_reading_of_the_masts_nor_of_another_device(tmp_path: Path, nowhere: str) -> None:
    """By the access that ``provision mosquitto`` writes, and by what the gateway makes of topics."""
    rights = tmp_path / "acl"
    rights.write_text(access([Device.parse("soil"), Device.parse("logger-3")]) + RIGHTS)
    text = config_text(
        baro(),
        mqtt={"username": "mast"},
        http={"listen": "127.0.0.1:0"},
        forward=[{"filter": "loggers/#"}, {"filter": "devices/#"}],
    )
    sent = [replace(FORGED, value=12.0 + at) for at in range(3)]
    # A run of the gateway's own: the broker has kept its reading for the gateway.
    earlier = replace(FORGED, run="theearlierun", value=80.0)
    others = [replace(FORGED, gateway="logger-3", value=20.0 + at) for at in range(2)]
    foreign = [replace(FORGED, gateway="logger-3", value=30.0 + at) for at in range(3)]
    with (
        LocalMosquitto(tmp_path / "mosquitto", settings=f"acl_file {rights}\n") as mosquitto,
        run_gateway(tmp_path, text, ID, nowhere, mosquitto) as gateway,
    ):

        def send(user: str, topic: str, reading: Reading) -> None:
            publish.single(
                topic, encode_reading(reading), 1, hostname=mosquitto.host, port=mosquitto.port,
                auth={"username": user},
            )  # fmt: skip

        status = eventually(gateway.status, until=lambda found: bool(found["mqtt_connected"]))
        own = replace(FORGED, run=status["run"])
        send("logger", "loggers/1", sent[0])
        send("logger", f"loggers/{ID}/baro/pressure", sent[1])
        send("logger", "loggers/1", own)
        send("mast", f"fieldgate/{ID}/baro/pressure", earlier)
        # Its topic, and a channel that isn't the topic's.
        send("mast", f"fieldgate/{ID}/else/pressure", sent[2])
        send("logger", "loggers/logger-3/1", others[0])
        # To the other's topic, which the broker refuses; and in the other's name to topics of its own.
        send("soil", "devices/logger-3/1", foreign[0])
        send("soil", "devices/soil/1", foreign[1])
        send("logger-3", "devices/logger-3/1", others[1])
        # The last one is a dead letter, for these are waited for.
        send("soil", "devices/soil/logger-3", foreign[2])
        eventually(
            gateway.status, 30, until=lambda found: found["dead_letters"] >= status["dead_letters"] + 6
        )
        with closing(HTTPConnection("127.0.0.1", gateway.status()["http"]["port"], timeout=30)) as connection:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/readings", encode_reading(sent[0]), headers)
            assert b"FORGED" in connection.getresponse().read()
        assert gateway.stop() == 0
        with OutboxReader(gateway.outbox) as reader:
            stored = [from_bytes(each) for _, each in reader.records()]
    dead_letters = [parse_dead_letter(each.value) for each in stored if each.topic == DEAD_LETTER_TOPIC]
    refused = {
        reason: sorted(each.payload for each in dead_letters if each.reason == reason)
        for reason in ("FORGED", "FOREIGN")
    }
    assert refused["FORGED"] == sorted(map(encode_reading, (*sent, own)))
    assert refused["FOREIGN"] == sorted(map(encode_reading, foreign[1:]))
    readings = [parse_reading(each.value) for each in stored if each.topic == "mqtt.pressure"]
    assert [each for each in readings if each.run == FORGED.run and each.gateway == ID] == []
    assert [each for each in readings if each.gateway == "logger-3"] == others
    assert earlier in readings
