"""SIGHUP on a running daemon, with a real Mosquitto and a real Kafka: only what changed is touched."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import publish

from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.wire.schema import Reading, parse_reading
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.integration.test_daemon import CONFIG, expected, gateway, waiting
from tests.support.gateways import Gateway, records, told
from tests.support.servers import eventually

TOPICS = ["mqtt.wind_speed", "mqtt.temperature", "mqtt.humidity", "mqtt.pressure"]
ABSENT_CUP = """
[[sensor]]
name = "cup-b"
driver = "hall-anemometer"
pin = 27
slope = 0.765
"""
SHED = """
[[forward]]
filter = "sensors/+/temperature"
payload = "number"
quantity = "temperature"
channel = "{1}"
"""


@pytest.fixture(scope="module")
def provisioned(kafka: LocalBroker) -> str:
    provision_topics(kafka.bootstrap_servers, partitions=2, replication=1)
    return kafka.bootstrap_servers


@pytest.fixture
def mast(provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path) -> Iterator[Gateway]:
    with gateway(tmp_path, provisioned, mosquitto, speed=20) as running:
        eventually(running.sampled, until=lambda sampled: sampled > 50)
        eventually(lambda: running.status()["mqtt_connected"])
        yield running


def text(mast: Gateway, change: Callable[[str], str]) -> str:
    return change(CONFIG.format(gateway=mast.id, speed=20))


def reload(mast: Gateway, directory: Path, config: str) -> dict[str, Any]:
    """Write the file, send SIGHUP and wait until it is answered; ``config`` of the status then."""
    before = mast.status()["config"]
    (directory / "gateway.toml").write_text(config)
    mast.process.send_signal(signal.SIGHUP)
    return eventually(lambda: mast.status()["config"], until=lambda state: state != before)


def readings(kafka: str, mast: Gateway) -> dict[str, list[Reading]]:
    """Everything of a gateway that is in Kafka, by channel, each once and in order."""
    found: defaultdict[str, dict[int, Reading]] = defaultdict(dict)
    for message in records(kafka, TOPICS):
        reading = parse_reading(message.value() or b"")
        if reading.gateway == mast.id:
            found[reading.channel][reading.seq] = reading
    return {channel: [by_seq[seq] for seq in sorted(by_seq)] for channel, by_seq in found.items()}


def test_a_bad_file_is_refused_and_the_old_config_goes_on(mast: Gateway, tmp_path: Path) -> None:
    bad = text(mast, lambda config: config.replace("pin = 17", "pin = 99").replace("interval_s = 2", "x = 1"))
    state = reload(mast, tmp_path, bad)
    line = bad.splitlines().index("pin = 99") + 1
    assert (
        f'{tmp_path / "gateway.toml"}:{line}: sensor["cup"].pin: must be at most 27, not 99' in state["error"]
    )
    assert 'sensor["dht"].x: is not a known key' in state["error"]
    before = mast.sampled()
    eventually(mast.sampled, until=lambda sampled: sampled > before + 50)
    assert "Traceback" not in mast.log.read_text()
    # The good file again: the error is gone, and nothing was restarted.
    assert reload(mast, tmp_path, text(mast, lambda config: config))["error"] is None
    assert mast.stop() == 0


def test_what_takes_a_restart_is_refused_by_name(mast: Gateway, tmp_path: Path) -> None:
    moved = text(
        mast,
        lambda config: config.replace('path = "outbox.db"', 'path = "elsewhere.db"').replace(
            "slope = 0.765", "slope = 0.8"
        ),
    )
    error = reload(mast, tmp_path, moved)["error"]
    line = moved.splitlines().index('path = "elsewhere.db"') + 1
    assert error == (
        f"{tmp_path / 'gateway.toml'}:{line}: outbox.path: takes a restart: systemctl restart fieldgate"
    )
    assert mast.stop() == 0
    assert not (tmp_path / "elsewhere.db").exists()


def test_only_what_changed_is_touched(mast: Gateway, provisioned: str, tmp_path: Path) -> None:
    state = reload(mast, tmp_path, text(mast, lambda config: config.replace("0.765", "1.53") + ABSENT_CUP))
    assert state["error"] is None
    eventually(lambda: mast.status()["channels"], until=lambda channels: "cup-b.wind_speed" in channels)
    # Enough of this config, too, for some wind.
    before = mast.sampled()
    eventually(mast.sampled, until=lambda sampled: sampled > before + 40)
    # The removed DHT is seen no more; the pin of the second cup goes to the first.
    swapped = text(mast, lambda config: config[: config.index('[[sensor]]\nname = "dht"')])
    assert reload(mast, tmp_path, swapped.replace("pin = 17", "pin = 27"))["error"] is None
    assert set(mast.status()["channels"]) == {"cup.wind_speed"}
    before = mast.sampled()
    eventually(mast.sampled, until=lambda sampled: sampled > before + 40)
    mast.delivered()
    assert mast.stop() == 0
    record = mast.run_record()

    found = readings(provisioned, mast)
    assert set(found) == {"cup.wind_speed", "cup-b.wind_speed", "dht.temperature", "dht.humidity"}
    missing = expected(record["last_seq"]) - {
        (channel, reading.seq) for channel, series in found.items() for reading in series
    }
    assert missing == waiting(tmp_path, mast.id)
    for channel, step_us in (("cup.wind_speed", 1_000_000), ("dht.temperature", 2_000_000)):
        first = found[channel][0]
        # Some may wait in the outbox. Each number has its period, both of the sensor that wasn't touched and
        # of the one that was: none is missing.
        assert [reading.time_us for reading in found[channel]] == [
            first.time_us + (reading.seq - first.seq) * step_us for reading in found[channel]
        ]
    assert len({reading.cal for reading in found["dht.temperature"]}) == 1
    cals = list(dict.fromkeys(reading.cal for reading in found["cup.wind_speed"]))
    # The third config has the first one's calibration, on another pin.
    assert len(cals) == 2
    slopes = {cals[0]: 0.765, cals[1]: 1.53}
    turning = [reading for reading in found["cup.wind_speed"] if reading.raw]
    assert {reading.cal for reading in turning} == set(cals)
    for reading in turning:
        assert reading.value == pytest.approx(slopes[reading.cal or ""] * (reading.raw or 0) + 0.35)
    events = told(provisioned, "gateway.events", mast.id, tmp_path / "outbox.db")
    assert [(event["sensors"], event["run"]) for event in events if event["event"] == "reloaded"] == [
        ({"added": ["cup-b"], "changed": ["cup"]}, record["run"]),
        ({"removed": ["dht", "cup-b"], "changed": ["cup"]}, record["run"]),
    ]


def test_a_sensor_with_another_driver_has_no_last_word_of_the_old_one(mast: Gateway, tmp_path: Path) -> None:
    eventually(lambda: mast.status()["channels"], until=lambda channels: "dht.humidity" in channels)
    barometer = '[[sensor]]\nname = "dht"\ndriver = "bp20"\ninterval_s = 2\n'
    other = text(mast, lambda config: config[: config.index('[[sensor]]\nname = "dht"')] + barometer)
    assert reload(mast, tmp_path, other)["error"] is None
    channels = eventually(lambda: mast.status()["channels"], until=lambda found: "dht.pressure" in found)
    assert set(channels) == {"cup.wind_speed", "dht.pressure"}


def test_other_quality_rules_hold_at_once_and_no_sampler_notices(
    mast: Gateway, provisioned: str, tmp_path: Path
) -> None:
    def flagged(status: dict[str, Any]) -> bool:
        return "OVER_RANGE" in status["channels"]["cup.wind_speed"]["reasons"]

    assert not flagged(mast.status())
    calm = "[quality.wind_speed]\nsite_range = [0, 0.1]\n"
    assert reload(mast, tmp_path, text(mast, lambda config: f"{config}\n{calm}"))["error"] is None
    eventually(mast.status, until=flagged)
    # What is sampled last may wait in the outbox after the stop.
    eventually(
        lambda: readings(provisioned, mast)["cup.wind_speed"],
        until=lambda series: ("OVER_RANGE",) in [reading.reasons for reading in series],
    )
    assert mast.stop() == 0
    series = readings(provisioned, mast)["cup.wind_speed"]
    # Some may wait in the outbox, but none was missed: each number has its second.
    begin_us = series[0].time_us - series[0].seq * 1_000_000
    assert [reading.time_us for reading in series] == [
        begin_us + reading.seq * 1_000_000 for reading in series
    ]
    reasons = [reading.reasons for reading in series if reading.value]
    changed = reasons.index(("OVER_RANGE",))
    assert set(reasons[:changed]) == {()}
    assert set(reasons[changed:]) == {("OVER_RANGE",)}
    assert {reading.quality for reading in series if reading.reasons} == {3}
    events = told(provisioned, "gateway.events", mast.id, tmp_path / "outbox.db")
    assert "sensor.cup.quality" in str([event for event in events if "settings" in str(event)])
    # Nobody began anew.
    assert mast.log.read_text().count("event=sensor.") == 0


def test_a_forward_comes_and_goes_without_a_new_connection(
    mast: Gateway, provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    def send(value: str) -> None:
        publish.single("sensors/shed/temperature", value, 1, hostname=mosquitto.host, port=mosquitto.port)

    def shed() -> dict[str, Any]:
        received: dict[str, Any] = mast.run_record()["last_seq"]
        return received

    assert reload(mast, tmp_path, text(mast, lambda config: config + SHED))["error"] is None
    subscribed = f"event=mqtt.subscribed filters=fieldgate/{mast.id}/+/+,sensors/+/temperature"
    eventually(mast.log.read_text, until=lambda log: subscribed in log)
    send("21.5")
    eventually(shed, until=lambda last_seq: last_seq.get("shed.temperature") == 1)
    assert reload(mast, tmp_path, text(mast, lambda config: config + SHED + "offset = 1\n"))["error"] is None
    send("21.5")
    eventually(shed, until=lambda last_seq: last_seq.get("shed.temperature") == 2)
    assert reload(mast, tmp_path, text(mast, lambda config: config))["error"] is None
    send("99")
    before = mast.sampled()
    eventually(mast.sampled, until=lambda sampled: sampled > before + 40)
    mast.delivered()
    assert mast.stop() == 0
    assert [reading.value for reading in readings(provisioned, mast)["shed.temperature"]] == [21.5, 22.5]
    assert mast.log.read_text().count("event=mqtt.disconnected") == 0


def test_other_kafka_properties_take_over_without_a_loss(
    mast: Gateway, provisioned: str, tmp_path: Path
) -> None:
    more = '[kafka.properties]\n"linger.ms" = {}\n'
    assert reload(mast, tmp_path, text(mast, lambda config: config + more.format(50)))["error"] is None
    before = mast.status()["confirmed"]
    eventually(lambda: mast.status()["confirmed"], until=lambda confirmed: confirmed > before + 40)
    bad = text(mast, lambda config: config + more.format('"never"'))
    line = bad.splitlines().index('"linger.ms" = "never"') + 1
    error = reload(mast, tmp_path, bad)["error"]
    assert error.startswith(
        f'{tmp_path / "gateway.toml"}:{line}: kafka.properties."linger.ms": Invalid value'
    )
    assert mast.stop() == 0
    record = mast.run_record()
    found = {(r.channel, r.seq) for series in readings(provisioned, mast).values() for r in series}
    assert expected(record["last_seq"]) - found == waiting(tmp_path, mast.id)
