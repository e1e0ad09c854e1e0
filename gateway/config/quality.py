"""``[quality.QUANTITY]`` and the sensors' own ``quality`` tables: what holds for each channel.

A key in a sensor's own table comes before ``[quality.QUANTITY]``, and that before the quantity's default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from cloud.toml_models import field_names
from cloud.toml_problems import KeyPath, quote
from gateway.config.quality_rules import DEFAULTS, OPTIONAL_KEYS, QualityRules
from gateway.config.source import Source
from gateway.config.values import no_quantity

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
