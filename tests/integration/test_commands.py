"""Commands through a real Kafka: from an alert and from the command line to a relay, and back."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Producer
from paho.mqtt import subscribe
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from cloud.kafka.librdkafka import DEFAULTS
from cloud.wire.command_records import Command, CommandResult, parse_result
from cloud.wire.fields import format_time
from cloud.wire.reading_records import COMMAND_RESULTS_TOPIC, COMMANDS_TOPIC, EVENTS_TOPIC
from gateway.commands.demo.mosquitto import LocalMosquitto
from spark_jobs.alerting.engine import Engine
from spark_jobs.alerting.gateway_state import Sample
from spark_jobs.alerting.notifications import Notifier
from tests.support.commands import called
from tests.support.config import config_text, cup, dht
from tests.support.mast import GatewayProcess, records, run_gateway
from tests.support.rules import rules_of
from tests.support.servers import eventually, unique_name

HEATER = {"name": "heater", "pin": 23, "normal": "on"}
HOT = """
[[rule]]
name = "enclosure-hot"
kind = "threshold"
channel = "box.temperature"
above = 60.0
[rule.command]
action = "switch"
target = "heater"
args = { state = "off", for_s = 1800 }
"""
ALLOW = [
    "switch heater", "read", "interval cup", "self-test", "publish devices/fan/set",
]  # fmt: skip


def mast_config(name: str, *allow: str) -> str:
    return config_text(
        cup(),
        dht(),
        gateway={"id": name},
        actuator=[HEATER],
        commands={"allow": list(allow)},
        outbox={"commit_interval_s": 0.2},
    )


def publish(kafka: str, *commands: Command) -> None:
    producer = Producer({**DEFAULTS, "bootstrap.servers": kafka})
    for command in commands:
        producer.produce(COMMANDS_TOPIC, key=command.key, value=command.to_json())
    assert producer.flush(30) == 0


def command(mast: str, name: str, action: str, target: str = "", **fields: Any) -> Command:
    now_us = time.time_ns() // 1000
    made = Command(
        id=name, gateway=mast, target=target, action=action, args={},
        issued_at=format_time(now_us), expires_at=format_time(now_us + 600_000_000),
    )  # fmt: skip
    return msgspec.structs.replace(made, **fields)


def results(kafka: str, mast: str) -> dict[str | None, list[CommandResult]]:
    found: dict[str | None, list[CommandResult]] = {}
    for message in records(kafka, [COMMAND_RESULTS_TOPIC]):
        if message.key() == mast.encode():
            result = parse_result(message.value() or b"")
            found.setdefault(result.id, []).append(result)
    return found


def alerted_command(mast: str) -> Command:
    """What the jobs send where the enclosure is too hot."""
    now_us = time.time_ns() // 1000
    hot = Sample(mast, "box.temperature", now_us, 1_000_000, 61.0, 1, replayed=False, kafka_us=now_us)
    [command] = Notifier().records(Engine(rules_of(HOT)).observe([hot], now_us), now_us)[1]
    return command


@contextmanager
def subscribed(mosquitto: LocalMosquitto, topic: str) -> Iterator[list[bytes]]:
    """A device's payloads as they come."""
    payloads: list[bytes] = []
    ready = threading.Event()
    client = Client(CallbackAPIVersion.VERSION2)
    client.on_subscribe = lambda *_: ready.set()
    client.on_message = lambda _client, _data, message: payloads.append(bytes(message.payload))
    client.connect(mosquitto.host, mosquitto.port)
    client.subscribe(topic, qos=1)
    client.loop_start()
    try:
        assert ready.wait(30)
        yield payloads
    finally:
        client.disconnect()
        client.loop_stop()


def heater(mast: GatewayProcess) -> tuple[str, int]:
    relay = mast.status()["relays"]["heater"]
    return relay["state"], relay["switches"]


def test_from_an_alert_to_a_relay_and_back_once_across_a_kill(
    provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    name = unique_name("mast")

    def sent(*arguments: str) -> tuple[int, dict[str, Any]]:
        done = called("command", "send", name, "--json", "--bootstrap-servers", provisioned, *arguments)
        assert done.stdout, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)["result"]
        return done.returncode, result

    with run_gateway(tmp_path, mast_config(name), name, provisioned, mosquitto) as mast:
        eventually(mast.sampled)
        assert mast.reload(mast_config(name, *ALLOW)) is None
        eventually(lambda: heater(mast), until=lambda found: found == ("on", 1))
        alerted = alerted_command(name)
        publish(provisioned, alerted)
        eventually(lambda: heater(mast), until=lambda found: found == ("off", 2))
        local = subscribe.simple(  # type: ignore[no-untyped-call]
            f"fieldgate/{name}/command-result", hostname=mosquitto.host, port=mosquitto.port
        )
        assert parse_result(local.payload).id == alerted.id

        code, result = sent("switch", "heater", "--arg", "state=normal")
        assert (code, result["outcome"], result["result"]) == (0, "done", {"state": "on"})
        assert heater(mast) == ("on", 3)
        code, result = sent("interval", "cup", "--arg", "interval_s=2")
        assert code == 0
        eventually(
            lambda: mast.status()["channels"]["cup.wind_speed"]["period_ms"], until=lambda now: now == 2000
        )
        # What a command asks in vain is no fault of the file.
        assert sent("interval", "cup", "--arg", "interval_s=2.0005")[1]["outcome"] == "failed"
        assert mast.status()["config"]["error"] is None
        code, result = sent("read", "dht")
        assert result["result"]["readings"]["dht.temperature"]["unit"] == "Cel"
        before = result["result"]["readings"]["dht.temperature"]["seq"]
        code, result = sent("read", "dht", "--arg", "fresh=true")
        assert result["result"]["readings"]["dht.temperature"]["seq"] > before
        with subscribed(mosquitto, "devices/fan/set") as payloads:
            assert sent("publish", "devices/fan/set", "--arg", "payload=5")[0] == 0
            eventually(lambda: payloads, until=lambda found: found == [b"5"])
        assert sent("reload")[1]["reason"] == "NOT_ALLOWED"
        assert sent("self-test")[1]["result"]["relays"] == {}
        mast.kill()
        # While it is away: one that is over, one that was done, one for another mast under this key, no JSON.
        times = {"issued_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-01T01:00:00Z"}
        publish(provisioned, command(name, "over", "read", "dht", **times), alerted)
        producer = Producer({**DEFAULTS, "bootstrap.servers": provisioned})
        foreign = command("another-mast", "foreign", "read", "dht")
        for value in (foreign.to_json(), b"{"):
            producer.produce(COMMANDS_TOPIC, key=name.encode(), value=value)
        assert producer.flush(30) == 0
        mast.launch()
        assert sent("self-test")[0] == 0
        assert heater(mast) == ("on", 1)
        found = eventually(lambda: results(provisioned, name), until=lambda found: None in found)
    assert {each.outcome for each in found[alerted.id]} == {"done"}
    assert [each.reason for each in found["over"]] == ["EXPIRED"]
    assert {each.reason for each in found["foreign"]} == {"FOREIGN"}
    assert {each.reason for each in found[None]} == {"MALFORMED"}
    events = [json.loads(each.value() or b"") for each in records(provisioned, [EVENTS_TOPIC])]
    assert [each["event"] for each in events if each["gateway"] == name].count("config-refused") == 0
    listed = called("command", "list", name, "--bootstrap-servers", provisioned)
    assert f"{alerted.id} switch heater: done" in listed.stdout
