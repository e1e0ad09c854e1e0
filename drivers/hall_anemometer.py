"""Cup anemometer with an open-collector Hall switch (A3141): falling edges counted over measured time.

The pulse count only grows: a reading is the difference of two snapshots, so no pulse is lost to a reset. The
switch doesn't bounce, so nothing is debounced: pulses too fast for any wind are counted like all others, and
the reading has the reason NOISY. A cup at rest reads 0, a valid speed.

The transfer functions that makers state are here to notice a slope typed wrong. They are no calibration:
specimens differ by a percent or two, and each has its certificate.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from operator import sub
from pathlib import Path
from typing import Annotated, Final, Literal

from annotated_types import Ge, Gt, Le

from drivers.driver_type import (
    Claim,
    Concern,
    DriverType,
    EmulatedHardware,
    IndividualCalibration,
    Nameplate,
    Remove,
)
from drivers.generic.pulse import CountedPin
from drivers.interface import Board, Channel, Edges, FittedSensor, Measurement, ReadError
from drivers.option_docs import BcmPin, Meaning


@dataclass(frozen=True, slots=True)
class CupModel:
    """Typical slope (m/s per Hz) and offset (m/s) of a model."""

    name: str
    slope: float
    offset: float


_TABLES: Final = tomllib.loads(Path(__file__).with_name("cup_models.toml").read_text())
MODELS: Final = tuple(CupModel(name, each["slope"], each["offset"]) for name, each in _TABLES.items())
_BY_SPELLING: Final = {word: model for model in MODELS for word in _TABLES[model.name]["spellings"].split()}
_HOME_MADE: Final = {"homemade", "selfmade", "homebuilt", "selfbuilt", "diy", "own", "ownmake"}

SLOPE_TOLERANCE: Final = 0.05
"""Specimens stay within about 2 % of their model; 5 % away is another model or a typing error."""
OFFSET_TOLERANCE_MPS: Final = 0.2
_SAME: Final = 1e-3
_FACTORS: Final = (
    (2.23694, "it looks like mph per Hz"),
    (1.94384, "it looks like knots per Hz"),
    (3.6, "it looks like km/h per Hz"),
    (2.0, "it fits half as many pulses a turn"),
    (0.5, "it fits a count of both edges; here the falling ones count"),
)
_FACTOR_TOLERANCE: Final = 0.02
_MOST_HZ: Final = 2500.0
"""The First Class has the highest rate of all models here at 75 m/s: 1,619."""


def cup_model(name: str) -> CupModel | None:
    """The model of a name in any spelling ("NRG 40H", "NRG #40C"); None for a name not listed."""
    return _BY_SPELLING.get(_spelling(name))


def is_home_made(name: str) -> bool:
    """Whether a model's name means home-made."""
    return _spelling(name) in _HOME_MADE


def doubts(name: str | None, slope: float, offset: float) -> Iterator[tuple[str, str]]:
    """Likely mistakes in a cup's model, slope (m/s per Hz) and offset (m/s): key and sentence."""
    if (75.0 - offset) / slope > _MOST_HZ:
        hz = (75.0 - offset) / slope
        yield "slope", f"{slope:g} m/s per Hz would be {hz:.0f} Hz at 75 m/s, more than any cup gives"
    if name is None:
        return
    if is_home_made(name):
        for model in MODELS:
            if abs(slope / model.slope - 1) < _SAME and abs(offset - model.offset) < _SAME:
                yield (
                    "slope",
                    f"{slope:g} m/s per Hz and {offset:g} m/s are the {model.name}'s: a home-made cup needs "
                    "its own, from a wind tunnel or from weeks beside a calibrated one",
                )
                return
        return
    known = cup_model(name)
    if known is None:
        near = difflib.get_close_matches(_spelling(name), _BY_SPELLING, 1, 0.85)
        if near:
            yield "model", f'is no model known here (is it the "{_BY_SPELLING[near[0]].name}"?)'
        return
    if abs(slope / known.slope - 1) > SLOPE_TOLERANCE:
        why = next(
            (why for factor, why in _FACTORS if abs(slope / known.slope / factor - 1) < _FACTOR_TOLERANCE),
            "check the certificate",
        )
        yield "slope", f"{slope:g} m/s per Hz is far from {known.name}'s {known.slope:g}: {why}"
    if abs(offset - known.offset) > OFFSET_TOLERANCE_MPS:
        yield "offset", f"{offset:g} m/s is far from {known.name}'s {known.offset:g}: check the certificate"


def _spelling(name: str) -> str:
    """Letters and digits alone, without the words that makers' names come with or without."""
    words = re.sub(r"[^a-z0-9]", "", name.lower())
    for word in ("anemometer", "systems", "instruments", "windmonitor"):
        words = words.replace(word, "")
    return words.replace("rmyoung", "young")


CHANNEL = Channel("wind_speed", "m/s", "Hz", 0.0, 75.0)
GUST_INTERVAL_S: Final = 1.0
"""A gust is the highest mean over 3 s (WMO-No. 8): the longest interval that has three readings in them."""
_TOO_SHORT: Final = 0.5
"""Pulses closer than this part of their distance at 75 m/s are noise: no magnets are set so unevenly."""


@dataclass(frozen=True, slots=True)
class HallAnemometerOptions:
    """Pin and transfer function v = slope·Hz + offset, of the serial number's calibration."""

    pin: BcmPin
    slope: Annotated[float, Gt(0), Le(10), Meaning("from the certificate", "m/s per Hz")]
    offset: Annotated[float, Ge(-5), Le(5), Meaning("from the certificate", "m/s")] = 0.0
    at_rest: Annotated[
        Literal["zero", "offset"], Meaning('what a cup at rest reads; "offset" as some loggers do')
    ] = "zero"


def wind_speed_mps(frequency_hz: float, options: HallAnemometerOptions) -> float:
    """Wind speed in m/s from the switch's frequency in Hz.

    A cup at rest makes no pulses: its speed is 0, or the transfer function's offset with ``at_rest``.
    """
    if frequency_hz == 0 and options.at_rest == "zero":
        return 0.0
    return options.slope * frequency_hz + options.offset


def fastest_hz(options: HallAnemometerOptions) -> float:
    """The frequency of 75 m/s, in Hz: the highest that wind can make."""
    return (CHANNEL.upper - options.offset) / options.slope


class HallAnemometer(CountedPin):
    """Counts one pin's falling edges; each reading covers the time since the one before."""

    channels = (CHANNEL,)

    def __init__(self, board: Board, options: HallAnemometerOptions) -> None:
        super().__init__(board, options.pin)
        self._options = options
        self._fastest_hz = fastest_hz(options)
        self._shortest_ns = _TOO_SHORT * 1e9 / self._fastest_hz
        self._begin()

    def _begin(self) -> None:
        self._since_s = self._read_at
        self._pulses = self._close = 0
        self._frequency_hz = self._surely_hz = 0.0
        self._last = Edges(0)

    def start(self) -> None:
        """Starts counting, and the check of the pulses. Raises BoardError."""
        super().start()
        self._begin()

    def read(self) -> tuple[Measurement, ...]:
        """Mean speed since the previous read. Raises ReadError where edges went missing meanwhile."""
        edges, elapsed_s = self.take()
        self._last = edges
        self._pulses += edges.count
        frequency_hz = self._frequency_hz = edges.count / elapsed_s
        # n pulses enclose n - 1 turns' parts: in a tenth of a second one pulse is 10 Hz.
        self._surely_hz = (edges.count - 1) / elapsed_s
        gaps_ns = map(sub, edges.times_ns[1:], edges.times_ns)
        self._close = sum(gap < self._shortest_ns for gap in gaps_ns)
        if edges.lost:
            raise ReadError(f"pulses of pin {self._pin} went missing, so the speed is unknown")
        value = wind_speed_mps(frequency_hz, self._options)
        reasons = ("NOISY",) if self._is_noisy else ()
        return (Measurement(CHANNEL.quantity, value, frequency_hz, reasons=reasons),)

    @property
    def _is_noisy(self) -> bool:
        """Whether the last reading has pulses too fast for any wind."""
        return self._surely_hz > self._fastest_hz or self._close > 0 or self._last.crowded

    def _sentences(self, *, high: bool) -> tuple[str, ...]:
        """A pin that is stuck, silent or noisy."""
        pin, found = f"BCM pin {self._pin}", []
        if self._is_noisy:
            found.append(
                f"{pin} has pulses that no wind makes ({self._frequency_hz:.0f} Hz, {self._close} times too "
                f"close together; 75 m/s are {self._fastest_hz:.0f} Hz): the signal wire is loose or runs "
                "beside mains or a motor, the pull-up is missing or too weak for the cable, or a reed switch "
                "bounces."
            )
        if self._last.lost:
            found.append(f"Pulses of {pin} were lost in the last reading.")
        if self._frequency_hz == 0 and not high:
            found.append(
                f"{pin} is low and no pulse comes: its signal wire touches ground, or the cup rests with its "
                "switch closed (turn it a little)."
            )
        elif self._pulses == 0:
            found.append(
                f"No pulse has come on {pin} in {self._read_at - self._since_s:.0f} s: right for a cup at "
                "rest. If it turns, the signal wire or the supply isn't connected, or it is another pin's."
            )
        return tuple(found)


def concerns(options: HallAnemometerOptions, nameplate: Nameplate) -> Iterator[Concern]:
    """A transfer function that isn't the model's, and an interval too long for gusts."""
    for key, doubt in doubts(nameplate.model, options.slope, options.offset):
        yield Concern((key,), doubt)
    if nameplate.interval_s > GUST_INTERVAL_S:
        yield Concern(
            ("interval_s",),
            f"{nameplate.interval_s:g} s is too long for gusts, means over 3 s of a reading a second",
        )


def emulate(hardware: EmulatedHardware, sensor: FittedSensor) -> Remove:
    """The pulses of the environment's wind on the pin."""
    options: HallAnemometerOptions = sensor.options
    return hardware.add_pulses(f"{sensor.name}.wind_speed", options.pin, options.slope, options.offset)


TYPE = DriverType(
    "hall-anemometer",
    HallAnemometerOptions,
    (CHANNEL,),
    0.1,
    HallAnemometer,
    lambda options: [Claim(f"BCM pin {options.pin}", ("pin",))],
    concerns,
    emulate=emulate,
    # IEC 61400-12-1 and MEASNET: each cup before the campaign, and afterwards a proof that it has held.
    individual=IndividualCalibration(24, "IEC 61400-12-1 and MEASNET want each cup calibrated by itself"),
    rests_at=lambda options: wind_speed_mps(0.0, options),
)
