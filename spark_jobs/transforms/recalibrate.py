"""Values computed again from ``raw`` with another calibration.

Always from what the gateway sent, however often it was done before: a reading that was changed carries it in
``extra`` as ``original`` (value, cal, quality, reasons), put there last. So the order of recalibrations does
not matter, and taking the original back gives the reading as it was, bit by bit.

The flag, by what can be judged from a single reading: beyond the sensor's range it fails. Where it failed for
its range under the old calibration alone and lies inside under the new one, that reason goes, and the reading
is *not evaluated* (2): the other tests were made on the old value. CALIBRATION_EXPIRED is judged by the new
calibration's last day where it has one. All other reasons stay, and so does everything else's flag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from pyspark.sql import Column, functions as F

from cloud.wire.reading_records import FAIL, NOT_EVALUATED, SUSPECT

_ORIGINAL: Final = "value double, cal string, quality int, reasons array<string>"
_SUFFIX: Final = r',?"original":(\{"value":[^{}]*"quality":[^{}]*\})\}$'
"""How ``extra`` ends when it was put there by us; another field of that name stands elsewhere."""
_RANGE: Final = ("UNDER_RANGE", "OVER_RANGE")
_EXPIRED: Final = "CALIBRATION_EXPIRED"
_FAILING: Final = (*_RANGE, "READ_ERROR", "CHECKSUM")
_TOLERANCE: Final = 1e-9


@dataclass(frozen=True)
class Linear:
    """A calibration: value = slope · raw + offset, in the channel's units; ``range`` is the sensor's.

    ``rest_is_zero``: raw 0 reads 0. ``saturates_at``: from this raw on (either sign) the converter is at its
    end, and no calibration makes the reading right.
    """

    cal: str
    slope: float
    offset: float
    range: tuple[float, float]
    rest_is_zero: bool = False
    saturates_at: float | None = None
    expires: date | None = None

    def value(self, raw: Column) -> Column:
        """The value of a raw one, computed as the gateway does."""
        linear = F.lit(self.slope) * raw + F.lit(self.offset)
        return F.when(raw == 0, F.lit(0.0)).otherwise(linear) if self.rest_is_zero else linear

    def outside(self, value: Column) -> Column:
        """The reason of a value beyond the sensor's range, or null."""
        lower, upper = self.range
        return F.when(value < lower, _RANGE[0]).when(value > upper, _RANGE[1])

    def has_expired(self, time: Column) -> Column:
        """Whether a time lies after the last day, in UTC; false where there is none."""
        if self.expires is None:
            return F.lit(False)
        return time >= F.lit((self.expires + timedelta(days=1)).isoformat() + "T00:00:00Z").cast("timestamp")


def original() -> Column:
    """What the gateway sent of a reading: value, cal, quality, reasons."""
    kept = F.from_json(F.regexp_extract("extra", _SUFFIX, 1), _ORIGINAL)
    now = F.struct("value", "cal", "quality", "reasons")
    return F.when(F.coalesce(F.col("extra").rlike(_SUFFIX), F.lit(False)), kept).otherwise(now)


def is_linear(old: Linear) -> Column:
    """Whether the gateway's value is what its calibration makes of ``raw``, but for rounding."""
    value = original()["value"]
    apart = F.abs(value - old.value(F.col("raw")))
    return apart <= _TOLERANCE * F.greatest(F.lit(1.0), F.abs(value))


def recalibrated(old: Linear, new: Linear) -> Mapping[str, Column]:
    """The columns that change, of readings of ``old`` that have a value and a raw one."""
    base = original()
    if new.cal == old.cal:
        columns = {name: base[name] for name in ("value", "cal", "quality", "reasons")}
        without = F.regexp_replace("extra", _SUFFIX, "}")
        return {**columns, "extra": F.when(without != "{}", without)}
    value = new.value(F.col("raw"))
    reasons, quality = _judged(base, value, old, new)
    last = F.concat(F.lit('"original":'), F.to_json(base), F.lit("}"))
    extra = (
        F.when(F.col("extra").isNull(), F.concat(F.lit("{"), last))
        .when(F.col("extra").rlike(_SUFFIX), F.col("extra"))
        .otherwise(F.concat(F.expr("substring(extra, 1, length(extra) - 1)"), F.lit(","), last))
    )
    return {"value": value, "cal": F.lit(new.cal), "quality": quality, "reasons": reasons, "extra": extra}


def _judged(base: Column, value: Column, old: Linear, new: Linear) -> tuple[Column, Column]:
    """Reasons and flag of the new value."""
    outside = new.outside(value)
    failed_for_range = (base["quality"] == FAIL) & old.outside(base["value"]).isNotNull()
    if old.saturates_at is not None:
        failed_for_range &= F.abs("raw") < old.saturates_at
    lifted = F.when(failed_for_range, F.array(*map(F.lit, _RANGE))).otherwise(F.array().cast("array<string>"))
    expired = new.has_expired(F.col("time"))
    if new.expires is not None:
        lifted = F.concat(lifted, F.array(F.lit(_EXPIRED)))
    kept = F.array_except(base["reasons"], lifted)
    reasons = F.array_union(kept, F.array_compact(F.array(outside, F.when(expired, _EXPIRED))))
    fewer = F.size(F.array_except(base["reasons"], reasons)) > 0
    remaining = (
        F.when(F.exists(kept, lambda word: word.isin(*_FAILING)) & (base["quality"] == FAIL), FAIL)
        .when(F.size(kept) > 0, SUSPECT)
        .otherwise(NOT_EVALUATED)
    )
    quality = F.when(fewer, remaining).otherwise(base["quality"])
    quality = F.when(expired, F.greatest(quality, F.lit(SUSPECT))).otherwise(quality)
    return reasons, F.when(outside.isNotNull(), FAIL).otherwise(quality).cast("int")
