"""SIGHUP on a running daemon, with a real Mosquitto and a real Kafka: only what changed is touched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import publish

from cloud.wire.reading_records import Reading, parse_reading
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.integration.test_daemon import ANOTHER_CUP, daemon_config, expected, gateway, waiting
from tests.support.mast import GatewayProcess, published, records
from tests.support.servers import eventually

TOPICS = ["mqtt.wind_speed", "mqtt.temperature", "mqtt.humidity", "mqtt.pressure"]
SHED = """
[[forward]]
filter = "sensors/+/temperature"
payload = "number"
quantity = "temperature"
channel = "{1}"
"""


@pytest.fixture
def mast(provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path) -> Iterator[GatewayProcess]:
    with gateway(tmp_path, provisioned, mosquitto, speed=20) as running:
        eventually(running.sampled, until=lambda sampled: sampled > 50)
        eventually(lambda: running.status()["mqtt_connected"])
        yield running


def plain(mast: GatewayProcess) -> str:
    return daemon_config(mast.id, speed=20)


def readings(kafka: str, mast: GatewayProcess) -> dict[str, list[Reading]]:
    """Everything of a gateway that is in Kafka, by channel, each once and in order."""
    found: defaultdict[str, dict[int, Reading]] = defaultdict(dict)
    for message in records(kafka, TOPICS):
        reading = parse_reading(message.value() or b"")
        if reading.gateway == mast.id:
            found[reading.channel][reading.seq] = reading
    return {channel: [by_seq[seq] for seq in sorted(by_seq)] for channel, by_seq in found.items()}


def test_what_is_bad_or_takes_a_restart_is_refused_and_the_old_config_goes_on(
    mast: GatewayProcess, tmp_path: Path
) -> None:
    bad = plain(mast).replace("pin = 17", "pin = 99").replace("interval_s = 2", "x = 1")
    error = mast.reload(bad) or ""
    line = bad.splitlines().index("pin = 99") + 1
    assert f'{tmp_path / "gateway.toml"}:{line}: sensor["cup"].pin: must be at most 27, not 99' in error
    assert 'sensor["dht"].x: is not a known key' in error
    mast.sample(50)
    assert "Traceback" not in mast.log.read_text()
    # The good file again: the error is gone, and nothing was restarted.
    assert mast.reload(plain(mast)) is None
    moved = (
        plain(mast)
        .replace('path = "outbox.db"', 'path = "elsewhere.db"')
        .replace("slope = 0.765", "slope = 0.8")
    )
    error = mast.reload(moved) or ""
    line = moved.splitlines().index('path = "elsewhere.db"') + 1
    assert error == (
        f"{tmp_path / 'gateway.toml'}:{line}: outbox.path: takes a restart: sudo systemctl restart fieldgate"
    )
    assert mast.stop() == 0
    assert not (tmp_path / "elsewhere.db").exists()


def test_only_what_changed_is_touched(mast: GatewayProcess, provisioned: str, tmp_path: Path) -> None:
    error = mast.reload(plain(mast).replace("0.765", "1.53") + ANOTHER_CUP)
    assert error is None
    eventually(lambda: mast.status()["channels"], until=lambda channels: "cup-b.wind_speed" in channels)
    # Enough of this config, too, for some wind.
    mast.sample(40)
    # The removed DHT is seen no more; the pin of the second cup goes to the first.
    swapped = plain(mast)[: plain(mast).index('[[sensor]]\nname = "dht"')]
    assert mast.reload(swapped.replace("pin = 17", "pin = 27")) is None
    assert set(mast.status()["channels"]) == {"cup.wind_speed"}
    mast.sample(40)
    mast.delivered()
    assert mast.stop() == 0
    record = mast.run_record()

    found = readings(provisioned, mast)
    assert set(found) == {"cup.wind_speed", "cup-b.wind_speed", "dht.temperature", "dht.humidity"}
    missing = expected(record["last_seq"]) - {
        (channel, reading.seq) for channel, series in found.items() for reading in series
    }
    assert missing == waiting(tmp_path, mast.id, record["run"])
    # Some may wait in the outbox. Each number has its period; none is missing of the sensor that wasn't
    # touched, and at most one of the cup's, when it waited for the others that ended.
    for channel, step_us, most in (("cup.wind_speed", 1_000_000, 1), ("dht.temperature", 2_000_000, 0)):
        first = found[channel][0]
        missed = [
            (reading.time_us - first.time_us) / step_us - (reading.seq - first.seq)
            for reading in found[channel]
        ]
        assert missed == sorted(missed)
        assert set(missed) <= {0, most}
    assert len({reading.cal for reading in found["dht.temperature"]}) == 1
    cals = list(dict.fromkeys(reading.cal for reading in found["cup.wind_speed"]))
    # The third config has the first one's calibration, on another pin.
    assert len(cals) == 2
    slopes = {cals[0]: 0.765, cals[1]: 1.53}
    turning = [reading for reading in found["cup.wind_speed"] if reading.raw]
    assert {reading.cal for reading in turning} == set(cals)
    for reading in turning:
        assert reading.value == pytest.approx(slopes[reading.cal or ""] * (reading.raw or 0) + 0.35)
    events = published(provisioned, "gateway.events", mast.id, tmp_path / "outbox.db")
    assert [(event["sensors"], event["run"]) for event in events if event["event"] == "reloaded"] == [
        ({"added": ["cup-b"], "changed": ["cup"]}, record["run"]),
        ({"removed": ["dht", "cup-b"], "changed": ["cup"]}, record["run"]),
    ]


def test_a_sensor_with_another_driver_has_no_last_word_of_the_old_one(
    mast: GatewayProcess, tmp_path: Path
) -> None:
    eventually(lambda: mast.status()["channels"], until=lambda channels: "dht.humidity" in channels)
    barometer = '[[sensor]]\nname = "dht"\ndriver = "bp20"\ninterval_s = 2\n'
    other = plain(mast)[: plain(mast).index('[[sensor]]\nname = "dht"')] + barometer
    assert mast.reload(other) is None
    channels = eventually(lambda: mast.status()["channels"], until=lambda found: "dht.pressure" in found)
    assert set(channels) == {"cup.wind_speed", "dht.pressure"}


def test_other_quality_rules_hold_at_once_and_no_sampler_notices(
    mast: GatewayProcess, provisioned: str, tmp_path: Path
) -> None:
    def flagged(status: dict[str, Any]) -> bool:
        return "OVER_RANGE" in status["channels"]["cup.wind_speed"]["reasons"]

    assert not flagged(mast.status())
    calm = "[quality.wind_speed]\nsite_range = [0, 0.1]\n"
    assert mast.reload(f"{plain(mast)}\n{calm}") is None
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
    events = published(provisioned, "gateway.events", mast.id, tmp_path / "outbox.db")
    assert "sensor.cup.quality" in str([event for event in events if "settings" in str(event)])
    # No sampler began again.
    assert mast.log.read_text().count("event=sensor.") == 0


def test_a_forward_comes_and_goes_without_a_new_connection(
    mast: GatewayProcess, provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    def send(value: str) -> None:
        publish.single("sensors/shed/temperature", value, 1, hostname=mosquitto.host, port=mosquitto.port)

    def shed() -> dict[str, Any]:
        received: dict[str, Any] = mast.run_record()["last_seq"]
        return received

    assert mast.reload(plain(mast) + SHED) is None
    subscribed = f"event=mqtt.subscribed filters=fieldgate/{mast.id}/+/+,sensors/+/temperature"
    eventually(mast.log.read_text, until=lambda log: subscribed in log)
    send("21.5")
    eventually(shed, until=lambda last_seq: last_seq.get("shed.temperature") == 1)
    assert mast.reload(plain(mast) + SHED + "offset = 1\n") is None
    send("21.5")
    eventually(shed, until=lambda last_seq: last_seq.get("shed.temperature") == 2)
    assert mast.reload(plain(mast)) is None
    send("99")
    mast.sample(40)
    mast.delivered()
    assert mast.stop() == 0
    assert [reading.value for reading in readings(provisioned, mast)["shed.temperature"]] == [21.5, 22.5]
    assert mast.log.read_text().count("event=mqtt.disconnected") == 0


def test_other_kafka_properties_take_over_without_a_loss(
    mast: GatewayProcess, provisioned: str, tmp_path: Path
) -> None:
    more = '[kafka.properties]\n"linger.ms" = {}\n'
    assert mast.reload(plain(mast) + more.format(50)) is None
    before = mast.status()["confirmed"]
    eventually(lambda: mast.status()["confirmed"], until=lambda confirmed: confirmed > before + 40)
    authority = tmp_path / "ca.pem"
    authority.write_text("old")
    secured = plain(mast) + more.format(50) + f'"ssl.ca.location" = "{authority}"\n'
    assert mast.reload(secured) is None
    authority.write_text("renewed")
    assert mast.reload(secured) is None
    # The log is written beside.
    eventually(lambda: '["kafka.properties.\\"ssl.ca.location\\""]' in mast.log.read_text())
    bad = plain(mast) + more.format('"never"')
    line = bad.splitlines().index('"linger.ms" = "never"') + 1
    error = mast.reload(bad) or ""
    assert error.startswith(
        f'{tmp_path / "gateway.toml"}:{line}: kafka.properties."linger.ms": Invalid value'
    )
    assert mast.stop() == 0
    record = mast.run_record()
    found = {(r.channel, r.seq) for series in readings(provisioned, mast).values() for r in series}
    assert expected(record["last_seq"]) - found == waiting(tmp_path, mast.id, record["run"])
