"""The emulated hardware that sensors are fitted to: pins, a bus, data lines, receivers; and the world around.

An emulation (``emulations.py``, or a driver's own) reads the world's physical values and puts what its driver
reads onto the bench. Every ``put_…`` gives the function that takes the same thing off again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from drivers.ads1115 import adc_pins
from drivers.emulation.ads1115 import EmulatedAds1115, Volts
from drivers.emulation.environment import World
from drivers.emulation.faults import Faults
from drivers.emulation.gpio import EmulatedGpio
from drivers.emulation.gpsd import EmulatedGpsd, Locate
from drivers.emulation.i2c import EmulatedI2c, I2cDevice
from drivers.emulation.iio import EmulatedIio
from drivers.emulation.pulse_train import PulseTrain, pulse_frequency_hz
from drivers.interface import FittedSensor, ReadError

TakeOff = Callable[[], None]
"""Takes a sensor, or a part of it, off the bench."""


@dataclass(frozen=True, slots=True, eq=False)
class Rotor:
    """A cup on a pin: wind speed (m/s) of ``channel`` = slope · Hz + offset."""

    channel: str
    pin: int
    slope: float
    offset: float
    train: PulseTrain


class Bench:
    """Owned by its board. Fitting happens while the sensors concerned are stopped; the others go on."""

    def __init__(self, world: World, now_ns: Callable[[], int], faults: Faults) -> None:
        self.gpio = EmulatedGpio()
        self.i2c = EmulatedI2c({})
        self.iio = EmulatedIio()
        self.now_ns = now_ns
        self.faults = faults
        self._world = world
        self._rotors: list[Rotor] = []
        self._dhts: dict[int, Callable[[], array[int]]] = {}
        self._receivers: dict[tuple[str, int], Locate] = {}
        self._chips: dict[int, I2cDevice] = {}
        self._adc_inputs: dict[int, dict[int | str, Volts]] = {}
        self._adcs: dict[int, EmulatedAds1115] = {}

    def value(self, channel: str, time_ns: int | None = None) -> float | None:
        """The world's physical value of ``sensor.quantity``, now or at an instant; None where it has none."""
        return self._world.value(channel, self.now_ns() if time_ns is None else time_ns)

    def put_rotor(self, rotor: Rotor) -> TakeOff:
        """A cup whose pulses fall on a pin."""
        # A new list each time, for the clock may be going through the old one.
        self._rotors = [*self._rotors, rotor]

        def take_off() -> None:
            self._rotors = [other for other in self._rotors if other is not rotor]

        return take_off

    def put_dht(self, pin: int, edges: Callable[[], array[int]]) -> TakeOff:
        """A DHT's data line on a pin."""
        self._dhts[pin] = edges

        def take_off() -> None:
            del self._dhts[pin]

        return take_off

    def put_receiver(self, host: str, port: int, locate: Locate) -> TakeOff:
        """A gpsd with a receiver."""
        self._receivers[host, port] = locate

        def take_off() -> None:
            del self._receivers[host, port]

        return take_off

    def put_chip(self, address: int, chip: I2cDevice) -> TakeOff:
        """A chip on the I2C bus."""
        self._chips[address] = chip
        self._rewire()

        def take_off() -> None:
            del self._chips[address]
            self._rewire()

        return take_off

    def put_voltage(
        self, address: int, adc_input: int | str, volts: Volts, loose: Callable[[], bool] | None = None
    ) -> TakeOff:
        """A voltage at an input of the ADS1115 at an address; the chip is there while an input is wired.

        ``loose`` tells whether its wires are off just now.
        """
        inputs = self._adc_inputs.setdefault(address, {})
        inputs[adc_input] = volts
        if address not in self._adcs:
            self._adcs[address] = EmulatedAds1115(inputs)
        self._rewire()
        loose_pins = dict.fromkeys(adc_pins(adc_input), loose) if loose is not None else {}
        self._adcs[address].loose |= loose_pins

        def take_off() -> None:
            del inputs[adc_input]
            for pin in loose_pins:
                del self._adcs[address].loose[pin]
            self._rewire()

        return take_off

    def dht_edges(self, pin: int) -> Callable[[], array[int]]:
        """The data line of the DHT at a pin; silent where none is fitted."""
        return self._dhts.get(pin) or (lambda: array("H"))

    def connect_gpsd(self, host: str, port: int) -> EmulatedGpsd:
        """A connection to the emulated gpsd. Raises ReadError where no receiver is fitted."""
        locate = self._receivers.get((host, port))
        if locate is None:
            raise ReadError(f"no gpsd listens at {host}:{port}")
        return EmulatedGpsd(self.now_ns, locate)

    def cross(self, start_ns: int, end_ns: int) -> None:
        """Make the pulses of [start, end), piece by piece."""
        while start_ns < end_ns and self._rotors:
            piece_start_ns, piece_end_ns = self._world.piece(start_ns)
            until_ns = min(end_ns, piece_end_ns)
            for rotor in self._rotors:
                speed = self._world.value(rotor.channel, start_ns)
                if speed is None:
                    self.gpio.lose(rotor.pin)
                    continue
                frequency_hz = pulse_frequency_hz(
                    speed, rotor.slope, rotor.offset, piece_end_ns - piece_start_ns
                )
                sensor = rotor.channel.rpartition(".")[0]
                frequency_hz *= self.faults.turning(sensor, start_ns)
                strays = self.faults.stray_pulses(sensor, start_ns, until_ns)
                self.gpio.fall(rotor.pin, rotor.train.advance(frequency_hz, until_ns - start_ns) + strays)
            start_ns = until_ns

    def _rewire(self) -> None:
        adcs = {address: adc for address, adc in self._adcs.items() if self._adc_inputs[address]}
        for address, adc in adcs.items():
            adc.rewire(self._adc_inputs[address])
        self.i2c.rewire({**adcs, **self._chips})


Emulation = Callable[[Bench, FittedSensor], TakeOff]
"""Fits a sensor to the bench; what it gives takes the sensor off again."""
