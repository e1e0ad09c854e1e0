"""Parquet with types; each field's metadata has its unit, channel and statistic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cloud.exports.columns import Export
from cloud.masts.mast import utc_offset


class ParquetFile:
    """Rows in groups as they come. Times are the start of the interval, with their zone."""

    def __init__(self, path: Path, export: Export) -> None:
        zone = utc_offset(export.offset_min) if export.offset_min else "UTC"
        meaning = {"meaning": "start of the period the row stands for"}
        fields = [pa.field(export.time, pa.timestamp("us", tz=zone), metadata=meaning)]
        for column in export.columns:
            of = column.channel
            height = {} if of.height_m is None else {"height_m": str(of.height_m)}
            about = {"unit": column.unit, "channel": of.name, "statistic": column.figure,
                     "quantity": of.quantity, "meaning": column.meaning, **height}  # fmt: skip
            kind = pa.int64() if column.figure == "count" else pa.float64()
            fields.append(pa.field(column.name, kind, metadata=about))
        whole = {"mast": export.mast.gateway, "interval_s": str(export.interval_s or "")}
        self._schema = pa.schema(fields, metadata=whole)
        self._writer = pq.ParquetWriter(path, self._schema)

    def write(self, batch: Any) -> None:
        """Adds rows."""
        arrays = [array.cast(field.type) for array, field in zip(batch.columns, self._schema, strict=True)]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))

    def close(self) -> None:
        """No more rows."""
        self._writer.close()
