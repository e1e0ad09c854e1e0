"""What must be seen of a sensor while the installer handles it. Pure: readings in, verdict out.

Where a figure here is ours, not a standard's, it is wide: a judgement is to find wrong wires, pins, gains and
sites, not to calibrate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from gateway.commands.reading_rows import Row

Outcome = Literal["passed", "fault", "open"]
"""``open``: nothing speaks against it, and only a person can tell."""

Window = Mapping[str, Sequence[Row]]
"""By channel the readings seen during one phase, oldest first."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be held of a sensor, in words, with the figures that led to it."""

    outcome: Outcome
    words: str
    figures: Mapping[str, float] = field(default_factory=dict)


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


def turning(rows: Sequence[Row], interval_s: float) -> bool:
    """Whether a cup was turned: by more than a touch, in its last readings."""
    return pulses(rows, interval_s) >= FEWEST_PULSES and bool(rows) and bool(rows[-1].raw)


def judge_cup(own: str, intervals_s: Mapping[str, float], held: Window, spun: Window) -> Verdict:
    """A cup that was held still, then spun by hand. ``intervals_s``: of all channels that count, by name.

    A wind turns the others in both phases, and moves none of them in a calm. Only the cup that the hand is on
    stands while it is held and turns while it is spun: so its own input must be the one that did, and alone.
    """
    did = [
        channel
        for channel, interval_s in intervals_s.items()
        if at_rest(held.get(channel, ())) and pulses(spun.get(channel, ()), interval_s) >= FEWEST_PULSES
    ]
    mine, interval_s = spun.get(own, ()), intervals_s[own]
    figures = {
        "held_hz": max((row.raw or 0.0 for row in held.get(own, ())[-_AT_REST:]), default=0.0),
        "spun_hz": max((row.raw or 0.0 for row in mine), default=0.0),
        "pulses": round(pulses(mine, interval_s), 3),
    }
    trouble = _trouble([*held.get(own, ()), *mine], provoked=False)
    if trouble is not None:
        return Verdict("fault", trouble, figures)
    others = [_sensor(channel) for channel in did if channel != own]
    if own in did and not others:
        words = f"stood while held, up to {figures['spun_hz']:.1f} Hz while spun, and no other"
        return Verdict("passed", words, figures)
    if own in did:
        return Verdict("fault", f"{_listed(others)} turned too: wires touch, or a gust: repeat", figures)
    if others:
        return Verdict(
            "fault", f"{_listed(others)} moved instead: the two are swapped, or this wire is there", figures
        )
    if not mine:
        return Verdict("fault", "no reading came", figures)
    if not at_rest(held.get(own, ())):
        return Verdict("fault", "it turned while held: is this the cup? Or the wire picks up noise", figures)
    return Verdict("fault", "no pulse came: wire, supply, pull-up, or another pin", figures)


# Answers to a hand or a breath ------------------------------------------------------------------------------

BREATH: Final[Mapping[str, float]] = {"humidity": 3.0, "temperature": 1.0, "co2": 100.0}
"""What a breath adds at least, in the channel's unit: three steps of a DHT11's humidity, one of its
temperature; breath has 40,000 ppm of CO2."""


def rise(rows: Sequence[Row]) -> float:
    """How far the values went above the first one."""
    values = [row.value for row in rows if row.value is not None]
    return max(values) - values[0] if values else 0.0


def judge_breath(channels: Sequence[str], window: Window) -> Verdict:
    """A sensor that was breathed on: one of its channels must have risen, all must be there."""
    figures: dict[str, float] = {}
    told: list[str] = []
    risen: list[bool] = []
    for channel in channels:
        rows = window.get(channel, ())
        trouble = _trouble(rows, provoked=True)
        if trouble is not None:
            return Verdict("fault", f"{_quantity(channel)}: {trouble}", figures)
        if not rows:
            return Verdict("fault", f"{_quantity(channel)}: no reading came", figures)
        figures[f"{_quantity(channel)}_rise"] = round(rise(rows), 3)
        risen.append(rise(rows) >= BREATH[_quantity(channel)])
        told.append(f"{_quantity(channel)} by {rise(rows):.1f} {_unit(rows)}")
    words = f"rose with the breath: {', '.join(told)}"
    return Verdict("passed", words, figures) if any(risen) else Verdict("fault", f"hardly {words}", figures)


DAYLIGHT_WM2: Final = 50.0
_LEFT_UNDER_A_HAND: Final = 0.3
_LAMP_WM2: Final = 10.0


def judge_cover(channel: str, before: Window, during: Window) -> Verdict:
    """A pyranometer that was left open, then covered by a hand; by night a lamp must make it rise."""
    open_rows, rows = before.get(channel, ()), during.get(channel, ())
    trouble = _trouble([*open_rows, *rows], provoked=False)
    if trouble is not None:
        return Verdict("fault", trouble)
    values = [row.value for row in rows if row.value is not None]
    light = [row.value for row in open_rows if row.value is not None]
    if not values or not light:
        return Verdict("fault", "no reading came")
    figures = {"open": light[-1], "lowest": min(values), "highest": max(values)}
    if light[-1] >= DAYLIGHT_WM2:
        told = f"from {light[-1]:.0f} to {min(values):.0f} W/m2 under the hand"
        if min(values) <= _LEFT_UNDER_A_HAND * light[-1]:
            return Verdict("passed", f"fell {told}", figures)
        return Verdict("fault", f"hardly fell, {told}: is it this input?", figures)
    told = f"from {light[-1]:.0f} to {max(values):.0f} W/m2 under the lamp"
    if max(values) - light[-1] >= _LAMP_WM2:
        return Verdict("passed", f"rose {told}", figures)
    return Verdict("open", f"too dark to see it fall; {told}: come back by day", figures)


# Against what is known of the place -------------------------------------------------------------------------

_SEA_LEVEL_KPA: Final = 101.325
_WEATHER_KPA: Final = 3.5
"""Highs and lows of ordinary weather about the standard, at sea level."""
_COLUMN: Final = 0.07
"""Air 20 K warmer or colder than the standard's changes what the air beneath weighs by this share."""


def standard_pressure_kpa(elevation_m: float) -> float:
    """Pressure of the standard atmosphere in kPa, up to 11 km. Source: ISO 2533, ICAO Doc 7488."""
    return float(_SEA_LEVEL_KPA * (1 - 0.0065 * elevation_m / 288.15) ** 5.25588)


def pressure_band_kpa(elevation_m: float, accuracy_kpa: float) -> float:
    """± about the standard within which a good barometer reads: weather, warm or cold air, the sensor."""
    standard = standard_pressure_kpa(elevation_m)
    weather = _WEATHER_KPA * standard / _SEA_LEVEL_KPA
    return weather + _COLUMN * abs(_SEA_LEVEL_KPA - standard) + accuracy_kpa


def judge_pressure(channel: str, window: Window, elevation_m: float | None, accuracy_kpa: float) -> Verdict:
    """A barometer against the standard atmosphere at its place."""
    rows = window.get(channel, ())
    trouble = _trouble(rows, provoked=False)
    value = _last(rows)
    if trouble is not None or value is None:
        return Verdict("fault", trouble or "no reading came")
    if elevation_m is None:
        return Verdict("open", f"{value:.2f} kPa; gateway.elevation_m isn't set to compare", {"kpa": value})
    standard, band = standard_pressure_kpa(elevation_m), pressure_band_kpa(elevation_m, accuracy_kpa)
    figures = {"kpa": value, "standard_kpa": round(standard, 2), "band_kpa": round(band, 2)}
    told = f"{value:.2f} kPa, standard at {elevation_m:.0f} m {standard:.2f} ± {band:.1f} kPa"
    if abs(value - standard) <= band:
        return Verdict("passed", told, figures)
    return Verdict("fault", f"{told}: divider, slope, or elevation_m is wrong", figures)


NEAR_M: Final = 100.0
"""A fix is good to some metres; a position typed with three decimals to a hundred."""


def judge_location(channel: str, window: Window) -> Verdict:
    """A receiver against the configured position."""
    rows = window.get(channel, ())
    trouble = _trouble(rows, provoked=False)
    value = _last(rows)
    if trouble is not None or value is None:
        return Verdict("fault", trouble or "no reading came")
    told = f"{value:.0f} m from the configured position, up to {NEAR_M:.0f} m allowed"
    if value <= NEAR_M:
        return Verdict("passed", told, {"metres": round(value, 1)})
    return Verdict("fault", f"{told}: is latitude or longitude wrong?", {"metres": round(value, 1)})


def judge_steady(channels: Sequence[str], window: Window) -> Verdict:
    """A sensor of which nobody here knows how to make it move: it answers; a person judges the value."""
    told = []
    for channel in channels:
        rows = window.get(channel, ())
        trouble, value = _trouble(rows, provoked=False), _last(rows)
        if trouble is not None or value is None:
            return Verdict("fault", f"{_quantity(channel)}: {trouble or 'no reading came'}")
        told.append(f"{_quantity(channel)} {value:.3g} {_unit(rows)}")
    return Verdict("open", f"{', '.join(told)}: can that be?")


# Twins ------------------------------------------------------------------------------------------------------

_TWINS: Final[Mapping[str, tuple[float, float]]] = {
    "wind_speed": (0.5, 0.1),
    "irradiance": (20.0, 0.1),
    "temperature": (2.0, 0.0),
    "humidity": (8.0, 0.0),
    "pressure": (1.0, 0.0),
    "co2": (100.0, 0.1),
}
"""How far apart two may be: in the unit, and as a share of their mean; the larger counts. A tower's wake
may take more from one of two cups: the verdict says so."""
_CALM_MPS: Final = 1.0


def judge_twins(
    quantity: str, one: Sequence[Row], other: Sequence[Row], accuracies: tuple[float, float] = (0.0, 0.0)
) -> Verdict:
    """Two sensors side by side: the means of the same moments. ``accuracies`` are their ±, in the unit."""
    theirs = {row.time: row.value for row in other if row.value is not None}
    both = [(row.value, theirs[row.time]) for row in one if row.value is not None and row.time in theirs]
    if not both:
        return Verdict("open", "no two readings of the same moment to compare")
    mean, twin = (sum(values) / len(both) for values in zip(*both, strict=True))
    figures = {"mean": round(mean, 3), "twin": round(twin, 3), "readings": float(len(both))}
    unit = _unit(one)
    told = f"{mean:.2f} and {twin:.2f} {unit} (means of {len(both)})"
    if quantity == "wind_speed" and max(mean, twin) < _CALM_MPS:
        return Verdict("open", f"{told}: too calm to compare", figures)
    absolute, share = _TWINS.get(quantity, (0.0, 0.1))
    band = max(absolute, share * abs(mean + twin) / 2, sum(accuracies))
    if abs(mean - twin) <= band:
        return Verdict("passed", f"{told}, ± {band:.2f} allowed", figures)
    why = (
        "one in the tower's wake, or the wrong slope" if quantity == "wind_speed" else "one of them is wrong"
    )
    return Verdict("fault", f"{told}, ± {band:.2f} allowed: {why}", figures)


# ------------------------------------------------------------------------------------------------------------

_HANDS_CAUSE: Final = frozenset({"OVER_RANGE", "UNDER_RANGE"})
_MOST_BAD: Final = 1 / 3
"""Of the readings may be bad: a DHT11 misses one now and then."""


def _trouble(rows: Sequence[Row], *, provoked: bool) -> str | None:
    """What is electrically wrong, in words; None where all is well or nothing was seen.

    Flags that a hand or a breath earns (a step, a spike, a twin that differs) say nothing here, and beyond a
    range neither where the hand ``provoked`` it.
    """
    bad = [row for row in rows if _is_bad(row, provoked=provoked)]
    if not bad or len(bad) <= _MOST_BAD * len(rows):
        return None
    return bad[-1].words or "no value"


def _is_bad(row: Row, *, provoked: bool) -> bool:
    if row.value is None or "NOISY" in row.reasons:
        return True
    beyond = _HANDS_CAUSE.intersection(row.reasons)
    return bool(beyond) and row.quality == 4 and not provoked


def _last(rows: Sequence[Row]) -> float | None:
    return next((row.value for row in reversed(rows) if row.value is not None), None)


def _unit(rows: Sequence[Row]) -> str:
    return rows[0].unit if rows else ""


def _sensor(channel: str) -> str:
    return channel.rpartition(".")[0]


def _quantity(channel: str) -> str:
    return channel.rpartition(".")[2]


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)
