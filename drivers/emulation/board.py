"""A board whose chips, lines and pins stand in an environment and run beneath the real libraries."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drivers.ads1115 import adc_pins
from drivers.driver_type import I2cDevice, Remove, Words
from drivers.emulation.ads1115 import EmulatedAds1115, Volts
from drivers.emulation.dht import Air, EmulatedDht11
from drivers.emulation.environment import SECOND_NS, Environment
from drivers.emulation.faults import Fault, Faults
from drivers.emulation.gpio import EmulatedCounter, PulseTrain, pulse_frequency_hz
from drivers.emulation.gpsd import EmulatedGpsd, Locate
from drivers.emulation.i2c import EmulatedI2c
from drivers.emulation.iio import Attribute, EmulatedIio
from drivers.emulation.modbus import EmulatedModbus
from drivers.emulation.outputs import EmulatedOutput, OutputLevels
from drivers.emulation.stepped_clock import SteppedClock
from drivers.emulation.w1 import EmulatedW1, Scratchpad
from drivers.generic.modbus_port import ModbusPort
from drivers.hardware.bus_lock import SharedI2c
from drivers.hardware.modbus_line import ModbusLine, ModbusLines
from drivers.interface import EdgeCounter, FittedSensor, OutputPin, ReadError
from drivers.registry import BrokenDriverError, driver_type, guarded

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Pulses:
    """Pulses on a pin: the value of ``channel`` = slope · Hz + offset, or slope · pulses of a piece."""

    channel: str
    pin: int
    slope: float
    offset: float
    accumulated: bool
    bounces_s: Sequence[float]
    train: PulseTrain = field(default_factory=PulseTrain)

    def frequency_hz(self, value: float, piece_ns: int) -> float:
        """The frequency behind a value that holds for a piece."""
        per_hz = self.slope * (piece_ns / SECOND_NS if self.accumulated else 1.0)
        return pulse_frequency_hz(value, per_hz, self.offset, piece_ns)

    def edges_ns(self, frequency_hz: float, duration_ns: int) -> list[int]:
        """The pulses of a duration and their bounces, in ns since its begin."""
        after_ns = [0, *(round(bounce_s * SECOND_NS) for bounce_s in self.bounces_s)]
        instants = self.train.instants(frequency_hz, duration_ns)
        return sorted(instant + after for instant in instants for after in after_ns)


class EmulatedBoard:
    """The sensors' hardware, emulated (``EmulatedHardware``); the board owns the clock.

    Sensors are added and removed while their samplers are stopped; the others go on.
    """

    def __init__(
        self,
        environment: Environment,
        sensors: Sequence[FittedSensor],
        speed: float,
        faults: Sequence[Fault] = (),
        *,
        now_ns: Callable[[], int] | None = None,
        anchor_s: float | None = None,
        pins_file: Path | None = None,
    ) -> None:
        """Add the sensors; that no two share a pin, an input or an address, the config's check has seen.

        ``speed``, ``now_ns`` and ``anchor_s`` are the clock's (``SteppedClock``). Driven pins' levels are
        kept in ``pins_file``.
        """
        self._environment = environment
        self._faults = Faults(faults, environment.start_ns)
        self._counters: dict[int, EmulatedCounter] = {}
        self.outputs = OutputLevels(pins_file)
        self._w1 = EmulatedW1()
        self._levels: dict[int, Callable[[], bool]] = {}
        self._i2c = EmulatedI2c({})
        self._shared_i2c = SharedI2c(self._i2c)
        self._iio = EmulatedIio()
        self._pulses: list[_Pulses] = []
        self._modbus = EmulatedModbus()
        self._modbus_lines = ModbusLines(self._modbus.connect)
        self._dhts: dict[int, Callable[[], array[int]]] = {}
        self._receivers: dict[tuple[str, int], Locate] = {}
        self._adcs: dict[int, EmulatedAds1115] = {}
        self._fitted: dict[str, tuple[FittedSensor, Remove]] = {}
        start_ns, end_ns = environment.start_ns, environment.end_ns
        self.clock = SteppedClock(start_ns, end_ns, speed, self._cross, now_ns, anchor_s)
        self.now_ns = self.clock.now_ns
        self.monotonic = self.clock.monotonic
        self._change(sensors)

    def count_edges(self, pin: int) -> EdgeCounter:
        """Count a pin's falling edges. Raises BoardError where the pin is taken."""
        return EmulatedCounter(self._counters, pin, self._levels)

    def drive(self, pin: int, *, high: bool, pull_up: bool) -> OutputPin:
        """Drive a pin, which keeps its level. Raises BoardError where it is taken."""
        return EmulatedOutput(self.outputs, self._counters, pin, high=high)

    def pin_user(self, pin: int) -> str | None:
        """Within this process."""
        return "this process" if pin in self._counters or pin in self.outputs.claimed else None

    def i2c(self) -> SharedI2c:
        """The bus."""
        return self._shared_i2c

    def dht_edges(self, pin: int) -> Callable[[], array[int]]:
        """The data line of the DHT11 at a pin; silent where none is fitted."""
        return self._dhts.get(pin) or (lambda: array("H"))

    def w1(self) -> EmulatedW1:
        """The kernel's 1-Wire bus."""
        return self._w1

    def connect_gpsd(self, host: str, port: int) -> EmulatedGpsd:
        """A connection to the emulated gpsd. Raises ReadError where no receiver is fitted."""
        locate = self._receivers.get((host, port))
        if locate is None:
            raise ReadError(f"no gpsd listens at {host}:{port}")
        return EmulatedGpsd(self.now_ns, locate)

    def iio(self) -> EmulatedIio:
        """The kernel's IIO devices."""
        return self._iio

    def modbus(self, port: ModbusPort) -> ModbusLine:
        """The Modbus devices at a port."""
        return self._modbus_lines.line(port)

    def refit(self, sensors: Sequence[FittedSensor]) -> Callable[[], None]:
        """Check another set of sensors; those that stay keep their chips and pulse trains."""
        change_environment = self._environment.refit(sensors)

        def change() -> None:
            change_environment()
            self._change(sensors)

        return change

    def close(self) -> None:
        """Stop the clock."""
        self.clock.stop()

    # What drivers' emulations use.

    def value(self, channel: str, time_ns: int | None = None) -> float | None:
        """The environment's value of ``sensor.quantity``, now or at an instant; None where it has none."""
        return self._environment.value(channel, self.now_ns() if time_ns is None else time_ns)

    def accumulated(self, channel: str, start_ns: int, end_ns: int) -> float:
        """What an accumulated quantity adds between two instants; a piece's value spreads evenly over it."""
        total = 0.0
        while start_ns < end_ns:
            piece_start_ns, piece_end_ns = self._environment.piece(start_ns)
            until_ns = min(end_ns, piece_end_ns)
            share = (until_ns - start_ns) / (piece_end_ns - piece_start_ns)
            total += share * (self._environment.value(channel, start_ns) or 0.0)
            start_ns = until_ns
        return total

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
        """Pulses that fall on a pin."""
        added = _Pulses(channel, pin, slope, offset, accumulated, bounces_s)
        # A new list each time: the clock may be iterating over the old one.
        self._pulses = [*self._pulses, added]

        def remove() -> None:
            self._pulses = [other for other in self._pulses if other is not added]

        return remove

    def add_level(self, pin: int, is_high: Callable[[], bool]) -> Remove:
        """A pin's level."""
        self._levels[pin] = is_high
        return lambda: self._levels.__delitem__(pin)

    def add_dht11(self, sensor: str, pin: int, air: Callable[[], Air | None]) -> Remove:
        """A DHT11's data line on a pin."""
        edges = EmulatedDht11(air(), air).edges
        self._dhts[pin] = self._faults.edges(sensor, edges, self.now_ns)
        return lambda: self._dhts.__delitem__(pin)

    def add_w1(self, device: str, scratchpad: Scratchpad, sensor: str) -> Remove:
        """A thermometer on the kernel's 1-Wire bus."""
        self._w1.slaves[device] = self._faults.scratchpad(sensor, scratchpad, self.now_ns)
        return lambda: self._w1.slaves.__delitem__(device)

    def add_receiver(self, host: str, port: int, locate: Locate) -> Remove:
        """A gpsd with a receiver."""
        self._receivers[host, port] = locate
        return lambda: self._receivers.__delitem__((host, port))

    def add_iio(self, name: str, place: str | None, attributes: Mapping[str, Attribute]) -> Remove:
        """Attributes of an IIO device."""
        return self._iio.add(name, place, attributes)

    def add_modbus(self, port: ModbusPort, unit_id: int, words: Words, sensor: str) -> Remove:
        """Registers of a Modbus device."""
        loose = self._faults.loose(sensor, self.now_ns)
        return self._modbus.add(
            port,
            unit_id,
            lambda: None if loose() else words(),
            lambda: self._faults.errs(sensor, self.now_ns()),
        )

    def add_chip(self, address: int, chip: I2cDevice) -> Remove:
        """A chip on the I2C bus."""
        self._i2c.devices[address] = chip
        return lambda: self._i2c.devices.__delitem__(address)

    def add_voltage(
        self,
        address: int,
        adc_input: int | str,
        volts: Volts,
        sensor: str | None = None,
        open_v: float | None = None,
    ) -> Remove:
        """A voltage at an input of the ADS1115 at an address; the chip is there while an input is wired."""
        loose_pins: dict[int, Callable[[], bool]] = {}
        if sensor is not None:
            volts = self._faults.volts(sensor, volts, self.now_ns)
            loose_pins = dict.fromkeys(adc_pins(adc_input), self._faults.loose(sensor, self.now_ns))
        # A chip whose last sensor goes and comes back has the registers it had.
        adc = self._i2c.devices[address] = self._adcs.setdefault(address, EmulatedAds1115({}))
        adc.inputs[adc_input] = volts
        adc.loose |= loose_pins
        if open_v is not None:
            adc.open_v[adc_pins(adc_input)[0]] = open_v

        def remove() -> None:
            del adc.inputs[adc_input]
            adc.open_v.pop(adc_pins(adc_input)[0], None)
            for pin in loose_pins:
                del adc.loose[pin]
            if not adc.inputs:
                del self._i2c.devices[address]

        return remove

    def _cross(self, start_ns: int, end_ns: int) -> None:
        """Make the pulses of [start, end), piece by piece; called by the clock before it moves."""
        while start_ns < end_ns and self._pulses:
            piece_start_ns, piece_end_ns = self._environment.piece(start_ns)
            until_ns = min(end_ns, piece_end_ns)
            for each in self._pulses:
                counter = self._counters.get(each.pin)
                value = self._environment.value(each.channel, start_ns)
                if value is None:
                    if counter is not None:
                        counter.lose()
                    continue
                sensor = each.channel.rpartition(".")[0]
                frequency_hz = each.frequency_hz(value, piece_end_ns - piece_start_ns)
                frequency_hz *= self._faults.turning(sensor, start_ns)
                strays = self._faults.stray_pulses(sensor, start_ns, until_ns)
                if each.bounces_s:
                    edges_ns = each.edges_ns(frequency_hz, until_ns - start_ns)
                    if counter is not None:
                        counter.fall_at([start_ns + edge_ns for edge_ns in (*edges_ns, *range(strays))])
                    continue
                pulses = each.train.advance(frequency_hz, until_ns - start_ns) + strays
                if counter is not None:
                    counter.fall(pulses)
            start_ns = until_ns

    def _change(self, sensors: Sequence[FittedSensor]) -> None:
        new = {sensor.name: sensor for sensor in sensors}
        fitted: dict[str, tuple[FittedSensor, Remove]] = {}
        for name, (sensor, remove) in self._fitted.items():
            if new.get(name) == sensor:
                fitted[name] = sensor, remove
            else:
                remove()
        for name, sensor in new.items():
            emulate = driver_type(sensor.driver).emulate
            if name in fitted or emulate is None:
                continue
            try:
                with guarded(sensor.driver):
                    fitted[name] = sensor, emulate(self, sensor)
            except BrokenDriverError as error:
                # This sensor's driver finds no hardware then; the others have theirs.
                log.error("event=emulation.broken sensor=%s error=%s", name, error)
        self._fitted = fitted
