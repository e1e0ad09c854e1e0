"""What an emulated board has on its pins, its I2C bus and its serial lines.

An ADS1115 is emulated at the level of its registers, an SCD4x at that of its commands, a Modbus device at
that of its frames, a rotor by its whole pulses.

Unlike the real chip's an SCD4x's first measurement is ready at once: in lock-step no thread could wait 5 s
for it.

Sources: Texas Instruments' ADS1115 datasheet, SBAS444; Sensirion SCD4x datasheet, section 3.
"""

from __future__ import annotations

import errno
import math
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from drivers.ads1115 import adc_pins
from drivers.driver_type import Remove, Volts, Words
from drivers.emulation.environment import SECOND_NS
from drivers.interface import BoardError, Edges, ModbusPort

_CONVERSION, _CONFIG = 0, 1
_CONVERT: Final = 0x8000
_READY: Final = 0x8000
_POWER_UP_CONFIG: Final = 0x8583

_MUX_INPUTS: Final[tuple[int | str, ...]] = ("0-1", "0-3", "1-3", "2-3", 0, 1, 2, 3)
FLOATING_V: Final = 0.57
"""The voltage of a pin that nothing drives, as users of the chip report."""
_FULL_SCALE_V: Final = (6.144, 4.096, 2.048, 1.024, 0.512, 0.256, 0.256, 0.256)


def code_for(volts: float, full_scale_v: float) -> int:
    """The converter's output code: steps of full scale / 32768, clipped at full scale as the chip does."""
    return max(-32768, min(32767, round(volts / full_scale_v * 32768)))


class EmulatedAds1115:
    """The chip with a voltage source at each wired input; an unwired one reads 0 V, as if it were grounded.

    Conversions end at once. A dead sensor's input answers no conversion request, so that a driver notices.
    A ``loose`` pin's wire is broken while its function returns True: it floats, whatever is wired to it, or
    has the voltage of ``open_v`` where something at the chip ties it.
    """

    def __init__(self, inputs: Mapping[int | str, Volts]) -> None:
        self.loose: dict[int, Callable[[], bool]] = {}
        self.open_v: dict[int, float] = {}
        self.inputs = dict(inputs)
        self.brown_out()

    def brown_out(self) -> None:
        """Reset every register, as after a moment without supply."""
        self._registers = [0, _POWER_UP_CONFIG, 0x8000, 0x7FFF]
        self._pointer = _CONVERSION

    def write(self, sent: bytes) -> None:
        """Set the register pointer and, with two more bytes, the register."""
        if not sent:
            return
        self._pointer = sent[0] & 0x03
        if len(sent) < 3 or self._pointer == _CONVERSION:
            return
        word = int.from_bytes(sent[1:3], "big")
        if self._pointer == _CONFIG:
            if word & _CONVERT:
                self._convert(word)
            word |= _READY
        self._registers[self._pointer] = word

    def read(self, count: int) -> bytes:
        """The register pointed to."""
        return self._registers[self._pointer].to_bytes(2, "big")[:count]

    def _convert(self, config: int) -> None:
        code = code_for(self._volts(_MUX_INPUTS[config >> 12 & 0x07]), _FULL_SCALE_V[config >> 9 & 0x07])
        self._registers[_CONVERSION] = code & 0xFFFF

    def _floats(self, pin: int) -> bool:
        loose = self.loose.get(pin)
        return loose is not None and loose()

    def _volts(self, adc_input: int | str) -> float:
        pins = adc_pins(adc_input)
        positive, negative = self._floats(pins[0]), self._floats(pins[-1])
        if len(pins) == 1 and positive:
            return self.open_v.get(pins[0], FLOATING_V)
        if positive != negative:
            return FLOATING_V if positive else -FLOATING_V
        if positive:
            return 0.0
        source = self.inputs.get(adc_input)
        volts = source() if source is not None else 0.0
        if volts is None:
            raise OSError(121, "the sensor at this input is dead")
        return volts


_START: Final = 0x21B1
_STOP: Final = 0x3F86
_DATA_READY: Final = 0xE4B8
_READ: Final = 0xEC05
_SERIAL: Final = 0x3682
_VARIANT: Final = 0x202F
_PERSIST: Final = 0x3615
_PRESSURE: Final = 0xE000
_GETS: Final = {0x2313: "self_calibration", 0x2322: "altitude_m"}
_SETS: Final = {0x2416: "self_calibration", 0x2427: "altitude_m"}
_PERIOD_NS: Final = 5 * SECOND_NS
_READY_WORD, _NOT_READY_WORD = 0x8006, 0x8000
_SERIAL_WORDS: Final = (0xF896, 0x9F07, 0x3BBE)
_VARIANT_WORDS: Final = {"SCD40": 0x0440, "SCD41": 0x1408}
_OTHER_WORDS: Final = (0x6667, 0x5EB9)
"""25 °C and 37 %RH: no driver reads them."""


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


class EmulatedScd4x:
    """The chip; what it shows (ppm) is a function of event time (ns). None: it doesn't answer."""

    def __init__(
        self, now_ns: Callable[[], int], co2_ppm: Callable[[int], float | None], variant: str = "SCD41"
    ) -> None:
        self._now_ns = now_ns
        self._co2_ppm = co2_ppm
        self._variant = variant
        self._eeprom = {"self_calibration": 1, "altitude_m": 0, "pressure_hpa": 0}
        self.eeprom_writes = 0
        self.lose_power()

    def lose_power(self) -> None:
        """Cut the supply for a moment: the chip is idle then, with what its EEPROM holds."""
        self._started_ns: int | None = None
        self._measured_ns: int | None = None
        self._reply = b""
        self.settings = dict(self._eeprom)

    def write(self, sent: bytes) -> None:
        """Take a command. Raises OSError on those that need an idle sensor, and without air."""
        if len(sent) < 2:
            return
        command, argument = int.from_bytes(sent[:2], "big"), sent[2:]
        self._reply = b""
        if argument and (len(argument) != 3 or crc8(argument[:2]) != argument[2]):
            raise OSError(121, f"command 0x{command:04x}: a damaged argument")
        value = int.from_bytes(argument[:2], "big")
        if command == _STOP:
            self._started_ns = None
        elif command == _DATA_READY:
            self._reply = _words(_NOT_READY_WORD if self._new_tick_ns() is None else _READY_WORD)
        elif command == _READ:
            self._reply = self._measurement()
        elif command == _PRESSURE:
            self.settings["pressure_hpa"] = value
        elif self._started_ns is not None:
            raise OSError(121, "the sensor takes no such command while it measures")
        elif command == _START:
            self._started_ns, self._measured_ns = self._now_ns(), None
        else:
            self._idle_command(command, value)

    def _idle_command(self, command: int, value: int) -> None:
        if command == _SERIAL:
            self._reply = _words(*_SERIAL_WORDS)
        elif command == _VARIANT:
            self._reply = _words(_VARIANT_WORDS[self._variant])
        elif command == _PERSIST:
            self._eeprom = dict(self.settings)
            self.eeprom_writes += 1
        elif command in _GETS:
            self._reply = _words(self.settings[_GETS[command]])
        elif command in _SETS:
            self.settings[_SETS[command]] = value
        else:
            raise OSError(121, f"command 0x{command:04x} isn't emulated")

    def read(self, count: int) -> bytes:
        """The last command's reply. Raises OSError where there is none."""
        if len(self._reply) < count:
            raise OSError(121, "the sensor has no data")
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
        co2_ppm = self._co2_ppm(tick_ns)
        if co2_ppm is None:
            raise OSError(121, "the sensor is dead")
        self._measured_ns = tick_ns
        return _words(max(0, min(0xFFFF, round(co2_ppm))), *_OTHER_WORDS)


_WHOLE_TOLERANCE: Final = 1e-3
"""Pulses in a piece this near to a whole number are meant to be it: files print speeds with few digits."""


def pulse_frequency_hz(speed_mps: float, slope: float, offset: float, piece_ns: int) -> float:
    """The frequency in Hz behind a speed (slope in m/s per Hz, offset in m/s) that holds for a piece.

    Zero at and below the offset, where the cup rests. A frequency whose pulses in the piece are whole within
    rounding is made exactly so.
    """
    frequency_hz = (speed_mps - offset) / slope
    if frequency_hz <= 0:
        return 0.0
    pulses = frequency_hz * piece_ns / SECOND_NS
    whole = round(pulses)
    return whole * SECOND_NS / piece_ns if abs(pulses - whole) < _WHOLE_TOLERANCE else frequency_hz


class PulseTrain:
    """Counts a rotor's pulses: what doesn't make up a whole one is carried over, so no turn is lost."""

    def __init__(self) -> None:
        self._carry = 0.0

    def advance(self, frequency_hz: float, duration_ns: int) -> int:
        """Whole pulses of the next ``duration_ns``; the sum stays within half a pulse of the exact phase."""
        phase = self._carry + frequency_hz * duration_ns / SECOND_NS
        pulses = math.floor(phase + 0.5)
        self._carry = phase - pulses
        return pulses

    def instants(self, frequency_hz: float, duration_ns: int) -> list[int]:
        """The pulses of ``advance``, each in ns since the duration's begin."""
        carry = self._carry
        return [
            round((number + 0.5 - carry) / frequency_hz * SECOND_NS)
            for number in range(self.advance(frequency_hz, duration_ns))
        ]


class EmulatedCounter:
    """Counts the edges that the board makes on one pin: ``pins`` has those that are claimed."""

    method = "emulated edges"
    timed = True

    def __init__(
        self,
        pins: dict[int, EmulatedCounter],
        pin: int,
        levels: Mapping[int, Callable[[], bool]] = MappingProxyType({}),
    ) -> None:
        """Claim the pin. Raises BoardError where it is taken. ``levels`` are of pins that have one."""
        if pins.setdefault(pin, self) is not self:
            raise BoardError(f"BCM pin {pin} is in use")
        self._pins = pins
        self._pin = pin
        self._levels = levels
        self._count = self._taken = 0
        self._losses = self._taken_losses = 0
        self._times_ns: deque[int] = deque()

    def fall(self, times: int) -> None:
        """Make edges."""
        self._count += times

    def fall_at(self, times_ns: Sequence[int]) -> None:
        """Make edges at these times."""
        self._times_ns.extend(times_ns)
        self._count += len(times_ns)

    def lose(self) -> None:
        """Note that edges are unknown for a while."""
        self._losses += 1

    def take(self) -> Edges:
        """The edges since the call before."""
        # Snapshots, for the thread that moves the clock may make edges meanwhile.
        count, losses = self._count, self._losses
        times_ns = [self._times_ns.popleft() for _ in range(len(self._times_ns))]
        edges = Edges(count - self._taken, losses != self._taken_losses, times_ns)
        self._taken, self._taken_losses = count, losses
        return edges

    def total(self) -> int:
        """All edges since the pin was claimed."""
        return self._count

    def is_high(self) -> bool:
        """The pin's own level; else True: a pull-up, and no magnet before the switch."""
        level = self._levels.get(self._pin)
        return level is None or level()

    def close(self) -> None:
        """Release the pin."""
        if self._pins.get(self._pin) is self:
            del self._pins[self._pin]


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
