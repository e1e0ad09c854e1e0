"""What is scored: a mast's interval statistics, each interval with the ones before it."""

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
"""Of one channel in one interval. ``doubted`` is the share of its readings flagged suspect or failed."""


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
