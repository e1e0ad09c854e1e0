"""The lake's tables for people and programs without Spark: delta-rs reads them, DuckDB queries them.

Names, not paths: a table is a folder of the lake with a Delta log; those whose names begin with an underscore
are the jobs' own. Needs the extra ``analyst``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlparse

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from cloud.config.model import StoreConfig
from cloud.errors import CloudError
from cloud.lake.object_store import for_delta, for_delta_rs, in_words
from cloud.lake.wind import add_wind_macros

FILLED_BY: Final = {
    **dict.fromkeys(
        ("readings", "quarantine", "messages", "channels", "sites", "runs"), "fieldgate jobs run ingest"
    ),
    "statistics": "fieldgate jobs run statistics",
    "mast": "fieldgate jobs run mast",
    "presence": "fieldgate jobs run presence",
    "anomalies": "fieldgate jobs run anomaly",
    "alerts": "fieldgate jobs run alerts",
    "recalibrations": "fieldgate jobs recalibrate",
}
"""The contract's tables, and the command that fills each; searched for where folders can't be listed."""


Lakes = Mapping[str, tuple[str, StoreConfig | None]]
"""Lakes by name: URI, and the object store's options; what these lack is in the environment."""


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
            raise LakeError(f"lake {uri}: {in_words(error, uri, store) or _plain(error)}") from error
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


def missing_table(lakes: Lakes, name: str) -> str:
    """The message about a table that a query names and none of the lakes has."""
    tables = dict.fromkeys(table for uri, store in lakes.values() for table in table_locations(uri, store))
    there = ", ".join(tables) or "no tables yet"
    whose = f"lake {next(iter(lakes))}: it has" if len(lakes) == 1 else f"lakes {', '.join(lakes)}: they have"
    filled_by = f"; `{FILLED_BY[name]}` fills {name}" if name in FILLED_BY else ""
    return f"no table {name} in the {whose} {there}{filled_by}"


def open_lake(lake: str | os.PathLike[str], store: StoreConfig | None = None) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB with each table of the lake as a view of that name, in UTC, and ``wind``.

    Shows the tables as they are now: open again to see what came later. Raises LakeError without a lake.
    """
    return open_lakes({os.fspath(lake): (os.fspath(lake), store)})


def open_lakes(lakes: Lakes) -> duckdb.DuckDBPyConnection:
    """As ``open_lake``; each table of several lakes is a view over all that have it.

    Its first column, ``lake``, is the lake's name. Columns go by name: where a lake lacks one, of an older
    version, it is null. Raises LakeError, which names the lake.
    """
    connection = duckdb.connect(":memory:")
    parts: dict[str, list[str]] = {}
    try:
        connection.execute("SET TimeZone = 'UTC'")
        add_wind_macros(connection, "gateway, interval_s" if len(lakes) == 1 else "lake, gateway, interval_s")
        for lake, (uri, store) in lakes.items():
            select = "SELECT " + _quoted(lake, "'") + " AS lake, * FROM "  # noqa: S608 - quoted
            for name, dataset in _datasets(lake, uri, store):
                part = name if len(lakes) == 1 else f"{lake}/{name}"
                connection.register(part, dataset)
                parts.setdefault(name, []).append(select + _quoted(part))
        for name, selects in parts.items() if len(lakes) > 1 else ():
            connection.execute(f"CREATE TEMP VIEW {_quoted(name)} AS {' UNION ALL BY NAME '.join(selects)}")
    except BaseException:
        connection.close()
        raise
    return connection


def _datasets(lake: str, uri: str, store: StoreConfig | None) -> Iterator[tuple[str, Any]]:
    """Each table of a lake by name, for Arrow. Raises LakeError."""
    name = ""
    try:
        for name, location in table_locations(uri, store).items():
            table = DeltaTable(location, storage_options=for_delta_rs(store))
            yield name, table.to_pyarrow_dataset()
    except LakeError as error:
        raise LakeError(f"{error}" if lake == uri else f"lake {lake}: {error}") from error
    except (OSError, DeltaError) as error:
        reason = in_words(error, uri, store) or _plain(error)
        raise LakeError(f"lake {lake}: table {name} can't be read: {reason}") from error


def _plain(error: Exception) -> str:
    """A library's error in one line."""
    return re.sub(r"\x1b\[\d+m", "", str(error)).partition("\n")[0]


def _quoted(name: str, mark: str = '"') -> str:
    """A name as SQL has it, or with its other mark a text."""
    return mark + name.replace(mark, 2 * mark) + mark
