"""A driver's description: its options, channels, claims and emulation, before any sensor is opened."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from drivers.interface import (
    Board,
    Channel,
    Driver,
    DriverError,
    FittedSensor,
    Located,
    ModbusPort,
    Position,
    Quantity,
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A part of the board that a sensor occupies (``BCM pin 17``), and the configuration key that sets it.

    Two sensors may claim the same part only where both name the same chip in ``shared``.
    """

    part: str
    key: tuple[str, ...]
    shared: str | None = None

    def clashes(self, other: Claim) -> bool:
        """Whether both can't be wired at once."""
        return self.part == other.part and (self.shared is None or self.shared != other.shared)


@dataclass(frozen=True, slots=True)
class Concern:
    """A valid setting that is likely a mistake; ``key`` is relative to the sensor's table."""

    key: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Need:
    """A reading of another sensor that a driver needs (``Compensated``); ``key`` names that sensor."""

    key: tuple[str, ...]
    sensor: str
    quantity: str


@dataclass(frozen=True, slots=True)
class Nameplate:
    """A sensor's common options that ``concerns`` depend on."""

    model: str | None = None
    serial: str | None = None
    interval_s: float = 1.0
    boom_deg: float | None = None


class OptionError(DriverError):
    """An option can't be used here; ``key`` is relative to the sensor's table, positions count from 0."""

    def __init__(self, key: tuple[str | int, ...], message: str) -> None:
        self.key = key
        self.message = message
        super().__init__(f"{'.'.join(map(str, key))}: {message}")


def refuse_sum(quantity: Quantity, key: tuple[str | int, ...]) -> None:
    """Raises OptionError for a quantity that is summed up, which no reading of the moment is a part of."""
    if quantity.kind == "accumulated":
        raise OptionError(
            key,
            f"{quantity.name} is summed up, and this reads a value of the moment, a running total perhaps:"
            ' each would be added; use driver = "pulse" or "modbus", or a linear [[quantity]] of your own',
        )


@dataclass(frozen=True, slots=True)
class IndividualCalibration:
    """Each such sensor needs a calibration of its own every ``months``; ``why`` is the standard."""

    months: int
    why: str


class I2cDevice(Protocol):
    """An emulated chip at one I2C address."""

    def write(self, sent: bytes) -> None:
        """Receive what the master sends. Raises OSError where the chip doesn't acknowledge."""

    def read(self, count: int) -> bytes:
        """The chip's next bytes. Raises OSError where it doesn't acknowledge."""


Words = Callable[[], Mapping[tuple[str, int], int] | None]
"""Words of an emulated Modbus device by table and address; None: it doesn't answer."""

Volts = Callable[[], float | None]
"""Voltage at an input of a converter now; None where the sensor behind it is dead."""

Remove = Callable[[], None]
"""Takes an emulated sensor, or a part of it, off its board."""


class EmulatedHardware(Protocol):
    """What a simulated or replay board offers to ``DriverType.emulate``.

    The environment's values are physical, in the channel's unit; None where it has none: the sensor is then
    dead. Faults of the configuration that name ``sensor`` act on what it adds.
    """

    def now_ns(self) -> int:
        """Event time, nanoseconds since 1970-01-01T00:00Z."""

    def value(self, channel: str, time_ns: int | None = None) -> float | None:
        """The environment's value of ``sensor.quantity``, now or at an instant."""

    def accumulated(self, channel: str, start_ns: int, end_ns: int) -> float:
        """What an accumulated quantity adds between two instants of event time."""

    def add_chip(self, address: int, chip: I2cDevice) -> Remove:
        """A chip on the I2C bus."""

    def add_voltage(
        self,
        address: int,
        adc_input: int | str,
        volts: Volts,
        sensor: str | None = None,
        open_v: float | None = None,
    ) -> Remove:
        """A voltage at an input of the ADS1115 at an address; the chip is there while an input is wired.

        ``open_v`` is what the input sees while its wire is off: of a shunt or a pull-down; else it floats.
        """

    def add_pulses(
        self,
        channel: str,
        pin: int,
        slope: float,
        offset: float,
        *,
        accumulated: bool = False,
        bounces_s: Sequence[float] = (),
    ) -> Remove:
        """Pulses on a pin: the value of ``channel`` = slope · Hz + offset.

        ``accumulated``: slope · pulses, each of the value's periods having its own. After each pulse the
        contact bounces: so many s later there is another edge.
        """

    def add_level(self, pin: int, is_high: Callable[[], bool]) -> Remove:
        """A pin's level, where a sensor's output is one rather than pulses."""

    def add_dht11(self, sensor: str, pin: int, air: Callable[[], tuple[float, float] | None]) -> Remove:
        """A DHT11 on a pin, in air of some °C and %RH."""

    def add_receiver(self, host: str, port: int, locate: Callable[[int], Position | None]) -> Remove:
        """A gpsd whose receiver is at a position that is a function of event time (ns)."""

    def add_modbus(self, port: ModbusPort, unit_id: int, words: Words, sensor: str) -> Remove:
        """Registers of a Modbus device; several sensors may be one device."""

    def add_iio(
        self, name: str, place: str | None, attributes: Mapping[str, Callable[[], str | None]]
    ) -> Remove:
        """Attributes of a kernel IIO device: their texts, read at each access."""

    def add_w1(self, device: str, scratchpad: Callable[[], bytes | None], sensor: str) -> Remove:
        """A thermometer on the kernel's 1-Wire bus, by its nine bytes at each reading."""


Emulation = Callable[[EmulatedHardware, FittedSensor], Remove]
"""Adds a sensor to a simulated or replay board; what it returns removes the sensor again."""


WIRING: Final = frozenset({"pin", "address", "host", "port", "adc.address", "adc.input"})
"""Names of options for where a sensor is connected: they change no value."""


@dataclass(frozen=True, slots=True)
class DriverType:
    """A driver by name: its configuration keys, what it measures and how to make one.

    ``options`` is a frozen dataclass whose annotations carry the bounds; ``min_interval_s`` is the shortest
    interval the sensor can be read at; ``longest_read_s`` what a read takes at most, waits and time-outs
    included: one that lasts longer hangs; ``retry_after_s`` the least between two requests, after which one
    that failed may be made again within its period (None: not worth it). ``make`` touches no hardware and
    takes an instance of ``options``, as do ``claims`` (the parts of the board it occupies) and ``concerns``
    (what is likely a mistake).
    ``channels`` are the same for every such sensor, or depend on its options: ``channels_of`` serves both.
    ``settle`` returns the options completed with the gateway's place (None where that is invalid), or raises
    OptionError. ``emulate`` adds the sensor to a simulated or replay board, its transfer function
    inverted; None: it runs on real boards only.

    ``needs`` names other sensors' readings that the driver receives before each read. ``rests_at`` is what a
    sensor of one channel reads in a calm, None where that is unknown.

    The calibration record needs these: ``shaping`` returns the dataclasses whose fields shape one quantity's
    value (all options, unless channels have tables of their own); ``slope`` and ``offset`` in them are the
    transfer function. ``wiring`` names those (nested ones with dots) that change no value, ``individual`` is
    for sensors that need a certificate each. All others that don't have their default are part of a
    calibration's name, so a default never changes: what is to work differently gets a new key.
    """

    name: str
    options: type[Any]
    channels: tuple[Channel, ...] | Callable[[Any], tuple[Channel, ...]]
    min_interval_s: float
    make: Callable[[Board, Any], Driver]
    claims: Callable[[Any], Iterable[Claim]] = lambda _options: ()
    concerns: Callable[[Any, Nameplate], Iterable[Concern]] = lambda _options, _nameplate: ()
    settle: Callable[[Any, Located | None], Any] = lambda options, _site: options
    emulate: Emulation | None = None
    longest_read_s: float = 5.0
    retry_after_s: float | None = None
    shaping: Callable[[Any, str], Iterable[Any]] = lambda options, _quantity: (options,)
    wiring: Collection[str] = WIRING
    individual: IndividualCalibration | None = None
    needs: Callable[[Any], Iterable[Need]] = lambda _options: ()
    rests_at: Callable[[Any], float | None] = lambda _options: None

    def channels_of(self, options: Any) -> tuple[Channel, ...]:
        """What a sensor with these options measures."""
        return self.channels(options) if callable(self.channels) else self.channels
