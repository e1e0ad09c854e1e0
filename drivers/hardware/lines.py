"""Lines over sockets: gpsd's reports, and the durations of a DHT's data line from a process that times it.

That process (``dht_process.py``) is started once, with the sensor. One that hangs or dies is ended and
started again; the reading under way is a ReadError. After a failure the sockets are new, so requests and
answers always match.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from drivers.interface import BoardError, ReadError

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


_log = logging.getLogger(__name__)

START_S: Final = 30.0
"""A small Pi takes several seconds to start Python and load the library."""
ANSWER_S: Final = 3.0
"""A request takes 0.4 s."""
_RESTART_AFTER_S: Final = 10.0
"""From one start to the next, so that a process that dies each time doesn't load the machine."""
_END_S: Final = 1.0
# The program is started by its path: it imports nothing of this package, wherever that came from.
_PROGRAM: Final = Path(__file__).with_name("dht_process.py")
_REMEDY: Final = "the DHT11 needs a Raspberry Pi's header and fieldgate's extra 'pi'"


class DhtLine:
    """One line's process, owned by the sensor's thread. Times are in seconds."""

    def __init__(
        self, pin: int, answer_s: float = ANSWER_S, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._pin = pin
        self._answer_s = answer_s
        self._monotonic = monotonic
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: SocketLines | None = None
        self._started_s = float("-inf")

    @property
    def pid(self) -> int | None:
        """The process now; None where there is none."""
        return None if self._process is None else self._process.pid

    def open(self) -> None:
        """Start the process. Raises BoardError where it can't reach the pin."""
        self.close()
        self._started_s = self._monotonic()
        ours, its = socket.socketpair()
        self._lines = SocketLines(ours)
        try:
            with its:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", _PROGRAM, f"D{self._pin}"],
                    stdin=its.fileno(),
                    stdout=its.fileno(),
                    # The package's command extends sys.path in its own process: children don't inherit that.
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
                    start_new_session=True,  # Ctrl-C is the gateway's
                )
        except OSError as error:
            self.close()
            raise BoardError(f"the process that times the DHT11's line can't be started: {error}") from error
        try:
            word, rest = self._answer(START_S)
        except ReadError as error:
            raise BoardError(f"{error}: {_REMEDY}") from error
        if word != "ready":
            self.close()
            raise BoardError(f"pin {self._pin} can't be opened ({rest}): {_REMEDY}")

    def edges(self) -> array[int]:
        """Request a conversion; the line's durations in µs, starting low. Raises ReadError, BoardError."""
        if self._process is None:
            wait_s = self._started_s + _RESTART_AFTER_S - self._monotonic()
            if wait_s > 0:
                raise ReadError(f"the process that times pin {self._pin} is started again in {wait_s:.0f} s")
            self.open()
            _log.warning("event=dht.restarted pin=%d pid=%s", self._pin, self.pid)
        word, rest = self._answer(self._answer_s, b"\n")
        if word == "edges":
            try:
                return array("H", map(int, rest.split()))
            except (ValueError, OverflowError) as error:
                raise self._failed(f"answers {rest[:40]!r}") from error
        if word == "error":
            raise ReadError(f"pin {self._pin} can't be read: {rest}")
        raise self._failed(f"answers {word[:40]!r}")

    def close(self) -> None:
        """End the process; safe to call twice."""
        process, self._process = self._process, None
        lines, self._lines = self._lines, None
        if lines is not None:
            lines.close()
        if process is not None:
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _answer(self, timeout_s: float, request: bytes = b"") -> tuple[str, str]:
        """The next line's first word, and the rest. Raises ReadError, with the process ended."""
        if self._lines is None:
            raise ReadError(f"pin {self._pin} isn't opened")
        try:
            if request:
                self._lines.write(request)
            line = self._lines.readline(timeout_s)
        except TimeoutError as error:
            raise self._failed(f"hasn't answered for {timeout_s:g} s") from error
        except OSError as error:
            raise self._failed(f"has died ({error})") from error
        if not line:
            raise self._failed("has died")
        word, _, rest = line.decode(errors="replace").strip().partition(" ")
        return word, rest

    def _failed(self, what: str) -> ReadError:
        """End a process that has failed."""
        if self._process is not None:
            self._process.kill()
        self.close()
        return ReadError(f"the process that times pin {self._pin} {what}; it is started again")
