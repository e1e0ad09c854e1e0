"""An export's rows from the lake, some at a time: one of each interval, or of each time that has readings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from cloud.exports.columns import Column, Export
from cloud.lake.answers import batches_of
from cloud.lake.parquet import quoted
from cloud.lake.tables import LazyLakes
from cloud.masts.mast import DAY_MS, within
from cloud.masts.numbers import IS_COVERED

TIME: Final = "time_us"
"""The first column: microseconds since 1970, UTC."""
_DAYS: Final = 28
"""Of statistics at once; of readings it is one."""
_VALID_READING: Final = "quality <= 2"


def batches(lakes: LazyLakes, export: Export) -> Iterator[Any]:
    """Arrow batches with a column for each of the export's, in their order, by time.

    An interval that has no row, or none that counts, is a row without values. Raises LakeError, duckdb.Error.
    """
    table = "readings" if export.interval_s is None else "statistics"
    view = f"{table}_clean" if export.clean else table
    lakes.add(view)
    # Or it keeps what it has read of files, up to most of the machine's memory.
    lakes.connection.execute("SET enable_external_file_cache = false; SET memory_limit = '512MB'")
    there = set(lakes.connection.view(view).columns)
    step = DAY_MS if export.interval_s is None else _DAYS * DAY_MS
    for begin_ms in range(export.begin_ms, export.end_ms, step):
        end_ms = min(begin_ms + step, export.end_ms)
        sql = _sql(export, view, there, begin_ms, end_ms)
        yield from batches_of(lakes.connection.sql(sql, params=[export.mast.gateway]))


def _sql(export: Export, view: str, there: set[str], begin_ms: int, end_ms: int) -> str:
    # By number: DuckDB takes names that differ by case alone for the same.
    values = ", ".join(
        f"{_value(column, there, every=export.every)} AS c{number}"
        for number, column in enumerate(export.columns)
    )
    if export.interval_s is None:
        return (
            f"SELECT epoch_us(time) AS {TIME}, {values} FROM {view} WHERE gateway = ? "  # noqa: S608 - quoted
            f"AND clock IS DISTINCT FROM 'unsynced' AND {within('time', begin_ms, end_ms)} "
            "GROUP BY 1 ORDER BY 1"
        )
    names = ", ".join(f"c{number}" for number in range(len(export.columns)))
    return (
        f"SELECT slot * 1000 AS {TIME}, {names} "  # noqa: S608 - quoted
        f"FROM range({begin_ms}, {end_ms}, {1000 * export.interval_s}) AS due(slot) LEFT JOIN ("
        f"SELECT epoch_ms(interval_start) AS slot, {values} FROM {view} WHERE gateway = ? "
        f"AND interval_s = {export.interval_s} AND {within('interval_start', begin_ms, end_ms)} GROUP BY 1"
        ") AS found USING (slot) ORDER BY slot"
    )


def _value(column: Column, there: set[str], *, every: bool) -> str:
    kind = "BIGINT" if column.figure == "count" else "DOUBLE"
    if column.figure not in there:
        return f"NULL::{kind}"
    valid = _VALID_READING if column.figure == "value" else IS_COVERED
    # How many samples there were is true of an interval that is left out too.
    only = "true" if every or column.figure == "count" else valid
    of_channel = f"channel = {quoted(column.channel.name, chr(39))}"
    return f"max({quoted(column.figure)}) FILTER (WHERE {of_channel} AND {only})::{kind}"
