"""What is sent in one turn goes out in one piece."""

from __future__ import annotations

import socket

from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from gateway.mqtt.buffered_client import BufferedClient


def test_pubacks_of_one_turn_are_one_segment() -> None:
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
            for number in range(1, 51):
                client.ack(number, 1)
            client.loop_write()
            assert broker.recv(1 << 16) == b"".join(b"\x40\x02" + bytes([0, n]) for n in range(1, 51))
            client.disconnect()
            client.loop_write()
            assert broker.recv(1 << 16) == b"\xe0\x00"
