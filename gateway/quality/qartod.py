"""All tests of one channel, and the flag they result in. Owned by its sampler's thread.

Times are since boot: a clock that is set changes nothing. A reading is tested when it is made, by those
before it; no reading is delayed, and no flag is changed afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from cloud.wire.reading_records import FAIL, GOOD, NOT_EVALUATED, SUSPECT
from drivers.interface import Channel
from gateway.config import QualityRules, SensorConfig
from gateway.config.quality_rules import OPTIONAL_KEYS
from gateway.quality.angles import gathered, near
from gateway.quality.flat_line import FlatLineTest
from gateway.quality.minute_means import MinuteMeans
from gateway.quality.pair import PairTest
from gateway.quality.reasons import range_reasons, worst_flag
from gateway.quality.spike import SpikeTest

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
