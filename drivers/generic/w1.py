"""DS18B20 thermometers on the kernel's 1-Wire bus, through its driver w1_therm.

Reading ``w1_slave`` makes the kernel measure (0.75 s at 12 bits) and prints the chip's nine bytes with their
checksum; on a wrong one the temperature beside it is an earlier one: the bytes alone count. A chip that
lost its supply since, or had too little of it, answers with what its registers have then: no temperature.

Sources: Linux, Documentation/w1/slaves/w1_therm.rst and ABI/testing/sysfs-driver-w1_therm; Maxim, DS18B20
data sheet 19-7487 (85 degrees C at power-on, ±0.5 from -10 to 85).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from drivers.driver_type import Claim, DriverType, EmulatedHardware, OptionError, Remove
from drivers.interface import (
    W1,
    Board,
    BoardError,
    Channel,
    ChecksumError,
    FittedSensor,
    Located,
    Measurement,
    ReadError,
)
from drivers.option_docs import Meaning, MeasuredQuantity

FAMILIES: Final = ("28", "22", "3b", "42")
"""Chips with these registers: DS18B20, DS1822, DS1825, DS28EA00."""
_POWER_ON: Final = 0x0550
_UNDERPOWERED: Final = 0x07FF
_DEVICE: Final = re.compile(rf"({'|'.join(FAMILIES)})-[0-9a-f]{{12}}")
_BYTES: Final = re.compile(r"((?:[0-9a-f]{2} ){9}): crc=")
_LOWEST_C: Final = -55.0
_HIGHEST_C: Final = 125.0
_NONE: Final = (
    "no thermometer answers on a 1-Wire bus: check its wires, and 4.7 kOhm from the data wire to 3.3 V;"
    " on a Raspberry Pi dtoverlay=w1-gpio in config.txt loads the driver (BCM pin 4; another with gpiopin=)"
)


@dataclass(frozen=True, slots=True)
class W1Options:
    """Which thermometer, and what it measures."""

    quantity: MeasuredQuantity
    device: Annotated[
        str | None, Meaning("its id, as 28-0316a2794cff in /sys/bus/w1/devices; the only one unless given")
    ] = None


def crc8(data: bytes) -> int:
    """Maxim's checksum: x^8 + x^5 + x^4 + 1, lowest bit first. Source: Maxim's application note 27."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x8C if crc & 1 else 0)
    return crc


def scratchpad_of(text: str) -> bytes:
    """The nine bytes that ``w1_slave`` prints. Raises ReadError, ChecksumError."""
    match = _BYTES.match(text)
    if match is None:
        raise ReadError(f"w1_slave prints {text[:40]!r}, no bytes of a thermometer")
    found = bytes.fromhex(match[1])
    if crc8(found[:8]) != found[8]:
        raise ChecksumError(f"checksum of {found.hex()} is wrong")
    return found


def temperature_c(scratchpad: bytes) -> float:
    """The temperature in °C of nine bytes whose checksum is right. Raises ReadError where they have none.

    Bits that the chip's resolution doesn't define (9 to 12 bits, byte 4) are left out.
    """
    # A DS1825 has its address in the low bits.
    if scratchpad[4] & 0x90 != 0x10:
        raise ReadError(
            "it has the registers of a thermocouple's converter, not of a thermometer"
            if scratchpad[4] & 0x80
            else "only zeros: the data wire is shorted to ground"
        )
    code = int.from_bytes(scratchpad[:2], "little", signed=True)
    if code == _POWER_ON:
        raise ReadError("85 °C, which it has at power-on: its supply broke down before it had measured")
    if code == _UNDERPOWERED:
        raise ReadError("127.94 °C, which it has where its supply is too weak: give it one of its own")
    undefined = 3 - (scratchpad[4] >> 5 & 3)
    return (code >> undefined << undefined) / 16


def scratchpad_with(celsius: float) -> bytes:
    """The nine bytes of a chip at 12 bits: ``temperature_c`` inverted."""
    code = max(-55 * 16, min(125 * 16, round(celsius * 16)))
    data = code.to_bytes(2, "little", signed=True) + bytes(
        (0x4B, 0x46, 0x7F, 0xFF, 0x10 - (code & 0x0F), 0x10)
    )
    return data + bytes((crc8(data),))


def channels(options: W1Options) -> tuple[Channel, ...]:
    """Its one channel: what both the chip and the quantity can be."""
    lower, upper = max(_LOWEST_C, options.quantity.lower), min(_HIGHEST_C, options.quantity.upper)
    return (Channel(options.quantity.name, options.quantity.unit, "Cel", lower, upper, accuracy=0.5),)


class W1Thermometer:
    """One thermometer; raw is its temperature."""

    accumulates = False

    def __init__(self, board: Board, options: W1Options) -> None:
        self.channels = channels(options)
        self._board = board
        self._options = options
        self._bus: W1 | None = None
        self._device = ""
        self._fault: str | None = None

    def start(self) -> None:
        """Find the thermometer. Raises BoardError, which lists those that are there."""
        bus = self._board.w1()
        there = [device for device in bus.devices() if _DEVICE.fullmatch(device)]
        wanted = self._options.device
        if not there:
            raise BoardError(_NONE)
        others = ", ".join(there)
        if wanted is None and len(there) > 1:
            raise BoardError(f"there are {len(there)} thermometers: set device to one of {others}")
        if wanted is not None and wanted not in there:
            raise BoardError(f"no thermometer {wanted} answers: check its wires; there are {others}")
        self._bus, self._device = bus, wanted or there[0]

    def read(self) -> tuple[Measurement, ...]:
        """The temperature now. Raises ReadError, ChecksumError."""
        if self._bus is None:
            raise ReadError("the thermometer isn't started")
        self._fault = None
        try:
            celsius = temperature_c(scratchpad_of(self._bus.read(self._device)))
        except OSError as error:
            gone = error.errno in (errno.ENOENT, errno.ENODEV)
            self._fault = (
                "it has gone from the bus: check its wires" if gone else str(error.strerror or error)
            )
        except ReadError as error:
            self._fault = str(error)
            if isinstance(error, ChecksumError):
                raise ChecksumError(f"{self._device}: {error}") from error
        else:
            return (Measurement(self._options.quantity.name, celsius, celsius),)
        raise ReadError(f"{self._device}: {self._fault}")

    def stop(self) -> None:
        """Nothing is open between reads."""
        self._bus = self._fault = None

    def diagnose(self) -> tuple[str, ...]:
        """What was wrong with the last read."""
        return () if self._fault is None else (f"{self._device}: {self._fault}.",)


def settle(options: W1Options, _site: Located | None) -> W1Options:
    """The options as they are. Raises OptionError where this chip doesn't measure the quantity."""
    if options.quantity.unit != "Cel":
        name, unit = options.quantity.name, options.quantity.unit
        raise OptionError(("quantity",), f"{name} is in {unit}, and a thermometer measures Cel")
    if options.device is not None and not _DEVICE.fullmatch(options.device):
        families = ", ".join(FAMILIES)
        raise OptionError(
            ("device",), f"must be as in /sys/bus/w1/devices, 28-0316a2794cff; families {families}"
        )
    return options


def claims(options: W1Options) -> Iterator[Claim]:
    """The thermometer: two sensors that read one would be the same temperature twice."""
    yield Claim(f"1-Wire thermometer {options.device or ''}".rstrip(), ("device",))


def emulate(hardware: EmulatedHardware, sensor: FittedSensor) -> Remove:
    """The chip's nine bytes at the environment's temperature."""
    options: W1Options = sensor.options

    def scratchpad() -> bytes | None:
        celsius = hardware.value(f"{sensor.name}.{options.quantity.name}")
        return None if celsius is None else scratchpad_with(celsius)

    return hardware.add_w1(options.device or "28-000000000000", scratchpad, sensor.name)


TYPE = DriverType(
    "w1",
    W1Options,
    channels,
    1.0,
    W1Thermometer,
    claims,
    settle=settle,
    emulate=emulate,
    # The kernel repeats a conversion whose checksum is wrong.
    longest_read_s=10.0,
    wiring=frozenset({"device"}),
)
