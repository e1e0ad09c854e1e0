"""The quality tests' settings: their keys, and the defaults of each quantity."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from annotated_types import Ge, Gt, Le

from drivers.option_docs import Meaning
from gateway.config.values import Ends

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
