"""Transfer functions that makers state for their anemometers, to notice a slope typed wrong.

They are no calibration: specimens differ by a percent or two, and each has its certificate.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final


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
"""At 75 m/s; of all models here the First Class has most, 1,619."""


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
