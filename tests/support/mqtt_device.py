"""A device that speaks MQTT 3.1.1 byte by byte, to send what no client library would."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CONNECTED = bytes((0x20, 2, 0, 0))


def text(value: str | bytes) -> bytes:
    encoded = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(encoded)) + encoded


def packet(head: int, body: bytes) -> bytes:
    length, left = bytearray(), len(body)
    while True:
        left, low = divmod(left, 128)
        length.append(low | (0x80 if left else 0))
        if not left:
            return bytes((head, *length)) + body


def connect(
    client_id: str = "logger-3",
    *,
    user: str | None = None,
    password: str | None = None,
    will: str | None = None,
    keepalive_s: int = 60,
    clean: bool = True,
    level: int = 4,
) -> bytes:
    flags = clean << 1 | (will is not None) << 2 | (user is not None) << 7 | (password is not None) << 6
    body = text("MQTT") + bytes((level, flags)) + struct.pack(">H", keepalive_s) + text(client_id)
    if will is not None:
        body += text(will) + text("gone")
    return packet(0x10, body + b"".join(text(each) for each in (user, password) if each is not None))


def publish(
    topic: str, payload: bytes, packet_id: int = 0, *, repeated: bool = False, qos: int | None = None
) -> bytes:
    qos = bool(packet_id) if qos is None else qos
    numbered = struct.pack(">H", packet_id) if qos else b""
    return packet(0x30 | qos << 1 | repeated << 3, text(topic) + numbered + payload)


def puback(packet_id: int) -> bytes:
    return b"\x40\x02" + struct.pack(">H", packet_id)


def subscribe(packet_id: int, *filters: str) -> bytes:
    return packet(0x82, struct.pack(">H", packet_id) + b"".join(text(each) + b"\1" for each in filters))


class Device:
    """One connection; it waits 20 s for what it expects."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        connection.settimeout(20)

    def send(self, *packets: bytes) -> None:
        self.connection.sendall(b"".join(packets))

    def expect(self, wanted: bytes) -> None:
        """The next bytes are these."""
        found = b""
        while len(found) < len(wanted):
            more = self.connection.recv(len(wanted) - len(found))
            if not more:
                break
            found += more
        assert found == wanted

    def silent(self) -> bool:
        """Whether nothing has come so far: neither an answer nor the end."""
        self.connection.setblocking(False)
        try:
            return not self.connection.recv(1, socket.MSG_PEEK) and False
        except BlockingIOError:
            return True
        finally:
            self.connection.settimeout(20)

    def ended(self, before: bytes = b"") -> None:
        """The other side closes, after these bytes."""
        self.expect(before)
        # Where it has closed with something of ours unread.
        with suppress(ConnectionResetError):
            assert self.connection.recv(1) == b""


@contextmanager
def device(port: int, *first: bytes, host: str = "127.0.0.1") -> Iterator[Device]:
    """A connection that has sent these packets."""
    with socket.create_connection((host, port)) as connection:
        made = Device(connection)
        made.send(*first)
        yield made
