"""BP-20 barometric pressure sensor: 0.204 to 4.793 V for 15 to 115 kPa, on an ADS1115.

Its figures are those of Motorola's (now NXP's) MPX4115A element at 5.1 V: Vout = Vs·(0.009·P − 0.095),
±1.5 kPa, ratiometric from 4.85 to 5.35 V. Where nothing regulates the sensor's supply, one per cent of it is
0.9 kPa at sea level: ``supply`` measures it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from annotated_types import Ge, Gt, Le

from drivers.ads1115 import (
    ADC_WIRING,
    RETRY_AFTER_S,
    AdcInput,
    AdcOptions,
    Conversion,
    adc_claims,
    adc_concerns,
    adc_pins,
)
from drivers.driver_type import Claim, Concern, DriverType, EmulatedHardware, Nameplate, OptionError, Remove
from drivers.interface import Board, Channel, FittedSensor, Located, Measurement, ReadError
from drivers.option_docs import Meaning

CHANNEL = Channel("pressure", "kPa", "V", 15.0, 115.0, accuracy=1.5)

DATASHEET_SLOPE: Final = 21.79
DATASHEET_OFFSET: Final = 10.55
_FAR_SLOPE: Final = 0.05
_FAR_OFFSET_KPA: Final = 3.0
_THINNEST_AIR_KPA: Final = 30.0
"""Below this it isn't air pressure: the highest summit has 33 kPa. A floating input reads as 17 to 30 kPa."""
_CORRECTABLE: Final = 0.2
"""A supply further off than this isn't corrected for: what is measured there is hardly the supply."""


@dataclass(frozen=True, slots=True)
class SupplyOptions:
    """Where the sensor's own supply is measured: an input of the same converter, behind a divider."""

    input: Annotated[Literal[0, 1, 2, 3], Meaning("the input that measures the supply")]
    divider: Annotated[float, Ge(1), Le(10), Meaning("the supply's voltage over the converter's")] = 2.0
    nominal_v: Annotated[float, Ge(3), Le(16), Meaning("what the supply should be", "V")] = 5.1
    tolerance: Annotated[
        float, Gt(0), Le(0.2), Meaning("share of nominal_v it may be off before readings are flagged")
    ] = 0.02
    correct: Annotated[bool, Meaning("refer the output to the nominal supply")] = False


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
    supply: Annotated[
        SupplyOptions | None, Meaning("another input of the converter, measuring the sensor's supply")
    ] = None

    @property
    def supply_adc(self) -> AdcOptions | None:
        """The converter input that measures the supply."""
        if self.supply is None:
            return None
        adc = self.adc
        return AdcOptions(adc.address, self.supply.input, "6.144V", adc.data_rate, adc.vdd_v)


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
        self._supply: AdcInput | None = None
        self._faults: tuple[str, ...] = ()

    def start(self) -> None:
        """Find the converter. Raises BoardError."""
        supply = self._options.supply_adc
        self._supply = AdcInput(self._board, supply) if supply is not None else None
        self._input = AdcInput(self._board, self._options.adc)

    def read(self) -> tuple[Measurement, ...]:
        """The pressure now. Raises ReadError.

        UNDER_RANGE also where it can't be the air's (an open input), NOISY where the supply is off.
        """
        if self._input is None:
            raise ReadError("the barometer isn't started")
        conversion = self._input.convert()
        sensor_v = conversion.volts * self._options.divider
        nominal_v, reasons = sensor_v, list(conversion.reasons)
        self._faults = tuple(_faults(conversion, self._options))
        if self._supply is not None and self._options.supply is not None:
            nominal_v = self._checked(sensor_v, self._supply.convert(), self._options.supply, reasons)
        pressure = pressure_kpa(nominal_v, self._options)
        if pressure < _THINNEST_AIR_KPA:
            reasons.append("UNDER_RANGE")
        return (Measurement(CHANNEL.quantity, pressure, sensor_v, reasons=tuple(dict.fromkeys(reasons))),)

    def stop(self) -> None:
        """Drop the converter; it needs no release."""
        self._input = self._supply = None
        self._faults = ()

    def diagnose(self) -> tuple[str, ...]:
        """Wiring faults that the last read shows."""
        return self._faults

    def _checked(
        self, sensor_v: float, measured: Conversion, supply: SupplyOptions, reasons: list[str]
    ) -> float:
        """The output in V, at the nominal supply if it is corrected; adds NOISY where the supply is off."""
        supply_v = measured.volts * supply.divider
        off = abs(supply_v / supply.nominal_v - 1)
        if measured.reasons or off > supply.tolerance:
            reasons.append("NOISY")
            self._faults += (
                f"the barometer's supply is {supply_v:.2f} V instead of {supply.nominal_v:g} V (input"
                f" {supply.input}, divider {supply.divider:g}): check regulator, wire and divider",
            )
        return sensor_v * supply.nominal_v / supply_v if supply.correct and off <= _CORRECTABLE else sensor_v


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


def settle(options: Bp20Options, _site: Located | None) -> Bp20Options:
    """The options as they are. Raises OptionError where the supply is measured where the sensor is."""
    if options.supply is not None and options.supply.input in adc_pins(options.adc.input):
        raise OptionError(
            ("supply", "input"), f"input {options.supply.input} is the sensor's own: the supply needs another"
        )
    return options


def claims(options: Bp20Options) -> tuple[Claim, ...]:
    """The converter's inputs."""
    supply = options.supply_adc
    if supply is None:
        return adc_claims(options.adc)
    own = adc_claims(options.adc)
    return (*own, *(Claim(claim.part, ("supply",)) for claim in adc_claims(supply) if claim.shared is None))


def concerns(options: Bp20Options, nameplate: Nameplate) -> Iterator[Concern]:
    """Voltages the converter can't see, and a transfer function that isn't a BP-20's."""

    def at(adc_v: float) -> str:
        return f"{pressure_kpa(adc_v * options.divider, options):.1f} kPa"

    upper_v = (CHANNEL.upper - options.offset) / options.slope / options.divider
    yield from adc_concerns(options.adc, upper_v, nameplate.interval_s, at)
    supply = options.supply
    if supply is not None and supply.nominal_v / supply.divider > options.adc.vdd_v:
        yield Concern(
            ("supply",),
            f"{supply.nominal_v:g} V behind a divider of {supply.divider:g} is above the converter's supply"
            f" of {options.adc.vdd_v:g} V (adc.vdd_v): use a larger divider",
        )
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
    """The voltage of the environment's pressure at the input; the nominal supply at its own."""
    options: Bp20Options = sensor.options
    adc, supply = options.adc, options.supply

    def volts() -> float | None:
        kpa = hardware.value(f"{sensor.name}.pressure")
        return None if kpa is None else (kpa - options.offset) / options.slope / options.divider

    parts = ExitStack()
    parts.callback(hardware.add_voltage(adc.address, adc.input, volts, sensor.name))
    if supply is not None:
        supply_v = supply.nominal_v / supply.divider
        parts.callback(hardware.add_voltage(adc.address, supply.input, lambda: supply_v))
    return parts.close


TYPE = DriverType(
    "bp20",
    Bp20Options,
    (CHANNEL,),
    0.1,
    Bp20,
    claims,
    concerns,
    settle,
    emulate,
    retry_after_s=RETRY_AFTER_S,
    wiring=ADC_WIRING | {"supply.input", "supply.tolerance"},
)
