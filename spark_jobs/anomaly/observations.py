"""What is scored: a mast's interval statistics, each interval with the ones before it.

The baseline beside the network is here too: rules with fixed limits, which need no training. Each broken rule
is given as ``RULE:CHANNEL``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

WINDOW: Final = 3
"""Intervals looked at for one score: the interval itself and those before it."""

LEAST_RECOVERY: Final = 0.5
"""A channel with less of its expected readings in an interval counts as missing there: mean and sd of a fifth
of an interval aren't comparable with those of a whole one."""

FIELDS: Final = ("avg", "sd", "max", "recovery", "doubted")
"""A channel in an interval. ``doubted`` is the share of its readings flagged suspect or failed."""


@dataclass(frozen=True)
class Observations:
    """Statistics of n intervals of one mast by channel; arrays are (n, WINDOW, channels).

    Index 0 of the second axis is the interval itself, 1 the one before it. NaN is what isn't known.
    """

    channels: tuple[str, ...]
    quantities: tuple[str, ...]
    avg: Numbers
    sd: Numbers
    max: Numbers
    recovery: Numbers
    doubted: Numbers

    def __len__(self) -> int:
        return len(self.avg)

    @property
    def valid(self) -> Flags:
        """Where a channel has a mean of at least half its expected readings."""
        return np.isfinite(self.avg) & (self.recovery >= LEAST_RECOVERY)

    def of(self, channels: tuple[str, ...]) -> Observations:
        """The same intervals with these channels in this order; one that isn't here is missing throughout."""
        at = {name: index for index, name in enumerate(self.channels)}
        columns = [at.get(name, -1) for name in channels]

        def pick(values: Numbers) -> Numbers:
            # A last column of NaN stands for what isn't here.
            return np.pad(values, ((0, 0), (0, 0), (0, 1)), constant_values=np.nan)[:, :, columns]

        quantities = tuple(name.partition(".")[2] for name in channels)
        return Observations(channels, quantities, *(pick(getattr(self, name)) for name in FIELDS))

    def rows(self, chosen: Flags | npt.NDArray[np.int64]) -> Observations:
        """Some of the intervals, by flags or by their numbers."""
        fields = (getattr(self, name)[chosen] for name in FIELDS)
        return Observations(self.channels, self.quantities, *fields)


def gather(windows: Mapping[str, Any]) -> Observations:
    """Observations from one array per interval and field: ``lag``, ``channel`` and FIELDS, entry by entry."""
    lengths = [len(lags) for lags in windows["lag"]]
    row = np.repeat(np.arange(len(lengths)), lengths)

    def flat(name: str, kind: Any) -> npt.NDArray[Any]:
        parts = [np.asarray(values, dtype=kind) for values in windows[name]]
        return np.concatenate(parts) if parts else np.empty(0, dtype=kind)

    lag = flat("lag", np.int64)
    names, column = np.unique(flat("channel", object).astype(str), return_inverse=True)
    channels = tuple(str(name) for name in names)

    def spread(name: str) -> Numbers:
        values = np.full((len(lengths), WINDOW, len(channels)), np.nan)
        values[row, lag, column] = flat(name, np.float64)
        return values

    quantities = tuple(name.partition(".")[2] for name in channels)
    return Observations(channels, quantities, *(spread(name) for name in FIELDS))


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
        # Both this interval and the one before.
        "dead": standing[:, 0] & standing[:, 1],
        "constant": same[:, 0] & same[:, 1] & (seen.avg[:, 0] == seen.avg[:, 1]),
        "doubted": seen.doubted[:, 0] > MOSTLY,
    }
    found: list[list[str]] = [[] for _ in range(len(seen))]
    for rule, where in broken.items():
        for row, column in zip(*np.nonzero(where), strict=True):
            found[row].append(f"{rule}:{seen.channels[column]}")
    return found
