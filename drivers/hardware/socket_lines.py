"""Lines over a socket."""

from __future__ import annotations

import socket
import time
from typing import Self

from drivers.interface import ReadError

_CONNECT_TIMEOUT_S = 3.0
_MAX_LINE_BYTES = 1 << 16


class SocketLines:
    """A connection that carries lines; an unfinished line is kept across a timeout."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()

    @classmethod
    def connect(cls, host: str, port: int) -> Self:
        """Over TCP. Raises ReadError."""
        try:
            return cls(socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S))
        except OSError as error:
            raise ReadError(f"nothing answers at {host}:{port} ({error}): is the service running?") from error

    def write(self, line: bytes) -> None:
        """Send one line. Raises OSError."""
        self._socket.settimeout(_CONNECT_TIMEOUT_S)
        self._socket.sendall(line)

    def readline(self, timeout_s: float) -> bytes:
        """The next line with its end, empty once the other side has closed. Raises TimeoutError, OSError."""
        # The deadline is the whole line's: one that comes byte by byte must not last for ever.
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            if time.monotonic() > deadline + timeout_s:
                raise TimeoutError("the line doesn't end")
            if len(self._buffer) > _MAX_LINE_BYTES:
                raise OSError(f"a line of over {_MAX_LINE_BYTES} bytes")
            # 0 would mean "don't block", whose BlockingIOError isn't a TimeoutError.
            self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))
            received = self._socket.recv(1 << 14)
            if not received:
                return b""
            self._buffer += received
        line, _, rest = self._buffer.partition(b"\n")
        self._buffer = rest
        return bytes(line) + b"\n"

    def close(self) -> None:
        """End the connection."""
        self._socket.close()
