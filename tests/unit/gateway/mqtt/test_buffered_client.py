"""What is sent in one turn goes out in one piece, and what is received leaves nothing behind."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from gateway.mqtt.buffered_client import BufferedClient


@contextmanager
def connected() -> Iterator[tuple[BufferedClient, socket.socket]]:
    """A client, and the broker's end of its connection."""
    client = BufferedClient(
        CallbackAPIVersion.VERSION2,
        "client",
        clean_session=False,
        protocol=MQTTProtocolVersion.MQTTv311,
        manual_ack=True,
    )
    client.on_socket_register_write = lambda *_: None
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
            client.disconnect()
            client.loop_write()
            assert broker.recv(1 << 16) == b"\xe0\x00"


def test_pubacks_of_one_turn_are_one_segment() -> None:
    with connected() as (client, broker):
        for number in range(1, 51):
            client.ack(number, 1)
        client.loop_write()
        assert broker.recv(1 << 16) == b"".join(b"\x40\x02" + bytes([0, n]) for n in range(1, 51))


def test_a_message_leaves_the_collector_nothing() -> None:
    """What it takes of the processor and of memory comes with each of a thousand messages a second."""
    topics: list[str] = []
    with connected() as (client, broker):
        client.on_message = lambda _client, _data, message: topics.append(message.topic)
        broker.sendall(b"".join(b"\x32\x08\x00\x03a/b" + bytes([0, n]) + b"5" for n in range(1, 101)))
        gc.collect()
        gc.disable()
        try:
            while len(topics) < 100:
                client.loop_read()
            assert gc.collect() < 100
        finally:
            gc.enable()
    assert topics == ["a/b"] * 100
