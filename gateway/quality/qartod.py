"""All tests of one channel, and the flag they come to. Owned by its sampler's thread.

Times are since boot: a clock that is set changes nothing. A reading is judged when it is made, by what came
before it; nothing is delayed, and no flag is changed afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from cloud.wire.schema import FAIL, GOOD, NOT_EVALUATED, SUSPECT
from drivers.interface import Channel
from gateway.config import QualityRules, SensorConfig
from gateway.config.quality_rules import OPTIONAL_KEYS
from gateway.quality.flags import range_reasons, worst_held
from gateway.quality.flat_line import FlatLineTest
from gateway.quality.minute_means import MinuteMeans
from gateway.quality.pair import Comparison
from gateway.quality.spike import SpikeTest

_UNTESTED: Final = QualityRules()


@dataclass(frozen=True, slots=True)
class Verdict:
    """A value's QARTOD flag, and the words for what speaks against it."""

    quality: int
    reasons: tuple[str, ...]


class QartodTests:
    """Judges one channel's values, in the order of time. ``rules`` may be exchanged by any thread."""

    def __init__(
        self, sensor: SensorConfig, channel: Channel, mates: MinuteMeans, *, accumulates: bool
    ) -> None:
        interval_ns = round(sensor.interval_s * 1e9)
        self.rules = sensor.quality.get(channel.quantity, _UNTESTED)
        self._channel = channel
        self._paired = sensor.pair is not None
        # A count over less than a second is coarse: one pulse more or less would look like a gust.
        scale = max(1.0, 1.0 / sensor.interval_s) if accumulates else 1.0
        self._jumps = SpikeTest(scale)
        self._stillness = FlatLineTest(interval_ns)
        self._comparison = Comparison(sensor.name, channel.quantity, sensor.pair, interval_ns, mates)

    def judge(self, at_ns: int, value: float, held: tuple[str, ...] = ()) -> Verdict:
        """The verdict on a finite value; ``held`` are the driver's own reasons against it."""
        rules = self.rules
        failed = (*held, *range_reasons(value, self._channel))
        worst = worst_held(failed)
        believable = worst != FAIL
        reasons = list(failed)
        if rules.site_range is not None and not rules.site_range[0] <= value <= rules.site_range[1]:
            reasons.append("UNDER_RANGE" if value < rules.site_range[0] else "OVER_RANGE")
        if believable:
            jumped = self._jumps.test(at_ns, value, rules)
            reasons += jumped
            believable = not jumped
        if self._stillness.test(at_ns, value, rules):
            reasons.append("STUCK_VALUE")
        reasons += self._comparison.test(at_ns, value if believable else None, rules)
        if not reasons:
            return Verdict(GOOD if self._tested(rules) else NOT_EVALUATED, ())
        return Verdict(max(worst, SUSPECT), tuple(dict.fromkeys(reasons)))

    def missing(self, at_ns: int) -> None:
        """Tell that there was no value."""
        self._comparison.test(at_ns, None, self.rules)

    def _tested(self, rules: QualityRules) -> bool:
        if math.isfinite(self._channel.lower) or math.isfinite(self._channel.upper):
            return True
        return any(
            getattr(rules, keys[0]) is not None and (self._paired or test not in ("pair", "drift"))
            for test, keys in OPTIONAL_KEYS.items()
        )
