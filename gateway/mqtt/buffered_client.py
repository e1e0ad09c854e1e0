"""Paho's client on a connection that was made elsewhere, reading and writing it in large pieces."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Final

from paho.mqtt.client import Client, MQTTMessage

_PIECE_BYTES: Final = 64 << 10


class BufferedClient(Client):
    """Connects by a socket that is connected already, and reads and writes it in large pieces.

    Paho itself reads each packet in four: a quarter of what a small message cost. And it sends each PUBACK by
    itself, for which the broker wakes.
    """

    prepared: socket.socket | None = None
    _piece = memoryview(b"")

    @property
    def has_more(self) -> bool:
        """Whether bytes have been received that no packet was made of yet."""
        return self.socket() is not None and len(self._piece) > 0

    def _create_socket_connection(self) -> socket.socket:
        prepared, self.prepared, self._piece = self.prepared, None, memoryview(b"")
        if prepared is None:
            raise ConnectionError("no connection was made")
        return prepared

    def _handle_on_message(self, message: MQTTMessage) -> None:
        # Paho looks each topic up among callbacks for single filters, with a closure for the collector.
        if self._on_message is not None:
            self._on_message(self, self._userdata, message)

    def _sock_recv(self, bufsize: int) -> bytes:
        if not self._piece:
            self._piece = memoryview(super()._sock_recv(max(bufsize, _PIECE_BYTES)))
        taken, self._piece = self._piece[:bufsize], self._piece[bufsize:]
        return taken.tobytes()

    def _sock_send(self, buf: bytes | bytearray) -> int:
        if self._out_packet and isinstance(self._sock, socket.socket):
            # The kernel sends it with the packets that follow.
            return self._sock.send(buf, socket.MSG_MORE)
        return super()._sock_send(buf)


def is_local(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
