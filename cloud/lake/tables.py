"""The lake's tables for people and programs without Spark: delta-rs reads their logs, DuckDB queries them.

Names, not paths: a table is a folder of the lake with a Delta log; those whose names begin with an underscore
are the jobs' own. Needs the extra ``analyst``.

A local table becomes a view over the Parquet files that its log names: DuckDB reads these two to ten times
quicker than through Arrow. Columns and types are the log's, so that no file is opened before a statement
runs. What each column means, and its unit, is in ``columns.csv``.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlparse

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from cloud.config.model import StoreConfig
from cloud.errors import CloudError
from cloud.lake.object_store import for_delta, for_delta_rs, in_words
from cloud.lake.wind import add_wind_macros

CLEAN_VIEWS: Final = {"readings_clean": "readings", "statistics_clean": "statistics"}
"""The views, and the table that each is of."""
WHOLE_MAST: Final = "*"
"""Stands in place of a mark's channel for all of the mast's."""
IN_FORCE: Final = (
    "SELECT * FROM (FROM cleaning QUALIFY row_number() OVER "
    "(PARTITION BY id ORDER BY noted_at DESC, withdrawn DESC) = 1) WHERE NOT withdrawn"
)
"""SQL of the marks in force."""
FILED: Final = (
    "SELECT name, kind, summary, bytes, author, epoch_ms(noted_at) AS noted_at, id, gateway FROM ("
    "SELECT id, gateway, name, kind, summary, bytes, author, noted_at, withdrawn FROM documents "
    "QUALIFY row_number() OVER (PARTITION BY gateway, id ORDER BY noted_at DESC, withdrawn DESC) = 1) "
    "WHERE NOT withdrawn"
)
"""SQL of the documents that are kept, without their content; it may go on with AND."""


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


FILLED_BY: Final = {
    **dict.fromkeys(
        ("readings", "quarantine", "messages", "channels", "sites", "runs", "events", "health"),
        "fieldgate jobs run ingest",
    ),
    "statistics": "fieldgate jobs run statistics",
    "mast": "fieldgate jobs run mast",
    "presence": "fieldgate jobs run presence",
    "anomalies": "fieldgate jobs run anomaly",
    "alerts": "fieldgate jobs run alerts",
    "recalibrations": "fieldgate jobs recalibrate",
    "trends": "fieldgate jobs maintain",
    "imports": "fieldgate import",
    "cleaning": "fieldgate cleaning",
    "acknowledgements": "fieldgate dashboard",
    "documents": "fieldgate documents",
}
"""The contract's tables, and the command that fills each; searched for where folders can't be listed."""


_ABSENT: Final = re.compile(r"Catalog Error: Table with name (.+) does not exist!")
_LISTING: Final = re.compile(
    r"^\s*show\b|\binformation_schema\b|\bduckdb_\w+\s*\(", re.IGNORECASE | re.MULTILINE
)
"""Statements about all the tables."""

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


def open_lake(
    lake: str | os.PathLike[str], store: StoreConfig | None = None, *, tables: Collection[str] | None = None
) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB with tables of the lake as views of their names, in UTC, and ``wind``'s macros.

    ``tables`` are those wanted, all where it is None. Shows them as they are now: open again to see what came
    later. Raises LakeError without a lake, or without one of the ``tables``.
    """
    return open_lakes({os.fspath(lake): (os.fspath(lake), store)}, tables)


def open_lakes(lakes: Lakes, tables: Collection[str] | None = None) -> duckdb.DuckDBPyConnection:
    """Opens several lakes as ``open_lake`` does one; each table is a view over all lakes that have it.

    Its first column, ``lake``, is the lake's name. Columns go by name. Raises LakeError, which names the
    lake.
    """
    opened = LazyLakes(lakes)
    try:
        for name in opened.names if tables is None else tables:
            opened.add(name)
    except BaseException:
        opened.connection.close()
        raise
    return opened.connection


def append(lakes: Lakes, name: str, schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> None:
    """Adds rows to a table that people write, and makes it with the first ones. Raises LakeError."""
    if not rows:
        return
    if len(lakes) != 1:
        raise LakeError(f"table {name} is written in one lake: name it, --lake {next(iter(lakes))}")
    ((uri, store),) = lakes.values()
    location, table = f"{for_delta(uri).rstrip('/')}/{name}", pa.Table.from_pylist(list(rows), schema=schema)
    try:
        # Two that append at once both succeed: neither read what the other wrote.
        write_deltalake(location, table, mode="append", storage_options=for_delta_rs(store))
    except (OSError, DeltaError) as error:
        raise LakeError(f"{location}: {in_words(error, uri, store) or _plain(error)}") from error


class LazyLakes:
    """Lakes of which a table is opened when a statement first names it; ``connection`` is their DuckDB.

    ``as_of``: tables as they were then, one table's version, or versions by ``lake/table`` of those that are
    wanted. ``days`` are those that a table's files are of, by name, where it is stored by date. One thread
    uses it. Raises LakeError where a lake isn't there, or a table whose version is wanted.
    """

    def __init__(self, lakes: Lakes, as_of: datetime | int | Mapping[str, int] | None = None) -> None:
        self._lakes = lakes
        self._as_of = as_of
        self.days: dict[str, set[date]] = {}
        self._locations = {
            lake: {
                name: location
                for name, location in _locations(lake, *place).items()
                if not isinstance(as_of, Mapping) or f"{lake}/{name}" in as_of
            }
            for lake, place in lakes.items()
        }
        if isinstance(as_of, Mapping):
            there = {f"{lake}/{name}" for lake, tables in self._locations.items() for name in tables}
            # A view of statistics without their cleaning log has every interval, and doesn't say so.
            for absent in sorted(as_of.keys() - there):
                raise LakeError(f"table {absent} isn't there any more; ask again")
        self._added: set[str] = set()
        self.connection = duckdb.connect(":memory:")
        self.connection.execute("SET TimeZone = 'UTC'")
        mast = "gateway, interval_s" if len(lakes) == 1 else "lake, gateway, interval_s"
        add_wind_macros(self.connection, mast)

    @property
    def names(self) -> list[str]:
        """The tables there are."""
        return list(dict.fromkeys(name for locations in self._locations.values() for name in locations))

    def sql(self, text: str) -> duckdb.DuckDBPyRelation | None:
        """Runs each statement; what the last one answers. Raises LakeError, duckdb.Error."""
        if _LISTING.search(text) is not None:
            for name in self.names:
                self.add(name)
        answer: duckdb.DuckDBPyRelation | None = None
        for statement in self.connection.extract_statements(text):
            while True:
                try:
                    answer = self.connection.sql(statement)
                    break
                except duckdb.CatalogException as error:
                    # Binding comes before running: nothing of the statement was done.
                    absent = _ABSENT.match(str(error))
                    if absent is None or absent[1] in self._added:
                        raise
                    self.add(absent[1])
        return answer

    def add(self, name: str) -> None:
        """Opens a table; letters in any case. Raises LakeError, where there is none or it can't be read."""
        name = next((each for each in (*self.names, *CLEAN_VIEWS) if each.lower() == name.lower()), name)
        if name in self._added:
            return
        if name in CLEAN_VIEWS:
            self._add_clean(name)
            return
        if name not in self.names:
            raise LakeError(missing_table(self._lakes, name))
        parts = {lake: f"{lake}/{name}" for lake, tables in self._locations.items() if name in tables}
        for lake, part in parts.items():
            self._add_part(lake, name, part if len(self._lakes) > 1 else name)
        if len(self._lakes) > 1:
            selects = [
                f"SELECT {quoted(lake, chr(39))} AS lake, * FROM {quoted(part)}"  # noqa: S608 - quoted
                for lake, part in parts.items()
            ]
            view = f"CREATE TEMP VIEW {quoted(name)} AS {' UNION ALL BY NAME '.join(selects)}"
            self.connection.execute(view)
        self._added.add(name)

    def _add_clean(self, name: str) -> None:
        has_log = "cleaning" in self.names
        self.add(CLEAN_VIEWS[name])
        if has_log:
            self.add("cleaning")
        add_clean_view(self.connection, name, CLEAN_VIEWS[name], has_log=has_log)
        self._added.add(name)

    def _add_part(self, lake: str, name: str, view: str) -> None:
        uri, store = self._lakes[lake]
        location = self._locations[lake][name]
        try:
            version = self._as_of if isinstance(self._as_of, int) else None
            if isinstance(self._as_of, Mapping):
                version = self._as_of[f"{lake}/{name}"]
            elif version is not None and self._added:
                raise LakeError(f"--as-of {version} is one table's version; name a time for several tables")
            table = DeltaTable(location, version=version, storage_options=for_delta_rs(store))
            if isinstance(self._as_of, datetime):
                table.load_as_version(self._as_of)
                # Delta-rs loads the first version for a time before it.
                commit = Path(location, "_delta_log", f"{table.version():020}.json")
                if commit.exists() and commit.stat().st_mtime > self._as_of.timestamp() + 0.001:
                    raise LakeError(f"lake {lake}: table {name} has no version as old as {self._as_of}")
            if table.metadata().partition_columns == ["date"]:
                days = (each["date"] for each in table.partitions())
                self.days.setdefault(name, set()).update(date.fromisoformat(each) for each in days if each)
            add_table(self.connection, view, table, None if _local_root(uri) is None else Path(location))
        except (OSError, DeltaError, duckdb.IOException) as error:
            reason = in_words(error, uri, store) or gone(error) or _plain(error)
            raise LakeError(f"lake {lake}: table {name} can't be read: {reason}") from error


def _locations(lake: str, uri: str, store: StoreConfig | None) -> Mapping[str, str]:
    try:
        return table_locations(uri, store)
    except LakeError as error:
        raise LakeError(f"{error}" if lake == uri else f"lake {lake}: {error}") from error


def gone(error: object) -> str | None:
    """The words for a file of a table that isn't there any more, from DuckDB's error; None for others."""
    found = re.search(r'No files found that match the pattern "(.+?)"', str(error))
    if found is None:
        return None
    return f"{found[1]} is gone: `jobs maintain` removed it, or the lake was copied in part; ask again"


def _plain(error: Exception) -> str:
    """A library's error in one line."""
    return re.sub(r"\x1b\[\d+m", "", str(error)).partition("\n")[0]


@cache
def meanings() -> dict[tuple[str, str], tuple[str, str]]:
    """Unit and meaning of a column by table and name."""
    with Path(__file__).with_name("columns.csv").open(newline="") as file:
        return {(row["table"], row["column"]): (row["unit"], row["meaning"]) for row in csv.DictReader(file)}


def tables_of(lakes: LazyLakes) -> Iterator[tuple[str, str]]:
    """The tables there are, each with the command that fills it."""
    return ((name, FILLED_BY.get(name, "")) for name in sorted(lakes.names))


def described(lakes: LazyLakes, table: str) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, unit and meaning of each column of a table. Raises LakeError."""
    lakes.add(table)
    view = lakes.connection.view(table)
    for name, kind in zip(view.columns, view.types, strict=True):
        yield (name, str(kind), *meanings().get((table.lower(), name), ("", "")))


_DATE: Final = "TRY_CAST(regexp_extract(filename, '/date=([^/]*)/[^/]*$', 1) AS DATE)"
"""The date in a file's path: DuckDB leaves out the files that a condition on it excludes. No date is null."""
_TYPES: Final = {
    "string": "VARCHAR",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "long": "BIGINT",
    "binary": "BLOB",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}
"""Delta's names of types that DuckDB has another name for."""


def quoted(name: str, mark: str = '"') -> str:
    """A name as SQL has it, or with its other mark a text."""
    return mark + name.replace(mark, 2 * mark) + mark


def add_table(connection: duckdb.DuckDBPyConnection, name: str, table: DeltaTable, root: Path | None) -> None:
    """Makes the view ``name`` over the table as it was opened; ``root`` is its folder on this machine.

    Raises DeltaError.
    """
    types = {field["name"]: field["type"] for field in json.loads(table.schema().to_json())["fields"]}
    of_path = table.metadata().partition_columns
    # The readers' features beyond version 1, such as deletion vectors, delta-rs reads or refuses.
    is_plain = of_path == [] or (of_path == ["date"] and types["date"] == "date")
    if root is None or table.protocol().min_reader_version > 1 or not is_plain:
        connection.register(name, table.to_pyarrow_dataset())
        return
    files = [f"{root}/{path}" for path in table.get_add_actions()["path"].to_pylist()]
    if not files:
        nothing = ", ".join(f"NULL::{duckdb_type(kind)} AS {quoted(each)}" for each, kind in types.items())
        connection.execute(f"CREATE TEMP VIEW {quoted(name)} AS SELECT {nothing} WHERE false")
        return
    columns = ", ".join(f"{_DATE} AS {quoted(each)}" if each in of_path else quoted(each) for each in types)
    schema = ", ".join(
        f"{text}: {{'name': {text}, 'type': {quoted(kind, chr(39))}, 'default_value': NULL}}"
        for text, kind in (
            (quoted(each, "'"), duckdb_type(kind)) for each, kind in types.items() if each not in of_path
        )
    )
    # In a variable: as text in the view, thirty thousand paths are parsed for two seconds at each use.
    connection.execute(f"SET VARIABLE {quoted(name)} = ?", [files])
    connection.execute(
        f"CREATE TEMP VIEW {quoted(name)} AS SELECT {columns} "  # noqa: S608 - quoted
        f"FROM read_parquet(getvariable({quoted(name, chr(39))}), schema = MAP {{{schema}}}, filename = true)"
    )


def duckdb_type(kind: Any) -> str:
    """A type of a Delta schema, as its JSON has it, in DuckDB's words."""
    if isinstance(kind, str):
        return _TYPES.get(kind, kind.upper())
    if kind["type"] == "array":
        return f"{duckdb_type(kind['elementType'])}[]"
    if kind["type"] == "map":
        return f"MAP({duckdb_type(kind['keyType'])}, {duckdb_type(kind['valueType'])})"
    fields = (f"{quoted(field['name'])} {duckdb_type(field['type'])}" for field in kind["fields"])
    return f"STRUCT({', '.join(fields)})"
