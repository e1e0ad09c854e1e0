"""The readings of the last minutes as a table in memory, for SQL; nothing of it is kept."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa

from cloud.errors import CloudError
from cloud.wire.reading_records import Reading

_COLUMNS: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("gateway", "channel", "quantity", "unit")),
        ("time", pa.timestamp("us", tz="UTC")),
        ("value", pa.float64()),
        ("raw", pa.float64()),
        ("quality", pa.int32()),
        ("reasons", pa.list_(pa.string())),
        ("arrived", pa.timestamp("us", tz="UTC")),
    ]
)


class Window:
    """The table ``readings`` of the last ``window_s`` seconds by ``arrived``, Kafka's time of them."""

    def __init__(self, window_s: float) -> None:
        self._window_us = round(window_s * 1e6)
        self._database = duckdb.connect(":memory:", config={"threads": 1})
        self._database.execute("SET TimeZone = 'UTC'")
        self._database.register("given", _COLUMNS.empty_table())
        self._database.execute("CREATE TABLE readings AS FROM given")

    def take(self, readings: Iterable[tuple[Reading, int]]) -> None:
        """Adds readings, and drops what has become too old."""
        rows = [
            (each.gateway, each.channel, each.quantity, each.unit, each.time_us, each.value, each.raw,
             each.quality, each.reasons, arrived_us)
            for each, arrived_us in readings
        ]  # fmt: skip
        if rows:
            arrays = [
                pa.array(column, field.type)
                for column, field in zip(zip(*rows, strict=True), _COLUMNS, strict=True)
            ]
            self._database.register("given", pa.Table.from_arrays(arrays, schema=_COLUMNS))
            self._database.execute("INSERT INTO readings FROM given")
        oldest_us = time.time_ns() // 1000 - self._window_us
        self._database.execute("DELETE FROM readings WHERE arrived < make_timestamptz(?)", [oldest_us])

    def answer(self, sql: str) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        """Columns and rows. Raises CloudError with DuckDB's words."""
        try:
            found = self._database.execute(sql)
            return [each[0] for each in found.description or ()], found.fetchall()
        except duckdb.Error as error:
            raise CloudError(str(error).partition("\n")[0]) from error
