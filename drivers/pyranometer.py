"""Silicon pyranometer: 10 µV per W/m², 0 to 2 kW/m², on a differential ADS1115 input.

At ±0.256 V a converter step is 7.8 µV, that is 0.78 W/m². Where the sensor is unplugged both inputs float
together: their difference is about 0, as at night. So the inputs' voltages to ground are measured too, every
few seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Final

from annotated_types import Ge, Gt, Le

from drivers.ads1115 import (
    ADC_WIRING,
    FLOATING_V,
    FULL_SCALE_V,
    RETRY_AFTER_S,
    AdcGain,
    AdcInput,
    AdcOptions,
    AdcPins,
    adc_claims,
    adc_concerns,
    adc_pins,
)
from drivers.driver_type import Concern, DriverType, EmulatedHardware, Nameplate, Remove
from drivers.interface import Board, Channel, FittedSensor, Measurement, ReadError
from drivers.option_docs import Meaning

CHANNEL = Channel("irradiance", "W/m2", "V", -10.0, 2000.0)
"""A few W/m² below zero are normal at night: the sensor then radiates to the sky."""

DATASHEET_SLOPE: Final = 100_000.0
_FAR_SLOPE: Final = 0.25
"""Silicon cells differ by some per cent; more is another sensor, or an amplifier."""
_ADC_STEPS: Final = 1 << 15
_COARSE_WM2: Final = 2.0
"""A step above this hides what a silicon pyranometer shows: at 0.256 V it is 0.78 W/m2."""
_CHECK_EVERY_S: Final = 10.0
_NEAR_SUPPLY_V: Final = 0.1


@dataclass(frozen=True, slots=True)
class PyranometerAdcOptions(AdcOptions):
    """A converter input with this sensor's own defaults: a table that gives one key keeps the rest."""

    input: Annotated[AdcPins, Meaning("one input, or two for the difference between them")] = "2-3"
    gain: Annotated[AdcGain, Meaning("full scale; one step is its 32,768th part")] = "0.256V"


@dataclass(frozen=True, slots=True)
class PyranometerOptions:
    """Wiring and transfer function E = slope·V + offset (W/m² per V, W/m²)."""

    adc: Annotated[PyranometerAdcOptions, Meaning("the converter input the sensor is wired to")] = field(
        default_factory=PyranometerAdcOptions
    )
    slope: Annotated[float, Gt(0), Le(10_000_000), Meaning("of the transfer function", "W/m2 per V")] = (
        DATASHEET_SLOPE
    )
    offset: Annotated[float, Ge(-100), Le(100), Meaning("of the transfer function", "W/m2")] = 0.0
    open_check: Annotated[bool, Meaning("see whether a differential input is connected at all")] = True


def irradiance_wm2(sensor_v: float, options: PyranometerOptions) -> float:
    """Global irradiance in W/m² from the sensor's output in V; never clamped to 0-2000.

    Source: datasheet, 0.1 mV per mW/cm².
    """
    return options.slope * sensor_v + options.offset


class Pyranometer:
    """A pyranometer on one converter input; raw is its output voltage."""

    channels = (CHANNEL,)
    accumulates = False

    def __init__(self, board: Board, options: PyranometerOptions) -> None:
        self._board = board
        self._options = options
        self._input: AdcInput | None = None
        self._pins: tuple[AdcInput, ...] = ()
        self._check_at_s = float("-inf")
        self._floating: tuple[float, ...] = ()
        self._shorted: tuple[float, ...] = ()
        self._over_range = False

    def start(self) -> None:
        """Find the converter. Raises BoardError."""
        adc = self._options.adc
        if self._options.open_check and isinstance(adc.input, str):
            self._pins = tuple(
                AdcInput(self._board, AdcOptions(adc.address, pin, "6.144V", 128, adc.vdd_v))
                for pin in (0, 1, 2, 3)
                if pin in adc_pins(adc.input)
            )
        self._check_at_s = float("-inf")
        self._input = AdcInput(self._board, adc)

    def read(self) -> tuple[Measurement, ...]:
        """The irradiance now. Raises ReadError.

        NOISY where both inputs float, as without a sensor, and where one is at the converter's supply, where
        it measures no difference.
        """
        if self._input is None:
            raise ReadError("the pyranometer isn't started")
        conversion = self._input.convert()
        self._over_range = bool(conversion.reasons)
        self._check_pins()
        doubtful = self._floating or self._shorted
        reasons = (*conversion.reasons, "NOISY") if doubtful else conversion.reasons
        wm2 = irradiance_wm2(conversion.volts, self._options)
        return (Measurement(CHANNEL.quantity, wm2, conversion.volts, reasons=reasons),)

    def stop(self) -> None:
        """Drop the converter; it needs no release."""
        self._input, self._pins = None, ()
        self._floating = self._shorted = ()
        self._over_range = False

    def diagnose(self) -> tuple[str, ...]:
        """Wiring faults that the last read shows."""
        where = self._options.adc.place
        found = []
        if self._floating:
            volts = " and ".join(f"{pin_v:.2f} V" for pin_v in self._floating)
            found.append(
                f"both wires of {where} float ({volts} to ground): the pyranometer is not connected, or"
                " nothing ties it to ground; connect its negative wire to ground through 10 kΩ"
            )
        if self._shorted:
            volts = " and ".join(f"{pin_v:.2f} V" for pin_v in self._shorted)
            found.append(
                f"{where} is at the converter's supply ({volts} to ground): a wire is shorted to it, or vdd_v"
                " isn't the supply"
            )
        if self._over_range:
            found.append(
                f"{where} is at the end of its range: one wire is broken, or the sensor has an amplifier"
                " and needs another gain"
            )
        return tuple(found)

    def _check_pins(self) -> None:
        """Measure every ``_CHECK_EVERY_S`` whether both inputs float; at each read while they do."""
        now_s = self._board.monotonic()
        if self._pins and (self._floating or self._shorted or now_s >= self._check_at_s):
            self._check_at_s = now_s + _CHECK_EVERY_S
            volts = tuple(pin.convert().volts for pin in self._pins)
            lowest, highest = FLOATING_V
            self._floating = volts if all(lowest <= pin_v <= highest for pin_v in volts) else ()
            self._shorted = volts if max(volts) >= self._options.adc.vdd_v - _NEAR_SUPPLY_V else ()


def concerns(options: PyranometerOptions, nameplate: Nameplate) -> Iterator[Concern]:
    """A gain that doesn't fit the sensor's millivolts, a single-ended input, another sensor's slope."""

    def at(adc_v: float) -> str:
        return f"{irradiance_wm2(adc_v, options):.0f} W/m2"

    adc = options.adc
    yield from adc_concerns(adc, (CHANNEL.upper - options.offset) / options.slope, nameplate.interval_s, at)
    step = FULL_SCALE_V[adc.gain] / _ADC_STEPS * options.slope
    if step > _COARSE_WM2:
        yield Concern(
            ("adc",), f'one step of the converter is {step:.1f} W/m2 at gain "{adc.gain}"; use "0.256V"'
        )
    if isinstance(adc.input, int):
        yield Concern(
            ("adc",),
            f"single-ended, each millivolt along the ground wire is {options.slope / 1000:.0f} W/m2;"
            ' use a differential input, as "2-3"',
        )
    if nameplate.model is None and abs(options.slope / DATASHEET_SLOPE - 1) > _FAR_SLOPE:
        yield Concern(
            ("slope",),
            f"{options.slope:g} W/m2 per V is far from the datasheet's {DATASHEET_SLOPE:g}; if it is another"
            " sensor's, give its model",
        )


def emulate(hardware: EmulatedHardware, sensor: FittedSensor) -> Remove:
    """The voltage of the environment's irradiance at the input."""
    options: PyranometerOptions = sensor.options

    def volts() -> float | None:
        wm2 = hardware.value(f"{sensor.name}.irradiance")
        return None if wm2 is None else (wm2 - options.offset) / options.slope

    return hardware.add_voltage(options.adc.address, options.adc.input, volts, sensor.name)


TYPE = DriverType(
    "pyranometer",
    PyranometerOptions,
    (CHANNEL,),
    0.1,
    Pyranometer,
    lambda options: adc_claims(options.adc),
    concerns,
    emulate=emulate,
    retry_after_s=RETRY_AFTER_S,
    wiring=ADC_WIRING | {"open_check"},
)
