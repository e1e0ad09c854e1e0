"""Pages of a table's rows, in an order that no two rows share, at one version of the table.

A page begins after the key of the last row before it, and reads the table as it was at the first page: no row
is repeated or left out while jobs write, as long as upkeep keeps that version's files. A page is bounded in
seconds and in DuckDB's memory, and of a long time only as many days are read as fill it.

Any thread may read; each page has a DuckDB of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import duckdb
import pyarrow as pa

from cloud.errors import CloudError
from cloud.lake.mast import MOST_CHANNELS, USUAL_S
from cloud.lake.numbers import IS_COVERED
from cloud.lake.reader import FIGURES, IS_WILD, Frame, of_gateways
from cloud.lake.tables import LakeError, Lakes, LazyLakes, gone, quoted
from cloud.values import BEGINS_A_FORMULA, no_formula

Form = Literal["json", "csv", "parquet", "arrow"]

_MEMORY: Final = "256MB"
"""What DuckDB may hold for a page, the page itself included."""
_IDLE: Final = 8
"""DuckDBs that stay open for the next page of a table at the same version."""
_MOST_COLUMNS: Final = 1000
_TRIED_DAYS: Final = 32
"""Sources of which so many days are read at first have few rows a day."""
_OF_A_KEY: Final = (duckdb.BinderException, duckdb.ConversionException, ValueError, OverflowError)
"""What a key that somebody made up leads to."""


class Refused(CloudError):
    """A page that can't be made; ``parameter`` is what is in the way."""

    def __init__(self, why: str, parameter: str, value: object, remedy: str) -> None:
        self.parameter, self.value, self.remedy = parameter, value, remedy
        super().__init__(why)


class TooSlow(CloudError):
    """A page that takes longer than it may."""


class Cursor(NamedTuple):
    """Where a page begins: versions of the tables by ``lake/table``, and the key before it."""

    versions: Mapping[str, int]
    after: Sequence[str | int | None] = ()


Page = tuple[int, Cursor | None]


@dataclass(frozen=True)
class Source:
    """Rows of a table; no two have the same ``key``, by which they are ordered.

    ``time`` is the column that from and to bound. ``days``: so many are read at first, where ``date`` is the
    day of ``time``. ``rows`` is SQL with places for view, condition, and of several lakes the column
    ``lake``; ``columns`` are its own, if any.
    """

    table: str
    key: tuple[str, ...]
    time: str = ""
    days: int = 0
    rows: str = "FROM {view} WHERE {where}"
    columns: tuple[str, ...] = ()


_COUNTS: Final = {"count": "BIGINT", "expected": "DOUBLE"} | dict.fromkeys(
    ("n_good", "n_not_evaluated", "n_suspect", "n_fail", "n_missing"), "BIGINT"
)
"""Sums of long are HUGEINT: Decimal in Arrow, a double in Parquet."""
_BY_DAY: Final = ("date", "gateway", "channel", "interval_s")
SOURCES: Final = {
    "channels": Source("channels", ("gateway", "channel", "cal")),
    "readings": Source("readings", ("time", "gateway", "channel", "run", "seq"), "time", 1),
    "statistics": Source(
        "statistics", ("interval_start", "gateway", "channel", "interval_s"), "interval_start", 32
    ),
    "mast": Source("mast", ("interval_start", "gateway", "interval_s"), "interval_start", 32),
    "alerts": Source("alerts", ("raised_at", "id"), "raised_at"),
    "events": Source("events", ("time", "gateway", "id"), "time"),
    "quality": Source(
        "statistics", _BY_DAY, "interval_start", 32,
        f"SELECT {{lake}}{', '.join(_BY_DAY)}, any_value(quantity) AS quantity, count(*) AS intervals, "  # noqa: S608
        f"{', '.join(f'sum({each})::{kind} AS {each}' for each, kind in _COUNTS.items())}, "
        "least(1, sum(count) / nullif(sum(expected), 0)) AS recovery FROM {view} WHERE {where} "
        f"GROUP BY {{lake}}{', '.join(_BY_DAY)}",
        (*_BY_DAY, "quantity", "intervals", *_COUNTS, "recovery"),
    ),
}  # fmt: skip
_TIMES: Final = ("time", "interval_start", "raised_at", "Timestamp")
"""The columns of keys that are times."""
_CONDITIONS: Final = {
    "mast": "gateway = $mast", "channel": "channel IN (SELECT unnest($channel::VARCHAR[]))",
    "begin": "{time} >= $begin", "end": "{time} < $end", "interval": "interval_s = $interval",
    "names": "true",
}  # fmt: skip


@dataclass(frozen=True)
class Query:
    """Rows of a source, of ``gateways``, names that may have ``*``.

    ``given`` are ``mast``, ``channel`` (a list), ``begin``, ``end`` and ``interval``, as far as they choose
    among its rows. ``columns`` is empty for all. ``is_clean``: without what the cleaning log marks.
    """

    source: Source
    gateways: Sequence[str]
    given: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    is_clean: bool = False

    @property
    def view(self) -> str:
        """What its rows are read from."""
        return self.source.table + "_clean" * self.is_clean

    @property
    def where(self) -> str:
        """The condition of its rows, in which what a user names is a value."""
        parts = (_CONDITIONS[name].format(time=self.source.time) for name in self.given)
        return " AND ".join((f"({of_gateways(self.gateways)})", *parts))


class Pages:
    """Pages of some lakes' tables; ``seconds`` is the most that one may take."""

    def __init__(self, lakes: Lakes, seconds: float) -> None:
        self._lakes, self._seconds = lakes, seconds
        self._lock = threading.Lock()
        self._idle: list[tuple[object, LazyLakes]] = []

    def write(self, query: Query, at: Cursor, limit: int, form: Form, file: Path) -> Page:
        """Writes a page of at most ``limit`` rows; how many, and where the next begins, None after the last.

        Raises Refused, TooSlow, LakeError where the tables can't be read.
        """
        with self._opened(query, at) as lakes:
            view = lakes.connection.view(query.view).columns
            # Two lakes may have rows of one mast.
            lake = ("lake",) * ("lake" in view and "names" not in query.given)
            there = (*lake, *query.source.columns) if query.source.columns else tuple(view)
            columns, key = query.columns or there, query.source.key + lake
            for each in columns:
                _check_column(each, there)
            _fill(query, lakes, at, key, columns, limit + 1)
            last = f"SELECT {_comparable(key)} FROM page LIMIT 2 OFFSET {limit - 1}"  # noqa: S608 - ours
            found = lakes.connection.execute(last).fetchall()
            rows = _save(lakes.connection, columns, limit, form, file)
        return rows, at._replace(after=found[0]) if len(found) > 1 else None

    def there(self, query: Query, at: Cursor, column: str) -> list[Any]:
        """The values of a column that a query has rows of. Raises TooSlow, LakeError."""
        with self._opened(query, at) as lakes:
            sql = f"SELECT DISTINCT {column} FROM {query.view} WHERE {query.where} ORDER BY ALL"  # noqa: S608
            return [value for (value,) in lakes.connection.execute(sql, dict(query.given)).fetchall()]

    def wide(self, query: Query, at: Cursor) -> Query:
        """Statistics side by side: a row for each interval, a column CHANNEL_FIGURE for each of ``columns``.

        An interval that is open, lacks half of its samples or has what can't be is null. Without a length
        they are of 10 minutes, else the shortest. Raises as ``write``.
        """
        interval_s, channels, lakes = self._side_by_side(query, at)
        if len(lakes) > 1:
            why = f"the mast is in the lakes {', '.join(lakes)}, whose rows would be one"
            raise Refused(why, "shape", "wide", "shape=long has the column lake.")
        for each in query.columns:
            _check_column(each, (*FIGURES, "count"))
        if len(channels) > min(MOST_CHANNELS, _MOST_COLUMNS // len(query.columns)):
            why = f"{len(channels)} channels make more than {_MOST_COLUMNS} columns, or are too many"
            raise Refused(why, "channel", channels[:3], "Name fewer channels or columns.")
        names = [no_formula(f"{channel}_{each}") for channel in channels for each in query.columns]
        if len({each.lower() for each in names}) < len(names):
            why = "the names of two channels differ by their letters' case alone, or by a first '"
            raise Refused(why, "channel", channels[:3], "Name one of the two.")
        titles = ", ".join(map(quoted, ("Timestamp", *names))).replace("{", "{{").replace("}", "}}")
        counts = f"{IS_COVERED} AND ({IS_WILD}) IS NOT TRUE"
        # How many samples there were is true of an interval that is left out too.
        values = (
            each if each == "count" else f"CASE WHEN {counts} THEN {each} END AS {each}"
            for each in query.columns
        )  # fmt: skip
        # An aggregate for each column would read each row for each; a number is compared sooner than a name.
        rows = (
            f"FROM (FROM (PIVOT (SELECT interval_start, {', '.join(values)}, "  # noqa: S608 - names of ours
            "list_position($names::VARCHAR[], channel) AS number FROM {view} WHERE {where}) "
            f"ON number IN ({', '.join(map(str, range(1, len(channels) + 1))) or '0'}) "
            f"USING {', '.join(f'max({each}) AS {each}' for each in query.columns)} "
            f"GROUP BY interval_start)) AS wide({titles})"
        )
        source = replace(query.source, key=("Timestamp",), days=32, rows=rows, columns=("Timestamp", *names))
        given = {**query.given, "interval": interval_s, "names": channels}
        return replace(query, source=source, columns=(), given=given)

    def _side_by_side(self, query: Query, at: Cursor) -> tuple[int, list[str], list[str]]:
        """The intervals' length, and the channels and lakes that have them."""
        with self._opened(query, at) as opened:
            lake = "lake" if "lake" in opened.connection.view(query.view).columns else "NULL"
            found = opened.connection.execute(
                f"SELECT interval_s, list_sort(list(DISTINCT channel)), list_sort(list(DISTINCT {lake})) "  # noqa: S608
                f"FROM {query.view} WHERE {query.where} GROUP BY interval_s "
                f"ORDER BY interval_s <> {USUAL_S}, interval_s LIMIT 1", dict(query.given),
            ).fetchone()  # fmt: skip
        return found or (query.given.get("interval", USUAL_S), [], [])

    @contextmanager
    def _opened(self, query: Query, at: Cursor) -> Iterator[LazyLakes]:
        key = (query.view, at.versions)
        with self._lock:
            held = next((each for each in self._idle if each[0] == key), None)
            if held is not None:
                self._idle.remove(held)
        lakes = LazyLakes(self._lakes, at.versions) if held is None else held[1]
        try:
            if held is None:
                limits = f"threads = 1; SET memory_limit = '{_MEMORY}'; SET temp_directory = ''"
                lakes.connection.execute(f"SET {limits}; SET enable_external_file_cache = false")
                lakes.add(query.view)
            with _bounded(lakes.connection, self._seconds):
                yield lakes
            lakes.connection.execute("DROP TABLE IF EXISTS page")
        except BaseException as error:
            lakes.connection.close()
            if isinstance(error, duckdb.OutOfMemoryException):
                remedy = "Ask for fewer columns, a lower limit or a shorter time."
                raise Refused(f"the page takes more than {_MEMORY}", "limit", None, remedy) from error
            if isinstance(error, duckdb.InterruptException):
                raise TooSlow(f"the page takes more than {self._seconds:g} s") from error
            if at.after and isinstance(error, _OF_A_KEY):
                raise Refused(
                    "the cursor is none of this query", "cursor", None, "Begin without it."
                ) from error
            if isinstance(error, duckdb.Error):
                raise LakeError(gone(error) or str(error).partition("\n")[0]) from error
            raise
        with self._lock:
            self._idle.append((key, lakes))
            if len(self._idle) > _IDLE:
                self._idle.pop(0)[1].connection.close()


@contextmanager
def _bounded(connection: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[None]:
    """Interrupts what runs when the time is over."""
    done = threading.Event()

    def watch() -> None:
        wait_s = seconds
        # Again and again: one call may come between two statements.
        while not done.wait(wait_s):
            connection.interrupt()
            wait_s = 0.1

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _check_column(name: str, there: Sequence[str]) -> None:
    if name not in there:
        raise Refused(f"there is no column {name}", "columns", name, f"There are {', '.join(there)}.")


def _comparable(key: Sequence[str]) -> str:
    """A key's values as JSON can have them, in the same order."""
    forms = {"date": "{}::VARCHAR"} | dict.fromkeys(_TIMES, "epoch_us({})")
    return ", ".join(forms.get(each, "{}").format(quoted(each)) for each in key)


def _fill(
    query: Query, lakes: LazyLakes, at: Cursor, key: Sequence[str], columns: Sequence[str], rows: int
) -> None:  # fmt: skip
    """Makes the table ``page`` of the first rows after a key."""
    source, where, later, values = query.source, query.where, "true", dict(query.given)
    after = at.after
    first = values["begin"].astimezone(UTC).date() if "begin" in values else date.min
    last = values["end"].astimezone(UTC).date() if "end" in values else date.max
    if after:
        names = [f"after{at}" for at in range(len(after))]
        later = f"({_comparable(key)}) > ({', '.join(f'${each}' for each in names)})"
        values |= dict(zip(names, after, strict=True))
        if source.days and isinstance(after[0], int):
            # Parts of files that end before it aren't read.
            where += f" AND {source.time} >= make_timestamptz($after0::BIGINT)"
            first = max(first, datetime.fromtimestamp(after[0] // 1_000_000, UTC).date())
    days = sorted(each for each in lakes.days.get(source.table, ()) if first <= each <= last)
    shown, order = (", ".join(map(quoted, each)) for each in (dict.fromkeys((*columns, *key)), key))
    into, begin, size = "CREATE OR REPLACE TEMP TABLE page AS", 0, source.days
    while rows > 0 and (into.startswith("CREATE") or begin < len(days)):
        part = days[begin : begin + size]
        within = f"date BETWEEN DATE '{part[0]}' AND DATE '{part[-1]}'" if part else str(not size).lower()
        lake = "lake, " * ("lake" in key)
        found = source.rows.format(view=query.view, where=f"{where} AND {within}", lake=lake)
        # Sorting a day of readings would take more memory than a page may; statistics are tried whole.
        may_cut = bool(source.time) and not source.columns
        for is_cut in (False, True)[may_cut and source.days < _TRIED_DAYS :]:
            if is_cut:
                found += _cut(lakes.connection, found, later, source.time, rows, values)
            sql = f"SELECT {shown} FROM ({found}) WHERE {later} ORDER BY {order} LIMIT {rows}"  # noqa: S608
            try:
                rows -= lakes.connection.execute(f"{into} {sql}", values).fetchall()[0][0]
                break
            except duckdb.OutOfMemoryException:
                if is_cut or not may_cut:
                    raise
        into, begin, size = "INSERT INTO page", begin + size, 4 * size


def _cut(
    connection: duckdb.DuckDBPyConnection, found: str, later: str, time: str, rows: int, values: Any
) -> str:  # fmt: skip
    """SQL: the condition of the first minutes, that have so many rows."""
    minute = f"epoch_us({time}) // 60000000"
    (cut,) = connection.execute(
        "SELECT max(minute) FROM (SELECT minute, sum(n) OVER (ORDER BY minute) - n AS before FROM ("  # noqa: S608
        f"SELECT {minute} AS minute, count(*) AS n FROM ({found}) WHERE {later} GROUP BY ALL"
        f")) WHERE before < {rows}", values,
    ).fetchall()[0]  # fmt: skip
    return f" AND {time} < make_timestamptz({60_000_000 * ((cut or 0) + 1)})"


def save_frame(frame: Frame, form: Form, file: Path) -> None:
    """Writes rows that are in memory."""
    kinds = (pa.timestamp("ms", "UTC") if each.endswith("_at") else None for each in frame.columns)
    arrays = [pa.array(frame.column(name), kind) for name, kind in zip(frame.columns, kinds, strict=True)]
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("page", pa.table(arrays, list(frame.columns)))
        _save(connection, frame.columns, len(frame.rows), form, file)


_FINITE: Final = "CASE WHEN isfinite({0}) THEN {0} END"
_JSON: Final = {
    "DOUBLE": _FINITE,
    "MAP(VARCHAR, DOUBLE)": "map_from_entries(list_transform(map_entries({}), lambda each: "
    f"{{{{'key': each.key, 'value': {_FINITE.format('each.value')}}}}}))",
}
"""JSON has no number that isn't finite."""
_ISO: Final = r"""regexp_replace(to_json({})::VARCHAR, '"([0-9-]{{10}}) ([0-9:.]+)\+00"', '"\1T\2Z"', 'g')"""
_BEGINS: Final = ", ".join(quoted(each, "'") for each in BEGINS_A_FORMULA)
_TEXT: Final = f"CASE WHEN length({{0}}) > 1 AND {{0}}[1] IN ({_BEGINS}) THEN '''' || {{0}} ELSE {{0}} END"


def _shown(name: str, kind: str, form: Form) -> str:
    """SQL: a column as the form has it."""
    shown = "{0}"
    if form in ("csv", "json"):
        if kind.startswith("TIMESTAMP"):
            # Brightwind takes times without a zone.
            layout = "%Y-%m-%d %H:%M:%S" if name == "Timestamp" else "%Y-%m-%dT%H:%M:%S.%fZ"
            shown = f"strftime({{0}}, '{layout}')"
        elif form == "json":
            shown = f"{_ISO}::JSON" if "TIMESTAMP" in kind else _JSON.get(kind, shown)
        elif kind == "VARCHAR":
            shown = _TEXT
        elif kind.endswith("]") or kind.startswith("MAP"):
            shown = _ISO
    return f"{shown.format(quoted(name))} AS {quoted(name)}"


def _save(
    connection: duckdb.DuckDBPyConnection, columns: Sequence[str], limit: int, form: Form, file: Path
) -> int:
    """Writes the table ``page``; how many rows."""
    kinds = dict(connection.execute("SELECT column_name, column_type FROM (DESCRIBE page)").fetchall())
    sql = f"SELECT {', '.join(_shown(each, kinds[each], form) for each in columns)} FROM page LIMIT {limit}"  # noqa: S608
    if form == "arrow":
        rows: Any = connection.sql(sql)
        table = rows.to_arrow_table()
        with pa.OSFile(str(file), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
        return int(table.num_rows)
    options = {"csv": "csv, HEADER", "json": "json, ARRAY true", "parquet": "parquet"}[form]
    to = f"TO {quoted(str(file), chr(39))} (FORMAT {options}, USE_TMP_FILE false)"
    return int(connection.execute(f"COPY ({sql}) {to}").fetchall()[0][0])
