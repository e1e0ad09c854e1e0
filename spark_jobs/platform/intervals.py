"""Intervals of statistics, the UTC days they lie in, and spans. Times are microseconds since the epoch.

A span has ``begin_us`` and ``end_us``, which isn't included.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions as F

SECOND_US: Final = 1_000_000
DAY_US: Final = 86_400 * SECOND_US
FOREVER_US: Final = 1 << 62
"""Before and after all times; differences still fit."""
TIMES: Final = pa.timestamp("us", tz="UTC")
"""The Arrow type of times."""

_FIRST_S: Final = -62_135_596_800
_LAST_S: Final = 253_402_300_799
"""Seconds of the years 1 to 9999, which is what a date can hold."""


def day_of(time_us: int) -> date:
    """The UTC day of a time; the first or last date there is where the time lies beyond."""
    return datetime.fromtimestamp(min(max(time_us // SECOND_US, _FIRST_S), _LAST_S), UTC).date()


def moment_of(time_us: int) -> datetime:
    """A time as Spark takes it."""
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time_us)


def now_us() -> int:
    """The wall clock."""
    return time.time_ns() // 1000


def periods_as_spans() -> Column:
    """A row for each of ``periods`` of a calibration record, ±FOREVER_US where it is unbounded."""
    spans = F.transform(
        "periods",
        lambda each: F.struct(
            F.coalesce(F.unix_micros(each["begin"]), F.lit(-FOREVER_US)).alias("begin_us"),
            F.coalesce(F.unix_micros(each["end"]), F.lit(FOREVER_US)).alias("end_us"),
        ),
    )
    return F.inline(spans)


def changed_spans(spans: DataFrame, key: Sequence[str], use: Sequence[str] = ()) -> DataFrame:
    """By key the time in which its spans, or what is made of them (``use``), are others than before.

    A row is a span; its ``sign`` is -1 for what was there, 1 for what is: states in between cancel out.
    """
    edge = F.explode(F.expr("map(true, begin_us, false, end_us)")).alias("begins", "at_us")
    return (
        spans.select(*key, *use, "sign", edge)
        .groupBy(*key, *use, "begins", "at_us")
        .agg(F.sum("sign").alias("sign"))
        .where("sign != 0")
        .groupBy(*key)
        .agg(F.min("at_us").alias("begin_us"), F.max("at_us").alias("end_us"))
    )
