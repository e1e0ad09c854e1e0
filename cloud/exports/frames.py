"""A lake for Python: the package ``fieldgate``, whose answers are pandas', Polars' and Arrow's.

What ``fieldgate query`` and ``fieldgate export`` have is here under the same names, and cleaned and valid in
the same way. Tables are as they were when the lake was opened, or first asked for: open it again to see more.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Final

import duckdb
import pandas as pd
import pyarrow as pa
from deltalake.exceptions import DeltaError

from cloud.errors import CloudError
from cloud.exports.command import export_of, span_ms
from cloud.exports.files import Export, arrow_schema, batches, columns_of, in_schema
from cloud.lake.mast import check_known, within
from cloud.lake.numbers import IS_COVERED
from cloud.lake.query import config_for, lakes_of, one_line
from cloud.lake.reader import ALL, FIGURES, LakeReader, is_named, plausible
from cloud.lake.tables import LakeError, Lakes, LazyLakes, quoted
from cloud.values import interval_s

Time = str | date | None
"""ISO 8601, UTC without a zone, or a datetime; None is no bound."""
_NAMES: Final = ("since", "until")
_SITES: Final = """LEFT JOIN (SELECT gateway, name, owner, latitude, longitude, elevation_m, utc_offset_min
    FROM sites QUALIFY row_number() OVER (PARTITION BY gateway ORDER BY valid_from DESC) = 1
) AS site USING (gateway)"""
_IN_FORCE: Final = """QUALIFY row_number() OVER (PARTITION BY gateway, channel
    ORDER BY in_force DESC, valid_from DESC NULLS LAST, revision DESC) = 1"""


@dataclass(frozen=True)
class Rows:
    """An answer in memory. ``index`` is the column that a pandas frame has as its index."""

    table: Any
    index: str | None = None

    def to_arrow(self) -> Any:
        """A pyarrow.Table; columns of the wide form have unit and meaning in their fields' metadata."""
        return self.table

    def to_pandas(self) -> pd.DataFrame:
        """Times are UTC with their zone; maps are dicts."""
        frame: pd.DataFrame = self.table.to_pandas(maps_as_pydicts="strict")
        return frame if self.index is None else frame.set_index(self.index)

    def to_polars(self) -> Any:
        """A polars.DataFrame. Raises ModuleNotFoundError where Polars isn't installed."""
        import polars

        return polars.from_arrow(self.table)

    def __repr__(self) -> str:
        return f"{self.table.num_rows} rows of {', '.join(self.table.column_names)}"


class Lake:
    """A lake's tables; one thread uses it. All raise CloudError, with what there is instead.

    ``mast`` is a gateway's id; ``since`` is included, ``until`` is not; ``channels`` may have ``*``. What the
    cleaning log marks is left out (``cleaned``), and what isn't valid (``valid``): intervals that are open or
    lack half of their samples, readings of quality 3, 4 and 9. The ``wide`` form has a row for each time and
    a column for each channel's figure, ``CHANNEL_FIGURE``, null where it is left out.
    """

    def __init__(self, lakes: Lakes) -> None:
        self._tables, self._reader = LazyLakes(lakes), LakeReader(lakes)
        self._reader.look()

    def sql(self, text: str) -> Rows:
        """The answer to DuckDB's SQL over the tables, as ``fieldgate query`` gives it."""
        try:
            found = self._tables.sql(text)
            return Rows(pa.table({}) if found is None else found.to_arrow_table())
        except (duckdb.Error, DeltaError) as error:
            raise LakeError(one_line(error)) from error

    def masts(self) -> Rows:
        """Each mast with its newest site, its number of channels, and the time it has statistics of."""
        columns, sites = ("site.* EXCLUDE (gateway), ", _SITES) if "sites" in self._tables.names else ("", "")
        return self.sql(
            f"SELECT gateway, {columns}count(DISTINCT channel) AS channels, min(interval_start) AS first, "  # noqa: S608
            f"max(interval_start) AS last FROM statistics {sites} GROUP BY ALL ORDER BY gateway"
        )

    def channels(self, mast: str | None = None) -> Rows:
        """The calibration record of each channel that is in force, else its last, with height and serial."""
        return self._of(mast, "channels", f"{_IN_FORCE} ORDER BY gateway, channel")

    def readings(
        self, mast: str, *, since: Time = None, until: Time = None, channels: str | Sequence[str] = ALL,
        cleaned: bool = True, valid: bool = True, wide: bool = False,
    ) -> Rows:  # fmt: skip
        """Single readings; the wide form needs statistics of that time too."""
        if wide:
            export = self._export(mast, since, until, channels, readings=True)
            return self._wide(replace(export, clean=cleaned, every=not valid))
        where = (
            f"{within('time', *span_ms(_NAMES, (since, until)))} AND {'quality <= 2' if valid else 'true'}"
        )
        table = "readings_clean" if cleaned else "readings"
        if channels != ALL:
            there = self._of(mast, table, f"AND {where}", "DISTINCT channel").table["channel"].to_pylist()
            names = ", ".join(quoted(each, "'") for each in _chosen(there, channels, mast))
            where += f" AND channel IN ({names})"
        return self._of(mast, table, f"AND {where} ORDER BY time, channel", "* EXCLUDE (date)")

    def statistics(
        self, mast: str, *, since: Time = None, until: Time = None, interval: str | None = None,
        channels: str | Sequence[str] = ALL, cleaned: bool = True, valid: bool = True, wide: bool = False,
    ) -> Rows:  # fmt: skip
        """Means, extremes, gusts and recovery of each interval.

        ``interval`` is their length, such as ``1h``: by default 10 minutes, else the shortest. Raises
        ValueError where it is none.
        """
        export = self._export(mast, since, until, channels, interval)
        if wide:
            return self._wide(replace(export, clean=cleaned, every=not valid))
        shown = ", ".join(plausible(name, "statistics") for name in FIGURES)
        names = ", ".join(quoted(each.name, "'") for each in export.mast.channels)
        return self._of(
            mast, "statistics_clean" if cleaned else "statistics",
            f"{_rows_of(export)} AND {IS_COVERED if valid else 'true'} AND channel IN ({names}) "
            "ORDER BY interval_start, channel", f"* EXCLUDE (date) REPLACE ({shown})",
        )  # fmt: skip

    def mast(self, mast: str, *, since: Time = None, until: Time = None, interval: str | None = None) -> Rows:
        """What its channels show together in each interval, such as shear, veer, air density, turbulence.

        Values by channel have columns ``CHANNEL_VALUE``. Marks of the cleaning log leave nothing out here.
        """
        where = _rows_of(self._export(mast, since, until, interval=interval))
        schema = self._of(None, "mast", "LIMIT 0").table.schema
        maps = [field.name for field in schema if pa.types.is_map(field.type)]
        columns = f"* EXCLUDE ({', '.join(['date', *maps])})"
        for name in maps:
            keys = self._of(mast, "mast", f"{where} ORDER BY 1", f"DISTINCT unnest(map_keys({name})) AS key")
            for key in keys.table["key"].to_pylist() if name != "inputs" else ():
                columns += f", {name}[{quoted(key, chr(39))}] AS {quoted(f'{key}_{name}')}"
        found = self._of(mast, "mast", f"{where} ORDER BY interval_start", columns)
        return replace(found, index="interval_start")

    def alerts(self, mast: str | None = None, *, since: Time = None, until: Time = None) -> Rows:
        """Alerts that were raised in that time."""
        return self._happened(mast, "alerts", "raised_at", since, until)

    def events(self, mast: str | None = None, *, since: Time = None, until: Time = None) -> Rows:
        """What happened at a mast: starts, upgrades, daily reports; ``fields`` is JSON."""
        return self._happened(mast, "events", "time", since, until)

    def _happened(self, mast: str | None, table: str, time: str, since: Time, until: Time) -> Rows:
        begin, end = (f"make_timestamptz({1000 * each})" for each in span_ms(_NAMES, (since, until)))
        return self._of(mast, table, f"AND {time} >= {begin} AND {time} < {end} ORDER BY {time}")

    def _of(self, mast: str | None, table: str, rest: str, columns: str = "*") -> Rows:
        """A mast's rows of a table, all masts' where it is None. A mast that the lake lacks is an error."""
        whose = "true" if mast is None else f"gateway = {quoted(mast, chr(39))}"
        found = self.sql(f"SELECT {columns} FROM {table} WHERE {whose} {rest}")  # noqa: S608 - quoted
        if mast is not None and not found.table.num_rows:
            check_known(self._reader, mast)
        return found

    def _export(
        self, mast: str, since: Time, until: Time, channels: str | Sequence[str] = ALL,
        interval: str | None = None, *, readings: bool = False,
    ) -> Export:  # fmt: skip
        length_s = None if interval is None else interval_s(interval)
        span = span_ms(_NAMES, (since, until))
        export = export_of(self._reader, mast, *span, length_s=length_s, readings=readings)
        names = _chosen([each.name for each in export.mast.channels], channels, mast)
        chosen = tuple(each for each in export.mast.channels if each.name in names)
        narrowed = replace(export.mast, channels=chosen)
        return replace(export, mast=narrowed, columns=columns_of(narrowed, readings=readings))

    def _wide(self, export: Export) -> Rows:
        schema = arrow_schema(export)
        try:
            found = [in_schema(batch, schema) for batch in batches(self._tables, export)]
        except (duckdb.Error, DeltaError) as error:
            raise LakeError(one_line(error)) from error
        return Rows(pa.Table.from_batches(found, schema), export.time)


def _rows_of(export: Export) -> str:
    time = within("interval_start", export.begin_ms, export.end_ms)
    return f"AND interval_s = {export.interval_s} AND {time}"


def _chosen(there: Sequence[str], channels: str | Sequence[str], mast: str) -> list[str]:
    patterns = [channels] if isinstance(channels, str) else channels
    for each in patterns:
        if not any(is_named(name, [each]) for name in there):
            raise CloudError(f"{mast} has no channel {each} then; it has {', '.join(there) or 'none'}")
    return [name for name in there if is_named(name, patterns)]


def open(lake: str | os.PathLike[str] = "./lake", *, cloud: str | os.PathLike[str] | None = None) -> Lake:
    """Opens a lake: a folder, a place in a bucket (``s3://…``), or a name of ``[lakes]`` in ``cloud``.

    ``cloud`` is the path of a ``cloud.toml``, which has a bucket's endpoint and keys; without one they are
    in the environment (``AWS_…``). Raises CloudError.
    """
    named = [os.fspath(lake)]
    return Lake(lakes_of(named, config_for(named, None if cloud is None else Path(cloud))))
