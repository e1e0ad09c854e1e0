"""Any sensor on an ADS1115: a voltage, or the current of a 4-20 mA loop as the voltage over a shunt.

The value is slope · signal + offset, or from a table of points with lines between them. The signal is in V at
the sensor's output, in mA where there is a shunt. A signal that the sensor can't give is a broken wire or a
short: no value then.

Source for loops: NAMUR NE 43. 3.8 to 20.5 mA are measurements; at 3.6 mA and below, and from 21 mA on, the
transmitter reports a failure, or the loop is broken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Final

from annotated_types import Ge, Gt, Le

from drivers.ads1115 import ADC_WIRING, RETRY_AFTER_S, AdcInput, AdcOptions, adc_claims, adc_concerns
from drivers.driver_type import (
    Concern,
    DriverType,
    EmulatedHardware,
    Nameplate,
    OptionError,
    Remove,
    refuse_sum,
)
from drivers.interface import Board, Channel, FittedSensor, Located, Measurement, ReadError
from drivers.option_docs import Figure, Meaning, MeasuredQuantity

Point = tuple[float, float]
"""A signal, and the value it stands for."""


def interpolate(points: Sequence[Point], signal: float) -> float:
    """The value at a signal, on the straight lines through points that rise in their signals.

    The first or last line goes on beyond the table: nothing is clamped, and the ranges flag it.
    """
    lines = tuple(pairwise(points))
    (left, low), (right, high) = next((line for line in lines if signal <= line[1][0]), lines[-1])
    return low + (high - low) * (signal - left) / (right - left)


def invert(points: Sequence[Point], value: float) -> float:
    """The lowest signal with a value; of a value beyond the table on its first or last line.

    Where that line is flat the signal at the table's end: no other has a value as near.
    """
    for (left, low), (right, high) in pairwise(points):
        if low == value or min(low, high) < value <= max(low, high):
            return left if low == value else left + (right - left) * (value - low) / (high - low)
    ends = (points[0], points[1]), (points[-1], points[-2])
    (end, last), (inner, before) = min(ends, key=lambda line: abs(line[0][1] - value))
    return end if last == before else end + (inner - end) * (value - last) / (before - last)


def table_problem(points: Sequence[Point]) -> str | None:
    """What is wrong with a table, or None."""
    if len(points) < 2:
        return "needs two points at least, as in [[4, 0], [20, 10]]"
    for (left, _), (right, _) in pairwise(points):
        if right <= left:
            return f"must rise in its signals: {right:g} comes after {left:g}"
    return None


BROKEN_LOOP_MA: Final = (3.6, 21.0)
MEASURED_MA: Final = (3.8, 20.5)


@dataclass(frozen=True, slots=True)
class AnalogOptions:
    """Wiring, what is measured, and the transfer function: ``slope`` and ``offset``, or ``table``."""

    quantity: MeasuredQuantity
    adc: Annotated[AdcOptions, Meaning("the converter input the sensor is wired to")] = field(
        default_factory=AdcOptions
    )
    slope: Annotated[
        Figure | None,
        Meaning("value = slope · signal + offset; 1 for a voltage", "the quantity's unit per V or mA"),
    ] = None
    offset: Annotated[Figure, Meaning("of the transfer function", "the quantity's unit")] = 0.0
    table: Annotated[
        tuple[tuple[float, float], ...],
        Meaning("in place of slope and offset points [signal, value], straight lines between them"),
    ] = ()
    shunt_ohm: Annotated[
        Annotated[float, Gt(0), Le(10_000)] | None,
        Meaning("the resistor a current loop flows through: the signal is in mA then", "Ohm"),
    ] = None
    divider: Annotated[
        float, Ge(1), Le(1000), Meaning("the sensor's voltage over the converter's; 1 without a divider")
    ] = 1.0
    signal_range: Annotated[
        tuple[float, float] | None,
        Meaning("[lowest, highest] signal of the sensor: beyond it a wire is broken", "V or mA"),
    ] = None

    @property
    def per_volt(self) -> float:
        """The signal for each volt at the converter."""
        return self.divider if self.shunt_ohm is None else self.divider * 1000 / self.shunt_ohm

    @property
    def unit(self) -> str:
        """The signal's unit."""
        return "V" if self.shunt_ohm is None else "mA"

    @property
    def limits(self) -> tuple[float, float] | None:
        """The signals that are one; None where any may be."""
        if self.signal_range is None and self.shunt_ohm is not None:
            return BROKEN_LOOP_MA
        return self.signal_range


def value_of(signal: float, options: AnalogOptions) -> float:
    """The value at a signal in V or mA, in the quantity's unit; never clamped."""
    if options.table:
        return interpolate(options.table, signal)
    return _slope(options) * signal + options.offset


def signal_of(value: float, options: AnalogOptions) -> float:
    """The signal in V or mA that stands for a value: ``value_of`` inverted."""
    if options.table:
        return invert(options.table, value)
    return (value - options.offset) / _slope(options)


def _slope(options: AnalogOptions) -> float:
    return 1.0 if options.slope is None else options.slope


def signal_fault(signal: float, options: AnalogOptions) -> str | None:
    """Why a signal in V or mA is none of the sensor's, as a sentence's end; None where it is one."""
    if options.limits is None:
        return None
    lowest, highest = options.limits
    loop = options.shunt_ohm is not None
    if signal < lowest:
        why = (
            "the loop is broken or has no supply, or the transmitter reports a failure"
            if loop
            else "a wire or the supply is broken, or the output is shorted to ground"
        )
        return f"{signal:.3g} {options.unit} is less than {lowest:g}: {why}"
    if signal > highest:
        why = (
            "the transmitter reports a failure, or the loop's supply is shorted to the shunt"
            if loop
            else "the ground wire is broken, or the output is shorted to the supply"
        )
        return f"{signal:.3g} {options.unit} is more than {highest:g}: {why}"
    return None


def loop_reasons(signal: float, options: AnalogOptions) -> tuple[str, ...]:
    """Judges a loop's current: a transmitter at the end of its own range (NE 43) measures no more."""
    if options.shunt_ohm is None or options.signal_range is not None:
        return ()
    if signal < MEASURED_MA[0]:
        return ("UNDER_RANGE",)
    return ("OVER_RANGE",) if signal > MEASURED_MA[1] else ()


def channels(options: AnalogOptions) -> tuple[Channel, ...]:
    """Its one channel."""
    return (Channel.of(options.quantity, options.unit),)


class Analog:
    """A sensor on one converter input; raw is its signal."""

    accumulates = False

    def __init__(self, board: Board, options: AnalogOptions) -> None:
        self.channels = channels(options)
        self._board = board
        self._options = options
        self._input: AdcInput | None = None
        self._fault: str | None = None

    def start(self) -> None:
        """Find the converter. Raises BoardError."""
        self._input = AdcInput(self._board, self._options.adc)

    def read(self) -> tuple[Measurement, ...]:
        """The value now. Raises ReadError, also where the signal is none of the sensor's."""
        if self._input is None:
            raise ReadError(f"the sensor of {self._options.quantity.name} isn't started")
        conversion, options = self._input.convert(), self._options
        signal = conversion.volts * options.per_volt
        self._fault = signal_fault(signal, options)
        if self._fault is not None:
            raise ReadError(f"{options.adc.place}: {self._fault}")
        if "OVER_RANGE" in conversion.reasons:
            self._fault = f"{signal:.3g} {options.unit} is all it can see: a larger gain or a divider"
        reasons = dict.fromkeys((*conversion.reasons, *loop_reasons(signal, options)))
        return (
            Measurement(options.quantity.name, value_of(signal, options), signal, reasons=tuple(reasons)),
        )

    def stop(self) -> None:
        """Drop the converter; it needs no release."""
        self._input = self._fault = None

    def diagnose(self) -> tuple[str, ...]:
        """A wiring fault that the last read shows."""
        return () if self._fault is None else (f"{self._options.adc.place}: {self._fault}",)


def settle(options: AnalogOptions, _site: Located | None) -> AnalogOptions:
    """The options as they are. Raises OptionError where they are no transfer function."""
    refuse_sum(options.quantity, ("quantity",))
    if options.table:
        if options.slope is not None or options.offset != 0:
            key = "offset" if options.slope is None else "slope"
            raise OptionError((key,), "there is a table already: one of them makes the values")
        problem = table_problem(options.table)
        if problem is not None:
            raise OptionError(("table",), problem)
    elif options.slope == 0 or (options.slope is None and options.quantity.unit != options.unit):
        message = "is required, or a table" if options.slope is None else "must not be 0"
        raise OptionError(("slope",), f"{message}: {options.quantity.unit} for one {options.unit}")
    if options.limits is not None and options.limits[0] >= options.limits[1]:
        lowest, highest = options.limits
        raise OptionError(("signal_range",), f"must be [lower, higher], not [{lowest:g}, {highest:g}]")
    return options


def concerns(options: AnalogOptions, nameplate: Nameplate) -> Iterator[Concern]:
    """Signals the converter can't see, as far as the sensor's are known."""

    def at(adc_v: float) -> str:
        return f"{value_of(adc_v * options.per_volt, options):.4g} {options.quantity.unit}"

    upper = options.limits[1] if options.limits is not None else max((0.0, *(x for x, _ in options.table)))
    yield from adc_concerns(options.adc, upper / options.per_volt, nameplate.interval_s, at)


def emulate(hardware: EmulatedHardware, sensor: FittedSensor) -> Remove:
    """The voltage at the input that the environment's value makes."""
    options: AnalogOptions = sensor.options
    adc = options.adc
    # Shunt and divider tie an input to ground; another one floats where its wire is off.
    tied = options.shunt_ohm is not None or options.divider > 1

    def volts() -> float | None:
        value = hardware.value(f"{sensor.name}.{options.quantity.name}")
        return None if value is None else signal_of(value, options) / options.per_volt

    return hardware.add_voltage(adc.address, adc.input, volts, sensor.name, 0.0 if tied else None)


TYPE = DriverType(
    "analog",
    AnalogOptions,
    channels,
    0.1,
    Analog,
    lambda options: adc_claims(options.adc),
    concerns,
    settle,
    emulate,
    retry_after_s=RETRY_AFTER_S,
    wiring=ADC_WIRING | {"signal_range"},
)
