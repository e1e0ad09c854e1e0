"""All tests of one channel, and the flag they result in. Owned by its sampler's thread.

Times are since boot: a clock that is set changes nothing. A reading is tested when it is made, by those
before it; no reading is delayed, and no flag is changed afterwards.

The flat line test finds a value that doesn't change where it should; the tests of rate of change and spikes
find a value too far from the level before it.

QARTOD's spike test compares a value with the one before and the one after. A live reading can't wait for the
one after, so a spike is one by the scatter of the last minutes, and the reading after it decides on the
level: one close to the suspect value confirms a new level, which is flagged no more.

The pair test holds a channel against its twin and the mast's others: stopped, disagreeing, drifting. It is
evaluated once a bin (a minute), by medians of the bins' means: a gust, the wake behind the tower for a part
of the window, or a second's shift between two clocks move a median little. Nobody can say which of two twins
that disagree is wrong: both are flagged. A channel adds the mean of a bin, which is counted in time since
boot, when it is over. Comparisons use bins up to the one before the last: every sampler has added those, so
no comparison depends on how threads are scheduled. Directions are compared on the circle.

Source: US IOOS QARTOD manuals (flags 1, 2, 3, 4, 9; roll-up: the worst flag wins, missing stands alone).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Final, NamedTuple

from cloud.wire.reading_records import FAIL, GOOD, MISSING, NOT_EVALUATED, SUSPECT
from drivers.interface import Channel
from gateway.config import BIN_S, QualityRules, SensorConfig
from gateway.config.quality import OPTIONAL_KEYS


class Reason(NamedTuple):
    """What a reason leads to, and means."""

    flag: int
    text: str


REASONS: Final[Mapping[str, Reason]] = {
    "UNDER_RANGE": Reason(FAIL, "below the range"),
    "OVER_RANGE": Reason(FAIL, "above the range"),
    "READ_ERROR": Reason(MISSING, "the sensor does not answer: check plug, wiring and supply"),
    "CHECKSUM": Reason(MISSING, "the answer was damaged on the wire: check the cable and its length"),
    "STUCK_VALUE": Reason(SUSPECT, "has not moved for too long"),
    "STEP_TOO_HIGH": Reason(SUSPECT, "jumped further than weather does"),
    "SPIKE": Reason(SUSPECT, "a single reading far from its neighbours"),
    "NOISY": Reason(SUSPECT, "the electrical signal can't be trusted: check plugs, pull-up and supply"),
    "PAIR_DISAGREES": Reason(SUSPECT, "differs from its twin"),
    "CALIBRATION_EXPIRED": Reason(SUSPECT, "the calibration has expired"),
    "WARMING_UP": Reason(SUSPECT, "warming up"),
    "DEAD_BAND": Reason(SUSPECT, "the vane points into its dead band: within some degrees of it"),
    "CLOCK_UNSYNCED": Reason(SUSPECT, "the time is not known"),
}
"""Those of the wire contract. Ranges are the sensor's own here; beyond the site's a value is suspect."""


def worst_flag(reasons: Iterable[str]) -> int:
    """The flag of a value that is there, by its reasons: at most fail, good without any.

    A reason that isn't of the wire contract (a driver's own) makes it suspect.
    """
    flags = (REASONS[reason].flag if reason in REASONS else SUSPECT for reason in reasons)
    return max((min(each, FAIL) for each in flags), default=GOOD)


def range_reasons(value: float, channel: Channel) -> tuple[str, ...]:
    """Gross range test against the sensor's range, in the channel's unit."""
    if value < channel.lower:
        return ("UNDER_RANGE",)
    if value > channel.upper:
        return ("OVER_RANGE",)
    return ()


def turned(degrees: float) -> float:
    """A difference of directions as the shorter way round: -180 to below 180 degrees."""
    return (degrees + 180.0) % 360.0 - 180.0


def near(direction: float, other: float) -> float:
    """A direction as so many degrees that the shorter way leads there from another: 361 near 359."""
    return other + turned(direction - other)


def gathered(differences: Sequence[float]) -> list[float]:
    """Differences of directions near their mean on the circle, itself within half a turn of 0.

    However often one of two vanes turned round, and on either side of half a turn.
    """
    radians = [math.radians(each) for each in differences]
    middle = math.degrees(math.atan2(sum(map(math.sin, radians)), sum(map(math.cos, radians))))
    return [near(each, middle) for each in differences]


SETTLED_AFTER: Final = 2
"""All samplers have added the bins that are this many before the one under way."""


@dataclass(frozen=True, slots=True)
class Bin:
    """A channel's mean over one bin, and whether it was at rest all the time."""

    mean: float
    at_rest: bool


class MinuteMeans:
    """The latest bins of each channel."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bins: dict[tuple[str, str, int], dict[int, Bin]] = {}

    def add(self, sensor: str, quantity: str, bin_ns: int, index: int, added: Bin, kept: int) -> None:
        """Add a bin that is over; ``kept`` is how many bins the channel needs."""
        with self._lock:
            bins = self._bins.setdefault((sensor, quantity, bin_ns), {})
            bins[index] = added
            for old in [old for old in bins if not index - kept < old <= index]:
                del bins[old]

    def clear(self, sensor: str) -> None:
        """Delete the bins of a sensor that is replaced or gone."""
        with self._lock:
            for key in [key for key in self._bins if key[0] == sensor]:
                del self._bins[key]

    def bins(self, sensor: str, quantity: str, bin_ns: int, indices: Iterable[int]) -> list[Bin | None]:
        """A channel's bins, None where it added none."""
        with self._lock:
            found = self._bins.get((sensor, quantity, bin_ns), {})
            return [found.get(index) for index in indices]

    def others(self, sensor: str, quantity: str, bin_ns: int) -> list[str]:
        """The other sensors of a quantity."""
        with self._lock:
            return [
                other
                for other, theirs, length_ns in self._bins
                if (theirs, length_ns) == (quantity, bin_ns) and other != sensor
            ]


_ROUNDING: Final = 1e-9
"""Rounding of decimal figures as doubles."""
_SHARE: Final = 0.5
"""A bin counts with this share of its readings, a window with this share of its bins."""
_FEWEST: Final = 3
"""The shortest window has so many means."""
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
        """Judges by the median of the window's bins."""
        if rules.pair_absolute is None or rules.pair_window_s is None:
            return False
        window = self._window(last, rules.pair_window_s, _FEWEST)
        excesses = self._excesses(window, 1, rules.pair_absolute, rules.pair_relative, rules)
        return excesses is not None and abs(median(excesses)) > 1

    def _drifted(self, last: int, rules: QualityRules) -> bool:
        """Whether the median of long means is off, over a long window, where they agree with one another.

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


_CONFIRMS: Final = 0.5
"""A suspect value is confirmed by a next one this share of the limit away from it, at most."""
_MEMORY: Final = 60
"""Readings over which mean and scatter are taken (their weight falls off exponentially)."""
_WARM_UP: Final = 20
"""Readings before the scatter is used."""
_SIGMA: Final = 1.2533
"""Standard deviation over mean absolute deviation, of a normal distribution."""
_GAP_NS: Final = 60_000_000_000
"""WMO's limits are for readings up to a minute apart."""


class SpikeTest:
    """The level of one channel, and how much it scatters.

    ``scale`` widens the limits where one reading's resolution is coarse.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale
        self._at_ns: int | None = None
        self._level = 0.0
        self._suspect: float | None = None
        self._count = 0
        self._mean = 0.0
        self._scatter = 0.0

    def test(self, at_ns: int, value: float, rules: QualityRules) -> tuple[str, ...]:
        """STEP_TOO_HIGH and SPIKE, where they apply; ``at_ns`` is time since boot, which only grows."""
        before_ns, self._at_ns = self._at_ns, at_ns
        if before_ns is None or not 0 < at_ns - before_ns <= _GAP_NS:
            self._reset(value)
            return ()
        reasons: tuple[str, ...] = ()
        limit = math.inf
        if rules.max_step is not None:
            limit = rules.max_step * self._scale
            if abs(value - self._level) > limit + _ROUNDING:
                reasons = ("STEP_TOO_HIGH",)
        if rules.spike is not None and self._count >= _WARM_UP:
            factor = rules.spike_factor or 0.0
            deviation = max(rules.spike * self._scale, factor * _SIGMA * self._scatter)
            limit = min(limit, deviation)
            if abs(value - self._mean) > deviation:
                reasons = (*reasons, "SPIKE")
        if not reasons:
            self._take(value)
        elif self._suspect is not None and abs(value - self._suspect) <= _CONFIRMS * limit:
            self._reset(value)
            return ()
        else:
            self._suspect = value
        return reasons

    def _take(self, value: float) -> None:
        self._level, self._suspect = value, None
        self._count += 1
        weight = 1 / min(self._count, _MEMORY)
        deviation = value - self._mean
        self._mean += weight * deviation
        if self._count > 1:
            self._scatter += weight * (abs(deviation) - self._scatter)

    def _reset(self, value: float) -> None:
        self._level, self._suspect = value, None
        self._count, self._mean, self._scatter = 1, value, 0.0


_FEWEST_READINGS: Final = 6
"""Fewer readings are no flat line, however long they took."""


class FlatLineTest:
    """How long a channel's value has not changed, and how long it has been at rest."""

    def __init__(self, interval_ns: int) -> None:
        self._longest_gap_ns = max(600_000_000_000, 3 * interval_ns)
        self._at_ns: int | None = None
        self._flat_since_ns = 0
        self._flat_count = 0
        self._lowest = self._highest = 0.0
        self._rest_since_ns: int | None = None

    def test(self, at_ns: int, value: float, rules: QualityRules) -> bool:
        """Whether the value is stuck; ``at_ns`` is time since boot, which only grows.

        No change is expected at or below ``rest_below``: there only the time at rest is bounded.
        """
        before_ns, self._at_ns = self._at_ns, at_ns
        if before_ns is None or not 0 < at_ns - before_ns <= self._longest_gap_ns:
            # Its values in between are unknown.
            self._flat_count, self._rest_since_ns = 0, None
        lowest, highest = min(self._lowest, value), max(self._highest, value)
        if self._flat_count and highest - lowest <= (rules.flat_within or 0.0) + _ROUNDING:
            self._lowest, self._highest = lowest, highest
            self._flat_count += 1
        else:
            self._lowest = self._highest = value
            self._flat_since_ns, self._flat_count = at_ns, 1
        if rules.rest_below is not None and value <= rules.rest_below:
            if self._rest_since_ns is None:
                self._rest_since_ns = at_ns
            return rules.rest_s is not None and at_ns - self._rest_since_ns >= rules.rest_s * 1e9
        self._rest_since_ns = None
        return (
            rules.flat_s is not None
            and self._flat_count >= _FEWEST_READINGS
            and at_ns - self._flat_since_ns >= rules.flat_s * 1e9
        )


_UNTESTED: Final = QualityRules()


@dataclass(frozen=True, slots=True)
class Flagged:
    """A value's QARTOD flag, and the reasons for it."""

    quality: int
    reasons: tuple[str, ...]


class QartodTests:
    """Tests one channel's values, in the order of time. ``rules`` may be replaced by any thread."""

    def __init__(
        self, sensor: SensorConfig, channel: Channel, minute_means: MinuteMeans, *, accumulates: bool
    ) -> None:
        interval_ns = round(sensor.interval_s * 1e9)
        self.rules = sensor.quality.get(channel.quantity, _UNTESTED)
        self._channel = channel
        self._paired = sensor.pair is not None
        # A count over less than a second is coarse: one pulse more or less would look like a gust.
        scale = max(1.0, 1.0 / sensor.interval_s) if accumulates else 1.0
        self._spike = SpikeTest(scale)
        self._flat_line = FlatLineTest(interval_ns)
        # A direction is followed beyond north, so that the tests see what it turned.
        self._course = 0.0 if sensor.kind_of(channel.quantity) == "direction" else None
        self._pair = PairTest(
            sensor.name,
            channel.quantity,
            sensor.pair,
            interval_ns,
            minute_means,
            *(() if self._course is None else (gathered,)),
        )

    def test(self, at_ns: int, value: float, driver_reasons: tuple[str, ...] = ()) -> Flagged:
        """The flag of a finite value; ``driver_reasons`` are those that its driver found."""
        rules = self.rules
        reasons = [*driver_reasons, *range_reasons(value, self._channel)]
        worst = worst_flag(reasons)
        plausible = worst != FAIL
        if rules.site_range is not None and not rules.site_range[0] <= value <= rules.site_range[1]:
            reasons.append("UNDER_RANGE" if value < rules.site_range[0] else "OVER_RANGE")
        if self._course is not None:
            value = self._course = near(value, self._course)
        if plausible:
            jumped = self._spike.test(at_ns, value, rules)
            reasons += jumped
            plausible = not jumped
        if self._flat_line.test(at_ns, value, rules):
            reasons.append("STUCK_VALUE")
        reasons += self._pair.test(at_ns, value if plausible else None, rules)
        if not reasons:
            return Flagged(GOOD if self._tested(rules) else NOT_EVALUATED, ())
        return Flagged(max(worst, SUSPECT), tuple(dict.fromkeys(reasons)))

    def missing(self, at_ns: int) -> None:
        """Note a reading without a value."""
        self._pair.test(at_ns, None, self.rules)

    def _tested(self, rules: QualityRules) -> bool:
        if math.isfinite(self._channel.lower) or math.isfinite(self._channel.upper):
            return True
        return any(
            getattr(rules, keys[0]) is not None and (self._paired or test not in ("pair", "drift"))
            for test, keys in OPTIONAL_KEYS.items()
        )
