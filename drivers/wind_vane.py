"""Wind vane: a potentiometer on an ADS1115, or one whose positions are steps of a voltage or a Gray code.

The potentiometer's wiper takes a share of its supply; the direction depends on that ratio alone, so the
supply is measured too, or its figure given. Between the ends of the resistance is a dead band, in which the
wiper touches nothing: a resistor to ground makes that 0 V, a direction that is known to lie in the band.

Sources: NRG Systems' knowledge base on the 200P (4 to 356 degrees of resistance, "dead band"); R. M. Young's
manual of the 05103 (0 to 355 degrees, 10 kOhm); Texas Instruments' SBAS444 (input impedance).

Angles are in degrees from the vane's own mark, ratios are shares of its supply.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final, Literal

from annotated_types import Ge, Gt, Le

from drivers.ads1115 import (
    ADC_WIRING,
    FLOATING_V,
    RETRY_AFTER_S,
    AdcGain,
    AdcInput,
    AdcOptions,
    adc_claims,
    adc_concerns,
    adc_pins,
)
from drivers.driver_type import Claim, Concern, DriverType, EmulatedHardware, Nameplate, OptionError, Remove
from drivers.interface import (
    Board,
    Channel,
    DriverError,
    EdgeCounter,
    FittedSensor,
    Located,
    Measurement,
    ReadError,
)
from drivers.option_docs import BcmPin, Meaning

_MISFIT: Final = 0.4
"""A ratio this share of the way to the next step belongs to none for certain: half way is between both."""


def circle(degrees: float) -> float:
    """An angle in 0 to below 360 degrees."""
    turned = degrees % 360.0
    # A tiny negative angle is 360.0 after rounding.
    return 0.0 if turned == 360.0 else turned


def unloaded(ratio: float, load: float) -> float:
    """The wiper's place, 0 to 1, from its voltage's share of the supply.

    ``load`` is the potentiometer's resistance over the pull-down's: y = x / (1 + load·x·(1 − x)), by
    Ohm's law, solved for x. The ratio stays as it is beyond 0 and 1.
    """
    if not 0 < ratio < 1:
        return ratio
    half = (1 - load * ratio) / 2
    return ratio / (half + math.sqrt(half * half + load * ratio * ratio))


def loaded(place: float, load: float) -> float:
    """The wiper's share of the supply at a place of 0 to 1: ``unloaded`` inverted."""
    return place / (1 + load * place * (1 - place))


def step_angle(ratio: float, steps: Sequence[tuple[float, float]]) -> tuple[float, tuple[str, ...]]:
    """Degrees from the mark of the step next to a share of the supply; NOISY about half way between two."""
    ordered = sorted(steps, key=lambda step: abs(step[0] - ratio))
    (nearest, angle), (second, _) = ordered[:2]
    return angle, ("NOISY",) if abs(ratio - nearest) > _MISFIT * abs(second - nearest) else ()


def off_steps(ratio: float, steps: Sequence[tuple[float, float]]) -> bool:
    """Whether a share of the supply is outside all steps, by more than half of the way between the last."""
    ratios = sorted(each for each, _ in steps)
    below, above = (ratios[1] - ratios[0]) / 2, (ratios[-1] - ratios[-2]) / 2
    return not ratios[0] - below <= ratio <= ratios[-1] + above


def gray_number(bits: Sequence[bool]) -> int:
    """The number of a Gray code, its highest bit first: each bit is the sum of those before it."""
    number = 0
    for bit in bits:
        number = number << 1 | (bit ^ (number & 1))
    return number


def gray_code(number: int, width: int) -> tuple[bool, ...]:
    """The bits of a number's Gray code, the highest first: ``gray_number`` inverted."""
    code = number ^ number >> 1
    return tuple(bool(code >> bit & 1) for bit in reversed(range(width)))


CHANNEL = Channel("wind_direction", "deg", "1", 0.0, 360.0)

_OPEN: Final = 0.005
"""Below this share of the supply the wiper is open: over 100 kOhm a floating input has up to 0.0045."""
_INPUT_OHM: Final = 6e6
"""Of the converter, to ground, at gain 4.096V and 2.048V."""
_ABOVE_SUPPLY: Final = 1.02
_LEAST_SUPPLY_V: Final = 1.0
_ASKEW_DEG: Final = 5.0


@dataclass(frozen=True, slots=True)
class VaneAdcOptions(AdcOptions):
    """A converter input with a vane's own default: a table that gives one key keeps the rest."""

    gain: Annotated[AdcGain, Meaning("full scale; one step is its 32,768th part")] = "4.096V"
    vdd_v: Annotated[
        float, Ge(2), Le(5.5), Meaning("the converter's own supply: no input sees more", "V")
    ] = 3.3


@dataclass(frozen=True, slots=True)
class WindVaneOptions:
    """Wiring and geometry: direction = north_offset_deg + the angle from the vane's own mark."""

    north_offset_deg: Annotated[
        float,
        Ge(-360),
        Le(360),
        Meaning("where the vane's mark points: along its boom, the boom's orientation", "degrees from north"),
    ]
    adc: Annotated[VaneAdcOptions, Meaning("the converter input the wiper is wired to")] = field(
        default_factory=VaneAdcOptions
    )
    supply_input: Annotated[
        Literal[0, 1, 2, 3] | None, Meaning("another input, wired to the potentiometer's supply")
    ] = None
    supply_v: Annotated[
        float, Ge(1), Le(5.5), Meaning("the potentiometer's supply, where it isn't measured", "V")
    ] = 3.3
    dead_band_deg: Annotated[
        float, Ge(0), Le(90), Meaning("where the wiper touches nothing; 0: nowhere", "degrees")
    ] = 8.0
    dead_band_at_deg: Annotated[
        float, Ge(-180), Le(360), Meaning("the dead band's middle, from the mark", "degrees")
    ] = 0.0
    resistance_ohm: Annotated[float, Gt(0), Le(1e6), Meaning("the potentiometer's resistance", "Ohm")] = (
        10_000.0
    )
    pull_down_ohm: Annotated[
        float, Ge(1000), Le(1e7), Meaning("from the wiper to ground; its load is allowed for", "Ohm")
    ] = 100_000.0
    steps: Annotated[
        tuple[tuple[float, float], ...],
        Meaning("a vane of steps: [share of the supply, degrees from the mark] of each"),
    ] = ()
    gray_pins: Annotated[
        tuple[BcmPin, ...], Meaning("a vane of Gray code: its pins, the highest bit first, in place of adc")
    ] = ()

    @property
    def supply_adc(self) -> AdcOptions | None:
        """The converter input that measures the supply."""
        if self.supply_input is None or self.gray_pins:
            return None
        return AdcOptions(
            self.adc.address, self.supply_input, self.adc.gain, self.adc.data_rate, self.adc.vdd_v
        )


def pot_angle(ratio: float, options: WindVaneOptions) -> tuple[float, tuple[str, ...]]:
    """Degrees from the mark from the wiper's share of the supply, with DEAD_BAND in its dead band.

    There the angle is the band's middle: the vane points anywhere within it, or up to 2 degrees beyond.
    """
    if options.dead_band_deg > 0 and ratio < _OPEN:
        return options.dead_band_at_deg, ("DEAD_BAND",)
    place = unloaded(ratio, options.resistance_ohm / options.pull_down_ohm)
    begin = options.dead_band_at_deg + options.dead_band_deg / 2
    return begin + place * (360.0 - options.dead_band_deg), ()


class WindVane:
    """A vane; raw is the wiper's share of its supply, or the Gray code's number."""

    channels = (CHANNEL,)
    accumulates = False

    def __init__(self, board: Board, options: WindVaneOptions) -> None:
        self._board = board
        self._options = options
        self._input: AdcInput | None = None
        self._supply: AdcInput | None = None
        self._pins: list[EdgeCounter] = []
        self._fault: str | None = None

    def start(self) -> None:
        """Find the converter, or claim the pins. Raises BoardError."""
        options = self._options
        if options.gray_pins:
            try:
                for pin in options.gray_pins:
                    self._pins.append(self._board.count_edges(pin))
            except DriverError:
                self.stop()
                raise
        else:
            supply = options.supply_adc
            self._supply = AdcInput(self._board, supply) if supply is not None else None
            self._input = AdcInput(self._board, options.adc)

    def read(self) -> tuple[Measurement, ...]:
        """The direction now. Raises ReadError, also where the vane can't give what is measured.

        DEAD_BAND where the wiper is open, NOISY between two steps.
        """
        if self._pins:
            bits = [pin.is_high() for pin in self._pins]
            raw, reasons = float(gray_number(bits)), tuple[str, ...]()
            angle = raw * 360.0 / (1 << len(bits))
            self._fault = _UNPLUGGED if all(bits) else None
        else:
            raw = self._ratio()
            steps = self._options.steps
            angle, reasons = step_angle(raw, steps) if steps else pot_angle(raw, self._options)
            if not steps and not _OPEN <= raw <= 1 - _OPEN:
                self._fault = f"{self._options.adc.place} has {_NO_VOLTAGE if raw < _OPEN else _WHOLE_SUPPLY}"
        direction = circle(self._options.north_offset_deg + angle)
        return (Measurement(CHANNEL.quantity, direction, raw, reasons=reasons),)

    def stop(self) -> None:
        """Release the pins; the converter needs no release."""
        self._input = self._supply = self._fault = None
        while self._pins:
            self._pins.pop().close()

    def diagnose(self) -> tuple[str, ...]:
        """Open and shorted wires, as the last read shows them, or where the vane points as if there were."""
        return () if self._fault is None else (f"{self._fault}.",)

    def _ratio(self) -> float:
        """The wiper's share of the supply. Raises ReadError where no vane could give it."""
        if self._input is None:
            raise ReadError("the wind vane isn't started")
        options = self._options
        # One after the other: the supply hardly changes within the 8 ms between.
        supply_v = options.supply_v if self._supply is None else self._supply.convert().volts
        ratio = self._input.convert().volts / max(supply_v, 1e-9)
        self._fault = None
        where = options.adc.place
        if supply_v < _LEAST_SUPPLY_V:
            self._fault = (
                f"the vane's supply is {supply_v:.2f} V (input {options.supply_input}): its wire is broken,"
                " or the potentiometer is shorted"
            )
        elif ratio > _ABOVE_SUPPLY:
            self._fault = (
                f"{where} has {ratio:.2f} of the vane's supply: the wiper is shorted to a higher voltage, or"
                " the supply isn't what it is taken for"
            )
        elif options.steps and off_steps(ratio, options.steps):
            self._fault = f"{where} has {ratio:.3f} of the vane's supply, none of its steps: open or shorted"
        if self._fault is not None:
            raise ReadError(self._fault)
        return ratio


_TURN: Final = "(turn it a little)"
_NO_VOLTAGE: Final = (
    "no voltage: the vane points into its dead band, or the wire of the wiper or of its supply is broken, or"
    f" shorted to ground {_TURN}"
)
_WHOLE_SUPPLY: Final = (
    "the vane's whole supply: it points to the end of its resistance, or the ground wire is broken, or the"
    f" wiper shorted to the supply {_TURN}"
)
_UNPLUGGED: Final = f"all lines of the vane are high: it is unplugged, has no supply, or points there {_TURN}"


def settle(options: WindVaneOptions, _site: Located | None) -> WindVaneOptions:
    """The options as they are. Raises OptionError where they don't fit one another."""
    if options.gray_pins:
        if options.steps:
            raise OptionError(("steps",), "a vane has steps of a voltage or a Gray code, not both")
        if len(set(options.gray_pins)) < max(2, len(options.gray_pins)):
            raise OptionError(("gray_pins",), "must be two or more pins, each once")
    if options.steps and len({ratio for ratio, _ in options.steps}) < max(2, len(options.steps)):
        raise OptionError(("steps",), "must be two or more [share, degrees], each share once")
    if options.supply_input is not None and options.supply_input in adc_pins(options.adc.input):
        raise OptionError(("supply_input",), f"input {options.supply_input} is the wiper's: it needs another")
    return options


def claims(options: WindVaneOptions) -> Iterator[Claim]:
    """The converter's inputs, or the pins."""
    for pin in options.gray_pins:
        yield Claim(f"BCM pin {pin}", ("gray_pins",))
    if not options.gray_pins:
        yield from adc_claims(options.adc)
        if options.supply_adc is not None:
            inputs = (claim for claim in adc_claims(options.supply_adc) if claim.shared is None)
            yield from (Claim(claim.part, ("supply_input",)) for claim in inputs)


def concerns(options: WindVaneOptions, nameplate: Nameplate) -> Iterator[Concern]:
    """A supply the converter can't see or nobody measures, and a boom that points elsewhere."""
    boom = nameplate.boom_deg
    if boom is not None:
        off = abs(circle(options.north_offset_deg - boom + 90) % 180 - 90)
        if off > _ASKEW_DEG:
            yield Concern(
                ("north_offset_deg",),
                f"{options.north_offset_deg:g} is {off:.0f} degrees askew of the boom's {boom:g}: the mark"
                " usually points along the boom, outwards or to the tower",
            )
    if options.gray_pins:
        return
    yield from adc_concerns(options.adc, options.supply_v, nameplate.interval_s, lambda volts: f"{volts:g} V")
    if options.steps:
        return
    if options.dead_band_deg > 0 and _open_v(options, FLOATING_V[1]) > _OPEN * options.supply_v:
        yield Concern(
            ("pull_down_ohm",),
            f"{options.pull_down_ohm:g} Ohm can't hold an open wiper at 0 V: the dead band then reads as a"
            " direction; 100 kOhm do",
        )
    if options.supply_input is None:
        yield Concern(
            ("supply_v",),
            "a supply 1 % off turns the vane by up to 3.6 degrees: measure it with supply_input",
        )


def emulate(hardware: EmulatedHardware, sensor: FittedSensor) -> Remove:
    """The vane's electrical side in the environment's wind direction."""
    options: WindVaneOptions = sensor.options
    parts = ExitStack()

    def angle() -> float | None:
        direction = hardware.value(f"{sensor.name}.{CHANNEL.quantity}")
        return None if direction is None else circle(direction - options.north_offset_deg)

    def wiper_v() -> float | None:
        degrees = angle()
        if degrees is None:
            return None
        ratio = ratio_at(degrees, options)
        return open_v if ratio is None else ratio * options.supply_v

    def is_high(bit: int) -> bool:
        degrees, width = angle(), len(options.gray_pins)
        number = 0 if degrees is None else round(degrees * (1 << width) / 360) % (1 << width)
        # Without supply its outputs are open, and the pull-ups make them high.
        return degrees is None or gray_code(number, width)[bit]

    for bit, pin in enumerate(options.gray_pins):
        parts.callback(hardware.add_level(pin, partial(is_high, bit)))
    if not options.gray_pins:
        address, supply_v = options.adc.address, options.supply_v
        # A wiper of steps has a pull-up; one that is open has what a floating input leaves over a pull-down.
        open_v = supply_v if options.steps else _open_v(options, sum(FLOATING_V) / 2)
        parts.callback(hardware.add_voltage(address, options.adc.input, wiper_v, sensor.name, open_v))
        if options.supply_input is not None:
            parts.callback(hardware.add_voltage(address, options.supply_input, lambda: supply_v))
    return parts.close


def ratio_at(degrees: float, options: WindVaneOptions) -> float | None:
    """The wiper's share of the supply at an angle from the mark; None in the dead band, where it is open."""
    if options.steps:
        return min(options.steps, key=lambda step: abs(circle(step[1] - degrees + 180) - 180))[0]
    begin = options.dead_band_at_deg + options.dead_band_deg / 2
    place = circle(degrees - begin) / (360.0 - options.dead_band_deg)
    return loaded(place, options.resistance_ohm / options.pull_down_ohm) if place <= 1 else None


def _open_v(options: WindVaneOptions, floating_v: float) -> float:
    """What an open wiper's input has over the pull-down, where it floats at a voltage without one."""
    return floating_v * options.pull_down_ohm / (options.pull_down_ohm + _INPUT_OHM)


TYPE = DriverType(
    "wind-vane",
    WindVaneOptions,
    (CHANNEL,),
    0.1,
    WindVane,
    claims,
    concerns,
    settle,
    emulate,
    retry_after_s=RETRY_AFTER_S,
    wiring=ADC_WIRING | {"supply_input", "gray_pins"},
)
