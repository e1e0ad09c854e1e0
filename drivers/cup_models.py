"""Transfer functions that makers state for their anemometers, to notice a slope typed wrong.

They are no calibration: specimens differ by a percent or two, and each has its certificate.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class CupModel:
    """Typical slope (m/s per Hz) and offset (m/s) of a model."""

    name: str
    slope: float
    offset: float


# fmt: off
# With spellings, signal and source. A coil's alternating voltage needs a comparator before the pin.
_ROWS: Final[tuple[tuple[CupModel, str], ...]] = (
    (CupModel("NRG #40", 0.765, 0.35), "nrg40 nrg40c nrg40sine"),  # coil; NRG, Otech's certificates
    (CupModel("NRG #40H", 0.765, 0.35), "nrg40h nrg40hall"),  # Hall switch, open collector; NRG
    (CupModel("NRG S1", 0.0935, 0.139), "nrgs1"),  # see its data sheet; NRG's files
    # Square wave of the supply's voltage, or open drain; Thies 4.3351: 0.0462 f + 0.21, 1082 Hz at 50 m/s.
    (CupModel("Thies First Class", 0.0462, 0.21),
     "thiesfirstclass thiesfirstclassadvanced thies43350 thies43351"),
    # Pulses; Campbell Scientific's manual, 10 Hz a knot.
    (CupModel("Vector A100LK", 0.0499, 0.258), "vectora100lk vectora100k vectora100l2 a100lk a100k a100l2"),
    # Vector: 10 Hz for 1 m/s; the A100LK's rotor, with a disc for metres: 0.0499 times 1.944 knots in 1 m/s.
    (CupModel("Vector A100LM", 0.0970, 0.258), "vectora100lm vectora100m a100lm a100m"),
    (CupModel("Vector A100R", 1.25, 0.0), "vectora100r a100r"),  # reed; Vector: one for 1.25 m of wind run
    # Coils; Campbell Scientific's manuals, the Wind Sentry's of 03002 and 03101.
    (CupModel("RM Young 05103", 0.0980, 0.0), "young05103 young0510345 young05106 05103 05106"),
    (CupModel("RM Young 05108", 0.1666, 0.0), "young05108 young0510845 05108"),
    (CupModel("RM Young 05305", 0.1024, 0.0), "young05305 05305"),
    (CupModel("RM Young Wind Sentry", 0.750, 0.2),
     "youngwindsentry young03001 young03002 young03101 03001 03002 03101"),
    # Square wave of the supply's voltage; Vaisala, M210293EN.
    (CupModel("Vaisala WAA151", 0.101, 0.328), "vaisalawaa151 waa151"),
    # Reed; Vaisala's user guide of WMS301 and WMS302.
    (CupModel("Vaisala WMS301", 0.699, -0.24), "vaisalawms301 vaisalawms302 wms301 wms302"),
    (CupModel("Met One 014A", 0.800, 0.447), "metone014a 014a"),  # reed; Campbell Scientific's manual
    (CupModel("Met One 034B", 0.7989, 0.28), "metone034b 034b"),  # Campbell Scientific's manual
    (CupModel("Davis 6410", 1.00584, 0.0), "davis6410 davis7911 davis6410vantagepro2"),  # switch; 2.25 mph
)
# fmt: on
MODELS: Final = tuple(model for model, _ in _ROWS)
_BY_SPELLING: Final = {spelling: model for model, spellings in _ROWS for spelling in spellings.split()}
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
