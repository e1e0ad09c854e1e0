"""What a sensor's readings must show while the installer handles it. Pure: readings in, result out.

Where a figure here is ours, not a standard's, it is wide: the checks are to find wrong wires, pins, gains and
sites, not to calibrate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gateway.commands.reading_rows import Row
from gateway.config.quality import SEA_LEVEL_KPA, standard_pressure_kpa
from gateway.quality.qartod import near, turned as turn

Outcome = Literal["passed", "confirmed", "fault", "skipped", "open"]
"""``open``: nothing is against it, and only a person can decide; ``confirmed``: the installer has."""

GOOD: Final = ("passed", "confirmed")

Window = Mapping[str, Sequence[Row]]
"""By channel the readings of one phase, oldest first."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one check. ``words`` are the program's, ``note`` the installer's."""

    outcome: Outcome
    words: str
    note: str = ""
    at: str = ""


def _result(good: bool, words: str, why: str) -> Result:
    """Passed; else a fault, with ``why`` behind the words."""
    return Result("passed", words) if good else Result("fault", f"{words}: {why}")


# Cups -------------------------------------------------------------------------------------------------------

FEWEST_PULSES: Final = 3.0
"""A push by hand turns a cup at least twice; a touch of the wire makes a pulse or two."""
_AT_REST: Final = 2
"""So many readings without a pulse, one after the other: the first may have begun before the hand came."""


def at_rest(rows: Sequence[Row]) -> bool:
    """Whether a cup's last readings have no pulse."""
    return len(rows) >= _AT_REST and all(row.raw == 0 for row in rows[-_AT_REST:])


def pulses(rows: Sequence[Row], interval_s: float) -> float:
    """How many pulses came, by readings of so many seconds each."""
    return sum(row.raw * interval_s for row in rows if row.raw is not None)


def spun_cups(intervals_s: Mapping[str, float], held: Window, spun: Window) -> list[str]:
    """The channels that stood in the first phase and turned in the second, by more than a touch."""
    return [
        channel
        for channel, interval_s in intervals_s.items()
        if at_rest(held.get(channel, ())) and pulses(spun.get(channel, ()), interval_s) >= FEWEST_PULSES
    ]


def check_cup(own: str, intervals_s: Mapping[str, float], held: Window, spun: Window) -> Result:
    """A cup that was held still, then spun by hand. ``intervals_s``: of all channels that count, by name.

    A wind turns the others in both phases, and moves none of them in a calm. Only the cup that the hand is on
    stands while it is held and turns while it is spun: so its own input must be the one that did, and alone.
    """
    did = spun_cups(intervals_s, held, spun)
    mine = spun.get(own, ())
    fault = _fault([*held.get(own, ()), *mine])
    others = " and ".join(_sensor(channel) for channel in did if channel != own)
    if fault is None and own in did and not others:
        spun_hz = max(row.raw or 0.0 for row in mine)
        return Result("passed", f"stood while held, up to {spun_hz:.1f} Hz while spun, and no other")
    if fault is not None:
        words = fault
    elif own in did:
        words = f"{others} turned too: wires touch, or a gust: repeat"
    elif others:
        words = f"{others} moved instead: the two are swapped, or this wire is there"
    elif not mine:
        words = "no reading came"
    elif not at_rest(held.get(own, ())):
        words = "it turned while held: is this the cup? Or the wire picks up noise"
    else:
        words = "no pulse came: wire, supply, pull-up, or another pin"
    return Result("fault", words)


# Reactions to a hand or a breath ----------------------------------------------------------------------------

BREATH: Final[Mapping[str, float]] = {"humidity": 3.0, "temperature": 1.0, "co2": 100.0}
"""What a breath adds at least, in the channel's unit: three steps of a DHT11's humidity, one of its
temperature; breath has 40,000 ppm of CO2."""


def rise(rows: Sequence[Row]) -> float:
    """How far the values went above the first one."""
    values = _values(rows)
    return max(values) - values[0] if values else 0.0


def check_breath(channels: Sequence[str], window: Window) -> Result:
    """A sensor that was breathed on: one of its channels must have risen, all must be there."""
    rises: list[str] = []
    risen = False
    for channel in channels:
        quantity, rows = _quantity(channel), window.get(channel, ())
        fault = _fault(rows, provoked=True)
        if fault is not None:
            return Result("fault", f"{quantity}: {fault}")
        risen = risen or rise(rows) >= BREATH[quantity]
        rises.append(f"{quantity} by {rise(rows):.1f} {_unit(rows)}")
    words = f"rose with the breath: {', '.join(rises)}"
    return Result("passed", words) if risen else Result("fault", f"hardly {words}")


DAYLIGHT_WM2: Final = 50.0
_LEFT_UNDER_A_HAND: Final = 0.3
_LAMP_WM2: Final = 10.0


def check_cover(channel: str, before: Window, during: Window) -> Result:
    """A pyranometer that was left open, then covered by a hand; by night a lamp must make it rise."""
    open_rows, rows = before.get(channel, ()), during.get(channel, ())
    fault = _fault([*open_rows, *rows])
    light, values = _values(open_rows), _values(rows)
    if fault is not None or not values or not light:
        return Result("fault", fault or "no reading came")
    if light[-1] >= DAYLIGHT_WM2:
        fall = f"from {light[-1]:.0f} to {min(values):.0f} W/m2 under the hand"
        if min(values) <= _LEFT_UNDER_A_HAND * light[-1]:
            return Result("passed", f"fell {fall}")
        return Result("fault", f"hardly fell, {fall}: is it this input?")
    words = f"from {light[-1]:.0f} to {max(values):.0f} W/m2 under the lamp"
    if max(values) - light[-1] >= _LAMP_WM2:
        return Result("passed", f"rose {words}")
    return Result("open", f"too dark to see it fall; {words}: come back by day")


# Vanes ------------------------------------------------------------------------------------------------------

_AIMED_DEG: Final = 10.0
"""A hand points a vane along a boom or to a compass's north this well."""
_SECTORS: Final = 12
_ROUND_DEG: Final = 300.0


def aimed(rows: Sequence[Row], aim_deg: float) -> bool:
    """Whether a vane's last readings are where it is pointed to."""
    last = _values(rows[-_AT_REST:])
    return len(last) == _AT_REST and all(abs(turn(each - aim_deg)) <= _AIMED_DEG for each in last)


def check_vane(channel: str, aim_deg: float, held: Window, turned: Window) -> Result:
    """A vane that was pointed somewhere, then turned slowly clockwise, once all the way round."""
    aimed, turning = held.get(channel, ()), turned.get(channel, ())
    fault = _fault([*aimed, *turning])
    if fault is not None or not _values(aimed) or not _values(turning):
        return Result("fault", fault or "no reading came")
    reads, course = _values(aimed)[-1], [_values(turning)[0]]
    for value in _values(turning):
        course.append(near(value, course[-1]))
    off, round_deg = turn(reads - aim_deg), course[-1] - course[0]
    seen = {int(value % 360 * _SECTORS / 360) for value in course}
    words = f"{reads:.0f}° when pointed to {aim_deg:.0f}°, then turned by {round_deg:.0f}°"
    if abs(off) > _AIMED_DEG:
        return Result("fault", f"{words}: {off:+.0f}° off; is north_offset_deg right?")
    if round_deg <= -_ROUND_DEG:
        return Result("fault", f"{words}: the ends of its resistance are swapped")
    missing = _SECTORS - len(seen)
    why = f"{missing} of {_SECTORS} sectors unseen: turn it slowly, all the way round"
    return _result(round_deg >= _ROUND_DEG and missing <= 1, words, why)


# Against what is known of the place -------------------------------------------------------------------------

_WEATHER_KPA: Final = 3.5
"""Highs and lows of ordinary weather about the standard, at sea level."""
_COLUMN: Final = 0.07
"""Air 20 K warmer or colder than the standard's changes what the air beneath weighs by this share."""


def pressure_band_kpa(elevation_m: float, accuracy_kpa: float) -> float:
    """± about the standard within which a good barometer reads: weather, warm or cold air, the sensor."""
    standard = standard_pressure_kpa(elevation_m)
    weather = _WEATHER_KPA * standard / SEA_LEVEL_KPA
    return weather + _COLUMN * abs(SEA_LEVEL_KPA - standard) + accuracy_kpa


def check_pressure(channel: str, window: Window, elevation_m: float | None, accuracy_kpa: float) -> Result:
    """A barometer against the standard atmosphere at its place."""
    rows = window.get(channel, ())
    if fault := _fault(rows):
        return Result("fault", fault)
    value = _values(rows)[-1]
    if elevation_m is None:
        return Result("open", f"{value:.2f} kPa; gateway.elevation_m isn't set to compare")
    standard, band = standard_pressure_kpa(elevation_m), pressure_band_kpa(elevation_m, accuracy_kpa)
    words = f"{value:.2f} kPa, standard at {elevation_m:.0f} m {standard:.2f} ± {band:.1f} kPa"
    return _result(abs(value - standard) <= band, words, "divider, slope, or elevation_m is wrong")


NEAR_M: Final = 100.0
"""A fix is good to some metres; a position typed with three decimals to a hundred."""


def check_location(channel: str, window: Window) -> Result:
    """A receiver against the configured position."""
    rows = window.get(channel, ())
    if fault := _fault(rows):
        return Result("fault", fault)
    value = _values(rows)[-1]
    words = f"{value:.0f} m from the configured position, up to {NEAR_M:.0f} m allowed"
    return _result(value <= NEAR_M, words, "is latitude or longitude wrong?")


def check_values(channels: Sequence[str], window: Window) -> Result:
    """A sensor that nothing here can move: it must respond, and a person decides on the value."""
    words = []
    for channel in channels:
        rows = window.get(channel, ())
        if fault := _fault(rows):
            return Result("fault", f"{_quantity(channel)}: {fault}")
        words.append(f"{_quantity(channel)} {_values(rows)[-1]:.3g} {_unit(rows)}")
    return Result("open", f"{', '.join(words)}: can that be?")


# Twins ------------------------------------------------------------------------------------------------------

_TWINS: Final[Mapping[str, tuple[float, float]]] = {
    "wind_speed": (0.5, 0.1),
    "wind_direction": (10.0, 0.0),
    "irradiance": (20.0, 0.1),
    "temperature": (2.0, 0.0),
    "humidity": (8.0, 0.0),
    "pressure": (1.0, 0.0),
    "co2": (100.0, 0.1),
}
"""How far apart two may be: in the unit, and as a share of their mean; the larger counts. A tower's wake
may take more from one of two cups: the words mention it."""
_CALM_MPS: Final = 1.0


def check_twins(
    quantity: str, one: Sequence[Row], other: Sequence[Row], accuracies: tuple[float, float] = (0.0, 0.0)
) -> Result:
    """Two sensors side by side: the means of the same moments. ``accuracies`` are their ±, in the unit."""
    theirs = {row.time: row.value for row in other if row.value is not None}
    both = [(row.value, theirs[row.time]) for row in one if row.value is not None and row.time in theirs]
    if not both:
        return Result("open", "no two readings of the same moment to compare")
    if quantity == "wind_direction":
        first = both[0][0]
        both = [(near(one, first), near(other, near(one, first))) for one, other in both]
    mean, twin = (sum(values) / len(both) for values in zip(*both, strict=True))
    words = f"{mean:.2f} and {twin:.2f} {_unit(one)} (means of {len(both)})"
    wind = quantity == "wind_speed"
    if wind and max(mean, twin) < _CALM_MPS:
        return Result("open", f"{words}: too calm to compare")
    absolute, share = _TWINS.get(quantity, (0.0, 0.1))
    band = max(absolute, share * abs(mean + twin) / 2, sum(accuracies))
    why = "one in the tower's wake, or the wrong slope" if wind else "one of them is wrong"
    return _result(abs(mean - twin) <= band, f"{words}, ± {band:.2f} allowed", why)


# ------------------------------------------------------------------------------------------------------------

_HANDS_CAUSE: Final = frozenset({"OVER_RANGE", "UNDER_RANGE"})
_MOST_BAD: Final = 1 / 3
"""The share of readings that may be bad: a DHT11 misses one now and then."""


def _fault(rows: Sequence[Row], *, provoked: bool = False) -> str | None:
    """What is electrically wrong, or that no reading came; None where the last value counts.

    Flags that a hand or a breath earns (a step, a spike, a twin that differs) are no fault, and beyond a
    range is none either where the hand ``provoked`` it.
    """
    if not rows:
        return "no reading came"
    bad = [row for row in rows if _is_bad(row, provoked=provoked)]
    return (bad[-1].words or "no value") if len(bad) > _MOST_BAD * len(rows) else None


def _is_bad(row: Row, *, provoked: bool) -> bool:
    if row.value is None or "NOISY" in row.reasons:
        return True
    beyond = _HANDS_CAUSE.intersection(row.reasons)
    return bool(beyond) and row.quality == 4 and not provoked


def _values(rows: Sequence[Row]) -> list[float]:
    return [row.value for row in rows if row.value is not None]


def _unit(rows: Sequence[Row]) -> str:
    return rows[0].unit if rows else ""


def _sensor(channel: str) -> str:
    return channel.rpartition(".")[0]


def _quantity(channel: str) -> str:
    return channel.rpartition(".")[2]
