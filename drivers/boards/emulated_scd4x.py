"""A Sensirion SCD4x at the level of its commands (datasheet, section 3).

Unlike the real chip's its first measurement is ready at once: in lock-step nobody could wait 5 s for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from drivers.boards.world import SECOND_NS

_START: Final = 0x21B1
_STOP: Final = 0x3F86
_DATA_READY: Final = 0xE4B8
_READ: Final = 0xEC05
_SERIAL: Final = 0x3682
_PERIOD_NS: Final = 5 * SECOND_NS
_READY_WORD, _NOT_READY_WORD = 0x8006, 0x8000
_SERIAL_WORDS: Final = (0xF896, 0x9F07, 0x3BBE)


@dataclass(frozen=True, slots=True)
class Air:
    """What the sensor breathes: ppm, °C, %RH."""

    co2_ppm: float
    temperature_c: float
    humidity_pct: float


def crc8(word: bytes) -> int:
    """Sensirion's checksum of a word: CRC-8, polynomial 0x31, initial value 0xFF (0xBEEF gives 0x92)."""
    crc = 0xFF
    for byte in word:
        crc ^= byte
        for _ in range(8):
            crc = (crc << 1 ^ 0x31) & 0xFF if crc & 0x80 else crc << 1
    return crc


def _words(*words: int) -> bytes:
    return b"".join(pair + bytes([crc8(pair)]) for pair in (word.to_bytes(2, "big") for word in words))


def _clip(word: float) -> int:
    return max(0, min(0xFFFF, round(word)))


class EmulatedScd4x:
    """The chip in air that ``breathe`` describes at an instant (None: it answers nothing)."""

    def __init__(self, now_ns: Callable[[], int], breathe: Callable[[int], Air | None]) -> None:
        self._now_ns = now_ns
        self._breathe = breathe
        self._started_ns: int | None = None
        self._measured_ns: int | None = None
        self._reply = b""

    def write(self, sent: bytes) -> None:
        """Take a command. Raises OSError on those that need an idle sensor, and without air."""
        if len(sent) < 2:
            return
        command = int.from_bytes(sent[:2], "big")
        self._reply = b""
        if command == _STOP:
            self._started_ns = None
        elif command == _DATA_READY:
            self._reply = _words(_NOT_READY_WORD if self._new_tick_ns() is None else _READY_WORD)
        elif command == _READ:
            self._reply = self._measurement()
        elif self._started_ns is not None:
            raise OSError(121, "the sensor takes no such command while it measures")
        elif command == _START:
            self._started_ns, self._measured_ns = self._now_ns(), None
        elif command == _SERIAL:
            self._reply = _words(*_SERIAL_WORDS)
        else:
            raise OSError(121, f"command 0x{command:04x} isn't emulated")

    def read(self, count: int) -> bytes:
        """The last command's reply. Raises OSError where there is none."""
        if len(self._reply) < count:
            raise OSError(121, "the sensor has nothing to say")
        return self._reply[:count]

    def _new_tick_ns(self) -> int | None:
        """When the latest measurement ended, unless it has been read."""
        if self._started_ns is None:
            return None
        elapsed_ns = self._now_ns() - self._started_ns
        tick_ns = self._started_ns + elapsed_ns // _PERIOD_NS * _PERIOD_NS
        return None if tick_ns == self._measured_ns else tick_ns

    def _measurement(self) -> bytes:
        tick_ns = self._new_tick_ns()
        if tick_ns is None:
            return b""
        air = self._breathe(tick_ns)
        if air is None:
            raise OSError(121, "the sensor is dead")
        self._measured_ns = tick_ns
        return _words(
            _clip(air.co2_ppm),
            _clip((air.temperature_c + 45) / 175 * 65535),
            _clip(air.humidity_pct / 100 * 65535),
        )
