"""The MQTT proxy: a PUBACK means durable; who may publish what; what slow and hostile devices can do."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from gateway.config.bridges.model import MqttProxyConfig
from gateway.devices import entry as entry_module, mqtt_connection, mqtt_server
from gateway.devices.entry import DeviceEntry
from gateway.devices.mqtt_connection import Sessions
from gateway.devices.mqtt_server import MqttAccess, MqttServer
from gateway.forwarding.forwarder import Published
from tests.support.certificates import self_signed
from tests.support.mqtt_device import CONNECTED, Device, connect, device, packet, puback, publish, subscribe
from tests.support.servers import eventually

HERE = MqttProxyConfig("127.0.0.1:0")
PINGREQ, PINGRESP, DISCONNECT = b"\xc0\0", b"\xd0\0", b"\xe0\0"


class Forwarder:
    """Takes messages, and makes them durable when a test asks for it, or at once."""

    def __init__(self, *, at_once: bool = False) -> None:
        self.entered: list[Published] = []
        self.at_once = at_once
        self.full = False

    def put(self, event: Any) -> None:
        self.entered.append(event)
        if self.at_once:
            self.store(event)

    def store(self, event: Published) -> None:
        assert event.ack.done is not None
        event.ack.done()

    def wait(self, count: int) -> list[tuple[str, bytes]]:
        eventually(lambda: len(self.entered), until=lambda found: found >= count)
        return [(each.topic, each.payload) for each in self.entered]


@contextmanager
def serving(forwarder: Forwarder, config: MqttProxyConfig = HERE) -> Iterator[MqttServer]:
    server = MqttServer(config, DeviceEntry(forwarder.put, lambda: forwarder.full), Counter())
    server.start()
    try:
        yield server
    finally:
        server.stop()


def counted(server: MqttServer) -> Counter[str]:
    return server._counts


def test_a_puback_is_sent_once_a_message_is_durable_and_in_the_messages_order() -> None:
    forwarder = Forwarder()
    with serving(forwarder) as server, device(server.server_port, connect()) as logger:
        logger.send(publish("a", b"1", 1), publish("a", b"0"), publish("b", b"2", 2), PINGREQ)
        logger.expect(CONNECTED + PINGRESP)
        assert forwarder.wait(3) == [("a", b"1"), ("a", b"0"), ("b", b"2")]
        first, _, second = forwarder.entered
        forwarder.store(second)
        logger.send(PINGREQ)
        logger.expect(PINGRESP)
        assert logger.silent()
        forwarder.store(first)
        logger.expect(puback(1) + puback(2))
        assert counted(server)["acknowledged"] == 2


def test_what_is_sent_again_before_its_puback_enters_once() -> None:
    forwarder = Forwarder()
    sent, again = publish("a", b"21.5", 1), publish("a", b"21.5", 1, repeated=True)
    with serving(forwarder) as server:
        with device(server.server_port, connect(clean=False), sent) as logger:
            logger.expect(CONNECTED)
            forwarder.wait(1)
        eventually(lambda: server.clients, until=lambda count: count == 0)
        with device(server.server_port, connect(clean=False), again) as logger:
            logger.expect(b"\x20\2\1\0")
            eventually(lambda: counted(server)["repeats"], until=lambda count: count == 1)
            forwarder.store(forwarder.entered[0])
            logger.expect(puback(1))
            # Its id stands for another message now, whatever the flag says.
            logger.send(again)
            forwarder.wait(2)
            # Without the flag, or with other bytes, it is another one at once.
            logger.send(publish("a", b"21.6", 1, repeated=True), publish("a", b"21.6", 1))
            forwarder.wait(4)
            for each in forwarder.entered[1:]:
                forwarder.store(each)
            logger.expect(puback(1))
            logger.send(PINGREQ)
            logger.expect(PINGRESP)
        # What became durable while its device was away is answered when that asks.
        with device(server.server_port, connect(clean=False), publish("b", b"7", 9)) as logger:
            logger.expect(CONNECTED)
            forwarder.wait(5)
        eventually(lambda: server.clients, until=lambda count: count == 0)
        forwarder.store(forwarder.entered[4])
        with device(server.server_port, connect(clean=False), publish("b", b"7", 9, repeated=True)) as logger:
            logger.expect(b"\x20\2\1\0" + puback(9))
    assert len(forwarder.entered) == 5


def test_what_another_device_sends_is_no_repetition() -> None:
    forwarder = Forwarder()
    with serving(forwarder) as server:
        for name in ("one", "two"):
            with device(server.server_port, connect(name), publish("a", b"1", 1, repeated=True)) as logger:
                logger.expect(CONNECTED)
                forwarder.wait(1 + (name == "two"))
                forwarder.store(forwarder.entered[-1])
                logger.expect(puback(1))


def test_a_second_connection_of_a_device_ends_its_first() -> None:
    forwarder = Forwarder()
    with serving(forwarder) as server, device(server.server_port, connect(), publish("a", b"1", 1)) as first:
        first.expect(CONNECTED)
        forwarder.wait(1)
        with device(server.server_port, connect(), publish("a", b"1", 1, repeated=True)) as second:
            second.expect(CONNECTED)
            first.ended()
            eventually(lambda: counted(server)["repeats"], until=lambda count: count == 1)
            forwarder.store(forwarder.entered[0])
            second.expect(puback(1))
            eventually(lambda: server.clients, until=lambda count: count == 1)
    assert len(forwarder.entered) == 1


def test_nothing_is_granted_that_is_not_delivered() -> None:
    with serving(Forwarder()) as server, device(server.server_port, connect()) as logger:
        logger.send(subscribe(3, "downlink/logger-3/#", "b"), packet(0xA2, b"\0\4\0\1b"))
        logger.expect(CONNECTED + b"\x90\4\0\3\x80\x80" + b"\xb0\2\0\4")
        logger.send(DISCONNECT)
        logger.ended()


@pytest.mark.parametrize(
    ("sent", "answer", "reason"),
    [
        ((connect(), publish("a", b"1", 1, qos=2)), CONNECTED, "QOS_2"),
        ((connect(), connect()), CONNECTED, "UNEXPECTED"),
        ((publish("a", b"1"),), b"", "UNEXPECTED"),
        ((PINGREQ,), b"", "UNEXPECTED"),
        ((connect("", clean=False),), b"\x20\2\0\2", "BAD_CLIENT_ID"),
        ((connect("x" * 257),), b"\x20\2\0\2", "BAD_CLIENT_ID"),
        ((connect(level=5),), b"\x20\3\0\x84\0", "MQTT_5"),
        ((connect(), publish("a", bytes(1 << 20))), CONNECTED, "TOO_LARGE"),
    ],
)
def test_what_is_not_offered_ends_the_connection_and_enters_nothing(
    sent: tuple[bytes, ...], answer: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    forwarder = Forwarder()
    with serving(forwarder) as server, device(server.server_port) as logger:
        try:
            logger.send(*sent)
        except (BrokenPipeError, ConnectionResetError):
            assert reason == "TOO_LARGE"
        else:
            logger.ended(answer)
        eventually(lambda: counted(server)[f"refused {reason}"], until=lambda count: count == 1)
    assert forwarder.entered == []
    assert f"reason={reason}" in caplog.text


def test_a_message_as_large_as_allowed_is_taken() -> None:
    forwarder, payload = Forwarder(at_once=True), bytes((1 << 20) - 5)
    with serving(forwarder) as server, device(server.server_port, connect()) as logger:
        logger.send(publish("a", payload, 1))
        logger.expect(CONNECTED + puback(1))
    assert forwarder.wait(1) == [("a", payload)]


ACCESS = "user rain\ntopic write devices/rain/#\ntopic read downlink/rain/#\n\nuser none\n"
WET = "".join(("w", "et-and-windy"))


@pytest.fixture
def users(tmp_path: Path) -> MqttProxyConfig:
    passwords, access = tmp_path / "mqtt-users", tmp_path / "mqtt-access"
    for name in ("rain", "none"):
        create = [] if passwords.exists() else ["-c"]
        subprocess.run(["mosquitto_passwd", "-b", *create, str(passwords), name, WET], check=True)
    access.write_text(ACCESS)
    return replace(HERE, passwords=passwords, access=access)


def test_a_user_publishes_to_its_own_topics_only(
    users: MqttProxyConfig, caplog: pytest.LogCaptureFixture
) -> None:
    forwarder, own = Forwarder(at_once=True), connect(user="rain", password=WET)
    with serving(forwarder, users) as server:
        with device(server.server_port, own, publish("devices/rain/mm", b"1", 1)) as logger:
            logger.expect(CONNECTED + puback(1))
            logger.send(publish("devices/snow/mm", b"1", 2))
            logger.ended()
        for topic in ("downlink/rain/x", "fieldgate/mast-07/cup/wind_speed"):
            with device(server.server_port, own, publish(topic, b"1", 1)) as logger:
                logger.ended(CONNECTED)
        # A will is left out, so it may have any topic: a Mosquitto bridge's does.
        own = connect(user="rain", password=WET, will="$SYS/broker/connection/mast.to-gateway/state")
        with device(server.server_port, own, publish("devices/rain/mm", b"2", 3)) as logger:
            logger.expect(CONNECTED + puback(3))
        with device(
            server.server_port, connect(user="none", password=WET), publish("devices/none/a", b"1", 1)
        ) as logger:
            logger.ended(CONNECTED)
    assert forwarder.wait(2) == [("devices/rain/mm", b"1"), ("devices/rain/mm", b"2")]
    assert "topic=devices/snow/mm" in caplog.text
    assert WET not in caplog.text


def test_wrong_passwords_are_refused_and_guessing_is_slowed(
    users: MqttProxyConfig, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = [connect(), connect(user="rain"), connect(user="nobody", password=WET)]
    guesses = [connect(user="rain", password=f"{WET}{number}") for number in range(4)]
    with serving(Forwarder(), users) as server:
        for first in (*wrong, *guesses):
            with device(server.server_port, first) as logger:
                logger.ended(b"\x20\2\0\5")
        # Not even the right one is compared: else it would be worth going on.
        with device(server.server_port, connect(user="rain", password=WET)) as logger:
            logger.ended(b"\x20\2\0\5")
        assert counted(server)["unauthorized"] == 8
        # Behind the same address there are others.
        with device(server.server_port, connect(user="none", password=WET)) as logger:
            logger.send(PINGREQ)
            logger.expect(CONNECTED + PINGRESP)
    assert "nobody" not in caplog.text


class Compared:
    """Counts what is compared, in the place of a stored password."""

    def __init__(self, right: bytes) -> None:
        self.right = right
        self.count = 0

    def matches(self, password: bytes) -> bool:
        self.count += 1
        return password == self.right


@pytest.fixture
def compared(users: MqttProxyConfig, monkeypatch: pytest.MonkeyPatch) -> Compared:
    every = Compared(WET.encode())
    monkeypatch.setattr(mqtt_server, "_NOBODY", every)
    monkeypatch.setattr(mqtt_server, "read_users", lambda path: dict.fromkeys(("rain", "none"), every))
    return every


def test_one_wrong_device_keeps_no_other_out(users: MqttProxyConfig, compared: Compared) -> None:
    now = [1000.0]
    access = MqttAccess(users, lambda: now[0])
    # For hours, with the one password it has: nothing further is guessed, or compared, within a minute.
    for _ in range(3600):
        assert not access.admits("rain", b"old", "nat")
        now[0] += 1
    assert compared.count == 60
    assert access.admits("none", WET.encode(), "nat")
    assert access.admits("rain", WET.encode(), "nat")


def test_a_neighbours_guesses_do_not_lock_out_what_runs(users: MqttProxyConfig, compared: Compared) -> None:
    access = MqttAccess(users, lambda: 1000.0)
    assert access.admits("rain", WET.encode(), "nat")
    for number in range(20):
        assert not access.admits("rain", b"guess %d" % number, "nat")
    assert compared.count == 6
    # By the password that it has shown there, and by no other.
    assert access.admits("rain", WET.encode(), "nat")
    assert not access.admits("rain", b"guess 21", "nat")


def test_an_address_has_fifty_guesses_a_minute_whatever_the_names(
    users: MqttProxyConfig, compared: Compared
) -> None:
    now = [1000.0]
    access = MqttAccess(users, lambda: now[0])
    assert access.admits("none", WET.encode(), "nat")
    for number in range(500):
        assert not access.admits(f"user-{number}", b"guess", "nat")
        now[0] += 0.01
    assert compared.count == 51
    # Who was admitted there still is; no other, and other addresses all.
    assert not access.admits("rain", WET.encode(), "nat")
    assert access.admits("none", WET.encode(), "nat")
    assert access.admits("rain", WET.encode(), "other")
    now[0] += 60
    assert access.admits("rain", WET.encode(), "nat")


def test_what_is_remembered_of_guesses_has_a_bound(users: MqttProxyConfig, compared: Compared) -> None:
    access = MqttAccess(users)
    long = "x" * 10_000
    tracemalloc.start()
    for number in range(5_000):
        access.admits(f"{long}{number}", long.encode(), f"10.{number // 40}.0.1")
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 8 << 20


def test_no_more_devices_than_allowed() -> None:
    with (
        serving(Forwarder(), replace(HERE, max_clients=1)) as server,
        device(server.server_port, connect("one")) as one,
    ):
        one.expect(CONNECTED)
        with device(server.server_port, connect("two")) as two:
            two.ended(b"\x20\2\0\3")
        one.send(PINGREQ)
        one.expect(PINGRESP)


def test_an_unauthenticated_client_holds_no_place_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_server, "_MOST_UNAUTHENTICATED", 2)
    monkeypatch.setattr(mqtt_server, "_TICK_S", 0.05)
    with (
        serving(Forwarder()) as server,
        device(server.server_port) as one,
        device(server.server_port, b"\x10") as two,
    ):
        eventually(lambda: len(server._connections), until=lambda count: count == 2)
        with device(server.server_port) as three:
            three.ended()
        # Not before: the third would have had a place.
        monkeypatch.setattr(mqtt_connection, "_CONNECT_S", 0.3)
        one.ended()
        two.ended()
        assert counted(server)["refused NO_CONNECT"] == 2
        with device(server.server_port, connect()) as logger:
            logger.expect(CONNECTED)


def test_in_flight_and_rate_let_a_device_wait_and_lose_nothing() -> None:
    forwarder, config = Forwarder(), replace(HERE, max_in_flight=3)
    with serving(forwarder, config) as server, device(server.server_port, connect()) as logger:
        logger.expect(CONNECTED)
        logger.send(*(publish("a", b"%d" % each, each) for each in range(1, 9)))
        forwarder.wait(3)
        with device(server.server_port, connect("other"), PINGREQ) as other:
            other.expect(CONNECTED + PINGRESP)
        assert len(forwarder.entered) == 3
        for at in range(8):
            forwarder.wait(at + 1)
            forwarder.store(forwarder.entered[at])
            logger.expect(puback(at + 1))
    forwarder, config = Forwarder(at_once=True), replace(HERE, max_rate=4)
    with serving(forwarder, config) as server, device(server.server_port, connect()) as logger:
        logger.send(*(publish("a", b"1", each) for each in range(1, 8)))
        logger.expect(CONNECTED + b"".join(map(puback, range(1, 8))))
        assert len(forwarder.wait(7)) == 7


def test_where_there_is_no_room_devices_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_module, "_MOST_OPEN_BYTES", 100_000)
    forwarder = Forwarder()
    with serving(forwarder) as server:
        with device(server.server_port, connect()) as logger:
            logger.expect(CONNECTED)
            sender = threading.Thread(
                target=logger.send, args=[publish("a", bytes(30_000), each) for each in range(1, 101)]
            )
            sender.start()
            forwarder.wait(4)
            eventually(lambda: counted(server)["pressure"], until=lambda count: count > 0)
            assert len(forwarder.entered) == 4
            # What is held is a read and a packet, however much the device would send.
            assert server.buffered < 400_000
            forwarder.at_once = True
            for each in forwarder.entered[:4]:
                forwarder.store(each)
            logger.expect(b"".join(map(puback, range(1, 101))))
            sender.join()
        forwarder.full = True
        with device(server.server_port, connect(), publish("a", b"1", 1)) as logger:
            logger.expect(CONNECTED)
            eventually(lambda: counted(server)["pressure"], until=lambda count: count > 1)
            assert len(forwarder.entered) == 100
            forwarder.full = False
            logger.expect(puback(1))


def test_packets_that_do_not_end_are_bounded_in_time_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # Longer than a busy machine takes for so much.
    monkeypatch.setattr(mqtt_connection, "_PACKET_S", 4.0)
    monkeypatch.setattr(mqtt_server, "_TICK_S", 0.05)
    monkeypatch.setattr(mqtt_server, "_MOST_BUFFERED", 300_000)
    part = publish("a", bytes(900_000), 1)[:-1]
    with serving(Forwarder(at_once=True)) as server:
        with device(server.server_port, connect("1"), part) as one, device(server.server_port) as two:
            one.expect(CONNECTED)
            two.connection.setblocking(False)
            with suppress(BlockingIOError):
                two.connection.sendall(connect("2") + part)
            two.connection.settimeout(20)
            eventually(lambda: server.buffered, until=lambda held: held > 300_000)
            assert server.buffered < 300_000 + 2 * (256 << 10) + len(connect("2"))
            one.ended()
            two.ended(CONNECTED)
        eventually(lambda: server.buffered, until=lambda held: held == 0)
        assert counted(server)["refused TOO_SLOW"] == 2


def test_who_reads_no_answers_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_connection, "_PACKET_S", 0.3)
    monkeypatch.setattr(mqtt_connection, "_CLOSE_S", 0.1)
    monkeypatch.setattr(mqtt_connection, "_MOST_UNREAD", 1 << 10)
    monkeypatch.setattr(mqtt_server, "_SEND_BYTES", 1)
    with serving(Forwarder(), replace(HERE, max_rate=100_000)) as server, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", server.server_port))
        with suppress(ConnectionError):
            connection.sendall(connect() + PINGREQ * 200_000)
            connection.sendall(PINGREQ)
        eventually(lambda: counted(server)["refused TOO_SLOW"], until=lambda count: count == 1)
        eventually(lambda: server.clients, until=lambda count: count == 0)


def test_keepalive_is_enforced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_connection, "_GRACE", 0.1)
    monkeypatch.setattr(mqtt_server, "_TICK_S", 0.05)
    with (
        serving(Forwarder()) as server,
        device(server.server_port, connect("1", keepalive_s=3)) as dead,
        device(server.server_port, connect("2", keepalive_s=0)) as patient,
    ):
        patient.expect(CONNECTED)
        dead.ended(CONNECTED)
        patient.send(PINGREQ)
        patient.expect(PINGRESP)
        assert counted(server)["refused KEEPALIVE"] == 1


def test_at_its_end_what_was_taken_gets_its_puback_and_nothing_more_is_taken() -> None:
    forwarder = Forwarder()
    with serving(forwarder) as server, device(server.server_port, connect()) as logger:
        logger.send(publish("a", b"1", 1))
        logger.expect(CONNECTED)
        forwarder.wait(1)
        server.take_no_more()
        eventually(lambda: server._stopping)
        logger.send(publish("a", b"2", 2))
        ending = threading.Thread(target=server.stop)
        ending.start()
        forwarder.store(forwarder.entered[0])
        logger.ended(puback(1))
        ending.join()
        assert len(forwarder.entered) == 1
        server._thread = threading.Thread(target=lambda: None)
        server._thread.start()


def test_a_puback_that_falls_due_after_the_end_harms_nobody() -> None:
    forwarder = Forwarder()
    with serving(forwarder) as server, device(server.server_port, connect(), publish("a", b"1")) as logger:
        logger.expect(CONNECTED)
        forwarder.wait(1)
    forwarder.store(forwarder.entered[0])


def test_no_bytes_end_the_server(caplog: pytest.LogCaptureFixture) -> None:
    forwarder = Forwarder(at_once=True)
    packets = st.one_of(
        st.binary(max_size=40),
        st.builds(publish, st.text(min_size=1, max_size=9), st.binary(max_size=99), st.integers(0, 9)),
        st.builds(packet, st.integers(0, 255), st.binary(max_size=20)),
    )
    with serving(forwarder) as server:

        @settings(max_examples=40, deadline=None)
        @given(st.booleans(), st.lists(packets, max_size=5))
        def attempt(begin: bool, sent: list[bytes]) -> None:
            with device(server.server_port, *([connect()] if begin else []), *sent):
                pass
            with device(server.server_port, connect("good"), publish("a", b"1", 1)) as logger:
                logger.expect(CONNECTED + puback(1))

        attempt()
        eventually(
            lambda: (server.clients, server._unauthenticated, server.buffered),
            until=lambda now: now == (0, 0, 0),
        )
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


def test_tls_and_a_device_that_shakes_no_hands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_server, "_HANDSHAKE_S", 0.5)
    certificate, key = self_signed(tmp_path)
    forwarder, config = Forwarder(at_once=True), replace(HERE, certificate=certificate, key=key)
    context = ssl.create_default_context(cafile=str(certificate))
    with serving(forwarder, config) as server, device(server.server_port) as silent:
        with (
            socket.create_connection(("127.0.0.1", server.server_port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            logger = Device(connection)
            logger.send(connect(), publish("a", bytes(300_000), 1))
            logger.expect(CONNECTED + puback(1))
            logger.send(DISCONNECT)
        with device(server.server_port, connect()) as clear:
            clear.ended()
        silent.ended()
        eventually(lambda: counted(server)["refused NO_HANDSHAKE"], until=lambda count: count == 2)
        eventually(lambda: server._unauthenticated, until=lambda count: count == 0)


@pytest.mark.parametrize("version", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5])
def test_a_client_library_gets_what_it_can_use(version: MQTTProtocolVersion) -> None:
    forwarder = Forwarder(at_once=True)
    answers: list[str] = []
    client = Client(CallbackAPIVersion.VERSION2, "paho", protocol=version, reconnect_on_failure=False)
    client.on_connect = lambda *found: answers.append(str(found[3]))
    client.on_subscribe = lambda *found: answers.append(str(found[3][0]))
    with serving(forwarder) as server:
        client.connect("127.0.0.1", server.server_port)
        client.loop_start()
        eventually(lambda: answers)
        if version is MQTTProtocolVersion.MQTTv5:
            assert answers == ["Unsupported protocol version"]
        else:
            client.publish("a", b"1", qos=1).wait_for_publish(20)
            eventually(lambda: counted(server)["acknowledged"], until=lambda count: count == 1)
            client.subscribe("a")
            eventually(lambda: answers, until=lambda found: len(found) == 2)
            assert answers == ["Success", "Unspecified error"]
            client.disconnect()
        client.loop_stop()


def test_receipts_of_devices_that_are_away_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.devices.mqtt_connection._MOST_LEFT", 10)
    sessions = Sessions(3)

    class Away:
        def close(self) -> None: ...

    from gateway.devices.mqtt_packets import Publish

    for name in range(9):
        session, _ = sessions.begin(None, str(name))
        session.connection = away = Away()
        for packet_id in range(1, 20):
            session.take(Publish("a", b"", 1, packet_id, False), away)
        assert len(session.unanswered) == 6
        sessions.end(None, str(name), session)
    assert [sessions.begin(None, str(name))[1] for name in range(9)] == [False] * 8 + [True]
