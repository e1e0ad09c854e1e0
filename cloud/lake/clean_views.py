"""Views over the lake's tables without what the cleaning log marks, for whoever queries it."""

from __future__ import annotations

from typing import Final

import duckdb

CLEAN_VIEWS: Final = {"readings_clean": "readings", "statistics_clean": "statistics"}
"""The views, and the table that each is of."""
WHOLE_MAST: Final = "*"
"""In place of a mark's channel: all of the mast's."""
IN_FORCE: Final = (
    "SELECT * FROM (FROM cleaning QUALIFY row_number() OVER "
    "(PARTITION BY id ORDER BY noted_at DESC, withdrawn DESC) = 1) WHERE NOT withdrawn"
)
"""SQL of the marks in force."""


def add_clean_view(connection: duckdb.DuckDBPyConnection, name: str, table: str, *, has_log: bool) -> None:
    """Makes the view ``name``: ``table`` without what is marked; an interval is, if a part of it is."""
    begin = "time" if table == "readings" else "interval_start"
    end = "time + to_milliseconds(1)" if table == "readings" else "interval_start + to_seconds(interval_s)"
    without = (
        f"""WHERE NOT EXISTS (FROM ({IN_FORCE}) AS mark WHERE mark.gateway = {table}.gateway
            AND (mark.channel IN ('{WHOLE_MAST}', {table}.channel)
                OR starts_with({table}.channel, mark.channel || '.'))
            AND {end} > mark."begin" AND (mark."end" IS NULL OR {begin} < mark."end"))"""
        if has_log
        else ""
    )
    connection.execute(f"CREATE TEMP VIEW {name} AS SELECT * FROM {table} {without}")  # noqa: S608
