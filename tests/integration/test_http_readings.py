"""Readings that devices post to a gateway: what was answered with 200 is in Kafka, whoever is killed."""

from __future__ import annotations

import http.client
import json
import threading
from functools import partial
from pathlib import Path

from cloud.wire.reading_records import parse_reading
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.integration.test_third_party import foreign_reading
from tests.support.config import config_text
from tests.support.mast import GatewayProcess, records
from tests.support.servers import eventually, unique_name

BATCH, DEVICES = 20, 2
HEADERS = {"Content-Type": "application/x-ndjson"}


class Device(threading.Thread):
    """Posts batches one after the other, each until it is answered with 200."""

    def __init__(self, name: str, port: int, count: int) -> None:
        super().__init__(name=name, daemon=True)
        self._port = port
        self._count = count
        self.accepted: list[int] = []
        self.repeats = 0

    def run(self) -> None:
        for begin in range(1, self._count + 1, BATCH):
            batch = range(begin, begin + BATCH)
            body = b"\n".join(foreign_reading(self.name, seq) for seq in batch)
            eventually(partial(self._post, body), 600)
            self.accepted += batch

    def _post(self, body: bytes) -> bool:
        """Post once: whether it was accepted."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("POST", "/v1/readings", body, HEADERS)
            if connection.getresponse().status == 200:
                return True
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        self.repeats += 1
        return False


def test_what_was_accepted_is_in_kafka_across_kills_and_an_outage(
    provisioned: str, mosquitto: LocalMosquitto, nowhere: str, free_port: int, tmp_path: Path, full: bool
) -> None:
    name, count, kills = unique_name("mast"), 10_000 if full else 300, 20 if full else 1
    text = config_text(
        gateway={"id": name},
        http={"listen": f"127.0.0.1:{free_port}"},
        outbox={"commit_interval_s": 0.2, "min_free_disk": 0},
    )
    devices = [Device(unique_name("logger"), free_port, count) for _ in range(DEVICES)]

    def accepted() -> int:
        return sum(len(device.accepted) for device in devices)

    mast = GatewayProcess(tmp_path, text, name, nowhere, mosquitto)
    try:
        mast.launch()
        for device in devices:
            device.start()
        # Without Kafka first, then with it.
        for kafka in (nowhere, provisioned):
            if kafka == provisioned:
                mast = GatewayProcess(tmp_path, text, name, kafka, mosquitto)
                mast.launch()
            for kill in range(kills):
                before = accepted()
                share = count * DEVICES // (3 * kills)
                eventually(lambda: accepted() >= min(before + share, count * DEVICES), 300)  # noqa: B023
                mast.kill()
                if kafka == provisioned or kill < kills - 1:
                    mast.launch()
        for device in devices:
            device.join(300)
            assert len(device.accepted) == count
        mast.delivered(300)
        counts = mast.status()["http"]
        assert (counts["port"], counts["refused"]) == (free_port, 0)
        assert mast.stop() == 0
    finally:
        mast.end()
    found: dict[str, set[int]] = {device.name: set() for device in devices}
    for message in records(provisioned, ["mqtt.wind_speed"]):
        reading = parse_reading(message.value() or b"")
        found.get(reading.gateway, set()).add(reading.seq)
    missing = {device.name: sorted(set(device.accepted) - found[device.name])[:50] for device in devices}
    assert missing == {device.name: [] for device in devices}


def test_a_reload_opens_it_and_one_that_cannot_changes_nothing(
    provisioned: str, mosquitto: LocalMosquitto, free_port: int, tmp_path: Path
) -> None:
    name = unique_name("mast")

    def text(**section: str) -> str:
        return config_text(gateway={"id": name}, http=section)

    def answer(port: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("POST", "/v1/readings", json.dumps([]), {"Content-Type": "application/json"})
        return connection.getresponse().status

    mast = GatewayProcess(tmp_path, text(), name, provisioned, mosquitto)
    try:
        mast.launch()
        eventually(lambda: mast.status_now()["http"], until=lambda found: found["port"] is None)
        assert mast.reload(text(listen=f"127.0.0.1:{free_port}")) is None
        assert answer(free_port) == 200
        refused = mast.reload(text(listen=f"127.0.0.1:{mosquitto.port}"))
        assert refused is not None
        assert "can't listen on" in refused
        assert answer(free_port) == 200
        assert mast.reload(text()) is None
        assert mast.status()["http"]["port"] is None
    finally:
        mast.end()
