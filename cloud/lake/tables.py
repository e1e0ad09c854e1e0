"""The lake's tables for people and programs without Spark: delta-rs reads them, DuckDB queries them.

Names, not paths: a table is a folder of the lake with a Delta log; those whose names begin with an underscore
are the jobs' own. Needs the extra ``analyst``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from cloud.config.model import StoreConfig
from cloud.errors import CloudError
from cloud.lake.object_store import for_delta, for_delta_rs, in_words

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


def table_locations(lake: str | os.PathLike[str], store: StoreConfig | None = None) -> Mapping[str, str]:
    """Location of each table of the lake by name, the jobs' own left out. Raises LakeError without a lake.

    ``store`` is the object store's, what it lacks is in the environment.
    """
    uri = os.fspath(lake)
    root = _local_root(uri)
    if root is None:
        options = for_delta_rs(store)
        locations = {name: f"{for_delta(uri).rstrip('/')}/{name}" for name in FILLED_BY}
        try:
            found = {name: at for name, at in locations.items() if DeltaTable.is_deltatable(at, options)}
        except (OSError, DeltaError) as error:
            plain = re.sub(r"\x1b\[\d+m", "", str(error))
            raise LakeError(f"lake {uri}: {in_words(error, uri, store) or plain}") from error
        if not found:
            raise LakeError(f"no lake at {uri}: no table is there; `fieldgate jobs run ingest` makes it")
        return found
    if not root.is_dir():
        raise LakeError(
            f"no lake at {uri}: no such directory; name it with --lake, `fieldgate jobs run ingest` makes it"
        )
    return {
        folder.name: str(folder)
        for folder in sorted(root.iterdir())
        if not folder.name.startswith(("_", ".")) and any((folder / "_delta_log").glob("*.json"))
    }


def missing_table(lake: str, name: str, store: StoreConfig | None = None) -> str:
    """The message about a table that a query names and the lake doesn't have."""
    there = ", ".join(table_locations(lake, store)) or "no tables yet"
    filled_by = f"; `{FILLED_BY[name]}` fills {name}" if name in FILLED_BY else ""
    return f"no table {name} in the lake {lake}: it has {there}{filled_by}"


def open_lake(lake: str | os.PathLike[str], store: StoreConfig | None = None) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB with each table of the lake as a view of that name, in UTC.

    Shows the tables as they are now: open again to see what came later. Raises LakeError without a lake.
    """
    connection = duckdb.connect(":memory:")
    try:
        connection.execute("SET TimeZone = 'UTC'")
        for name, location in table_locations(lake, store).items():
            table = DeltaTable(location, storage_options=for_delta_rs(store))
            connection.register(name, table.to_pyarrow_dataset())
    except BaseException:
        connection.close()
        raise
    return connection
