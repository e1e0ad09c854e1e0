"""Devices that send to a gateway by MQTT and HTTP: what was acknowledged is in Kafka, whoever is killed."""

from __future__ import annotations

import http.client
import socket
import threading
from collections import Counter
from collections.abc import Sequence
from functools import partial
from operator import le
from pathlib import Path

import pytest

from cloud.local.process import free_port
from cloud.wire.reading_records import DEAD_LETTER_TOPIC, parse_dead_letter, parse_reading
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.integration.test_third_party import foreign_reading
from tests.support.config import config_text
from tests.support.mast import GatewayProcess, records
from tests.support.mqtt_device import CONNECTED, connect, device, puback, publish
from tests.support.servers import eventually, unique_name

WINDOW, DEVICES = 20, 2
"""Messages under way and readings of a request; devices of each protocol."""


class Device(threading.Thread):
    """Sends so many readings, and notes which were acknowledged."""

    def __init__(self, name: str, port: int, count: int) -> None:
        super().__init__(name=name, daemon=True)
        self._port = port
        self._count = count
        self.acknowledged: list[int] = []


class Logger(Device):
    """Publishes readings in a window, each again and again until its PUBACK has come."""

    def __init__(self, name: str, port: int, count: int) -> None:
        super().__init__(name, port, count)
        self._next = 1
        self._open: dict[int, int] = {}
        self.connections = 0

    def run(self) -> None:
        eventually(self._publish, 1700)

    def _publish(self) -> bool:
        """Publish over one connection, until all is acknowledged. Raises OSError."""
        first = connect(self.name, clean=False)
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            connection.settimeout(60)
            connection.sendall(first)
            answer = connection.recv(4)
            if answer[:2] != CONNECTED[:2] or answer[3:] != b"\0":
                raise ConnectionError(answer)
            self.connections += 1
            connection.sendall(b"".join(self._message(seq, again=True) for seq in self._open.values()))
            while len(self.acknowledged) < self._count:
                while len(self._open) < WINDOW and self._next <= self._count:
                    self._open[self._next % 60_000 + 1] = self._next
                    connection.sendall(self._message(self._next, again=False))
                    self._next += 1
                found = connection.recv(4, socket.MSG_WAITALL)
                if len(found) < 4:
                    raise ConnectionError(found)
                if found[:2] != b"\x40\x02":
                    raise ValueError(found)
                self.acknowledged.append(self._open.pop(int.from_bytes(found[2:], "big")))
        return True

    def _message(self, seq: int, *, again: bool) -> bytes:
        payload = foreign_reading(self.name, seq)
        return publish(f"loggers/{self.name}", payload, seq % 60_000 + 1, repeated=again)


class Poster(Device):
    """Posts batches one after the other, each until it is answered with 200."""

    def run(self) -> None:
        for begin in range(1, self._count + 1, WINDOW):
            batch = range(begin, begin + WINDOW)
            body = b"\n".join(foreign_reading(self.name, seq) for seq in batch)
            eventually(partial(self._post, body), 600)
            self.acknowledged += batch

    def _post(self, body: bytes) -> bool:
        """Posts once; returns whether it was accepted."""
        try:
            return post(self._port, body, "application/x-ndjson") == 200
        except (OSError, http.client.HTTPException):
            return False


def post(port: int, body: bytes, content_type: str) -> int:
    """The status of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/v1/readings", body, {"Content-Type": content_type})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.timeout(1800)
def test_what_was_acknowledged_is_in_kafka_across_kills_and_an_outage(
    provisioned: str, mosquitto: LocalMosquitto, nowhere: str, tmp_path: Path, full: bool
) -> None:
    name, count, kills = unique_name("mast"), 10_000 if full else 300, 10 if full else 1
    mqtt, http_port = free_port(), free_port()
    servers = [nowhere, provisioned] * (2 if full else 1)
    text = config_text(
        gateway={"id": name},
        mqtt_proxy={"listen": f"127.0.0.1:{mqtt}"},
        http={"listen": f"127.0.0.1:{http_port}"},
        forward=[{"filter": "loggers/+"}],
        outbox={"commit_interval_s": 0.2, "min_free_disk": 0},
    )
    loggers = [Logger(unique_name("logger"), mqtt, count) for _ in range(DEVICES)]
    posters = [Poster(unique_name("poster"), http_port, count) for _ in range(DEVICES)]
    kinds: tuple[Sequence[Device], ...] = (loggers, posters)
    devices: list[Device] = [*loggers, *posters]
    mast = GatewayProcess(tmp_path, text, name, nowhere, mosquitto)
    try:
        mast.launch()
        for each in devices:
            each.start()
        # Without Kafka, then with it; the last run ends in order.
        for kafka in servers:
            mast.kill()
            mast = GatewayProcess(tmp_path, text, name, kafka, mosquitto)
            mast.launch()
            for _ in range(kills):
                share = count * DEVICES // ((len(servers) + 1) * kills)
                for kind in kinds:
                    enough = min(acknowledged(kind) + share, count * DEVICES)
                    eventually(partial(acknowledged, kind), 300, until=partial(le, enough))
                mast.kill()
                mast.launch()
        for each in devices:
            each.join(300)
            assert len(each.acknowledged) == count
        mast.delivered(300)
        status = mast.status()
        assert status["mqtt_proxy"]["refused"] == {}
        assert (status["http"]["port"], status["http"]["refused"]) == (http_port, 0)
        assert mast.stop() == 0
    finally:
        mast.end()
    found: dict[str, Counter[int]] = {each.name: Counter() for each in devices}
    for message in records(provisioned, ["mqtt.wind_speed"]):
        reading = parse_reading(message.value() or b"")
        if reading.gateway in found:
            found[reading.gateway][reading.seq] += 1
    missing = {each.name: sorted(set(each.acknowledged) - set(found[each.name]))[:50] for each in devices}
    assert missing == {name: [] for name in found}
    # Once for each identity that was acknowledged, and hardly more often where an answer was lost on its way.
    assert all(len(each) == count for each in found.values())
    assert all(logger.connections > len(servers) * kills // 2 for logger in loggers)


def acknowledged(devices: Sequence[Device]) -> int:
    return sum(len(device.acknowledged) for device in devices)


def test_a_reload_opens_both_and_messages_go_the_way_of_the_local_brokers(
    provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    name = unique_name("mast")

    def text(**listen: int) -> str:
        sections = {section: {"listen": f"127.0.0.1:{port}"} for section, port in listen.items()}
        return config_text(
            gateway={"id": name},
            **sections,
            forward=[
                {"filter": "shed/+", "payload": "number", "quantity": "temperature", "channel": "{1}"},
                {"filter": "plant/+", "payload": "raw", "key": "{1}"},
                {"filter": "loggers/+"},
            ],
        )

    own, ports = foreign_reading(name, 1), {"mqtt_proxy": free_port(), "http": free_port()}
    mast = GatewayProcess(tmp_path, text(), name, provisioned, mosquitto)
    try:
        mast.launch()
        eventually(mast.status_now)
        assert [mast.status()[section]["port"] for section in ports] == [None, None]
        assert mast.reload(text(**ports)) is None
        for section in ports:
            refused = mast.reload(text(**{**ports, section: mosquitto.port}))
            assert refused is not None
            assert "can't listen on" in refused
        assert post(ports["http"], b"[]", "application/json") == 200
        with device(ports["mqtt_proxy"], connect("it")) as logger:
            logger.expect(CONNECTED)
            sent = [("shed/north", b"21.5"), ("plant/pump", b"\0on"), ("other/1", b"x"), ("loggers/1", own)]
            logger.send(*(publish(topic, payload, at) for at, (topic, payload) in enumerate(sent, 1)))
            logger.expect(b"".join(map(puback, range(1, 5))))
            counts = mast.status()["mqtt_proxy"]
            assert [counts[key] for key in ("port", "clients", "messages", "acknowledged")] == [
                ports["mqtt_proxy"], 1, 4, 4,
            ]  # fmt: skip
        assert mast.reload(text()) is None
        assert [mast.status()[section]["port"] for section in ports] == [None, None]
        assert mast.stop() == 0
    finally:
        mast.end()
    (made,) = (
        reading
        for each in records(provisioned, ["mqtt.temperature"])
        if (reading := parse_reading(each.value() or b"")).gateway == name
    )
    assert (made.channel, made.value, made.seq) == ("north.temperature", 21.5, 1)
    raw = [
        each.value()
        for each in records(provisioned, ["mqtt.raw"])
        if dict(each.headers() or ()).get("gateway") == name.encode()
    ]
    assert raw == [b"\0on"]
    dead_letters = [
        parse_dead_letter(each.value() or b"") for each in records(provisioned, [DEAD_LETTER_TOPIC])
    ]
    assert {(each.reason, each.payload) for each in dead_letters if each.gateway == name} == {
        ("NO_FORWARD", b"x"),
        ("FORGED", own),
    }
