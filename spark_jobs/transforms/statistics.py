"""Readings to interval statistics: pure, and independent of the order readings arrived in.

The definitions are those of ``interval_sums``, computed in Python workers, in which each interval is whole.
Times in columns named ``_us`` are microseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import TimestampType

from cloud.wire.quantities import KIND
from cloud.wire.reading_records import MISSING, UNSYNCED
from spark_jobs.intervals import SECOND_US
from spark_jobs.schemas import STATISTICS
from spark_jobs.transforms.interval_sums import FLAGS, begins_of, statistics_of

CHANNEL: Final = ("gateway", "channel")
READING: Final = (
    *("gateway", "channel", "quantity", "unit", "time", "period_ms", "value", "quality", "ingested_at"),
)
"""The columns of a reading that its statistics are made of."""
ROWS: Final = STATISTICS.without("version", "updated_at").add("ingested_from", TimestampType())
"""Computed rows; ``ingested_from`` is when the first of an interval's readings came, null without any."""
_ROWS: Final = to_arrow_schema(ROWS)
_AT_ONCE: Final = 100_000
"""Readings a worker computes with at once, unless a single interval has more."""


def begin_of(time_us: Column, interval_s: int) -> Column:
    """Start of the interval a time lies in; intervals are counted from midnight UTC."""
    return time_us - F.pmod(time_us, F.lit(interval_s * SECOND_US))


def timely() -> Column:
    """Whether a reading's time is known: by a clock that was right, or repaired since."""
    return F.col("clock") != UNSYNCED


def counted(prefix: str = "") -> str:
    """SQL: how many readings a row stands for, of whatever quality; 0 in a missing interval."""
    return f"({' + '.join(prefix + name for name in FLAGS)})"


def has_readings() -> Column:
    """Whether a row stands for readings, of whatever quality, and not for a missing interval."""
    return F.expr(f"{counted()} > 0")


def period_in_force(interval_s: int) -> Column:
    """The period of a row in ms; of a version that had no such column the one that gives as many samples."""
    return F.expr(f"coalesce(period_ms, int(round({interval_s * 1000} / expected)))")


def touched_intervals(readings: DataFrame, interval_s: int) -> DataFrame:
    """The intervals (gateway, channel, start_us) that readings belong to, once each.

    Readings of an unsynchronised clock belong to none: their time is not known well enough.
    """
    start_us = begin_of(F.unix_micros("time"), interval_s).alias("start_us")
    return readings.where(timely()).select(*CHANNEL, start_us).distinct()


def _whole_intervals(batches: Iterable[Any], interval_s: int) -> Iterator[Any]:
    """Tables of whole intervals, of readings in order: a batch may end within an interval."""
    pending: list[Any] = []
    for batch in batches:
        pending.append(batch)
        if sum(each.num_rows for each in pending) >= _AT_ONCE:
            readings = pa.Table.from_batches(pending)
            if begin := int(np.flatnonzero(begins_of(readings, interval_s))[-1]):
                yield readings.slice(0, begin)
            pending = readings.slice(begin).to_batches()
    if pending:
        yield pa.Table.from_batches(pending)


def _compute(batches: Iterable[Any], interval_s: int) -> Iterator[Any]:
    for readings in _whole_intervals((each for each in batches if each.num_rows), interval_s):
        yield from statistics_of(readings, interval_s).select(_ROWS.names).cast(_ROWS).to_batches()


def interval_statistics(readings: DataFrame, interval_s: int) -> DataFrame:
    """One row per (gateway, channel, interval_start) of the readings given, with the columns of ROWS.

    ``readings`` hold whole intervals and carry ``start_us``.
    """
    # A total order, so sums add up in the same order whenever they are computed again.
    in_order = readings.repartition(*CHANNEL, "start_us").sortWithinPartitions(*CHANNEL, "time", "run", "seq")
    kind = F.get_json_object("extra", f"$.{KIND}").alias("kind")
    return in_order.select(*READING, kind).mapInArrow(partial(_compute, interval_s=interval_s), ROWS)


def missing_statistics(missing: DataFrame, interval_s: int) -> DataFrame:
    """Rows of missing intervals (gateway, channel, start_us, period_ms, unit): no values, counts of 0."""
    start = F.timestamp_micros("start_us")
    given = {
        **{name: F.col(name) for name in (*CHANNEL, "period_ms", "unit")},
        **{name: F.lit(0) for name in (*FLAGS, "count", "recovery")},
        "interval_s": F.lit(interval_s),
        "interval_start": start,
        "quantity": F.substring_index("channel", ".", -1),
        "expected": interval_s * 1000.0 / F.col("period_ms"),
        "quality": F.lit(MISSING),
        "date": F.to_date(start),
    }
    return missing.select(
        *(given.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in ROWS)
    )
