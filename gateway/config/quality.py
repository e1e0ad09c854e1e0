"""The quality tests' keys and defaults: ``[quality.QUANTITY]`` and the sensors' own ``quality`` tables.

A key in a sensor's own table comes before ``[quality.QUANTITY]``, and that before the quantity's default.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from annotated_types import Ge, Gt, Le

from cloud.toml_models import field_names
from cloud.toml_problems import KeyPath, quote
from drivers.option_docs import Meaning
from gateway.config.source import Source
from gateway.config.values import Ends, no_quantity

Test = Literal["site-range", "step", "spike", "flat", "rest", "stopped", "pair", "drift"]

BIN_S: Final = 60.0
"""Channels are compared by their means over a minute, or over an interval where that is longer."""

_IN_UNIT: Final = "the quantity's unit"
_Positive = Annotated[float | None, Gt(0), Le(1e9)]
_NotNegative = Annotated[float | None, Ge(0), Le(1e9)]
_Share = Annotated[float | None, Gt(0), Le(2)]
_Level = Annotated[float | None, Ge(-1e9), Le(1e9)]
_Duration = Annotated[float | None, Ge(1), Le(30 * 86400)]

OPTIONAL_KEYS: Final[Mapping[Test, tuple[str, ...]]] = {
    "site-range": ("site_range",),
    "step": ("max_step",),
    "spike": ("spike", "spike_factor"),
    "flat": ("flat_s", "flat_within"),
    "rest": ("rest_s",),
    "stopped": ("stopped_s", "twin_above", "mast_above"),
    "pair": ("pair_absolute", "pair_relative", "pair_window_s"),
    "drift": ("drift_absolute", "drift_relative", "drift_window_s"),
}
"""The keys that belong to one test alone; without the first of them it isn't made."""


@dataclass(frozen=True, slots=True)
class QualityRules:
    """The keys, in the quantity's unit and in seconds; None: as the quantity's default has it."""

    site_range: Annotated[
        Ends | None,
        Meaning("[lower, upper]: what the site's weather can be; beyond it quality is 3", _IN_UNIT),
    ] = None
    max_step: Annotated[
        _Positive, Meaning("the largest change to the next reading, at most a minute later", _IN_UNIT)
    ] = None
    spike: Annotated[
        _Positive, Meaning("how far off the last readings' mean a spike is at least", _IN_UNIT)
    ] = None
    spike_factor: Annotated[_Positive, Meaning("and how many standard deviations of the last readings")] = (
        None
    )
    flat_s: Annotated[_Duration, Meaning("how long a value may stay the same", "s")] = None
    flat_within: Annotated[_NotNegative, Meaning("what counts as the same", _IN_UNIT)] = None
    rest_below: Annotated[
        _Level,
        Meaning("at or below it the sensor is at rest (calm, night), where a constant is normal", _IN_UNIT),
    ] = None
    rest_s: Annotated[_Duration, Meaning("how long it may be at rest", "s")] = None
    stopped_s: Annotated[
        float | None,
        Ge(60),
        Le(86400),
        Meaning("how long it may be at rest while the twin or others at the mast move", "s"),
    ] = None
    twin_above: Annotated[_Positive, Meaning("the twin moves above this", _IN_UNIT)] = None
    mast_above: Annotated[_Positive, Meaning("another sensor of the mast moves above this", _IN_UNIT)] = None
    pair_absolute: Annotated[
        _NotNegative, Meaning("how far the twins' medians over the window may be apart", _IN_UNIT)
    ] = None
    pair_relative: Annotated[_Share, Meaning("or what share of their mean, whichever is more", "1")] = None
    pair_window_s: Annotated[
        float | None, Ge(120), Le(7 * 86400), Meaning("the window of this comparison", "s")
    ] = None
    pair_above: Annotated[_Level, Meaning("twins are compared where their mean is above this", _IN_UNIT)] = (
        None
    )
    drift_absolute: Annotated[
        _NotNegative, Meaning("as pair_absolute, over the longer window of the drift test", _IN_UNIT)
    ] = None
    drift_relative: Annotated[_Share, Meaning("as pair_relative, over the longer window", "1")] = None
    drift_window_s: Annotated[float | None, Ge(3600), Le(30 * 86400), Meaning("the longer window", "s")] = (
        None
    )
    off: Annotated[tuple[Test, ...] | None, Meaning("tests that are not made")] = None


def _defaults() -> dict[str, QualityRules]:
    tables = tomllib.loads(Path(__file__).with_name("quality_defaults.toml").read_text())
    return {
        name: QualityRules(**{**table, "site_range": tuple(table["site_range"])})
        for name, table in tables.items()
    }


DEFAULTS: Final[Mapping[str, QualityRules]] = _defaults()
"""The rules by quantity; one that isn't here (a plug-in's) is held against its sensor's range alone."""


SEA_LEVEL_KPA: Final = 101.325
_LOWEST_PRESSURE: Final = 0.92
_HIGHEST_PRESSURE: Final = 1.05
_BY_HEIGHT: Final = (
    "rest_below", "rest_s", "stopped_s", "twin_above", "mast_above", "pair_relative", "pair_above",
    "drift_relative",
)  # fmt: skip
"""Keys about how high a value is: of directions, which are compared on the circle, none is."""

Sections = Mapping[str, QualityRules]
"""``[quality.QUANTITY]`` by quantity."""


def standard_pressure_kpa(elevation_m: float) -> float:
    """Pressure of the standard atmosphere in kPa, up to 11 km. Source: ISO 2533, ICAO Doc 7488."""
    return float(SEA_LEVEL_KPA * (1 - 0.0065 * elevation_m / 288.15) ** 5.25588)


def site_pressure_kpa(elevation_m: float) -> tuple[float, float]:
    """What pressure may be at a height: the standard atmosphere less 8 %, plus 5 %, in kPa."""
    standard = standard_pressure_kpa(elevation_m)
    return round(standard * _LOWEST_PRESSURE, 2), round(standard * _HIGHEST_PRESSURE, 2)


def read_sections(source: Source) -> Sections | None:
    """The ``[quality]`` section; None on errors."""
    raw = source.table("quality", "quality.wind_speed")
    if raw is None:
        return None
    before = len(source.problems)
    sections: dict[str, QualityRules] = {}
    for quantity, table in raw.items():
        if quantity not in source.quantities:
            message, guess = no_quantity(quantity, source.quantities)
            if quantity in field_names(QualityRules):
                message, guess = "belongs in a quantity's table, such as [quality.wind_speed]", None
            source.error(("quality", quantity), message, guess)
        else:
            options = _read_table(source, ("quality", quantity), table)
            if options is not None:
                _check(source, ("quality", quantity), options, quantity, rules({}, quantity, options))
                sections[quantity] = options
    return sections if len(source.problems) == before else None


def read_channels(
    source: Source,
    path: KeyPath,
    raw: object,
    quantities: tuple[str, ...],
    sections: Sections,
    elevation_m: float | None,
    *,
    paired: bool,
) -> Mapping[str, QualityRules] | None:
    """A sensor's rules by quantity, from its own ``quality`` table (``path``); None on errors.

    The table has the tests' keys, or (it must for a sensor of several quantities) a table for each quantity.
    """
    before = len(source.problems)
    found = {quantity: rules(sections, quantity, None, elevation_m) for quantity in quantities}
    for quantity, place, table in _by_quantity(source, path, raw, quantities):
        options = _read_table(source, place, table)
        if options is None:
            continue
        found[quantity] = rules(sections, quantity, options, elevation_m)
        _check(source, place, options, quantity, found[quantity])
        for key in () if paired else (*OPTIONAL_KEYS["pair"], *OPTIONAL_KEYS["drift"]):
            if getattr(options, key) is not None:
                source.error((*place, key), "needs a twin to compare with: set the sensor's pair")
    return found if len(source.problems) == before else None


def rules(
    sections: Sections, quantity: str, own: QualityRules | None = None, elevation_m: float | None = None
) -> QualityRules:
    """What holds for a channel of a quantity."""
    values: dict[str, Any] = dataclasses.asdict(DEFAULTS.get(quantity, QualityRules()))
    if quantity == "pressure" and elevation_m is not None:
        values["site_range"] = site_pressure_kpa(elevation_m)
    for options in (sections.get(quantity), own):
        if options is not None:
            given = dataclasses.asdict(options)
            values |= {key: value for key, value in given.items() if value is not None}
    for test in values["off"] or ():
        values |= dict.fromkeys(OPTIONAL_KEYS[test])
    values["off"] = None
    return QualityRules(**values)


def _by_quantity(
    source: Source, path: KeyPath, raw: object, quantities: tuple[str, ...]
) -> list[tuple[str, KeyPath, object]]:
    if not isinstance(raw, dict):
        return [(quantities[0], path, raw)]
    named = [key for key in raw if key in source.quantities]
    for key in named:
        if key not in quantities:
            source.error((*path, key), f"the sensor measures {', '.join(quantities)}")
    if not named and len(quantities) == 1:
        return [(quantities[0], path, raw)]
    for key in raw:
        if key not in named:
            example = f"{quantities[0]} = {{ {key} = … }}"
            source.error((*path, key), f"must stand in a quantity's table, as in {example}")
    return [(key, (*path, key), raw[key]) for key in named if key in quantities]


def _read_table(source: Source, path: KeyPath, table: object) -> QualityRules | None:
    if not isinstance(table, dict):
        source.error(path, "must be a table, as in { max_step = 10 }")
        return None
    return source.model(QualityRules, table, path)


def _check(source: Source, path: KeyPath, options: QualityRules, quantity: str, found: QualityRules) -> None:
    """Keys compared with one another, such as a test that is switched off and set at once."""
    known = source.quantities.get(quantity)
    if known is not None and known.kind == "direction":
        wrong = [key for key in _BY_HEIGHT if getattr(options, key) is not None]
        for key in wrong:
            why = f"makes no sense for {quantity}: of directions none is lower than another; delete it"
            source.error((*path, key), why)
        if wrong:
            return
    if len(options.off or ()) != len(set(options.off or ())):
        source.error((*path, "off"), "names a test twice")
    for test, keys in OPTIONAL_KEYS.items():
        for key in [key for key in keys if getattr(options, key) is not None]:
            if test in (options.off or ()):
                source.error((*path, key), f"belongs to the test {quote(test)}, which off switches off")
            elif getattr(found, keys[0]) is None:
                source.error((*path, key), f"needs {keys[0]} too: {quantity} has no default")
    if found.rest_s is not None and found.rest_below is None:
        key = "rest_s" if options.rest_s is not None else "rest_below"
        source.error((*path, key), "needs rest_below too: at or below what value nothing is expected to move")
    if found.stopped_s is not None and found.rest_below is None:
        source.error((*path, "stopped_s"), "needs rest_below too: at or below what value nothing moves")
