"""Transfer functions that makers state for their cup anemometers, to notice a slope typed wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class CupModel:
    """Typical slope (m/s per Hz) and offset (m/s) of a model; each specimen differs a little."""

    name: str
    slope: float
    offset: float


_NRG_40: Final = CupModel("NRG #40", 0.765, 0.35)
_NRG_S1: Final = CupModel("NRG S1", 0.0935, 0.139)
_THIES: Final = CupModel("Thies First Class", 0.0462, 0.21)

_MODELS: Final = {
    "nrg40": _NRG_40,
    "nrg40h": _NRG_40,
    "nrg40c": _NRG_40,
    "nrgs1": _NRG_S1,
    "thiesfirstclass": _THIES,
    "thiesfirstclassadvanced": _THIES,
}

SLOPE_TOLERANCE: Final = 0.05
"""Specimens stay within about 2 % of their model; 5 % away is another model or a typing error."""
OFFSET_TOLERANCE_MPS: Final = 0.2


def cup_model(name: str) -> CupModel | None:
    """The model of that name, however it is spelled ("NRG 40H", "NRG #40C"); None where it isn't known."""
    return _MODELS.get(re.sub(r"[^a-z0-9]", "", name.lower()))
