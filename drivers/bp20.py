"""BP-20 barometric pressure sensor: 0.204 to 4.793 V for 15 to 115 kPa, on an ADS1115.

Its figures are those of Motorola's (now NXP's) MPX4115A element at 5.1 V: Vout = Vs·(0.009·P − 0.095),
±1.5 kPa, ratiometric from 4.85 to 5.35 V: one per cent less of an unregulated supply is 0.9 kPa at sea level.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Final

from annotated_types import Ge, Gt, Le

from drivers.ads1115 import (
    ADC_WIRING,
    RETRY_AFTER_S,
    AdcInput,
    AdcOptions,
    Conversion,
    adc_claims,
    adc_concerns,
)
from drivers.driver_type import Concern, DriverType, EmulatedHardware, Nameplate, Remove
from drivers.interface import Board, Channel, FittedSensor, Measurement, ReadError
from drivers.option_docs import Meaning

CHANNEL = Channel("pressure", "kPa", "V", 15.0, 115.0, accuracy=1.5)

DATASHEET_SLOPE: Final = 21.79
DATASHEET_OFFSET: Final = 10.55
_FAR_SLOPE: Final = 0.05
_FAR_OFFSET_KPA: Final = 3.0
_THINNEST_AIR_KPA: Final = 30.0
"""Below this it isn't air pressure: the highest summit has 33 kPa. A floating input reads as 17 to 30 kPa."""


@dataclass(frozen=True, slots=True)
class Bp20Options:
    """Wiring and transfer function P = slope·V + offset (kPa per V, kPa)."""

    adc: Annotated[AdcOptions, Meaning("the converter input the sensor is wired to")] = field(
        default_factory=AdcOptions
    )
    divider: Annotated[
        float, Ge(1), Le(10), Meaning("the sensor's voltage over the converter's; 1 without a divider")
    ] = 1.0
    slope: Annotated[float, Gt(0), Le(1000), Meaning("of the transfer function", "kPa per V")] = (
        DATASHEET_SLOPE
    )
    offset: Annotated[float, Ge(-100), Le(100), Meaning("of the transfer function", "kPa")] = DATASHEET_OFFSET


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
        self._faults: tuple[str, ...] = ()

    def start(self) -> None:
        """Find the converter. Raises BoardError."""
        self._input = AdcInput(self._board, self._options.adc)

    def read(self) -> tuple[Measurement, ...]:
        """The pressure now, UNDER_RANGE where it can't be the air's: an open input. Raises ReadError."""
        if self._input is None:
            raise ReadError("the barometer isn't started")
        conversion = self._input.convert()
        sensor_v = conversion.volts * self._options.divider
        reasons = list(conversion.reasons)
        self._faults = tuple(_faults(conversion, self._options))
        pressure = pressure_kpa(sensor_v, self._options)
        if pressure < _THINNEST_AIR_KPA:
            reasons.append("UNDER_RANGE")
        return (Measurement(CHANNEL.quantity, pressure, sensor_v, reasons=tuple(dict.fromkeys(reasons))),)

    def stop(self) -> None:
        """Drop the converter; it needs no release."""
        self._input = None
        self._faults = ()

    def diagnose(self) -> tuple[str, ...]:
        """Wiring faults that the last read shows."""
        return self._faults


def _faults(conversion: Conversion, options: Bp20Options) -> Iterator[str]:
    sensor_v = conversion.volts * options.divider
    pressure = pressure_kpa(sensor_v, options)
    where = options.adc.place
    if "OVER_RANGE" in conversion.reasons:
        yield (
            f"{where} is at its upper end, {conversion.volts:.3f} V: too small a gain, no divider, or the"
            " output shorted to its supply"
        )
    elif pressure < CHANNEL.lower:
        yield (
            f"{where} reads {conversion.volts:.3f} V, less than a BP-20 ever gives (0.204 V): no supply, the"
            " output shorted to ground, or a broken wire to an input with a pull-down"
        )
    elif pressure < _THINNEST_AIR_KPA:
        yield (
            f"{where} reads {conversion.volts:.3f} V, or {pressure:.1f} kPa, which is no air pressure: so"
            " does an input that nothing drives; check the wire, and fit 100 kΩ from the input to ground"
        )


def concerns(options: Bp20Options, nameplate: Nameplate) -> Iterator[Concern]:
    """Voltages the converter can't see, and a transfer function that isn't a BP-20's."""

    def at(adc_v: float) -> str:
        return f"{pressure_kpa(adc_v * options.divider, options):.1f} kPa"

    upper_v = (CHANNEL.upper - options.offset) / options.slope / options.divider
    yield from adc_concerns(options.adc, upper_v, nameplate.interval_s, at)
    model = (nameplate.model or "BP20").upper().replace("-", "").replace(" ", "")
    if "BP20" not in model:
        return
    if abs(options.slope / DATASHEET_SLOPE - 1) > _FAR_SLOPE:
        yield Concern(
            ("slope",),
            f"{options.slope:g} kPa per V is far from the datasheet's {DATASHEET_SLOPE:g}: a divider belongs"
            " into divider, and another sensor's name into model",
        )
    if abs(options.offset - DATASHEET_OFFSET) > _FAR_OFFSET_KPA:
        yield Concern(
            ("offset",),
            f"{options.offset:g} kPa is far from the datasheet's {DATASHEET_OFFSET:g}: is it in kPa?",
        )


def emulate(hardware: EmulatedHardware, sensor: FittedSensor) -> Remove:
    """The voltage of the environment's pressure at the input."""
    options: Bp20Options = sensor.options
    adc = options.adc

    def volts() -> float | None:
        kpa = hardware.value(f"{sensor.name}.pressure")
        return None if kpa is None else (kpa - options.offset) / options.slope / options.divider

    return hardware.add_voltage(adc.address, adc.input, volts, sensor.name)


TYPE = DriverType(
    "bp20",
    Bp20Options,
    (CHANNEL,),
    0.1,
    Bp20,
    lambda options: adc_claims(options.adc),
    concerns,
    emulate=emulate,
    retry_after_s=RETRY_AFTER_S,
    wiring=ADC_WIRING,
)
