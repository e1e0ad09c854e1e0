"""The local broker dies, twice, or gives the gateway's session to another: its own readings never notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import publish
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from cloud.wire.reading_records import MAX_PAYLOAD_BYTES, encode_reading
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.faults.kafka import Kafka
from tests.faults.mast import Mast, device_reading
from tests.support.servers import eventually, unique_name

pytestmark = pytest.mark.system
Report = Callable[..., None]


def test_mosquitto_killed_and_back_twice(mast: Mast, mosquitto: LocalMosquitto, report: Report) -> None:
    mast.start()
    for _ in range(2):
        mast.sample(150)
        mosquitto.kill()
        mast.sample(150)
        mosquitto.start()
        eventually(lambda: mast.status()["mqtt_connected"])
    mast.sample(100)
    mast.delivered()
    mast.stop()
    reckoning = mast.reckon()
    reckoning.balance()
    report(reckoning.figures())
    assert not reckoning.refused


def test_session_taken_over_by_another_client(mast: Mast, report: Report, full: bool) -> None:
    mast.start()
    mast.sample(150)
    thief = Client(CallbackAPIVersion.VERSION2, f"fieldgate-{mast.id}", protocol=MQTTProtocolVersion.MQTTv5)
    thief.connect(mast.mosquitto.host, mast.mosquitto.port)
    thief.loop_start()
    try:
        eventually(lambda: mast.status()["mqtt_connected"], until=lambda connected: not connected)
        mast.sample(300)
    finally:
        thief.disconnect()
        thief.loop_stop()
    # The gateway waits half a minute before it takes its session back.
    eventually(lambda: mast.status()["mqtt_connected"])
    mast.sample(100)
    mast.delivered()
    mast.stop()
    reckoning = mast.reckon()
    reckoning.balance()
    report(reckoning.figures())
    assert not reckoning.refused


def test_flood_of_malformed_and_oversize_messages(
    tmp_path: Path, cloud: Kafka, mosquitto: LocalMosquitto, report: Report, full: bool
) -> None:
    malformed, oversize, good = (20_000, 100, 2_000) if full else (1_000, 10, 200)
    device = unique_name("device")
    readings = [device_reading(device, seq) for seq in range(1, good + 1)]
    messages: list[Any] = []
    for n in range(malformed):
        messages.append((f"devices/{device}/x", b'{"v":1,"value":NaN,"n":%d}' % n, 1, False))
        if n < good:
            messages.append((f"devices/{device}/x", encode_reading(readings[n]), 1, False))
        if n < oversize:
            messages.append((f"devices/{device}/x", bytes(MAX_PAYLOAD_BYTES + 1), 1, False))
    forward = '[[forward]]\nfilter = "devices/#"\n'
    with Mast(tmp_path, cloud, mosquitto, more=forward) as mast:
        mast.others = {reading.identity for reading in readings}
        mast.start()
        publish.multiple(messages, hostname=mosquitto.host, port=mosquitto.port)
        mast.sample(100)
        mast.delivered(120)
        eventually(
            lambda: mast.status()["dead_letters"], 120, until=lambda letters: letters == malformed + oversize
        )
        mast.stop()
        reckoning = mast.reckon()
    reckoning.balance()
    report(reckoning.figures(), malformed=malformed, oversize=oversize, good=good)
    assert reckoning.refused == {"NOT_FINITE": malformed, "TOO_LARGE": oversize}
