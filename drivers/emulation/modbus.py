"""Modbus devices that answer frames: Modbus TCP's, and RTU's with a CRC of its own computation."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from typing import Final

from drivers.driver_type import Remove, Words
from drivers.interface import ModbusPort

_TABLES: Final = {1: "coil", 2: "discrete", 3: "holding", 4: "input"}
_LAST_OF_BITS: Final = 2
_ILLEGAL_FUNCTION, _ILLEGAL_ADDRESS = 1, 2

_Device = list[tuple[Words, Callable[[], bool]]]
"""What each sensor of a device has in its registers, and whether its next answer is damaged."""


class EmulatedModbus:
    """All lines of a board, by port; on each the devices by unit id."""

    def __init__(self) -> None:
        self._lines: dict[ModbusPort, dict[int, _Device]] = {}

    def add(self, port: ModbusPort, unit_id: int, words: Words, damaged: Callable[[], bool]) -> Remove:
        """Registers of a device, which is there while it has any."""
        line = self._lines.setdefault(port, {})
        device = line.setdefault(unit_id, [])
        part = words, damaged
        device.append(part)

        def remove() -> None:
            device.remove(part)
            if not device:
                del line[unit_id]
            if not line:
                del self._lines[port]

        return remove

    def connect(self, port: ModbusPort, _timeout_s: float) -> EmulatedStream:
        """A connection. Raises OSError where there is no such line."""
        if port not in self._lines:
            missing = errno.ECONNREFUSED if port.device is None else errno.ENOENT
            raise OSError(missing, "not there")
        return EmulatedStream(lambda frame: self._answer(port, frame))

    def _answer(self, port: ModbusPort, frame: bytes) -> bytes:
        """What the device sends after a request's frame; nothing where it is silent."""
        if port.rtu:
            if crc16(frame) != 0:
                return b""
            unit_id, request = frame[0], frame[1:-2]
        else:
            unit_id, request = frame[6], frame[7:]
        device = self._lines.get(port, {}).get(unit_id, [])
        parts = [words() for words, _ in device]
        # One cable: a device that is off for one of its sensors is off for all.
        if not parts or None in parts:
            return b""
        words = {place: word for part in parts if part is not None for place, word in part.items()}
        answer = bytes([unit_id]) + respond(request, words)
        if not port.rtu:
            return frame[:4] + struct.pack(">H", len(answer)) + answer
        answer += struct.pack("<H", crc16(answer))
        if any(damaged() for _, damaged in device):
            answer = answer[:-1] + bytes([answer[-1] ^ 0x10])
        return answer


class EmulatedStream:
    """One connection. Event time waits with its reader, so a wait for an answer times out at once."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._received = b""

    def write(self, sent: bytes) -> None:
        """Send a frame."""
        self._received = self._answer(sent)

    def read(self, _timeout_s: float) -> bytes:
        """The answer, or nothing."""
        received, self._received = self._received, b""
        return received

    def close(self) -> None:
        """Nothing is open."""


def respond(request: bytes, words: dict[tuple[str, int], int]) -> bytes:
    """A device's answer to a request to read registers, both without unit id and checksum."""
    function, first, count = struct.unpack(">BHH", request)
    table = _TABLES.get(function)
    if table is None:
        return bytes([function | 0x80, _ILLEGAL_FUNCTION])
    asked = [words.get((table, address)) for address in range(first, first + count)]
    if all(word is None for word in asked):
        return bytes([function | 0x80, _ILLEGAL_ADDRESS])
    if function <= _LAST_OF_BITS:
        bits = sum(1 << at for at, bit in enumerate(asked) if bit)
        size = (count + 7) // 8
        return bytes([function, size]) + bits.to_bytes(size, "little")
    return struct.pack(f">BB{count}H", function, 2 * count, *(word or 0 for word in asked))


def crc16(frame: bytes) -> int:
    """The CRC of an RTU frame, low byte first; 0 of a frame with its own (MODBUS over Serial Line, B)."""
    crc = 0xFFFF
    for byte in frame:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xA001 if crc & 1 else 0)
    return crc
