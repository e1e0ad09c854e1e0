"""Readings outside of Spark, put together by interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cloud.wire.schema import GOOD, NOT_EVALUATED
from spark_jobs.intervals import SECOND_US, Interval
from spark_jobs.transforms.running_statistics import Floats, Ints


class ReadingsByInterval:
    """Readings of an Arrow table, interval by interval, in the order of time.

    Columns: gateway, channel, quantity, unit, time, period_ms, value, quality, and ``added``: whether the row
    is a new one, and no correction. Those of ``intervals[n]`` are from ``begins[n]`` to before ``ends[n]``;
    quantity and period are those of its first reading, the unit that of its last. ``regular`` says whether
    its readings are new, of different times, and of one period and quantity, with numbers where they enter
    the statistics.
    """

    def __init__(self, readings: Any, interval_s: int) -> None:
        rows = readings.append_column("time_us", readings["time"].cast(pa.int64())).sort_by(
            [(name, "ascending") for name in ("gateway", "channel", "time_us")]
        )
        self.time_us: Ints = rows["time_us"].to_numpy()
        self.values: Floats = rows["value"].to_numpy()
        self.quality: NDArray[np.int32] = rows["quality"].to_numpy()
        self.enters = (self.quality == GOOD) | (self.quality == NOT_EVALUATED)
        start_us = self.time_us - self.time_us % (interval_s * SECOND_US)
        first = _differs(start_us) | _differs(_codes(rows["gateway"])) | _differs(_codes(rows["channel"]))
        first[:1] = True
        self.begins: Ints = np.flatnonzero(first)
        self.ends: Ints = np.append(self.begins, len(first))[1:]
        at_first, at_last = rows.take(pa.array(self.begins)), rows.take(pa.array(self.ends - 1))
        self.quantity: list[str] = at_first["quantity"].to_pylist()
        self.period_ms: Ints = at_first["period_ms"].to_numpy().astype(np.int64)
        self.unit: list[str] = at_last["unit"].to_pylist()
        channels = zip(at_first["gateway"].to_pylist(), at_first["channel"].to_pylist(), strict=True)
        self.intervals: list[Interval] = list(zip(channels, start_us[self.begins].tolist(), strict=True))
        unlike = ~_differs(self.time_us) | _differs(_codes(rows["quantity"]))
        unlike |= _differs(rows["period_ms"].to_numpy())
        irregular = (unlike & ~first) | (self.enters & ~np.isfinite(self.values)) | ~rows["added"].to_numpy()
        # Of an interval the rows are counted: an empty table has none to reduce.
        counted = np.append(0, np.cumsum(irregular))
        self.regular = counted[self.ends] == counted[self.begins]


def _codes(column: Any) -> Ints:
    codes: Ints = column.combine_chunks().dictionary_encode().indices.to_numpy()
    return codes


def _differs(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value is another than the one before it; the first one isn't."""
    return np.append(False, values[1:] != values[:-1])[: len(values)]
