"""MQTT 3.1.1 (OASIS, 2014) as a server reads and writes it. No I/O.

Strict: what the standard forbids, and what a server that delivers nothing can't be sent, is a BadPacket. What
is held is one packet that hasn't come in full, and what was fed with its end.
"""

from __future__ import annotations

import re
import struct
from typing import Final, NamedTuple

_LEVEL: Final = 4
_TOO_LONG: Final = 4
"""Bytes that give a packet's length."""
_MOST_OTHER_BYTES: Final = 16 << 10
"""The longest packet that is no PUBLISH: whoever sends CONNECT hasn't logged in yet."""
_U16: Final = struct.Struct(">H")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef]")

ACCEPTED, WRONG_VERSION, WRONG_ID, UNAVAILABLE, WRONG_PASSWORD, NOT_AUTHORIZED = range(6)
"""CONNACK's codes."""
_V5_WRONG_VERSION: Final = bytes((0x20, 3, 0, 0x84, 0))
PINGRESP: Final = bytes((0xD0, 0))


class BadPacket(Exception):
    """The connection is to be closed: ``reason`` in capitals; ``answer`` is what is sent before."""

    def __init__(self, reason: str, answer: bytes = b"") -> None:
        super().__init__(reason)
        self.reason = reason
        self.answer = answer


class Connect(NamedTuple):
    """``keepalive_s`` is 0 where there is none. A will is read over."""

    client_id: str
    clean: bool
    keepalive_s: int
    username: str | None
    password: bytes | None


class Publish(NamedTuple):
    """``packet_id`` is 0 at QoS 0."""

    topic: str
    payload: bytes
    qos: int
    packet_id: int
    repeated: bool


class Subscribe(NamedTuple):
    """A subscription, with the number of its filters."""

    packet_id: int
    filters: int


class Unsubscribe(NamedTuple):
    """The end of subscriptions."""

    packet_id: int


class Ping(NamedTuple):
    """A sign of life."""


class Disconnect(NamedTuple):
    """An orderly end."""


Packet = Connect | Publish | Subscribe | Unsubscribe | Ping | Disconnect


def connack(code: int, *, session_present: bool = False) -> bytes:
    """The answer to CONNECT."""
    return bytes((0x20, 2, session_present, code))


def puback(packet_id: int) -> bytes:
    """A PUBACK."""
    return b"\x40\x02" + _U16.pack(packet_id)


def suback_refused(packet_id: int, filters: int) -> bytes:
    """The answer to SUBSCRIBE: none is granted."""
    return b"\x90" + _length(2 + filters) + _U16.pack(packet_id) + b"\x80" * filters


def unsuback(packet_id: int) -> bytes:
    """The answer to UNSUBSCRIBE."""
    return b"\xb0\x02" + _U16.pack(packet_id)


def _length(number: int) -> bytes:
    out = bytearray()
    while True:
        number, low = divmod(number, 128)
        out.append(low | 0x80 if number else low)
        if not number:
            return bytes(out)


class PacketReader:
    """Makes packets of a connection's bytes. ``most_bytes`` may a PUBLISH have behind its head."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._buffer = bytearray()

    @property
    def buffered(self) -> int:
        """Bytes that wait."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take what has come."""
        self._buffer += data

    def take(self) -> Packet | None:
        """The next packet; None until it has come in full. Raises BadPacket, also by its head alone."""
        buffer = self._buffer
        if not buffer:
            return None
        head = buffer[0]
        if head not in _HEADS:
            raise BadPacket("NOT_MQTT")
        most = self.most_bytes if head & 0xF0 == 0x30 else _MOST_OTHER_BYTES
        length = shift = 0
        for at in range(1, len(buffer)):
            length |= (buffer[at] & 0x7F) << shift
            shift += 7
            if length > most:
                raise BadPacket("TOO_LARGE")
            if buffer[at] < 0x80:
                break
            if at == _TOO_LONG:
                raise BadPacket("NOT_MQTT")
        else:
            return None
        begin, end = at + 1, at + 1 + length
        if len(buffer) < end:
            return None
        body = bytes(memoryview(buffer)[begin:end])
        del buffer[:end]
        return _parse(head, _Fields(body))


_HEADS: Final = frozenset(
    (0x10, 0x82, 0xA2, 0xC0, 0xE0, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x3A, 0x3B, 0x3C, 0x3D)
)
"""First bytes of what a client may send: all others have wrong flags, or answer what was never sent."""


class _Fields:
    """Reads a packet's fields one after the other."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._body) - self._at

    def rest(self) -> bytes:
        return self._take(self.left)

    def byte(self) -> int:
        return self._take(1)[0]

    def number(self) -> int:
        return int(_U16.unpack(self._take(2))[0])

    def packet_id(self) -> int:
        number = self.number()
        if not number:
            raise BadPacket("NO_PACKET_ID")
        return number

    def binary(self) -> bytes:
        return self._take(self.number())

    def text(self) -> str:
        try:
            text = self.binary().decode()
        except UnicodeDecodeError:
            raise BadPacket("NOT_UTF8") from None
        if _CONTROL.search(text):
            raise BadPacket("NOT_UTF8")
        return text

    def topic(self) -> str:
        topic = self.text()
        if not topic or "+" in topic or "#" in topic:
            raise BadPacket("BAD_TOPIC")
        return topic

    def end(self) -> None:
        if self.left:
            raise BadPacket("MALFORMED")

    def _take(self, count: int) -> bytes:
        begin, self._at = self._at, self._at + count
        if self._at > len(self._body):
            raise BadPacket("MALFORMED")
        return self._body[begin : self._at]


def _parse(head: int, fields: _Fields) -> Packet:
    packet: Packet
    match head & 0xF0:
        case 0x30:
            return _publish(head, fields)
        case 0x10:
            packet = _connect(fields)
        case 0x80:
            packet_id, filters = fields.packet_id(), 0
            while fields.left or not filters:
                if not fields.text() or fields.byte() > 2:
                    raise BadPacket("MALFORMED")
                filters += 1
            packet = Subscribe(packet_id, filters)
        case 0xA0:
            packet_id = fields.packet_id()
            while True:
                if not fields.text():
                    raise BadPacket("MALFORMED")
                if not fields.left:
                    break
            packet = Unsubscribe(packet_id)
        case 0xC0:
            packet = Ping()
        case _:
            packet = Disconnect()
    fields.end()
    return packet


def _publish(head: int, fields: _Fields) -> Publish:
    qos, topic = head >> 1 & 3, fields.topic()
    packet_id = fields.packet_id() if qos else 0
    return Publish(topic, fields.rest(), qos, packet_id, repeated=bool(head & 8))


def _connect(fields: _Fields) -> Connect:
    name, level = fields.binary(), fields.byte()
    if (name, level) == (b"MQTT", 5):
        raise BadPacket("MQTT_5", _V5_WRONG_VERSION)
    if name not in (b"MQTT", b"MQIsdp"):
        raise BadPacket("NOT_MQTT")
    if (name, level) != (b"MQTT", _LEVEL):
        raise BadPacket("MQTT_VERSION", connack(WRONG_VERSION))
    flags, keepalive_s = fields.byte(), fields.number()
    has_will, will_qos, retain = flags & 4, flags >> 3 & 3, flags & 0x20
    if flags & 1 or will_qos == 3 or (not has_will and (will_qos or retain)) or flags & 0xC0 == 0x40:
        raise BadPacket("MALFORMED")
    client_id = fields.text()
    if has_will:
        fields.topic(), fields.binary()
    username = fields.text() if flags & 0x80 else None
    password = fields.binary() if flags & 0x40 else None
    return Connect(client_id, bool(flags & 2), keepalive_s, username, password)
