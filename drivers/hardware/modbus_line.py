"""Modbus lines: a serial port or a TCP connection, with one request at a time of all sensors on it.

Requests and CRC are pymodbus'; what comes is read here, so that a time-out, a damaged answer, another
device's and an exception differ. A connection is kept, and made anew at the request after the one that lost
it.

A serial line delivers bytes that no device has sent (a transceiver that is switched, noise), so a frame is
what has a right CRC, wherever it begins. Modbus TCP has none: there each one begins where the last one ends.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from drivers.hardware.bus_lock import TimedLock
from drivers.hardware.quiet_import import quiet_import
from drivers.interface import BITS, ByteStream, ChecksumError, ModbusPort, ReadError, SilentError

LONGEST: Final = 260
FUNCTIONS: Final = {"coil": 1, "discrete": 2, "holding": 3, "input": 4}
"""The function that reads each table."""
_ECHOES_OF_WRITES: Final = (5, 6, 15, 16)
_EXCEPTION: Final = 0x80


class Frame(NamedTuple):
    """An answer: whose, to which request (0 on a serial line), and its function with what follows."""

    unit_id: int
    transaction: int
    pdu: bytes

    @property
    def function(self) -> int:
        """The request's, also where this is an exception."""
        return self.pdu[0] & ~_EXCEPTION

    @property
    def exception(self) -> int | None:
        """Its code, None where it is none."""
        return self.pdu[1] if self.pdu[0] & _EXCEPTION else None

    def words(self, table: str, count: int) -> tuple[int, ...]:
        """The registers, or bits, as many as were sent; of whole bytes of bits those requested."""
        data = self.pdu[2 : 2 + self.pdu[1]]
        if table in BITS:
            bits = tuple(byte >> at & 1 for byte in data for at in range(8))
            return bits[:count] if len(data) == (count + 7) // 8 else bits
        return tuple(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))


def rtu_frames(received: bytes, compute_crc: Callable[[bytes], int]) -> Iterator[Frame]:
    """Each answer with a right CRC."""
    begin = 0
    while begin + 5 <= len(received):
        end = begin + _rtu_length(received[begin + 1], received[begin + 2])
        body, crc = received[begin : end - 2], received[end - 2 : end]
        if begin < end <= len(received) and compute_crc(body) == int.from_bytes(crc, "big"):
            yield Frame(body[0], 0, body[1:])
            begin = end
        else:
            begin += 1


def _rtu_length(function: int, next_byte: int) -> int:
    """Returns the length with unit id and CRC; negative where it is no answer's function."""
    if function & _EXCEPTION:
        return 5
    if function in FUNCTIONS.values():
        return 5 + next_byte
    return 8 if function in _ECHOES_OF_WRITES else -1


def tcp_frames(received: bytes) -> Iterator[Frame]:
    """Each whole answer, up to what is no Modbus TCP."""
    while len(received) >= 9 and received[2:4] == b"\0\0":
        length = int.from_bytes(received[4:6], "big")
        if received[7] & _EXCEPTION:
            # Some devices count an exception's code out.
            length = 3
        if length < 3 or len(received) < 6 + length:
            return
        yield Frame(received[6], int.from_bytes(received[:2], "big"), received[7 : 6 + length])
        received = received[6 + length :]


_INSTALL: Final = "pip install 'fieldgate[modbus]'"
_LONGEST_WAIT_S: Final = 10.0
"""Behind other sensors' requests, each of which ends with its time-out."""
_SILENT_CHARACTERS: Final = 3.5
_LEAST_SILENCE_S: Final = 1.75e-3
"""Between two frames (MODBUS over Serial Line V1.02, 2.5.1.1): 3.5 characters, not less above 19,200 baud."""
_FRAME_BYTES: Final = 13
"""A request of eight, and of an answer all but its registers."""
_QUIET_S: Final = 0.2
"""So long without a byte, after as many as an answer has, nothing more comes: adapters send in pieces."""

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
        # It logs each frame that it skips; what matters of these is in the errors here.
        logging.getLogger("pymodbus").setLevel(logging.CRITICAL)
        framer = framers.FramerRTU if port.rtu else framers.FramerSocket
        self._framer: Any = framer(messages.DecodePDU(False))
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
        who, code = f"unit {unit_id} at {self._port.name}", answer.exception
        if code is not None:
            why = _EXCEPTIONS.get(code, "see its manual").format(table=table, count=count)
            kind = SilentError if code in _GATEWAYS else ReadError
            asked = f"{table} registers {address} to {address + count - 1}"
            raise kind(f"{who} answers a request of {asked} with exception {code}: {why}")
        words = answer.words(table, count)
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

    def _request(self, unit_id: int, table: str, address: int, count: int, timeout_s: float) -> Frame:
        try:
            self._transaction = 0 if self._port.rtu else self._transaction % 0xFFFF + 1
            request = Frame(unit_id, self._transaction, struct.pack(">BHH", FUNCTIONS[table], address, count))
            sent: bytes = self._framer.encode(request.pdu, unit_id, self._transaction)
            stream = self._send(sent, timeout_s)
            length = 5 + ((count + 7) // 8 if table in BITS else 2 * count)
            on_line_s = (_FRAME_BYTES + 2 * count) * self._port.character_s
            return self._answer(stream, sent, request, length, on_line_s, timeout_s)
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

    def _answer(
        self, stream: ByteStream, sent: bytes, request: Frame, length: int, on_line_s: float, timeout_s: float
    ) -> Frame:
        """The answer to a request; ``length`` is its, on a serial line."""
        who, received, frames = f"unit {request.unit_id} at {self._port.name}", b"", list[Frame]()
        deadline_s = time.monotonic() + on_line_s + timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            whole = self._port.rtu and (frames or len(received) >= length)
            new = self._more(stream, min(left_s, _QUIET_S) if whole else left_s, received)
            if not new:
                break
            received = (received + new).replace(sent, b"", int(self._port.rtu))[-2 * LONGEST :]
            if sent.startswith(received):
                # The adapter hears itself: the rest of the request comes next.
                continue
            frames = list(self._frames(received))
            for frame in frames:
                if self._is_its(frame, request):
                    return frame
        if frames:
            raise self._not_its(frames[0], request, who)
        if self._port.rtu and len(received) >= length:
            raise ChecksumError(
                f"an answer of {who} was damaged (CRC): termination at both ends, a common ground, noise,"
                " or two devices with one unit_id"
            )
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

    def _more(self, stream: ByteStream, timeout_s: float, received: bytes) -> bytes:
        try:
            return stream.read(timeout_s)
        except OSError:
            if not received:
                raise
            # What has come says more than that the connection was closed after it.
            return b""

    def _frames(self, received: bytes) -> Iterator[Frame]:
        return rtu_frames(received, self._framer.compute_CRC) if self._port.rtu else tcp_frames(received)

    def _has_its_ids(self, frame: Frame, request: Frame) -> bool:
        if self._port.rtu:
            return frame.unit_id == request.unit_id
        # Unit 0 is a device without others behind it, and transaction 0 of one that doesn't count.
        return request.unit_id in (0, frame.unit_id) and frame.transaction in (0, request.transaction)

    def _is_its(self, frame: Frame, request: Frame) -> bool:
        return frame.function == request.function and (
            self._port.any_ids or self._has_its_ids(frame, request)
        )

    def _not_its(self, frame: Frame, request: Frame, who: str) -> ReadError:
        if self._has_its_ids(frame, request):
            return ChecksumError(f"{who} answers function {frame.function}, not {request.function}")
        key = "any_ids = true takes the answers of a device that does so"
        if self._port.rtu:
            return ReadError(f"unit {frame.unit_id} answers in place of {who}: is unit_id right? {key}")
        found, asked = (f"transaction {each.transaction} of unit {each.unit_id}" for each in (frame, request))
        return ReadError(f"{who} answers as {found}, not as {asked}: {key}")


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
