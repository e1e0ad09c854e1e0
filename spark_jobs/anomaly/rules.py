"""The baseline beside the network: rules with fixed limits, which need no training.

Each broken rule is given as ``RULE:CHANNEL``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from spark_jobs.anomaly.observations import Flags, Observations

ICING_MAX_C: Final = 2.0
ICING_SD_MPS: Final = 0.1
"""Icing: at most 2 °C, and a cup that varies by less than 0.1 m/s (sd) in an interval."""
STILL_SD_MPS: Final = 0.02
"""A cup turns unevenly in any wind: an sd below this is a cup that stands."""
MOVING_MPS: Final = 2.5
"""Above this mean another cup of the mast turns well: the one that stands should too."""
CONSTANT_MPS: Final = 1.0
"""Above every offset a cup at rest may show; one value above it for a whole interval is no wind."""
MOSTLY: Final = 0.5
"""The gateway flagged more than this share of an interval's readings."""


def _icing(seen: Observations, cups: Flags, valid: Flags) -> Flags:
    thermometers = np.array([name == "temperature" for name in seen.quantities], dtype=bool)
    known = np.where(valid & thermometers, seen.avg, np.inf)[:, 0].min(axis=1, initial=np.inf)
    cold = known <= ICING_MAX_C
    return np.asarray((seen.sd[:, 0] < ICING_SD_MPS) & valid[:, 0] & cups & cold[:, None])


def _dead(seen: Observations, cups: Flags, valid: Flags) -> Flags:
    """Stands in this interval and in the one before, while another cup turned well in both."""
    still = (seen.sd < STILL_SD_MPS) & valid & cups
    turning = (seen.avg > MOVING_MPS) & (seen.sd >= STILL_SD_MPS) & valid & cups
    both = still & turning.any(axis=2, keepdims=True)
    return np.asarray(both[:, 0] & both[:, 1])


def _constant(seen: Observations, cups: Flags, valid: Flags) -> Flags:
    """One value, above any offset, for this interval and the one before."""
    same = (seen.sd == 0) & (seen.avg > CONSTANT_MPS) & valid & cups
    return np.asarray(same[:, 0] & same[:, 1] & (seen.avg[:, 0] == seen.avg[:, 1]))


def broken_rules(seen: Observations) -> list[list[str]]:
    """The rules each interval breaks, in the order below and then of the channels."""
    cups = np.array([name == "wind_speed" for name in seen.quantities], dtype=bool)
    valid = seen.valid
    broken = {
        "icing": _icing(seen, cups, valid),
        "dead": _dead(seen, cups, valid),
        "constant": _constant(seen, cups, valid),
        "doubted": seen.doubted[:, 0] > MOSTLY,
    }
    found: list[list[str]] = [[] for _ in range(len(seen))]
    for rule, where in broken.items():
        for row, column in zip(*np.nonzero(where), strict=True):
            found[row].append(f"{rule}:{seen.channels[column]}")
    return found
