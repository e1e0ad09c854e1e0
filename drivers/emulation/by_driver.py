"""How each driver's hardware is emulated: its transfer function inverted.

From the world's physical values to pulses, converter codes, data frames and reports. A driver that isn't
built in brings its own (``DriverType.emulate``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from drivers.ads1115 import AdcOptions
from drivers.bp20 import Bp20Options
from drivers.dht11 import Dht11Options
from drivers.emulation.ads1115 import Volts
from drivers.emulation.dht import EmulatedDht11, Weather
from drivers.emulation.hardware import Bench, Emulation, Rotor, TakeOff
from drivers.emulation.iio import Attribute
from drivers.emulation.pulse_train import PulseTrain
from drivers.emulation.scd4x import Air, EmulatedScd4x
from drivers.gpsd import EARTH_RADIUS_M, Fix, GpsdOptions
from drivers.hall_anemometer import HallAnemometerOptions
from drivers.iio import IioChannel, IioOptions, Stem
from drivers.interface import FittedSensor
from drivers.pyranometer import PyranometerOptions
from drivers.registry import UnknownDriverError, driver_type
from drivers.scd4x import Scd4xOptions


def emulation(driver: str) -> Emulation | None:
    """How a driver's hardware is emulated; None where nobody knows."""
    try:
        return driver_type(driver).emulate or _BUILT_IN.get(driver)
    except UnknownDriverError:
        return None


def _hall_anemometer(bench: Bench, sensor: FittedSensor) -> TakeOff:
    options: HallAnemometerOptions = sensor.options
    channel = f"{sensor.name}.wind_speed"
    return bench.put_rotor(Rotor(channel, options.pin, options.slope, options.offset, PulseTrain()))


def _dht11(bench: Bench, sensor: FittedSensor) -> TakeOff:
    options: Dht11Options = sensor.options

    def weather() -> Weather | None:
        temperature = bench.value(f"{sensor.name}.temperature")
        humidity = bench.value(f"{sensor.name}.humidity")
        return None if temperature is None or humidity is None else (temperature, humidity)

    edges = EmulatedDht11(weather(), weather).edges
    return bench.put_dht(options.pin, bench.faults.edges(sensor.name, edges, bench.now_ns))


def _bp20(bench: Bench, sensor: FittedSensor) -> TakeOff:
    options: Bp20Options = sensor.options

    def volts() -> float | None:
        kpa = bench.value(f"{sensor.name}.pressure")
        return None if kpa is None else (kpa - options.offset) / options.slope / options.divider

    take_off = _put_voltage(bench, sensor, options.adc, volts)
    supply = options.supply
    if supply is None:
        return take_off
    take_off_supply = bench.put_voltage(
        options.adc.address, supply.input, lambda: supply.nominal_v / supply.divider
    )

    def take_both_off() -> None:
        take_off_supply()
        take_off()

    return take_both_off


def _pyranometer(bench: Bench, sensor: FittedSensor) -> TakeOff:
    options: PyranometerOptions = sensor.options

    def volts() -> float | None:
        wm2 = bench.value(f"{sensor.name}.irradiance")
        return None if wm2 is None else (wm2 - options.offset) / options.slope

    return _put_voltage(bench, sensor, options.adc, volts)


def _put_voltage(bench: Bench, sensor: FittedSensor, adc: AdcOptions, volts: Volts) -> TakeOff:
    """A sensor's voltage at its input, with what goes wrong on the way."""
    seen = bench.faults.volts(sensor.name, volts, bench.now_ns)
    return bench.put_voltage(adc.address, adc.input, seen, bench.faults.loose(sensor.name, bench.now_ns))


def _scd4x(bench: Bench, sensor: FittedSensor) -> TakeOff:
    options: Scd4xOptions = sensor.options

    def air(time_ns: int) -> Air | None:
        co2 = bench.value(f"{sensor.name}.co2", time_ns)
        # Only the CO2 is read; the words beside it carry an ordinary day.
        return None if co2 is None else Air(co2, 20.0, 50.0)

    return bench.put_chip(options.address, EmulatedScd4x(bench.now_ns, air, options.variant))


def _gpsd(bench: Bench, sensor: FittedSensor) -> TakeOff:
    """North of the configured position by the metres the world gives."""
    options: GpsdOptions = sensor.options

    def locate(time_ns: int) -> Fix | None:
        metres = bench.value(f"{sensor.name}.location", time_ns)
        if metres is None or options.latitude is None or options.longitude is None:
            return None
        return Fix(options.latitude + math.degrees(metres / EARTH_RADIUS_M), options.longitude, None)

    return bench.put_receiver(options.host, options.port, locate)


def _iio(bench: Bench, sensor: FittedSensor) -> TakeOff:
    """As the kernel's drivers do: a converter (±6.144 V) tells code and scale, others the quantity."""
    options: IioOptions = sensor.options
    attributes: dict[str, Attribute] = {}
    for chosen in options.channels:
        stem = Stem.of(chosen.attribute)
        number = partial(_iio_number, bench, f"{sensor.name}.{chosen.quantity}", chosen, stem)
        if stem.kind.startswith("in_voltage"):
            scale_mv = _IIO_SCALES_MV.get(options.device, 0.1875)
            attributes[f"{stem.name}_raw"] = partial(_iio_text, number, scale_mv, "d")
            attributes[f"{stem.name}_scale"] = partial(str, scale_mv)
        else:
            attributes[f"{stem.name}_input"] = partial(_iio_text, number, 1.0, ".9f")
    return bench.iio.put(options.device, options.where, attributes)


_IIO_SCALES_MV: Final = {"ads1015": 3.0, "ads1115": 0.1875}


def _iio_number(bench: Bench, channel: str, chosen: IioChannel, stem: Stem) -> float | None:
    value = bench.value(channel)
    return None if value is None else (value - chosen.offset) / (chosen.slope or 1.0) / stem.factor


def _iio_text(number: Callable[[], float | None], scale: float, form: str) -> str | None:
    figure = number()
    if figure is None:
        return None
    return format(round(figure / scale) if form == "d" else figure / scale, form)


_BUILT_IN: Final[Mapping[str, Emulation]] = {
    "bp20": _bp20,
    "dht11": _dht11,
    "gpsd": _gpsd,
    "hall-anemometer": _hall_anemometer,
    "iio": _iio,
    "pyranometer": _pyranometer,
    "scd4x": _scd4x,
}
