"""Flags and reasons in words for the installer at the mast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

QUALITIES: Final[Mapping[int, str]] = {
    1: "good",
    2: "not evaluated",
    3: "suspect",
    4: "fail",
    9: "missing",
}

REASONS: Final[Mapping[str, str]] = {
    "UNDER_RANGE": "below the range",
    "OVER_RANGE": "above the range",
    "STUCK_VALUE": "has not moved for too long",
    "STEP_TOO_HIGH": "jumped further than weather does",
    "SPIKE": "a single reading far from its neighbours",
    "NOISY": "the electrical signal can't be trusted: check plugs, pull-up and supply",
    "READ_ERROR": "the sensor does not answer: check plug, wiring and supply",
    "CHECKSUM": "the answer was damaged on the wire: check the cable and its length",
    "CALIBRATION_EXPIRED": "the calibration has expired",
    "WARMING_UP": "warming up",
    "CLOCK_UNSYNCED": "the time is not known",
    "PAIR_DISAGREES": "differs from its twin",
}
"""By the words of the wire contract; a word that is not here is shown as it is."""
