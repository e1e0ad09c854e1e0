"""Pair test: a channel against its twin and the mast's others: stopped, disagreeing, drifting.

Evaluated once a bin (a minute), by medians of the bins' means: a gust, the wake behind the tower for a part
of the window, or a second's shift between two clocks move a median little. Of two twins that disagree it is
unknown which one is wrong: both are flagged. One thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median, quantiles
from typing import Final

from gateway.config import BIN_S, QualityRules
from gateway.quality.minute_means import SETTLED_AFTER, Bin, MinuteMeans

_SHARE: Final = 0.5
"""A bin counts with this share of its readings, a window with this share of its bins."""
_FEWEST: Final = 3
"""So many means make up the shortest window."""
_BLOCK_S: Final = 600.0
"""A drift is found by means over this, in which two cups some metres apart are in the same wind."""
_BLOCK_BINS: Final = round(_BLOCK_S / BIN_S)
_SMALLEST: Final = 1e-12


class PairTest:
    """One channel's bins beside the others'. ``gathered`` brings differences on a circle near each other."""

    def __init__(
        self,
        sensor: str,
        quantity: str,
        twin: str | None,
        interval_ns: int,
        minute_means: MinuteMeans,
        gathered: Callable[[Sequence[float]], Sequence[float]] = lambda differences: differences,
    ) -> None:
        self._sensor = sensor
        self._quantity = quantity
        self._twin = twin
        self._minute_means = minute_means
        self._gathered = gathered
        self._bin_ns = max(round(BIN_S * 1e9), interval_ns)
        self._fewest = _SHARE * self._bin_ns / interval_ns
        self._index: int | None = None
        self._sum = 0.0
        self._count = 0
        self._at_rest = True
        self._stopped = False
        self._disagrees = False
        minute_means.clear(sensor)

    def test(self, at_ns: int, value: float | None, rules: QualityRules) -> tuple[str, ...]:
        """STUCK_VALUE and PAIR_DISAGREES, where they apply; ``at_ns`` is time since boot.

        Called for each reading, with None where its value is missing or flagged.
        """
        index = at_ns // self._bin_ns
        if index != self._index:
            self._close(rules)
            self._index = index
            self._evaluate(index, rules)
        if value is None:
            return ("PAIR_DISAGREES",) if self._disagrees else ()
        resting = rules.rest_below is not None and value <= rules.rest_below
        self._sum += value
        self._count += 1
        self._at_rest = self._at_rest and resting
        if self._stopped and resting:
            return ("STUCK_VALUE",)
        return ("PAIR_DISAGREES",) if self._disagrees else ()

    def _close(self, rules: QualityRules) -> None:
        if self._index is not None and self._count >= self._fewest:
            longest_s = max(rules.stopped_s or 0.0, rules.pair_window_s or 0.0, rules.drift_window_s or 0.0)
            closed = Bin(self._sum / self._count, self._at_rest)
            kept = max(self._bins_of(longest_s), _FEWEST * _BLOCK_BINS) + SETTLED_AFTER + 1
            self._minute_means.add(self._sensor, self._quantity, self._bin_ns, self._index, closed, kept)
        self._sum, self._count, self._at_rest = 0.0, 0, True

    def _evaluate(self, index: int, rules: QualityRules) -> None:
        last = index - SETTLED_AFTER
        self._stopped = self._is_stopped(last, rules)
        self._disagrees = self._apart(last, rules) or self._drifted(last, rules)

    def _is_stopped(self, last: int, rules: QualityRules) -> bool:
        """At rest for the whole window, while the twin, or any other of the mast, turned in each bin."""
        if rules.stopped_s is None:
            return False
        window = self._window(last, rules.stopped_s)
        mine = self._bins(self._sensor, window)
        if not all(one is not None and one.at_rest for one in mine):
            return False
        return any(
            all(one is not None and one.mean > limit for one in self._bins(other, window))
            for other in self._minute_means.others(self._sensor, self._quantity, self._bin_ns)
            if (limit := rules.twin_above if other == self._twin else rules.mast_above) is not None
        )

    def _apart(self, last: int, rules: QualityRules) -> bool:
        """By the median of the window's bins."""
        if rules.pair_absolute is None or rules.pair_window_s is None:
            return False
        window = self._window(last, rules.pair_window_s, _FEWEST)
        excesses = self._excesses(window, 1, rules.pair_absolute, rules.pair_relative, rules)
        return excesses is not None and abs(median(excesses)) > 1

    def _drifted(self, last: int, rules: QualityRules) -> bool:
        """By the median of longer means over a longer window, and only where they agree with one another.

        The deficit in the tower's wake changes with every degree of the wind's direction; a drift stays: the
        middle half of the means lies within one tolerance.
        """
        if rules.drift_absolute is None or rules.drift_window_s is None:
            return False
        block = self._bins_of(_BLOCK_S)
        window = self._window(last, rules.drift_window_s, _FEWEST * block)
        excesses = self._excesses(window, block, rules.drift_absolute, rules.drift_relative, rules)
        if excesses is None:
            return False
        lower, middle, upper = quantiles(excesses, n=4, method="inclusive")
        return abs(middle) > 1 and upper - lower < 1

    def _excesses(
        self, window: range, block: int, absolute: float, relative: float | None, rules: QualityRules
    ) -> list[float] | None:
        """How many tolerances the twins' means are apart, signed; None where too few count.

        A mean is over ``block`` bins, of those in which both moved, and counts above ``pair_above``.
        """
        if self._twin is None:
            return None
        sums: dict[int, tuple[float, float, int]] = {}
        both = zip(window, self._bins(self._sensor, window), self._bins(self._twin, window), strict=True)
        moved = [
            (index, mine, theirs)
            for index, mine, theirs in both
            if mine is not None and theirs is not None and not (mine.at_rest or theirs.at_rest)
        ]
        differences = self._gathered([mine.mean - theirs.mean for _, mine, theirs in moved])
        for (index, mine, theirs), difference in zip(moved, differences, strict=True):
            apart, both_sum, count = sums.get(index // block, (0.0, 0.0, 0))
            sums[index // block] = apart + difference, both_sum + mine.mean + theirs.mean, count + 1
        excesses = []
        for apart, both_sum, count in sums.values():
            level = both_sum / 2 / count
            if rules.pair_above is None or level > rules.pair_above:
                tolerance = max(absolute, (relative or 0.0) * abs(level), _SMALLEST)
                excesses.append(apart / count / tolerance)
        enough = len(excesses) >= max(_FEWEST, _SHARE * len(window) / block)
        return excesses if enough else None

    def _bins(self, sensor: str, window: Sequence[int]) -> list[Bin | None]:
        return self._minute_means.bins(sensor, self._quantity, self._bin_ns, window)

    def _window(self, last: int, window_s: float, fewest: int = 1) -> range:
        return range(last - max(self._bins_of(window_s), fewest) + 1, last + 1)

    def _bins_of(self, window_s: float) -> int:
        return max(1, round(window_s * 1e9 / self._bin_ns))
