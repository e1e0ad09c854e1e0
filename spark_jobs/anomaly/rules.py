"""The baseline beside the network: rules with fixed limits, which need no training.

Each broken rule is given as ``RULE:CHANNEL``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from spark_jobs.anomaly.observations import Observations

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


def broken_rules(seen: Observations) -> list[list[str]]:
    """The rules each interval breaks, in the order below and then of the channels."""
    cups, thermometers = (
        np.array([name == wanted for name in seen.quantities], dtype=bool)
        for wanted in ("wind_speed", "temperature")
    )
    lowest_c = np.where(seen.valid & thermometers, seen.avg, np.inf).min(axis=2, initial=np.inf)
    valid = seen.valid & cups
    turning = valid & (seen.avg > MOVING_MPS) & (seen.sd >= STILL_SD_MPS)
    standing = valid & (seen.sd < STILL_SD_MPS) & turning.any(axis=2, keepdims=True)
    same = valid & (seen.sd == 0) & (seen.avg > CONSTANT_MPS)
    broken = {
        "icing": valid[:, 0] & (seen.sd[:, 0] < ICING_SD_MPS) & (lowest_c[:, :1] <= ICING_MAX_C),
        # In this interval and in the one before.
        "dead": standing[:, 0] & standing[:, 1],
        "constant": same[:, 0] & same[:, 1] & (seen.avg[:, 0] == seen.avg[:, 1]),
        "doubted": seen.doubted[:, 0] > MOSTLY,
    }
    found: list[list[str]] = [[] for _ in range(len(seen))]
    for rule, where in broken.items():
        for row, column in zip(*np.nonzero(where), strict=True):
            found[row].append(f"{rule}:{seen.channels[column]}")
    return found
