"""Readings to interval statistics: pure, and independent of the order readings arrived in.

The definitions are those of ``interval_sums``, computed in Python workers, in which each interval is whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cloud.wire.reading_records import UNSYNCED
from spark_jobs.intervals import SECOND_US
from spark_jobs.schemas import STATISTICS
from spark_jobs.transforms.interval_sums import FLAGS, ReadingsByInterval

READING: Final = ("gateway", "channel", "quantity", "unit", "time", "period_ms", "value", "quality")
"""The columns of a reading that its statistics are made of."""
ROWS: Final = StructType(
    [field for field in STATISTICS.schema if field.name not in ("version", "updated_at")]
)
_ROWS: Final = to_arrow_schema(ROWS)
_AT_ONCE: Final = 100_000
"""Readings a worker computes with at once, unless a single interval has more."""


def interval_start(time: Column, interval_s: int) -> Column:
    """Start of the interval a time lies in; intervals are counted from midnight UTC."""
    length_us = interval_s * SECOND_US
    micros = F.unix_micros(time)
    return F.timestamp_micros(micros - F.pmod(micros, F.lit(length_us)))


def timely() -> Column:
    """Whether a reading's time is known: by a clock that was right, or repaired since."""
    return F.col("clock") != UNSYNCED


def counted(prefix: str = "") -> str:
    """SQL: how many readings a row stands for, of whatever quality; 0 in a missing interval."""
    return f"({' + '.join(prefix + name for name in FLAGS)})"


def touched_intervals(readings: DataFrame, interval_s: int) -> DataFrame:
    """The (gateway, channel, interval_start) that readings belong to, once each.

    Readings of an unsynchronised clock belong to none: their time is not known well enough.
    """
    return (
        readings.where(timely())
        .select("gateway", "channel", interval_start(F.col("time"), interval_s).alias("interval_start"))
        .distinct()
    )


def _whole_intervals(batches: Iterable[Any], interval_s: int) -> Iterator[Any]:
    """Tables of whole intervals, of readings in order: a batch may end within an interval."""
    pending: list[Any] = []
    for batch in batches:
        pending.append(batch)
        if sum(each.num_rows for each in pending) >= _AT_ONCE:
            readings = pa.Table.from_batches(pending)
            if begin := int(ReadingsByInterval(readings, interval_s).begins[-1]):
                yield readings.slice(0, begin)
            pending = readings.slice(begin).to_batches()
    if pending:
        yield pa.Table.from_batches(pending)


def _compute(batches: Iterable[Any], interval_s: int) -> Iterator[Any]:
    for readings in _whole_intervals((each for each in batches if each.num_rows), interval_s):
        yield from (
            ReadingsByInterval(readings, interval_s).rows().select(_ROWS.names).cast(_ROWS).to_batches()
        )


def interval_statistics(readings: DataFrame, interval_s: int) -> DataFrame:
    """One row per (gateway, channel, interval_start) of the readings given, with the columns of ROWS.

    ``readings`` hold whole intervals and carry ``interval_start``.
    """
    # A total order, so sums add up in the same order whenever they are computed again.
    in_order = readings.repartition("gateway", "channel", "interval_start").sortWithinPartitions(
        "gateway", "channel", "time", "run", "seq"
    )
    return in_order.select(*READING).mapInArrow(partial(_compute, interval_s=interval_s), ROWS)
