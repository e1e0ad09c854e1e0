"""Silicon pyranometer: 10 µV per W/m², 0 to 2 kW/m², on a differential ADS1115 input.

At ±0.256 V a converter step is 7.8 µV, that is 0.78 W/m².
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Final

from annotated_types import Ge, Gt, Le

from drivers.ads1115 import FULL_SCALE_V, AdcGain, AdcInput, AdcOptions, AdcPins, adc_claims
from drivers.driver_type import Claim, Concern, DriverType, Nameplate
from drivers.interface import Board, Channel, Measurement, ReadError
from drivers.meaning import Meaning

CHANNEL = Channel("irradiance", "W/m2", "V", -10.0, 2000.0)
"""A few W/m² below zero are normal at night: the sensor then radiates to the sky."""

_ADC_STEPS: Final = 1 << 15
_COARSE_WM2: Final = 2.0
"""A step above this hides what a silicon pyranometer shows: at 0.256 V it is 0.78 W/m2."""


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
        100_000.0
    )
    offset: Annotated[float, Ge(-100), Le(100), Meaning("of the transfer function", "W/m2")] = 0.0


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

    def start(self) -> None:
        """Find the converter. Raises BoardError."""
        self._input = AdcInput(self._board, self._options.adc)

    def read(self) -> tuple[Measurement, ...]:
        """The irradiance now. Raises ReadError."""
        if self._input is None:
            raise ReadError("the pyranometer isn't started")
        sensor_v = self._input.volts()
        return (Measurement(CHANNEL.quantity, irradiance_wm2(sensor_v, self._options), sensor_v),)

    def stop(self) -> None:
        """Forget the converter; it needs no release."""
        self._input = None


def claims(options: PyranometerOptions) -> tuple[Claim, ...]:
    """The converter's inputs."""
    return adc_claims(options.adc)


def concerns(options: PyranometerOptions, _nameplate: Nameplate) -> Iterator[Concern]:
    """A gain too coarse for the sensor's millivolts."""
    step = FULL_SCALE_V[options.adc.gain] / _ADC_STEPS * options.slope
    if step > _COARSE_WM2:
        yield Concern(
            ("adc",),
            f'one step of the converter is {step:.1f} W/m2 at gain "{options.adc.gain}"; use "0.256V"',
        )


TYPE = DriverType("pyranometer", PyranometerOptions, (CHANNEL,), 0.1, Pyranometer, claims, concerns)
