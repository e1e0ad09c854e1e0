"""What is sent in one turn goes out in one piece, and what is received leaves nothing behind."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gateway.mqtt.session import BufferedClient
from tests.support.servers import eventually

Received = tuple[bytes, bytes, int | None, bool, bool]


@contextmanager
def connected(arrived: Callable[[Received], object] = id) -> Iterator[tuple[BufferedClient, socket.socket]]:
    """A client, and the broker's end of its connection."""
    client = BufferedClient("client", lambda *message: arrived(message))
    with socket.create_server(("127.0.0.1", 0)) as server:
        client.prepared = socket.create_connection(server.getsockname())
        client.connect_async("127.0.0.1", server.getsockname()[1])
        client.reconnect()
        broker, _ = server.accept()
        with broker:
            broker.settimeout(30)
            client.loop_write()
            assert broker.recv(1 << 16)[:1] == b"\x10"
            yield client, broker


def read(client: BufferedClient, found: list[Received]) -> list[Received]:
    client.receive(2)
    return found


def test_what_a_turn_sends_is_one_segment() -> None:
    with connected() as (client, broker):
        for number in range(1, 21):
            client.publish(f"topic/{number:02d}", b"5", qos=1)
            client.puback(number)
        assert client.want_write()
        client.loop_write()
        sent = broker.recv(1 << 16)
        assert (len(sent), sent.count(b"topic/")) == (20 * 15 + 20 * 4, 20)
        assert sent.endswith(b"".join(b"\x40\x02" + bytes([0, n]) for n in range(1, 21)))
        assert not client.want_write()


@pytest.mark.parametrize(
    ("size", "head"),
    [
        (0, b"\x33\x09"),
        (118, b"\x33\x7f"),
        (119, b"\x33\x80\x01"),
        (16_374, b"\x33\xff\x7f"),
        (16_375, b"\x33\x80\x80\x01"),
    ],
)
def test_what_is_published_once_is_a_retained_message_of_qos_1(size: int, head: bytes) -> None:
    """Lengths at which MQTT 3.1.1, 2.2.3, takes another byte for the length."""
    payload = b"5" * size
    with connected() as (client, broker):
        client.publish_once("a/°C", payload, retain=True)
        client.publish_once("b", b"")
        client.loop_write()
        assert not client.want_write()
        wanted = head + b"\x00\x05a/\xc2\xb0C\x00\x01" + payload + b"\x32\x05\x00\x01b\x00\x02"
        assert broker.recv(len(wanted), socket.MSG_WAITALL) == wanted


def test_what_is_published_later_is_sent_later() -> None:
    with connected() as (client, broker):
        client.publish_once("a", b"1", retain=True)
        client.publish("a", b"2", qos=1, retain=True)
        client.publish_once("a", b"3", retain=True)
        client.loop_write()
        wanted = b"".join(b"\x33\x06\x00\x01a\x00" + bytes([n]) + str(n).encode() for n in (1, 2, 3))
        assert broker.recv(len(wanted), socket.MSG_WAITALL) == wanted


def test_a_puback_of_what_was_published_once_is_no_news() -> None:
    found: list[Received] = []
    published: list[int] = []
    with connected(found.append) as (client, broker):
        client.on_publish = lambda _client, _data, number, *_: published.append(number)
        client.publish_once("a", b"")
        client.publish("b", b"", qos=1)
        client.loop_write()
        broker.sendall(b"\x40\x02\x00\x01\x40\x02\x00\x02\x30\x04\x00\x01c5")
        eventually(lambda: read(client, found))
    assert (published, found) == ([2], [(b"c", b"5", None, False, False)])


def test_a_message_leaves_the_collector_nothing() -> None:
    """What it takes of the processor and of memory comes with each of a thousand messages a second."""
    topics: list[bytes] = []
    with connected(lambda message: topics.append(message[0])) as (client, broker):
        broker.sendall(b"".join(b"\x32\x08\x00\x03a/b" + bytes([0, n]) + b"5" for n in range(1, 101)))
        gc.collect()
        gc.disable()
        try:
            while len(topics) < 100:
                client.receive(200)
            assert gc.collect() < 100
        finally:
            gc.enable()
    assert topics == [b"a/b"] * 100


LONG = bytes(range(256)) * 2
STREAM = {
    b"\x30\x06\x00\x03a/b5": (b"a/b", b"5", None, False, False),
    b"\x32\x08\x00\x03a/b\x01\x025": (b"a/b", b"5", 258, False, False),
    b"\x3b\x07\x00\x03a/b\xff\xff": (b"a/b", b"", 65535, True, True),
    b"\x33\x07\x00\x02\xc3\xa4\x00\x07x": (b"\xc3\xa4", b"x", 7, True, False),
    b"\x32\x85\x04\x00\x01t\x00\x01" + LONG: (b"t", LONG, 1, False, False),
}


@pytest.mark.parametrize("piece", [1, 3, 7, 1000])
def test_messages_come_whole_however_they_are_cut(piece: int) -> None:
    found: list[Received] = []
    # A PINGRESP, which is paho's, among them.
    stream = b"\xd0\x00".join(STREAM)
    with connected(found.append) as (client, broker):
        for at in range(0, len(stream), piece):
            broker.sendall(stream[at : at + piece])
            client.receive(200)
        eventually(lambda: read(client, found), until=lambda these: len(these) == len(STREAM))
    assert found == list(STREAM.values())


def test_no_more_than_asked_for_is_taken_at_once() -> None:
    found: list[Received] = []
    with connected(found.append) as (client, broker):
        broker.sendall(b"\x30\x06\x00\x03a/b5" * 25)
        counts = []
        while len(found) < 25:
            client.receive(10)
            counts.append((len(found), client.has_more))
    assert [count for count in counts if count[0]] == [(10, True), (20, True), (25, False)]


@pytest.mark.parametrize(
    "rubbish",
    [
        pytest.param(b"\x30\xff\xff\xff\xff\x01", id="length"),
        pytest.param(b"\x32\x04\x00\x03a/", id="topic"),
        pytest.param(b"\x36\x06\x00\x01a\x00\x01x", id="QoS 3"),
        pytest.param(b"\xf0\x00", id="type"),
    ],
)
def test_what_is_no_packet_ends_the_connection_and_nothing_behind_it_counts(rubbish: bytes) -> None:
    found: list[Received] = []
    with connected(found.append) as (client, broker), socket.create_server(("127.0.0.1", 0)) as server:
        broker.sendall(rubbish + b"\x30\x06\x00\x03a/b5" * 3)
        eventually(lambda: (read(client, found), client.socket()), 20, until=lambda each: each[1] is None)
        assert (found, client.has_more) == ([], False)
        client.prepared = socket.create_connection(server.getsockname())
        client.reconnect()
        another, _ = server.accept()
        with another:
            another.sendall(b"\x30\x06\x00\x03c/d5")
            eventually(lambda: read(client, found), 20)
    assert [message[0] for message in found] == [b"c/d"]
