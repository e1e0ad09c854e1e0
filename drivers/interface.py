"""Drivers, the boards they run on, and their errors."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable


class DriverError(Exception):
    """Root of everything a driver or a board raises on purpose."""


class ReadError(DriverError):
    """The sensor sent no usable answer this time; the next read may succeed."""


class ChecksumError(ReadError):
    """The sensor answered, and the answer is damaged."""


class SilentError(ReadError):
    """Nothing answers: each further request would keep a shared line busy until its time-out."""


class BoardError(DriverError):
    """The board can't be opened or has no such bus, pin or file; the message includes the remedy."""


class Quantity(Protocol):
    """What is measured, as the config has it by name: one that is built in, or one of its own."""

    @property
    def name(self) -> str:
        """The name that stands in channels' names and topics."""

    @property
    def unit(self) -> str:
        """UCUM where it has one."""

    @property
    def kind(self) -> str:
        """How its values are put together: linear, direction, accumulated, state, position."""

    @property
    def lower(self) -> float:
        """The least that can occur, in ``unit``."""

    @property
    def upper(self) -> float:
        """The most that can occur, in ``unit``."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One quantity of a sensor: its unit, the raw unit beneath it, the sensor's own range in ``unit``.

    ``accuracy`` is the datasheet's ± in ``unit``, None where a calibration decides.
    """

    quantity: str
    unit: str
    raw_unit: str
    lower: float
    upper: float
    accuracy: float | None = None

    @classmethod
    def of(
        cls, quantity: Quantity, raw_unit: str, lower: float | None = None, upper: float | None = None
    ) -> Channel:
        """The channel of a configured quantity, whose range holds where the sensor's own isn't given."""
        lower = quantity.lower if lower is None else lower
        return cls(quantity.name, quantity.unit, raw_unit, lower, quantity.upper if upper is None else upper)


Position = tuple[float, float, float | None]
"""Latitude and longitude in degrees (WGS 84), altitude in metres above mean sea level where it is known."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One channel, read once: raw as the sensor sent it, value in the channel's unit; never clamped.

    ``position`` is given where the channel is a location.
    ``reasons`` are words of the wire contract for what the driver itself finds wrong (OVER_RANGE of a
    converter, WARMING_UP, NOISY); the quality tests decide on the flag.
    """

    quantity: str
    value: float
    raw: float
    position: Position | None = None
    reasons: tuple[str, ...] = ()


class Driver(Protocol):
    """One sensor. Its constructor touches no hardware; ``start`` does, again after ``stop`` too."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels of every read, in order."""

    @property
    def accumulates(self) -> bool:
        """True where a reading covers the time since the one before (pulses): read at a period's end."""

    def start(self) -> None:
        """Claim pins and buses. Raises BoardError."""

    def read(self) -> tuple[Measurement, ...]:
        """One measurement for each channel. Raises ReadError, ChecksumError."""

    def stop(self) -> None:
        """Release what ``start`` claimed; safe to call twice."""


@runtime_checkable
class DescribesItself(Protocol):
    """A driver whose sensor reports properties of its own."""

    def description(self) -> dict[str, str | float | bool]:
        """Properties read at ``start``, as serial number and self-calibration; empty before."""


@runtime_checkable
class AnswersLate(Protocol):
    """A driver whose sensor answers with the measurement that the previous request began (DHT11)."""

    def prime(self) -> None:
        """Begin a measurement, to be read ``DriverType.retry_after_s`` later. Raises ReadError."""


@runtime_checkable
class Diagnoses(Protocol):
    """A driver that recognises wiring faults."""

    def diagnose(self) -> tuple[str, ...]:
        """Wiring faults present now, each as a plain sentence; empty where none is found.

        Between ``start`` and ``stop``, from the sensor's own thread, best after a few reads. It takes no
        measurement and changes none. Never raises.
        """


@runtime_checkable
class Compensated(Protocol):
    """A driver whose sensor needs the value of another one."""

    def compensate(self, quantity: str, value: float) -> None:
        """The latest good value of a quantity the driver needs, in its unit; before a read, by its thread."""


class Located(Protocol):
    """Where a gateway stands, as far as it is configured."""

    @property
    def latitude(self) -> float | None:
        """Degrees north."""

    @property
    def longitude(self) -> float | None:
        """Degrees east."""

    @property
    def elevation_m(self) -> float | None:
        """Metres above sea level."""


class Clock(Protocol):
    """The board's time. Samplers join before they start and leave when they end."""

    @property
    def synced(self) -> bool:
        """True once event time can be trusted."""

    def now_ns(self) -> int:
        """Event time, nanoseconds since 1970-01-01T00:00Z."""

    def offset_ns(self) -> int:
        """Event time less the time since boot, in nanoseconds: changes only where the clock is set."""

    def monotonic(self) -> float:
        """Seconds that only grow, on the time base the sensors live in."""

    def join(self) -> None:
        """Count one more sampler: a stepped clock moves only when all of them wait."""

    def leave(self) -> None:
        """Count one sampler less."""

    def covers(self, start_ns: int, end_ns: int) -> bool:
        """False where the period reaches beyond the end of a replay."""

    def wait_until(
        self, time_ns: int, offset_ns: int | None = None, unless: threading.Event | None = None
    ) -> bool:
        """Block until event time has come; False when it never will (stopped, or beyond the end).

        Also ends where the clock is set while it waits, or was set since its offset was ``offset_ns``. False
        once ``unless`` is set, too, within a second or at the next ``wake``.
        """

    def wake(self) -> None:
        """Make every waiter check its ``unless``."""

    def stop(self) -> None:
        """Wake every waiter with False."""


@dataclass(frozen=True, slots=True)
class Edges:
    """The falling edges of a pin since the previous ``take``.

    ``lost``: there were more, an unknown number. ``times_ns`` are the monotonic times of the latest of them
    without a gap, as the kernel stamped them in its interrupt; empty where it doesn't. ``crowded``: some came
    closer together than the kernel can separate; they are counted.
    """

    count: int
    lost: bool = False
    times_ns: Sequence[int] = ()
    crowded: bool = False


@runtime_checkable
class CountsPulses(Protocol):
    """A driver whose pulses can be read while they are counted: a cup that is spun by hand."""

    def pulses(self) -> int:
        """The pulse count since ``start``, 0 before it. Any thread; no reading changes. Raises ReadError."""


class EdgeCounter(Protocol):
    """Counts the falling edges of one pin from its construction on. One thread calls ``take``."""

    method: str
    """How it counts, in words."""
    timed: bool
    """Whether each edge has a time."""

    def take(self) -> Edges:
        """The edges since the previous call. Raises ReadError."""

    def total(self) -> int:
        """All edges since its construction; ``take`` isn't affected. Any thread. Raises ReadError."""

    def is_high(self) -> bool:
        """The pin's level now. Raises ReadError."""

    def close(self) -> None:
        """Release the pin; safe to call twice."""


class W1(Protocol):
    """The kernel's 1-Wire bus."""

    def devices(self) -> tuple[str, ...]:
        """The ids of the devices there are now, as 28-0316a2794cff."""

    def read(self, device: str) -> str:
        """What the kernel prints of a thermometer (``w1_slave``), measured now. Raises OSError."""


class I2cBus(Protocol):
    """busio.I2C, as far as the Adafruit drivers use it. All raise OSError where no device answers."""

    def try_lock(self) -> bool:
        """Lock the bus."""

    def unlock(self) -> None:
        """Unlock the bus."""

    @property
    def writeto(self) -> Callable[..., None]:
        """Write a buffer to an address; ``start`` and ``end`` choose a part of it."""

    @property
    def readfrom_into(self) -> Callable[..., None]:
        """Read from an address into a buffer; ``start`` and ``end`` choose a part of it."""

    @property
    def writeto_then_readfrom(self) -> Callable[..., None]:
        """Both in one transaction, with ``out_start``, ``out_end``, ``in_start``, ``in_end``."""


class LineStream(Protocol):
    """A connection that carries lines (gpsd)."""

    def write(self, line: bytes) -> None:
        """Send one line."""

    def readline(self, timeout_s: float) -> bytes:
        """The next line, empty at the end. Raises TimeoutError."""

    def close(self) -> None:
        """End the connection."""


@dataclass(frozen=True, slots=True)
class IioDevice:
    """A device of the kernel: ``name`` as in its driver (``ads1015``), ``node`` its directory now.

    ``places`` distinguish devices of one name: its label, the chip on its bus (``1-0048``), its node in the
    device tree.
    """

    node: str
    name: str
    places: tuple[str, ...] = ()


class Iio(Protocol):
    """The kernel's IIO devices: sensors that have a kernel driver."""

    def devices(self) -> tuple[IioDevice, ...]:
        """The devices there are now."""

    def attributes(self, node: str) -> tuple[str, ...]:
        """The names of a device's attributes. Raises OSError where it has gone."""

    def read(self, node: str, attribute: str) -> str:
        """An attribute's text, measured now. Raises OSError with the kernel driver's error."""


BITS: Final = ("coil", "discrete")
"""The Modbus tables of single bits."""


class ByteStream(Protocol):
    """A connection that carries frames (Modbus). All raise OSError once it has ended."""

    def write(self, sent: bytes) -> None:
        """Send a frame; what was received before it is dropped."""

    def read(self, timeout_s: float) -> bytes:
        """What has come, or comes within the time; else empty."""

    def close(self) -> None:
        """End the connection."""


@dataclass(frozen=True, slots=True)
class ModbusPort:
    """Where Modbus devices are: a serial ``device`` with its line settings, or a ``host`` and TCP port."""

    device: str | None
    host: str | None = None
    port: int = 502
    rtu_over_tcp: bool = False
    baudrate: int = 19_200
    parity: str = "even"
    stop_bits: int = 1
    any_ids: bool = False

    @property
    def rtu(self) -> bool:
        """Whether frames have a CRC, and not the header of Modbus TCP."""
        return self.device is not None or self.rtu_over_tcp

    @property
    def name(self) -> str:
        """The device's path, or host:port."""
        return self.device or f"{self.host}:{self.port}"

    @property
    def character_s(self) -> float:
        """Seconds that a byte takes on a serial line, 0 over TCP: start, eight, parity and stop bits."""
        bits = 9 + (self.parity != "none") + self.stop_bits
        return 0.0 if self.device is None else bits / self.baudrate


class ModbusRegisters(Protocol):
    """The devices on one line."""

    def read_registers(
        self, unit_id: int, table: str, address: int, count: int, timeout_s: float
    ) -> tuple[int, ...]:
        """The words of adjacent registers, of the table "holding" or "input", addresses from 0.

        Words of "coil" and "discrete" are single bits.

        Raises SilentError, ChecksumError, ReadError.
        """

    def close(self) -> None:
        """End the connection; the next request makes a new one."""


class OutputPin(Protocol):
    """A pin that is driven."""

    def set(self, *, high: bool) -> None:
        """Drive a level. Raises BoardError."""

    def close(self) -> None:
        """Release the pin; what it does then is the hardware's."""


class Board(Protocol):
    """The hardware a driver runs on. Emulated boards run beneath the same libraries as the real one."""

    @property
    def clock(self) -> Clock | None:
        """The board's own clock, or None where the machine's is right."""

    def monotonic(self) -> float:
        """The clock's monotonic seconds, or the machine's: drivers divide pulses by them."""

    def count_edges(self, pin: int) -> EdgeCounter:
        """Claim a pin (BCM) as an input with pull-up and count its falling edges. Raises BoardError."""

    def drive(self, pin: int, *, high: bool, pull_up: bool) -> OutputPin:
        """Claim a pin (BCM) as an output at a level; released it is pulled up, or down. Raises BoardError."""

    def pin_user(self, pin: int) -> str | None:
        """Who has claimed a pin (BCM) that is to be driven; None where it is free. Raises BoardError."""

    def i2c(self) -> I2cBus:
        """The I2C bus with the sensors."""

    def dht_edges(self, pin: int) -> Callable[[], array[int]] | None:
        """Replaces adafruit_dht's edge timing (81 durations in µs, starting low); None on a real pin."""

    def w1(self) -> W1:
        """The kernel's 1-Wire bus."""

    def connect_gpsd(self, host: str, port: int) -> LineStream:
        """A connection to gpsd. Raises ReadError."""

    def iio(self) -> Iio:
        """The kernel's IIO devices."""

    def modbus(self, port: ModbusPort) -> ModbusRegisters:
        """The Modbus devices at a port; connected at the first request. Raises BoardError."""

    def refit(self, sensors: Sequence[FittedSensor]) -> Callable[[], None]:
        """Check another set of sensors; calling the result makes the change. Raises BoardError.

        Sensors that stay as they are aren't affected. Those that go, or change, must be stopped before.
        """

    def close(self) -> None:
        """Release the buses."""


@dataclass(frozen=True, slots=True)
class FittedSensor:
    """A sensor as wired to a board: what an emulated board needs. ``options`` is the driver's own."""

    name: str
    driver: str
    options: Any
    channels: tuple[Channel, ...] = field(default=())
    height_m: float | None = None
