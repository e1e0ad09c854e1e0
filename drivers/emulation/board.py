"""A board whose chips, lines and pins stand in an environment and run beneath the real libraries.

- DHT11: its data line has 81 durations in µs, starting low, as Adafruit's bit-banging reader sees them.
  Source: DHT11 datasheet: 50 µs low before each bit, then 26-28 µs high for 0 or 70 µs for 1.
- I2C: a bus with emulated devices, as busio.I2C offers it.
- IIO: the kernel's devices, attributes whose texts are made from the environment's values.
- Outputs: a released pin keeps its level; other processes, and people, see it in a file too.
- 1-Wire: what w1_therm prints of each thermometer's nine bytes.
- gpsd: the line stream over a receiver that reports once a second of event time (gpsd_json(5)).
"""

from __future__ import annotations

import errno
import json
import logging
import threading
from array import array
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from drivers.ads1115 import adc_pins
from drivers.driver_type import I2cDevice, Remove, Volts, Words
from drivers.emulation.environment import SECOND_NS, Environment, Fault, Faults
from drivers.emulation.parts import (
    EmulatedAds1115,
    EmulatedCounter,
    EmulatedModbus,
    PulseTrain,
    pulse_frequency_hz,
)
from drivers.emulation.stepped_clock import SteppedClock
from drivers.generic.w1 import crc8
from drivers.hardware.bus_lock import SharedI2c
from drivers.hardware.modbus_line import ModbusLine, ModbusLines
from drivers.interface import (
    BoardError,
    EdgeCounter,
    FittedSensor,
    IioDevice,
    ModbusPort,
    OutputPin,
    Position,
    ReadError,
)
from drivers.registry import BrokenDriverError, driver_type, guarded

Locate = Callable[[int], Position | None]
"""Where the receiver is at an instant; None without a fix."""


class EmulatedGpsd:
    """One client's connection. Event time waits with its reader, so a wait for more times out at once."""

    def __init__(self, now_ns: Callable[[], int], locate: Locate) -> None:
        self._now_ns = now_ns
        self._locate = locate
        self._lines = [_line({"class": "VERSION", "release": "3.25", "proto_major": 3, "proto_minor": 15})]
        self._watching = False
        self._reported_ns = -1

    def write(self, line: bytes) -> None:
        """Take a request; ``?WATCH`` starts or ends the reports."""
        if line.startswith(b"?WATCH="):
            self._watching = bool(json.loads(line.removeprefix(b"?WATCH=")).get("enable", True))
            self._lines.append(
                _line({"class": "DEVICES", "devices": [{"class": "DEVICE", "path": "/dev/gps0"}]})
            )
            self._lines.append(_line({"class": "WATCH", "enable": self._watching, "json": True}))

    def readline(self, timeout_s: float) -> bytes:
        """The next line. Raises TimeoutError at once where there is none."""
        second_ns = self._now_ns() // SECOND_NS * SECOND_NS
        if not self._lines and self._watching and second_ns != self._reported_ns:
            self._reported_ns = second_ns
            self._lines.append(_report(second_ns, self._locate(second_ns)))
        if not self._lines:
            raise TimeoutError(f"nothing new within {timeout_s} s")
        return self._lines.pop(0)

    def close(self) -> None:
        """End the connection."""
        self._watching = False


def _report(time_ns: int, position: Position | None) -> bytes:
    time = datetime.fromtimestamp(time_ns // SECOND_NS, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    report: dict[str, object] = {"class": "TPV", "device": "/dev/gps0", "time": time}
    if position is None:
        return _line({**report, "mode": 1})
    latitude, longitude, altitude_m = position
    report |= {"mode": 2 if altitude_m is None else 3, "lat": latitude, "lon": longitude}
    if altitude_m is not None:
        report["altMSL"] = altitude_m
    return _line(report)


def _line(report: dict[str, object]) -> bytes:
    return json.dumps(report, separators=(",", ":")).encode() + b"\n"


Scratchpad = Callable[[], bytes | None]
"""A thermometer's nine bytes now; None where it is dead, and doesn't answer."""


class EmulatedW1:
    """Thermometers by their id."""

    def __init__(self) -> None:
        self.slaves: dict[str, Scratchpad] = {}
        self._right: dict[str, bytes] = {}

    def devices(self) -> tuple[str, ...]:
        """Those that answer, and the bus's own master."""
        return (*(device for device, slave in self.slaves.items() if slave() is not None), "w1_bus_master1")

    def read(self, device: str) -> str:
        """What ``w1_slave`` prints. Raises OSError where no such thermometer answers."""
        found = self.slaves[device]() if device in self.slaves else None
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", f"{device}/w1_slave")
        good = crc8(found[:8]) == found[8]
        if good:
            self._right[device] = found
        # The kernel does so too: it keeps the last bytes that were right.
        kept = self._right.get(device, bytes(9))
        millidegrees = int.from_bytes(kept[:2], "little", signed=True) * 1000 // 16
        words = f"{found.hex(' ')} : crc={crc8(found[:8]):02x} {'YES' if good else 'NO'}"
        return f"{words}\n{kept.hex(' ')} t={millidegrees}\n"


class OutputLevels:
    """Whether each pin that was ever driven is high, by BCM number."""

    def __init__(self, file: Path | None = None) -> None:
        """``file`` keeps the levels over the process's end. Raises BoardError where it is no such file."""
        self.high: dict[int, bool] = {}
        self.claimed: set[int] = set()
        self._file = file
        if file is not None and file.exists():
            try:
                self.high = {int(pin): bool(high) for pin, high in json.loads(file.read_text()).items()}
            except (OSError, ValueError, AttributeError) as error:
                raise BoardError(f"{file}: holds no pins' levels ({error}): delete it") from error

    def put(self, pin: int, *, high: bool) -> None:
        """Drive a pin. Raises BoardError."""
        self.high[pin] = high
        if self._file is None:
            return
        new = self._file.with_name(f"{self._file.name}.new")
        try:
            new.write_text(json.dumps(self.high) + "\n")
            new.replace(self._file)
        except OSError as error:
            raise BoardError(f"{self._file}: can't be written ({error.strerror})") from error


class EmulatedOutput:
    """One pin as an output."""

    def __init__(self, levels: OutputLevels, inputs: Container[int], pin: int, *, high: bool) -> None:
        """Claim the pin at a level; ``inputs`` are pins that are claimed otherwise. Raises BoardError."""
        if pin in inputs or pin in levels.claimed:
            raise BoardError(f"BCM pin {pin} is in use")
        self._levels = levels
        self._pin = pin
        levels.put(pin, high=high)
        levels.claimed.add(pin)

    def set(self, *, high: bool) -> None:
        """Drive a level. Raises BoardError."""
        self._levels.put(self._pin, high=high)

    def close(self) -> None:
        """Release the pin."""
        self._levels.claimed.discard(self._pin)


Attribute = Callable[[], str | None]
"""An attribute's text now; None where the sensor behind it is dead."""


class EmulatedIio:
    """Devices that come and go, each with its last attribute: one for each name and place."""

    def __init__(self) -> None:
        self._attributes: Mapping[tuple[IioDevice, str], Attribute] = {}

    def add(self, name: str, place: str | None, attributes: Mapping[str, Attribute]) -> Callable[[], None]:
        """Attributes of a device; calling the result removes them."""
        node = f"iio:{name}" if place is None else f"iio:{name}@{place}"
        device = IioDevice(node, name, (node,) if place is None else (place, node))
        added = {(device, attribute): text for attribute, text in attributes.items()}
        # A new mapping each time: a sampler may be iterating over the old one.
        self._attributes = {**self._attributes, **added}

        def remove() -> None:
            self._attributes = {key: text for key, text in self._attributes.items() if key not in added}

        return remove

    def devices(self) -> tuple[IioDevice, ...]:
        """The devices there are now."""
        return tuple(dict.fromkeys(device for device, _ in self._attributes))

    def attributes(self, node: str) -> tuple[str, ...]:
        """The names of a device's attributes. Raises OSError where it has gone."""
        found = sorted(attribute for device, attribute in self._attributes if device.node == node)
        if not found:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", node)
        return tuple(found)

    def read(self, node: str, attribute: str) -> str:
        """An attribute's text. Raises OSError as the kernel does: EIO where the sensor is dead."""
        for (device, name), text in self._attributes.items():
            if (device.node, name) == (node, attribute):
                found = text()
                if found is None:
                    raise OSError(errno.EIO, "Input/output error", f"{node}/{attribute}")
                return found
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", f"{node}/{attribute}")


class EmulatedI2c:
    """A bus over devices by address; an address without a device raises OSError like Linux does."""

    def __init__(self, devices: Mapping[int, I2cDevice]) -> None:
        self.devices = dict(devices)
        self._lock = threading.Lock()

    def try_lock(self) -> bool:
        """Lock the bus, if it is free."""
        return self._lock.acquire(blocking=False)

    def unlock(self) -> None:
        """Unlock the bus."""
        self._lock.release()

    def writeto(self, address: int, buffer: Any, *, start: int = 0, end: int | None = None) -> None:
        """Write bytes to a device."""
        self._device(address).write(bytes(buffer[start:end]))

    def readfrom_into(self, address: int, buffer: Any, *, start: int = 0, end: int | None = None) -> None:
        """Read bytes from a device."""
        stop = len(buffer) if end is None else end
        buffer[start:stop] = self._device(address).read(stop - start)

    def writeto_then_readfrom(
        self,
        address: int,
        out_buffer: Any,
        in_buffer: Any,
        *,
        out_start: int = 0,
        out_end: int | None = None,
        in_start: int = 0,
        in_end: int | None = None,
    ) -> None:
        """Write, then read, in one go."""
        self.writeto(address, out_buffer, start=out_start, end=out_end)
        self.readfrom_into(address, in_buffer, start=in_start, end=in_end)

    def _device(self, address: int) -> I2cDevice:
        device = self.devices.get(address)
        if device is None:
            raise OSError(121, f"no device answers at 0x{address:02x}")
        return device


_LOW_US, _ZERO_US, _ONE_US = 50, 27, 70
_SIGN: Final = 0x80

Air = tuple[float, float]
"""Temperature in °C and relative humidity in %."""


def dht11_frame(temperature_c: float, humidity_pct: float) -> bytes:
    """The five bytes of a conversion, to tenths; what a frame can't hold is clipped as the sensor does."""
    humidity_tenths = max(0, min(1000, round(humidity_pct * 10)))
    temperature_tenths = max(-1279, min(1279, round(temperature_c * 10)))
    humidity, humidity_rest = divmod(humidity_tenths, 10)
    temperature, temperature_rest = divmod(abs(temperature_tenths), 10)
    sign = _SIGN if temperature_tenths < 0 else 0
    body = bytes([humidity, humidity_rest, temperature, temperature_rest | sign])
    return body + bytes([sum(body) & 0xFF])


def frame_edges(frame: bytes) -> array[int]:
    """The line's durations for a frame, most significant bit first, with the closing low."""
    durations = array("H")
    for byte in frame:
        for bit in range(7, -1, -1):
            durations.append(_LOW_US)
            durations.append(_ONE_US if byte >> bit & 1 else _ZERO_US)
    durations.append(_LOW_US)
    return durations


class EmulatedDht11:
    """The sensor: each request reads the conversion begun by the one before and begins the next.

    The first request reads the conversion of power-up. Without air the line stays silent.
    """

    def __init__(self, power_up: Air | None, air: Callable[[], Air | None]) -> None:
        self._air = air
        self._converted = power_up
        self._lock = threading.Lock()

    def edges(self) -> array[int]:
        """The line's durations after a request."""
        with self._lock:
            answer, self._converted = self._converted, self._air()
        return array("H") if answer is None else frame_edges(dht11_frame(*answer))


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
