"""A board whose chips, lines and pins stand in a world and run beneath the real libraries.

Each fitted sensor's transfer function is inverted here: from the world's physical values to pulses, converter
codes, data frames and reports.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from drivers.boards.emulated_ads1115 import EmulatedAds1115, Volts
from drivers.boards.emulated_dht import EmulatedDht11, Weather
from drivers.boards.emulated_gpio import EmulatedGpio
from drivers.boards.emulated_gpsd import EmulatedGpsd, Locate
from drivers.boards.emulated_i2c import EmulatedI2c, I2cDevice
from drivers.boards.emulated_scd4x import Air, EmulatedScd4x
from drivers.boards.pulse_train import PulseTrain, pulse_frequency_hz
from drivers.boards.stepped_clock import SteppedClock
from drivers.boards.world import World
from drivers.bp20 import Bp20Options
from drivers.dht11 import Dht11Options
from drivers.driver_type import Claim
from drivers.gpsd import EARTH_RADIUS_M, Fix, GpsdOptions
from drivers.hall_anemometer import HallAnemometerOptions
from drivers.interface import BoardError, FittedSensor, ReadError
from drivers.pyranometer import PyranometerOptions
from drivers.registry import driver_type
from drivers.scd4x import Scd4xOptions

_EMULATED: Final = (
    HallAnemometerOptions, Dht11Options, Bp20Options, PyranometerOptions, Scd4xOptions, GpsdOptions,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Rotor:
    channel: str
    options: HallAnemometerOptions
    train: PulseTrain


class EmulatedBoard:
    """The sensors' hardware, emulated; the board owns the clock."""

    def __init__(
        self, world: World, sensors: Sequence[FittedSensor], clock: Callable[[Crossing], SteppedClock]
    ) -> None:
        """Wire the sensors. Raises BoardError where two of them share a pin, an input or an address."""
        self._world = world
        self._gpio = EmulatedGpio()
        self._rotors: list[_Rotor] = []
        self._dhts: dict[int, EmulatedDht11] = {}
        self._receivers: dict[tuple[str, int], Locate] = {}
        self._adc_inputs: dict[int, dict[int | str, Volts]] = {}
        self._scd4xs: dict[int, EmulatedScd4x] = {}
        self._adcs: dict[int, EmulatedAds1115] = {}
        self._i2c = EmulatedI2c({})
        self._fitted: dict[str, FittedSensor] = {}
        self._clock = clock(self._cross)
        _check_claims(sensors)
        self._change(sensors)

    @property
    def clock(self) -> SteppedClock:
        """The world's time."""
        return self._clock

    def monotonic(self) -> float:
        """Event seconds since the world's start."""
        return self._clock.monotonic()

    def gpio(self) -> EmulatedGpio:
        """The pins."""
        return self._gpio

    def i2c(self) -> EmulatedI2c:
        """The bus."""
        return self._i2c

    def dht_edges(self, pin: int) -> Callable[[], array[int]]:
        """The data line of the DHT11 at a pin; silent where none is fitted."""
        dht = self._dhts.get(pin)
        return dht.edges if dht is not None else lambda: array("H")

    def connect_gpsd(self, host: str, port: int) -> EmulatedGpsd:
        """A connection to the emulated gpsd. Raises ReadError where no receiver is fitted."""
        locate = self._receivers.get((host, port))
        if locate is None:
            raise ReadError(f"no gpsd listens at {host}:{port}")
        return EmulatedGpsd(self._clock.now_ns, locate)

    def refit(self, sensors: Sequence[FittedSensor]) -> Callable[[], None]:
        """Check another set of sensors; what it gives rewires. Raises BoardError.

        The others' chips and pulse trains go on as they are.
        """
        _check_claims(sensors)
        change_world = self._world.refit(sensors)

        def change() -> None:
            change_world()
            self._change(sensors)

        return change

    def close(self) -> None:
        """Stop the clock."""
        self._clock.stop()

    def _now(self, channel: str) -> float | None:
        return self._world.value(channel, self._clock.now_ns())

    def _change(self, sensors: Sequence[FittedSensor]) -> None:
        new = {sensor.name: sensor for sensor in sensors}
        for name, sensor in self._fitted.items():
            if new.get(name) != sensor:
                self._unfit(sensor)
        for name, sensor in new.items():
            if self._fitted.get(name) != sensor:
                self._fit(sensor)
        self._fitted = new
        adcs: dict[int, EmulatedAds1115] = {}
        for address, inputs in self._adc_inputs.items():
            if inputs:
                adcs[address] = self._adcs.get(address) or EmulatedAds1115(inputs)
                adcs[address].rewire(inputs)
        self._adcs = adcs
        chips: Mapping[int, I2cDevice] = adcs
        self._i2c.rewire({**chips, **self._scd4xs})

    def _fit(self, sensor: FittedSensor) -> None:
        options = sensor.options
        match options:
            case HallAnemometerOptions():
                # A new list, for the clock may be going through the old one.
                self._rotors = [*self._rotors, _Rotor(f"{sensor.name}.wind_speed", options, PulseTrain())]
            case Dht11Options():
                self._dhts[options.pin] = self._dht(sensor)
            case Bp20Options():
                volts = self._bp20_volts(f"{sensor.name}.pressure", options)
                self._adc_inputs.setdefault(options.adc.address, {})[options.adc.input] = volts
            case PyranometerOptions():
                volts = self._pyranometer_volts(f"{sensor.name}.irradiance", options)
                self._adc_inputs.setdefault(options.adc.address, {})[options.adc.input] = volts
            case Scd4xOptions():
                self._scd4xs[options.address] = EmulatedScd4x(self._clock.now_ns, self._air(sensor))
            case GpsdOptions():
                self._receivers[options.host, options.port] = self._locate(sensor, options)

    def _unfit(self, sensor: FittedSensor) -> None:
        options = sensor.options
        match options:
            case HallAnemometerOptions():
                channel = f"{sensor.name}.wind_speed"
                self._rotors = [rotor for rotor in self._rotors if rotor.channel != channel]
            case Dht11Options():
                del self._dhts[options.pin]
            case Bp20Options() | PyranometerOptions():
                del self._adc_inputs[options.adc.address][options.adc.input]
            case Scd4xOptions():
                del self._scd4xs[options.address]
            case GpsdOptions():
                del self._receivers[options.host, options.port]

    def _bp20_volts(self, channel: str, options: Bp20Options) -> Volts:
        def volts() -> float | None:
            kpa = self._now(channel)
            return None if kpa is None else (kpa - options.offset) / options.slope / options.divider

        return volts

    def _pyranometer_volts(self, channel: str, options: PyranometerOptions) -> Volts:
        def volts() -> float | None:
            wm2 = self._now(channel)
            return None if wm2 is None else (wm2 - options.offset) / options.slope

        return volts

    def _dht(self, sensor: FittedSensor) -> EmulatedDht11:
        def weather(time_ns: int) -> Weather | None:
            temperature = self._world.value(f"{sensor.name}.temperature", time_ns)
            humidity = self._world.value(f"{sensor.name}.humidity", time_ns)
            return None if temperature is None or humidity is None else (temperature, humidity)

        return EmulatedDht11(weather(self._clock.now_ns()), lambda: weather(self._clock.now_ns()))

    def _air(self, sensor: FittedSensor) -> Callable[[int], Air | None]:
        def air(time_ns: int) -> Air | None:
            co2 = self._world.value(f"{sensor.name}.co2", time_ns)
            # Only the CO2 is read; the words beside it carry an ordinary day.
            return None if co2 is None else Air(co2, 20.0, 50.0)

        return air

    def _locate(self, sensor: FittedSensor, options: GpsdOptions) -> Locate:
        """North of the configured position by the metres the world gives."""

        def locate(time_ns: int) -> Fix | None:
            metres = self._world.value(f"{sensor.name}.location", time_ns)
            if metres is None or options.latitude is None or options.longitude is None:
                return None
            return Fix(options.latitude + math.degrees(metres / EARTH_RADIUS_M), options.longitude, None)

        return locate

    def _cross(self, start_ns: int, end_ns: int) -> None:
        """Make the pulses of [start, end), piece by piece."""
        while start_ns < end_ns and self._rotors:
            piece_start_ns, piece_end_ns = self._world.piece(start_ns)
            until_ns = min(end_ns, piece_end_ns)
            for rotor in self._rotors:
                speed = self._world.value(rotor.channel, start_ns)
                pin = rotor.options.pin
                if speed is None:
                    self._gpio.lose(pin)
                    continue
                frequency_hz = pulse_frequency_hz(
                    speed, rotor.options.slope, rotor.options.offset, piece_end_ns - piece_start_ns
                )
                self._gpio.fall(pin, rotor.train.advance(frequency_hz, until_ns - start_ns))
            start_ns = until_ns


def _check_claims(sensors: Sequence[FittedSensor]) -> None:
    """Raise BoardError where two sensors share a part of the board, or one can't be emulated."""
    taken: list[tuple[Claim, str]] = []
    for sensor in sensors:
        if not isinstance(sensor.options, _EMULATED):
            raise BoardError(f"sensor {sensor.name!r}: driver {sensor.driver!r} can't be emulated")
        claims = tuple(driver_type(sensor.driver).claims(sensor.options))
        for claim in claims:
            for other, owner in taken:
                if claim.clashes(other):
                    raise BoardError(f"sensors {owner!r} and {sensor.name!r} are both wired to {claim.part}")
        taken += ((claim, sensor.name) for claim in claims)


Crossing = Callable[[int, int], None]
