"""BP-20 barometric pressure sensor: 0.204 to 4.793 V for 15 to 115 kPa, on an ADS1115."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, Gt, Le

from drivers.ads1115 import AdcInput, AdcOptions, adc_claims
from drivers.driver_type import Claim, DriverType
from drivers.interface import Board, Channel, Measurement, ReadError
from drivers.meaning import Meaning

CHANNEL = Channel("pressure", "kPa", "V", 15.0, 115.0)


@dataclass(frozen=True, slots=True)
class Bp20Options:
    """Wiring and transfer function P = slope·V + offset (kPa per V, kPa).

    ``divider`` is the sensor's voltage over the converter's: 1 where the converter sees 4.8 V itself.
    """

    adc: Annotated[AdcOptions, Meaning("the converter input the sensor is wired to")] = field(
        default_factory=AdcOptions
    )
    divider: Annotated[
        float, Ge(1), Le(10), Meaning("the sensor's voltage over the converter's; 1 without a divider")
    ] = 1.0
    slope: Annotated[float, Gt(0), Le(1000), Meaning("of the transfer function", "kPa per V")] = 21.79
    offset: Annotated[float, Ge(-100), Le(100), Meaning("of the transfer function", "kPa")] = 10.55


def pressure_kpa(sensor_v: float, options: Bp20Options) -> float:
    """Station pressure in kPa from the sensor's output in V; never clamped to 15-115.

    Source: BP-20 datasheet, P = 21.79·V + 10.55.
    """
    return options.slope * sensor_v + options.offset


class Bp20:
    """A BP-20 on one converter input; raw is the sensor's own output voltage."""

    channels = (CHANNEL,)
    accumulates = False

    def __init__(self, board: Board, options: Bp20Options) -> None:
        self._board = board
        self._options = options
        self._input: AdcInput | None = None

    def start(self) -> None:
        """Find the converter. Raises BoardError."""
        self._input = AdcInput(self._board, self._options.adc)

    def read(self) -> tuple[Measurement, ...]:
        """The pressure now. Raises ReadError."""
        if self._input is None:
            raise ReadError("the barometer isn't started")
        sensor_v = self._input.volts() * self._options.divider
        return (Measurement(CHANNEL.quantity, pressure_kpa(sensor_v, self._options), sensor_v),)

    def stop(self) -> None:
        """Forget the converter; it needs no release."""
        self._input = None


def claims(options: Bp20Options) -> tuple[Claim, ...]:
    """The converter's input."""
    return adc_claims(options.adc)


TYPE = DriverType("bp20", Bp20Options, (CHANNEL,), 0.1, Bp20, claims)
