"""What the pages read: answers from the lake's tables, and one mast's statistics held in memory.

Any thread may read; one at a time does. Tables that a lake lacks are ``Missing``: a page says so and goes on.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from cloud.config import StoreConfig
from cloud.errors import CloudError
from cloud.lake.object_store import for_delta_rs
from cloud.lake.tables import FILLED_BY, LakeError, Lakes, add_clean_view, open_lakes, table_locations
from cloud.lake.wind import add_wind_macros
from cloud.wire.quantities import QUANTITIES, plausible_range

STATISTICS: Final = (
    *("gateway", "channel", "interval_s", "interval_start", "quantity", "unit", "avg", "min", "max", "sd"),
    *("gust", "count", "expected", "recovery", "n_good", "n_not_evaluated", "n_suspect", "n_fail"),
    *("version", "sum", "max_time", "gust_time", "n_missing"),
)
MAST: Final = (
    *("interval_start", "turbulence_intensity", "shear_alpha", "insolation", "air_density"),
    *("wind_power_density", "pair_difference"),
)
"""The columns that charts and reports are made of."""
STEEPEST: Final = 10.0
FIGURES: Final = ("avg", "min", "max", "sd", "gust", "sum")
_MOST_OF_MAST: Final = dict.fromkeys(("insolation", "air_density"), 1e6) | {"shear_alpha": STEEPEST}
"""The bounds of values for the whole mast."""
_MOST_OF_CHANNEL: Final = 1e6
"""The bound of values by channel: the power of the strongest wind there was, in W/m2, is below it."""
_HELD_ROWS: Final = 300_000
"""Rows of statistics that are held, at some 150 bytes each; the newest slice always is."""
_HELD_SLICES: Final = 8
"""Each has a DuckDB of its own, at a few megabytes."""


_Answer = TypeVar("_Answer")


class Missing(CloudError):
    """A table that the lake doesn't have, in words with what fills it."""


@dataclass(frozen=True)
class Frame:
    """Columns by name and rows; those called ``time`` or ``..._at`` are milliseconds since 1970, UTC."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def dicts(self) -> list[dict[str, Any]]:
        """Each row by column."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def column(self, name: str) -> list[Any]:
        """One column's values."""
        at = self.columns.index(name)
        return [row[at] for row in self.rows]


@dataclass(frozen=True)
class Span:
    """Which statistics: a mast, the intervals' length, and milliseconds since 1970 from and to, exclusive.

    ``is_clean``: without what the cleaning log marks. ``channels``: of these alone, where there are too many.
    """

    gateway: str
    interval_s: int
    begin_ms: int
    end_ms: int
    is_clean: bool = False
    channels: tuple[str, ...] | None = None


def answer(connection: duckdb.DuckDBPyConnection, sql: str, values: Sequence[Any] = ()) -> Frame:
    """A query's rows. Raises duckdb.Error."""
    found = connection.execute(sql, list(values))
    return Frame(tuple(each[0] for each in found.description or ()), found.fetchall())


ALL: Final = ("*",)


class LakeReader:
    """The lake as it is now: a table is opened again once it has a new version, and no other.

    It has the rows of ``gateways`` alone, names that may have ``*``.
    """

    def __init__(self, lakes: Lakes, gateways: Sequence[str] = ALL) -> None:
        self.lakes = lakes
        self.gateways = gateways
        self._lock = threading.Lock()
        self._tables: dict[str, tuple[int, duckdb.DuckDBPyConnection]] = {}
        self._logs: dict[str, DeltaTable] = {}
        self.seen: Mapping[str, int] = {}
        self._slices: OrderedDict[Span, tuple[tuple[int, ...], MastSlice]] = OrderedDict()

    def look(self) -> Mapping[str, int]:
        """Each table's version now, kept in ``seen``. Raises LakeError where there is no lake."""
        versions = {}
        for lake, (uri, store) in self.lakes.items():
            for name, location in table_locations(uri, store).items():
                version = self._version(location, store)
                if version is not None:
                    versions[f"{lake}/{name}"] = version
        self.seen = versions
        return versions

    def _version(self, location: str, store: StoreConfig | None) -> int | None:
        """A table's newest commit; None where it is half written."""
        try:
            if "://" not in location:
                # The names say it: reading the log would hold what it says of each file in memory.
                commits = (each.stem for each in Path(location, "_delta_log").glob("*.json"))
                return max((int(each) for each in commits if each.isdecimal()), default=None)
            log = self._logs.get(location)
            if log is None:
                self._logs[location] = log = DeltaTable(location, storage_options=for_delta_rs(store))
            else:
                log.update_incremental()
            return log.version()
        except (OSError, DeltaError):
            self._logs.pop(location, None)
            return None

    def version(self, table: str) -> int:
        """A number that changes with each commit to the table; -1 where no lake has it."""
        found = [version for key, version in self.seen.items() if key.rpartition("/")[2] == table]
        return sum(found) if found else -1

    def shows(self, gateway: str) -> bool:
        """Whether the mast's rows are among those it has."""
        return is_named(gateway, self.gateways)

    def read(self, table: str, sql: str, values: Sequence[Any] = ()) -> Frame:
        """The answer to a query about one table. Raises Missing where there is none, LakeError."""
        return self._ask(table, lambda connection: answer(connection, sql, values))

    def slice(self, span: Span) -> MastSlice:
        """One mast's statistics, from memory where no newer version is there. Raises Missing, LakeError."""
        version = (self.version("statistics"), self.version("mast"), self.version("cleaning"))
        held = self._slices.get(span)
        if held is None or held[0] != version:
            rows = self._take("statistics", STATISTICS, span)
            of_mast: Any = None
            no_mast: CloudError = missing("mast")
            try:
                of_mast = self._take("mast", MAST, span)
            except CloudError as error:
                no_mast = error
            log = None
            if span.is_clean and self.version("cleaning") >= 0:
                log = self._ask("cleaning", lambda lake: lake.sql("FROM cleaning WHERE gateway = ?",
                                params=[span.gateway]).to_arrow_table())  # fmt: skip
            held = (version, MastSlice(rows, of_mast, log, no_mast))
            if not isinstance(no_mast, Missing):
                # Half written, or its store is away: the next one asks again.
                return held[1]
        with self._lock:
            self._slices[span] = held
            self._slices.move_to_end(span)
            while len(self._slices) > _HELD_SLICES or (
                len(self._slices) > 1 and sum(each.rows for _, each in self._slices.values()) > _HELD_ROWS
            ):
                self._slices.popitem(last=False)
        return held[1]

    def _take(self, table: str, wanted: Sequence[str], span: Span) -> Any:
        return self._ask(table, lambda lake: take(lake, table, wanted, span))

    def _ask(self, table: str, question: Callable[[duckdb.DuckDBPyConnection], _Answer]) -> _Answer:
        """Once more from a table opened anew: compaction takes files away that the log had named."""
        if self.version(table) < 0:
            raise missing(table)
        with self._lock:
            for attempt in (1, 2):
                try:
                    return question(self._opened(table, anew=attempt == 2))
                except (duckdb.Error, OSError, DeltaError) as error:
                    if attempt == 2:
                        reason = str(error).partition("\n")[0]
                        raise LakeError(f"table {table} can't be read: {reason}") from error
        raise AssertionError

    def _opened(self, table: str, *, anew: bool) -> duckdb.DuckDBPyConnection:
        version, held = self.version(table), self._tables.get(table)
        if held is None or held[0] != version or anew:
            if held is not None:
                held[1].close()
                del self._tables[table]
            opened = open_lakes(self.lakes, [table])
            # Or it keeps what it has read of files, up to most of the machine's memory.
            opened.execute("SET enable_external_file_cache = false; SET memory_limit = '256MB'")
            if "*" not in self.gateways:
                _narrow(opened, table, self.gateways)
            self._tables[table] = held = (version, opened)
        return held[1]


def _narrow(connection: duckdb.DuckDBPyConnection, table: str, gateways: Sequence[str]) -> None:
    """Puts the rows of some gateways in the table's place; a row that has none is nobody's."""
    connection.execute(f'ALTER VIEW "{table}" RENAME TO "all {table}"')
    connection.execute(f'CREATE TEMP VIEW "{table}" AS FROM "all {table}" WHERE {of_gateways(gateways)}')


def of_gateways(patterns: Sequence[str]) -> str:
    """Returns the condition that one of the names, which may have ``*``, is a row's gateway."""
    if "*" in patterns:
        return "true"
    return " OR ".join(f"gateway GLOB {_literal(each)}" for each in patterns) or "false"


def is_named(gateway: str, patterns: Sequence[str]) -> bool:
    """Whether one of the names, which may have ``*``, is the mast's."""
    return any(
        re.fullmatch(".*".join(map(re.escape, each.split("*"))), gateway, re.DOTALL) for each in patterns
    )


def _literal(pattern: str) -> str:
    """A pattern in which ``*`` alone is one."""
    return "'" + re.sub(r"([\[?])", r"[\1]", pattern).replace("'", "''") + "'"


def missing(table: str) -> Missing:
    """Returns that no lake has the table, with what fills it."""
    filled_by = f"; {FILLED_BY[table]} fills it" if table in FILLED_BY else ""
    return Missing(f"The lake has no table {table} yet{filled_by}.")


_CLEAN_MAST: Final = """CREATE TABLE clean_mast AS
    WITH marked AS (
        SELECT interval_start, list(channel) AS channels, list(quantity) AS quantities
        FROM statistics ANTI JOIN clean USING (channel, interval_start) GROUP BY ALL
    )
    SELECT mast.* REPLACE (
        map_from_entries(list_filter(map_entries(turbulence_intensity),
            lambda each: NOT list_contains(coalesce(channels, []), each.key))) AS turbulence_intensity,
        CASE WHEN NOT list_contains(coalesce(quantities, []), 'wind_speed') THEN shear_alpha END
            AS shear_alpha,
        CASE WHEN NOT list_contains(coalesce(quantities, []), 'irradiance') THEN insolation END AS insolation,
        CASE WHEN NOT list_has_any(coalesce(quantities, []), ['temperature', 'pressure', 'humidity'])
            THEN air_density END AS air_density)
    FROM mast LEFT JOIN marked USING (interval_start) ORDER BY interval_start"""
"""Of an interval in which a channel is marked, nothing that such a channel is a part of."""


class MastSlice:
    """Statistics of one mast and span in memory: ``statistics``, ``mast`` and the wind's macros.

    So a zoom reads nothing of the lake, and sums are those of ``fieldgate query``. What the ``log`` of
    cleaning marks is left out: intervals of ``statistics``, and of ``mast`` the values made of them.
    """

    def __init__(self, statistics: Any, mast: Any | None, log: Any | None, no_mast: CloudError) -> None:
        self.rows = int(statistics.num_rows)
        self.has_mast = mast is not None
        self._no_mast = no_mast
        self._lock = threading.Lock()
        self._held = duckdb.connect(":memory:", config={"threads": 1})
        self._held.execute("SET TimeZone = 'UTC'")
        add_wind_macros(self._held, "gateway, interval_s")
        for name, rows in (("statistics", statistics), ("mast", mast)):
            if rows is not None:
                self._held.register("taken", rows)
                self._held.execute(f"CREATE TABLE {name} AS FROM taken ORDER BY interval_start")
                self._held.unregister("taken")
        if log is not None:
            self._leave_out(log)

    def _leave_out(self, log: Any) -> None:
        self._held.register("cleaning", log)
        add_clean_view(self._held, "statistics_clean", "statistics", has_log=True)
        self._held.execute("CREATE TABLE clean AS FROM statistics_clean ORDER BY interval_start")
        if self.has_mast:
            self._held.execute(_CLEAN_MAST)
            self._held.execute("DROP TABLE mast; ALTER TABLE clean_mast RENAME TO mast")
        self._held.execute(
            "DROP VIEW statistics_clean; DROP TABLE statistics; ALTER TABLE clean RENAME TO statistics"
        )
        self._held.unregister("cleaning")

    @cached_property
    def phase_ms(self) -> int:
        """How long after whole ones from midnight UTC intervals begin: by clocks of +05:30 half an hour."""
        sql = "SELECT mode(epoch_ms(interval_start) % (1000 * interval_s)) FROM statistics"
        return int(self.read(sql).rows[0][0] or 0)

    def read(self, sql: str, values: Sequence[Any] = ()) -> Frame:
        """The answer to a query. Raises ``no_mast`` for ``mast`` where the lake has none, LakeError."""
        with self._lock:
            try:
                return answer(self._held, sql, values)
            except duckdb.CatalogException as error:
                raise self._no_mast from error
            except (duckdb.OutOfRangeException, duckdb.ConversionException) as error:
                reason = str(error).partition("\n")[0]
                raise LakeError(f"these statistics can't be put together: {reason}") from error


def _bound(at: int) -> str:
    """SQL: the lower (0) or upper (1) bound of a row's quantity."""
    known = " ".join(f"WHEN '{name}' THEN {plausible_range(name)[at]!r}" for name in QUANTITIES)
    return f"CASE quantity {known} ELSE {plausible_range('')[at]!r} END"


IS_WILD: Final = " OR ".join(
    f"{name} < {_bound(0)} OR {name} > {_bound(1)}" for name in ("avg", "min", "max")
)  # fmt: skip
"""NaN is more than any bound."""


def plausible(name: str, table: str) -> str:
    """SQL: a column's value; null what can't be, which a logger's file may have brought into the lake.

    An interval with one reading that can't be has no figure left.
    """
    value = f'"{name}"'
    if table == "statistics" and name in FIGURES:
        value = f"CASE WHEN ({IS_WILD}) IS NOT TRUE THEN {name} END"
    elif name in _MOST_OF_MAST:
        value = f"CASE WHEN abs({name}) <= {_MOST_OF_MAST[name]!r} THEN {name} END"
    elif table == "mast" and name != "interval_start":
        is_less = f"abs(each.value) <= {_MOST_OF_CHANNEL!r}"
        value = f"map_from_entries(list_filter(map_entries({name}), lambda each: {is_less}))"
    return f'{value} AS "{name}"'


def take(lake: duckdb.DuckDBPyConnection, table: str, wanted: Sequence[str], span: Span) -> Any:
    """A mast's rows of a table, for Arrow; what can't be is null."""
    columns = ", ".join(plausible(name, table) for name in wanted)
    chosen = [span.channels] if span.channels is not None and table == "statistics" else []
    return lake.sql(
        f"SELECT {columns} FROM {table} WHERE gateway = ? AND interval_s = ? "  # noqa: S608 - names of ours
        f"{'AND channel IN (SELECT unnest(?)) ' if chosen else ''}"
        "AND interval_start >= make_timestamptz(?) AND interval_start < make_timestamptz(?) "
        "AND date BETWEEN CAST(make_timestamp(?) AS DATE) AND CAST(make_timestamp(?) AS DATE)",
        params=[
            span.gateway,
            span.interval_s,
            *chosen,
            *(1000 * each for each in (span.begin_ms, span.end_ms) * 2),
        ],
    ).to_arrow_table()
