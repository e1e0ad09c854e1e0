"""Discovery messages on a real Mosquitto: retained, removed, and there again after the broker forgot them."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.support.config import ID, baro, config_text, dht
from tests.support.json_schema import errors
from tests.support.mast import run_gateway
from tests.support.servers import eventually, unique_name
from tests.unit.gateway.mqtt.test_home_assistant import SCHEMA

PREFIX = "homeassistant/sensor/mast-07"


def retained(broker: LocalMosquitto, wildcard: str) -> dict[str, bytes]:
    """Everything that a Home Assistant which connects now receives."""
    found: dict[str, bytes] = {}
    marker, subscribed, over = unique_name("over"), threading.Event(), threading.Event()

    def on_message(_client: Client, _data: Any, message: MQTTMessage) -> None:
        if message.topic == marker:
            over.set()
            return
        # What is published in the moment of the subscription comes too, and is no proof that it is kept.
        if message.retain:
            found[message.topic] = bytes(message.payload)

    client = Client(CallbackAPIVersion.VERSION2)
    client.on_message = on_message
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect(broker.host, broker.port)
    client.loop_start()
    try:
        client.subscribe([(wildcard, 1), (marker, 1)])
        assert subscribed.wait(20)
        # What is retained comes before what is published after the subscription.
        client.publish(marker, b"", qos=1)
        assert over.wait(20)
    finally:
        client.disconnect()
        client.loop_stop()
    return found


def names(broker: LocalMosquitto) -> set[str]:
    """The entities that are announced, in the middle of their topics."""
    return {topic.removeprefix(PREFIX).split("/")[1] for topic in retained(broker, "homeassistant/#")}


def test_entities_come_change_and_go_with_their_channels(
    tmp_path: Path, nowhere: str, mosquitto: LocalMosquitto
) -> None:
    text = config_text(baro(), dht(), mqtt={"home_assistant": True})
    state = tmp_path / "outbox.db.discovery"
    both = {"baro-pressure", "dht-temperature", "dht-humidity"}
    with run_gateway(tmp_path, text, ID, nowhere, mosquitto) as gateway:
        eventually(lambda: names(mosquitto), 30, until=lambda found: found == both)
        found = retained(mosquitto, "homeassistant/#")
        status = retained(mosquitto, "fieldgate/mast-07/status")
        for topic, payload in found.items():
            assert topic.startswith(f"{PREFIX}/")
            message = json.loads(payload)
            assert list(errors(SCHEMA, message)) == []
            # What it points at is there: the status, online, and the readings.
            (availability,) = message["availability"]
            assert json.loads(status[availability["topic"]])["state"] == availability["payload_available"]
            reading = eventually(lambda: gateway.status()["channels"], 20, until=lambda all: len(all) == 3)
            assert message["state_topic"].rsplit("/", 2)[1] in {name.split(".")[0] for name in reading}
        assert json.loads(state.read_text())["topics"] == sorted(found)

        # A channel that goes takes its entity along; one that changes is published again.
        slower = config_text(baro(interval_s=5), mqtt={"home_assistant": True})
        assert gateway.reload(slower) is None
        eventually(lambda: names(mosquitto), 30, until=lambda found: found == {"baro-pressure"})

        def expires() -> list[int]:
            return [json.loads(each)["expire_after"] for each in retained(mosquitto, f"{PREFIX}/#").values()]

        eventually(expires, 30, until=lambda found: found == [25])
        # To a Mosquitto that has lost all it is published again.
        mosquitto.restart()
        eventually(lambda: names(mosquitto), 30, until=lambda found: found == {"baro-pressure"})
        assert gateway.stop() == 0

    # The option goes while the daemon is stopped.
    without = config_text(baro(), mqtt={"home_assistant": False})
    with run_gateway(tmp_path, without, ID, nowhere, mosquitto) as gateway:
        eventually(lambda: names(mosquitto), 30, until=lambda found: found == set())
        eventually(lambda: json.loads(state.read_text())["topics"], 40, until=lambda kept: kept == [])
        assert gateway.stop() == 0
