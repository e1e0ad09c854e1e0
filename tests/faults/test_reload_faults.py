"""The config changes under load, while the uplink comes and goes: nothing is lost, nothing counted twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from paho.mqtt import publish
from paho.mqtt.enums import MQTTProtocolVersion

from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.faults.kafka import Kafka
from tests.faults.mast import Mast
from tests.support.servers import eventually

pytestmark = pytest.mark.system
Report = Callable[..., None]

RATE = 500
DEVICES = 50
FORWARD = """
[[forward]]
filter = "sensors/+/temperature"
payload = "number"
quantity = "temperature"
channel = "{1}"
"""


def other_filter(config: str) -> str:
    return config.replace('"sensors/+/temperature"', '"devices/+/temperature"')


def other_calibration(config: str) -> str:
    return config.replace("slope = 0.765", "slope = 0.7", 1)


def without_dht(config: str) -> str:
    at = config.index('[[sensor]]\nname = "dht"')
    return config[:at] + config[config.index("[[sensor]]", at + 1) :]


def swapped_inputs(config: str) -> str:
    turned = config.replace("input = 0", "input = 9").replace("input = 1", "input = 0")
    return turned.replace("input = 9", "input = 1")


def other_producers(config: str) -> str:
    return config.replace("[outbox]", '[kafka.properties]\n"linger.ms" = 20\n[outbox]').replace(
        "commit_interval_s = 0.5", "commit_interval_s = 0.4"
    )


@pytest.mark.timeout(900)
def test_reload_under_load(
    tmp_path: Path, cloud: Kafka, mosquitto: LocalMosquitto, report: Report, full: bool
) -> None:
    rounds = 10 if full else 1
    sent = 0

    def send(topic: str) -> None:
        nonlocal sent
        messages = [(topic, str(20 + number / 10), 1, False) for number in range(DEVICES)]
        publish.multiple(
            list(messages), hostname=mosquitto.host, port=mosquitto.port, protocol=MQTTProtocolVersion.MQTTv5
        )
        sent += DEVICES

    with Mast(tmp_path, cloud, mosquitto, rate=RATE, more=FORWARD) as mast:
        run = mast.start()
        eventually(lambda: mast.status()["mqtt_connected"])
        plain = mast.config()
        reloads = 0
        for _ in range(rounds):
            send("sensors/shed/temperature")
            cloud.uplink.close()
            for change in (other_calibration, without_dht, other_producers):
                assert mast.reload(change(plain)) is None
                reloads += 1
            mast.spilling()
            mast.sample(RATE)
            # Producers that hold what Kafka doesn't take are replaced by others, and these again.
            assert mast.reload(plain) is None
            assert "must be one of" in (mast.reload(plain.replace("input = 1", "input = 7")) or "")
            cloud.uplink.open()
            for change in (swapped_inputs, other_filter, other_producers):
                assert mast.reload(change(plain)) is None
                reloads += 1
            assert mast.reload(plain) is None
            reloads += 2
            mast.sample(RATE)
            send("sensors/shed/temperature")
        mast.delivered()
        assert mast.status()["run"] == run
        assert mast.status()["sampler_restarts"] == 0
        eventually(
            lambda: mast.witness.runs[run].last_seq().get("shed.temperature"),
            until=lambda received: received == sent,
        )
        mast.stop()
        reckoning = mast.reckon()
    reckoning.balance()
    report(reckoning.figures(), reloads=reloads, others=sent)
