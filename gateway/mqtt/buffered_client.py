"""Paho's client on a connection that was made elsewhere, reading and writing it in large pieces."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MessageType, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.exception import MalformedPacket

_PIECE_BYTES: Final = 64 << 10

Arrived = Callable[[bytes, bytes, int | None, bool, bool], object]
"""Takes a message: topic, payload, message id (None at QoS 0), whether it is retained, whether repeated."""


class BufferedClient(Client):
    """Connects by a socket that is connected already; ``arrived`` takes each message, of QoS 0 or 1.

    Paho itself reads each packet in four, makes three objects of a message, and queues each PUBACK by itself:
    half of what a small message cost. All other packets are paho's.
    """

    prepared: socket.socket | None = None

    def __init__(self, client_id: str, arrived: Arrived) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=False,
            protocol=MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        # With it paho leaves all writing to ``loop_write``.
        self.on_socket_register_write = lambda *_: None
        self._arrived = arrived
        self._received = bytearray()
        self._pubacks = bytearray()
        self.has_more = False
        """Whether packets may have been received that were not handled yet."""

    def receive(self, most: int) -> None:
        """Read what has come and handle so many of its packets; the rest stays for the next call."""
        if self._sock is None:
            return
        problem = MQTTErrorCode.MQTT_ERR_SUCCESS if self.has_more else self._read()
        received, begin = self._received, 0
        try:
            while most and not problem and (place := _body(received, begin)):
                problem = self._handle(received, begin, *place)
                begin, most = place[1], most - 1
        except MalformedPacket:
            problem = MQTTErrorCode.MQTT_ERR_PROTOCOL
        del received[:begin]
        self.has_more = not (most or problem)
        self._loop_rc_handle(problem)

    def puback(self, message_id: int) -> None:
        """Acknowledge a message with the next ``loop_write``; those of a turn are queued as one packet."""
        self._pubacks += b"\x40\x02" + message_id.to_bytes(2)

    def want_write(self) -> bool:
        """Whether anything waits to be sent."""
        return bool(self._pubacks) or super().want_write()

    def loop_write(self) -> MQTTErrorCode:
        """Send what waits, as far as the connection takes it."""
        if self._pubacks:
            pubacks, self._pubacks = self._pubacks, bytearray()
            self._packet_queue(MessageType.PUBACK, pubacks, 0, 0)
        return super().loop_write()

    def _create_socket_connection(self) -> socket.socket:
        prepared, self.prepared = self.prepared, None
        self._received, self._pubacks, self.has_more = bytearray(), bytearray(), False
        if prepared is None:
            raise ConnectionError("no connection was made")
        return prepared

    def _read(self) -> MQTTErrorCode:
        try:
            piece = self._sock_recv(_PIECE_BYTES)
        except BlockingIOError:
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        except OSError:
            piece = b""
        self._received += piece
        self._last_bytes_received = time.monotonic()
        return MQTTErrorCode.MQTT_ERR_SUCCESS if piece else MQTTErrorCode.MQTT_ERR_CONN_LOST

    def _handle(self, received: bytearray, begin: int, body: int, end: int) -> MQTTErrorCode:
        """Handle one packet. Raises MalformedPacket."""
        command = received[begin]
        if command & 0xF0 != MessageType.PUBLISH:
            self._in_packet["command"], self._in_packet["remaining_length"] = command, end - body
            self._in_packet["packet"] = received[body:end]
            return self._packet_handle()
        qos, topic = command >> 1 & 3, body + 2
        text = topic + int.from_bytes(received[body:topic])
        payload = text + 2 if qos else text
        if qos > 1 or payload > end:
            raise MalformedPacket(f"a message of QoS {qos} and {end - body} bytes")
        message_id = int.from_bytes(received[text:payload]) if qos else None
        retained, repeated = command & 1 != 0, command & 8 != 0
        self._arrived(
            bytes(received[topic:text]), bytes(received[payload:end]), message_id, retained, repeated
        )
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _sock_send(self, buf: bytes | bytearray) -> int:
        if self._out_packet and isinstance(self._sock, socket.socket):
            # The kernel sends it with the packets that follow.
            return self._sock.send(buf, socket.MSG_MORE)
        return super()._sock_send(buf)


def _body(received: bytearray, begin: int) -> tuple[int, int] | None:
    """Where a packet's body begins and ends, None where not all of it is there. Raises MalformedPacket."""
    length = shift = 0
    for at in range(begin + 1, min(begin + 5, len(received))):
        length |= (received[at] & 0x7F) << shift
        shift += 7
        if received[at] < 0x80:
            end = at + 1 + length
            return (at + 1, end) if end <= len(received) else None
    if len(received) >= begin + 5:
        raise MalformedPacket("its length has more than four bytes")
    return None


def is_local(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
