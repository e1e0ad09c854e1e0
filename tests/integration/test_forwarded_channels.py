"""Other devices' channels in the status of a real daemon: as JSON, as a table, after a reload."""

from __future__ import annotations

from pathlib import Path

from paho.mqtt import publish

from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.support.config import ID, baro, config_text
from tests.support.mast import run_gateway
from tests.support.servers import eventually, fieldgate

SHED = {"filter": "sensors/+/temperature", "payload": "number", "quantity": "temperature"}
CABINET = {
    "filter": "cabinet",
    "payload": "json",
    "channel": "cabinet",
    "readings": [
        {"quantity": "temperature", "path": "t"},
        {"quantity": "humidity", "path": "rh", "max": 100.0},
    ],
}
RAW = {"filter": "raw/#", "payload": "raw"}


def test_what_is_forwarded_is_in_the_status_marked_with_value_and_age(
    tmp_path: Path, nowhere: str, mosquitto: LocalMosquitto
) -> None:
    def send(topic: str, payload: str) -> None:
        publish.single(topic, payload, qos=1, hostname=mosquitto.host, port=mosquitto.port)

    text = config_text(baro(), forward=[SHED, CABINET, RAW])
    with run_gateway(tmp_path, text, ID, nowhere, mosquitto) as gateway:
        eventually(gateway.status, 30, until=lambda status: bool(status["mqtt_connected"]))
        send("raw/1", "not counted")
        send("sensors/shed/temperature", "21.5")
        send("cabinet", '{"t": 33.25, "rh": 250}')
        found = eventually(
            lambda: gateway.status()["forwarded_channels"], 30, until=lambda channels: len(channels) == 3
        )
        shed, humidity = found["sensors-shed-temperature.temperature"], found["cabinet.humidity"]
        assert (shed["value"], shed["unit"]) == (21.5, "Cel")
        assert (humidity["value"], humidity["quality"], humidity["reasons"]) == (250.0, 4, ["OVER_RANGE"])
        send("sensors/shed/temperature", "22.5")
        eventually(
            lambda: gateway.status()["forwarded_channels"]["sensors-shed-temperature.temperature"],
            until=lambda last: last["value"] == 22.5,
        )
        assert not set(gateway.status()["channels"]) - {"baro.pressure"}
        address = tmp_path / "address.toml"
        address.write_text(f'[status]\nlisten = "127.0.0.1:{gateway.status_port}"\n')
        printed = fieldgate("status", "-c", address, environment={"COLUMNS": "120"}).stdout
        (line,) = (each for each in printed.splitlines() if "cabinet.temperature" in each)
        cells = line.split()
        assert cells[:3] == ["cabinet.temperature", "33.250", "Cel"]
        assert cells[-3:] in ([age, "s", "forwarded"] for age in map(str, range(60)))
        assert gateway.reload(gateway.config().replace("sensors/+/temperature", "others/+")) is None
        eventually(lambda: gateway.status()["forwarded_channels"] == {}, 30)
