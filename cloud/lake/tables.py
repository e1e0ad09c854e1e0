"""The lake's tables for people and programs without Spark: delta-rs reads them, DuckDB queries them.

Names, not paths: a table is a folder of the lake with a Delta log; those whose names begin with an underscore
are the jobs' own. Needs the extra ``analyst``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

import duckdb
from deltalake import DeltaTable

from cloud.errors import CloudError

FILLED_BY: Final = {
    **dict.fromkeys(("readings", "quarantine", "messages", "channels", "runs"), "fieldgate jobs run ingest"),
    "statistics": "fieldgate jobs run statistics",
    "mast": "fieldgate jobs run mast",
    "presence": "fieldgate jobs run presence",
    "anomalies": "fieldgate jobs run anomaly",
    "alerts": "fieldgate jobs run alerts",
    "recalibrations": "fieldgate jobs recalibrate",
}
"""The contract's tables, and the command that fills each; searched for where folders can't be listed."""


class LakeError(CloudError):
    """The lake can't be read; the message names the remedy."""


def _local_root(uri: str) -> Path | None:
    """The directory of a local lake, None for an object store."""
    parts = urlparse(uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if "://" in uri else Path(uri)


def table_locations(lake: str | os.PathLike[str]) -> Mapping[str, str]:
    """Location of each table of the lake by name, the jobs' own left out. Raises LakeError without a lake."""
    uri = os.fspath(lake)
    root = _local_root(uri)
    if root is None:
        locations = {name: f"{uri.rstrip('/')}/{name}" for name in FILLED_BY}
        return {name: place for name, place in locations.items() if DeltaTable.is_deltatable(place)}
    if not root.is_dir():
        raise LakeError(
            f"no lake at {uri}: no such directory; name it with --lake, `fieldgate jobs run ingest` makes it"
        )
    return {
        folder.name: str(folder)
        for folder in sorted(root.iterdir())
        if not folder.name.startswith(("_", ".")) and any((folder / "_delta_log").glob("*.json"))
    }


def missing_table(lake: str, name: str) -> str:
    """The message about a table that a query names and the lake doesn't have."""
    there = ", ".join(table_locations(lake)) or "no tables yet"
    filled_by = f"; `{FILLED_BY[name]}` fills {name}" if name in FILLED_BY else ""
    return f"no table {name} in the lake {lake}: it has {there}{filled_by}"


def open_lake(lake: str | os.PathLike[str]) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB with each table of the lake as a view of that name, in UTC.

    Shows the tables as they are now: open again to see what came later. Raises LakeError without a lake.
    """
    connection = duckdb.connect(":memory:")
    try:
        connection.execute("SET TimeZone = 'UTC'")
        for name, location in table_locations(lake).items():
            connection.register(name, DeltaTable(location).to_pyarrow_dataset())
    except BaseException:
        connection.close()
        raise
    return connection
