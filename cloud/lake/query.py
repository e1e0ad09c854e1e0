"""``fieldgate query``: SQL over the lake's tables, as a table, JSON or CSV. Needs the extra ``analyst``."""

from __future__ import annotations

import argparse
import base64
import csv
import json
import math
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, TextIO

import duckdb
from deltalake.exceptions import DeltaError

from cloud.lake.tables import LakeError, open_lake

_WIDE = 1_000
"""Columns for a table that no terminal shows: a file or a pipe has no edge to wrap at."""


def _plain(value: Any) -> Any:
    """A value as JSON can carry it: UTC in ISO 8601, bytes as text where they are text, else base64."""
    if isinstance(value, datetime):
        moment = value if value.tzinfo is None else value.astimezone(UTC)
        spec = "microseconds" if moment.microsecond % 1000 else "milliseconds"
        return moment.replace(tzinfo=None).isoformat(timespec=spec) + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return "base64:" + base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _text(value: Any) -> str:
    plain = _plain(value)
    if plain is None:
        return ""
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _write_json(columns: list[str], rows: list[tuple[Any, ...]], out: TextIO) -> None:
    json.dump([dict(zip(columns, map(_plain, row), strict=True)) for row in rows], out, ensure_ascii=False)
    out.write("\n")


def _write_csv(columns: list[str], rows: list[tuple[Any, ...]], out: TextIO) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_text(value) for value in row] for row in rows)


def _write_table(columns: list[str], rows: list[tuple[Any, ...]], out: TextIO) -> None:
    # Loaded here: --json and --csv don't need it.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for at, column in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[at], (int, float, type(None))) for row in rows)
        table.add_column(Text(column), justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*(Text(_text(value)) for value in row))
    Console(file=out, width=None if out.isatty() else _WIDE).print(table)


def _one_line(error: Exception) -> str:
    """What DuckDB says, without its picture of the place in the statement."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(("LINE ", "^")))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fieldgate query", description="SQL (DuckDB's) over the tables of a lake; times are in UTC."
    )
    parser.add_argument("sql", metavar="SQL", help='e.g. "SELECT * FROM statistics ORDER BY interval_start"')
    parser.add_argument("--lake", default="./lake", metavar="URI", help="root of the tables (default ./lake)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="a JSON list of objects")
    form.add_argument("--csv", action="store_true", help="CSV with a header")
    return parser


def run(argv: Sequence[str]) -> int:
    """Runs one query and prints its answer; exit status 1 on an error, which goes to stderr in one line."""
    options = _parser().parse_args(argv)
    try:
        connection = open_lake(options.lake)
        try:
            answer: Any = connection.sql(options.sql)
            found = answer.to_arrow_table() if answer is not None else None
        finally:
            connection.close()
    except (LakeError, DeltaError, duckdb.Error) as error:
        sys.stderr.write(f"error: {_one_line(error)}\n")
        return 1
    if found is None:
        return 0
    columns = list(found.column_names)
    values = (column.to_pylist(maps_as_pydicts="strict") for column in found.columns)
    rows = list(zip(*values, strict=True)) if columns else []
    write = _write_json if options.json else _write_csv if options.csv else _write_table
    write(columns, rows, sys.stdout)
    return 0
