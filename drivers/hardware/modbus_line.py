"""Modbus lines: a serial port or a TCP connection, with one request at a time of all sensors on it.

The frames are pymodbus'; the bytes are ours, so that a time-out, a damaged answer and an exception differ. A
connection is kept, and made anew at the request after the one that lost it.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from drivers.generic.modbus_port import ByteStream, ModbusPort
from drivers.hardware.bus_lock import TimedLock
from drivers.hardware.quiet_import import quiet_import
from drivers.interface import ChecksumError, ReadError, SilentError

_INSTALL: Final = "pip install 'fieldgate[modbus]'"
_LONGEST_WAIT_S: Final = 10.0
"""Behind other sensors' requests, each of which ends with its time-out."""
_SILENT_CHARACTERS: Final = 3.5
_LEAST_SILENCE_S: Final = 1.75e-3
"""Between two frames (MODBUS over Serial Line V1.02, 2.5.1.1): 3.5 characters, not less above 19,200 baud."""
_FRAME_BYTES: Final = 13
"""A request of eight, and of an answer all but its registers."""

_EXCEPTIONS: Final = {
    1: "it has no {table} registers: try the other table",
    2: "it has no such registers: manuals that count from 1, 30001 or 40001 mean addresses that are as much"
    " lower; where some between two are absent, set gap = 0",
    3: "it refuses to send {count} registers at once: set a smaller largest_read",
    4: "the device has a fault",
    6: "the device is busy",
    10: "the gateway has no way to it",
    11: "it doesn't answer the gateway: is it powered, is unit_id right?",
}
"""Exception codes (MODBUS Application Protocol V1.1b3, 7)."""
_GATEWAYS: Final = (10, 11)
_SERIAL_ERRORS: Final = {
    errno.ENOENT: "there is no such device: is the adapter plugged in? ls /dev/serial/by-id",
    errno.EACCES: "this user may not use it: sudo usermod -aG dialout USER",
    errno.EAGAIN: "another program has it",
    errno.EIO: "the adapter was unplugged",
}
_TCP_ERRORS: Final = {
    errno.ECONNREFUSED: "nothing listens there: is Modbus TCP turned on, is the port right?",
    errno.EHOSTUNREACH: "no machine has this address: is it on, is the cable in?",
}


class FileStream:
    """A serial port or socket. ``write`` keeps the line's silence and drops what an earlier request left."""

    def __init__(self, opened: Any, silence_s: float) -> None:
        self._opened = opened
        self._fd: int = opened.fileno()
        self._silence_s = silence_s
        self._quiet_since_s = 0.0
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def write(self, sent: bytes) -> None:
        """Send a frame. Raises OSError."""
        for _ in range(64):
            if not self.read(0.0):
                break
        wait_s = self._quiet_since_s + self._silence_s - time.monotonic()
        if wait_s > 0:
            threading.Event().wait(wait_s)
        os.write(self._fd, sent)

    def read(self, timeout_s: float) -> bytes:
        """What has come, or comes within the time; else empty. Raises OSError once it is closed."""
        if not self._poll.poll(max(0.0, timeout_s) * 1000):
            return b""
        received = os.read(self._fd, 512)
        if not received:
            raise OSError(errno.ECONNRESET, "the connection was closed")
        self._quiet_since_s = time.monotonic()
        return received

    def close(self) -> None:
        """Close it."""
        self._opened.close()


def open_port(port: ModbusPort, timeout_s: float) -> ByteStream:
    """Open a serial port, for this program alone, or connect. Raises OSError, BoardError without library."""
    if port.device is None:
        try:
            connection = socket.create_connection((port.host, port.port), timeout=timeout_s)
        except UnicodeError as error:
            raise OSError(errno.EINVAL, f"no name of a host: {error}") from error
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return FileStream(connection, 0.0)
    serial = quiet_import("serial", _INSTALL)
    try:
        opened = serial.Serial(
            port.device,
            port.baudrate,
            parity=port.parity[0].upper(),
            stopbits=port.stop_bits,
            timeout=0,
            exclusive=True,
        )
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from error
    silence_s = max(_SILENT_CHARACTERS * port.character_s, _LEAST_SILENCE_S)
    return FileStream(opened, silence_s)


class ModbusLine:
    """One line and its connection; any thread. ``open_stream`` opens a port, as ``open_port`` does."""

    def __init__(self, port: ModbusPort, open_stream: Callable[[ModbusPort, float], ByteStream]) -> None:
        """Load pymodbus. Raises BoardError where it isn't installed."""
        framers = quiet_import("pymodbus.framer", _INSTALL)
        messages = quiet_import("pymodbus.pdu", _INSTALL)
        requests = quiet_import("pymodbus.pdu.register_message", _INSTALL)
        # It logs each frame that it skips; what matters of these is in the errors here.
        logging.getLogger("pymodbus").setLevel(logging.CRITICAL)
        framer = framers.FramerRTU if port.rtu else framers.FramerSocket
        self._framer: Any = framer(messages.DecodePDU(False))
        self._requests: dict[str, Any] = {
            "holding": requests.ReadHoldingRegistersRequest,
            "input": requests.ReadInputRegistersRequest,
        }
        self._fault: type[Exception] = quiet_import("pymodbus", _INSTALL).ModbusException
        self._port = port
        self._open = open_stream
        self._stream: ByteStream | None = None
        self._transaction = 0
        self._lock = TimedLock(_LONGEST_WAIT_S)

    def read_registers(
        self, unit_id: int, table: str, address: int, count: int, timeout_s: float
    ) -> tuple[int, ...]:
        """The words of adjacent registers. Raises SilentError, ChecksumError, ReadError.

        ``timeout_s`` is what the device may take to answer, besides what the bytes take on the line.
        """
        if not self._lock.acquire():
            raise ReadError(
                f"{self._port.name} is busy with other sensors' requests: read them less often"
                " (interval_s), or give up earlier (timeout_s)"
            )
        try:
            answer = self._request(unit_id, table, address, count, timeout_s)
        except BaseException:
            # An answer that comes later must not be taken for the next request's.
            if self._port.device is None:
                self._disconnect()
            raise
        finally:
            self._lock.release()
        who = f"unit {unit_id} at {self._port.name}"
        if answer.isError():
            code: int = answer.exception_code
            why = _EXCEPTIONS.get(code, "see its manual").format(table=table, count=count)
            kind = SilentError if code in _GATEWAYS else ReadError
            asked = f"{table} registers {address} to {address + count - 1}"
            raise kind(f"{who} answers a request of {asked} with exception {code}: {why}")
        words: tuple[int, ...] = tuple(answer.registers)
        if len(words) != count:
            raise ChecksumError(f"{who} sent {len(words)} registers instead of {count}")
        return words

    def close(self) -> None:
        """End the connection; the next request makes a new one."""
        if self._lock.acquire():
            try:
                self._disconnect()
            finally:
                self._lock.release()

    def _disconnect(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _request(self, unit_id: int, table: str, address: int, count: int, timeout_s: float) -> Any:
        try:
            self._transaction = 0 if self._port.rtu else self._transaction % 0xFFFF + 1
            request = self._requests[table](
                address=address, count=count, dev_id=unit_id, transaction_id=self._transaction
            )
            sent: bytes = self._framer.buildFrame(request)
            stream = self._send(sent, timeout_s)
            on_line_s = (_FRAME_BYTES + 2 * count) * self._port.character_s
            return self._answer(stream, sent, unit_id, timeout_s, time.monotonic() + on_line_s)
        except OSError as error:
            self._disconnect()
            known = _SERIAL_ERRORS if self._port.device is not None else _TCP_ERRORS
            raise SilentError(f"{self._port.name}: {known.get(error.errno or 0, str(error))}") from error

    def _send(self, sent: bytes, timeout_s: float) -> ByteStream:
        if self._stream is not None:
            try:
                self._stream.write(sent)
            except OSError:
                # Many devices end a connection that is idle for a minute, or an adapter has come back.
                self._disconnect()
        if self._stream is None:
            self._stream = self._open(self._port, timeout_s)
            self._stream.write(sent)
        return self._stream

    def _answer(self, stream: ByteStream, sent: bytes, unit_id: int, timeout_s: float, begin_s: float) -> Any:
        who, received = f"unit {unit_id} at {self._port.name}", b""
        function = sent[1 if self._port.rtu else 7]
        while (left_s := begin_s + timeout_s - time.monotonic()) > 0:
            new = stream.read(left_s)
            if not new:
                break
            received = (received + new).removeprefix(sent)
            if sent.startswith(received):
                # The adapter hears itself: the rest of the request comes next.
                continue
            try:
                used, answer = self._framer.handleFrame(received, unit_id, self._transaction)
            except self._fault as error:
                raise ChecksumError(f"{who} sent what is no answer to a request: {error}") from error
            if answer is not None:
                if answer.function_code & 0x7F != function:
                    raise ChecksumError(f"{who} answers function {answer.function_code}, not {function}")
                return answer
            if used and self._port.rtu:
                raise ChecksumError(
                    f"an answer of {who} was damaged (CRC): termination at both ends, a common ground, noise,"
                    " or two devices with one unit_id"
                )
            received = received[used:]
        if received:
            raise ChecksumError(f"an answer of {who} broke off after {len(received)} bytes")
        raise SilentError(
            f"{who} doesn't answer within {timeout_s:g} s: is it powered, is unit_id right"
            + (
                ", are A and B swapped, are baudrate, parity and stop_bits its own?"
                if self._port.device
                else "?"
            )
        )


class ModbusLines:
    """The lines of a board, each opened at the first request; any thread."""

    def __init__(self, open_stream: Callable[[ModbusPort, float], ByteStream] = open_port) -> None:
        self._open = open_stream
        self._lock = threading.Lock()
        self._lines: dict[ModbusPort, ModbusLine] = {}

    def line(self, port: ModbusPort) -> ModbusLine:
        """The line of a port, shared by all that ask for it. Raises BoardError without library."""
        with self._lock:
            if port not in self._lines:
                self._lines[port] = ModbusLine(port, self._open)
            return self._lines[port]

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            lines = list(self._lines.values())
        for line in lines:
            line.close()
