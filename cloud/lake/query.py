"""``fieldgate query``: SQL over the lake's tables, as a table, JSON or CSV. Needs the extra ``analyst``."""

from __future__ import annotations

import argparse
import base64
import csv
import json
import math
import re
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TextIO

import duckdb
from deltalake.exceptions import DeltaError

from cloud.config import CloudConfig, StoreConfig, load
from cloud.errors import CloudError
from cloud.lake.tables import LakeError, Lakes, LazyLakes
from cloud.values import CLOUD_CONFIG

_DIGITS: Final = 6
"""Significant digits of numbers in a table that had to be made narrower."""


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


def _write_all(columns: list[str], rows: list[tuple[Any, ...]], out: TextIO) -> None:
    _print_table(columns, [[_text(value) for value in row] for row in rows], rows, out)


def _write_table(columns: list[str], rows: list[tuple[Any, ...]], out: TextIO) -> None:
    """As wide as the terminal: columns that don't fit are left out and named below."""
    texts = [[_text(value) for value in row] for row in rows]
    width = shutil.get_terminal_size().columns
    if not out.isatty() or sum(_widths(columns, texts)) <= width - 1:
        _print_table(columns, texts, rows, out)
        return
    texts = [[_short(value) for value in row] for row in rows]
    same = [at for at in range(len(columns)) if len(rows) > 1 and len({row[at] for row in texts}) == 1]
    same = same if len(same) < len(columns) else []
    chosen: list[int] = []
    room = width - 1
    for at, needed in enumerate(_widths(columns, texts)):
        # A quantity is in its channel's name already.
        again = any(
            all(isinstance(row[at], str) and row[at] in str(row[by]) for row in rows) for by in chosen
        )
        if at not in same and not again and (needed <= room or not chosen):
            chosen.append(at)
            room -= needed

    def only(row: Sequence[Any]) -> list[Any]:
        return [row[at] for at in chosen]

    _print_table(only(columns), list(map(only, texts)), list(map(only, rows)), out)
    if same:
        out.write(
            "In every row: " + ", ".join(f"{columns[at]} {texts[0][at] or 'null'}" for at in same) + "\n"
        )
    if left := [name for at, name in enumerate(columns) if at not in chosen and at not in same]:
        out.write(f"Left out: {', '.join(left)}\n")
    out.write(f"Numbers have {_DIGITS} digits here. --all, --json and --csv give everything.\n")


def _short(value: Any) -> str:
    """As ``_text``, with fewer digits, and times that are whole seconds without fractions."""
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}"
    return _text(value).replace(".000Z", "Z") if isinstance(value, datetime) else _text(value)


def _widths(columns: Sequence[str], texts: Sequence[Sequence[str]]) -> list[int]:
    """What each column takes of a line, its border and margins included."""
    from rich.cells import cell_len

    return [max(map(cell_len, cells)) + 3 for cells in zip(columns, *texts, strict=True)]


def _print_table(
    columns: Sequence[str], texts: Sequence[Sequence[str]], rows: Sequence[Sequence[Any]], out: TextIO
) -> None:
    # Loaded here: --json and --csv don't need it.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for at, column in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[at], (int, float, type(None))) for row in rows)
        table.add_column(Text(column), justify="right" if numbers else "left", overflow="fold")
    for row in texts:
        table.add_row(*map(Text, row))
    # With a height too: else a terminal called dumb has 80 columns.
    Console(file=out, width=sum(_widths(columns, texts)) + 1, height=25, soft_wrap=True).print(table)


def _one_line(error: Exception) -> str:
    """DuckDB's error, without its picture of the place in the statement."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(("LINE ", "^")))


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    arguments = argparse.ArgumentParser(
        prog="fieldgate query", description="SQL (DuckDB's) over the tables of a lake; times are in UTC."
    )
    arguments.add_argument(
        "sql", metavar="SQL", help='e.g. "SELECT * FROM statistics ORDER BY interval_start"'
    )
    lake = "root of the tables (default ./lake), or a name of [lakes]; repeated: views over several"
    arguments.add_argument("--lake", action="append", default=[], metavar="[NAME=]URI", help=lake)
    arguments.add_argument("--cloud", type=Path, metavar="FILE", help="the cloud's config: where lakes are")
    form = arguments.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="a JSON list of objects")
    form.add_argument("--csv", action="store_true", help="CSV with a header")
    form.add_argument("--all", action="store_true", help="every column, however wide the terminal is")
    return arguments


def lakes_of(given: Sequence[str], config: CloudConfig) -> Lakes:
    """The lakes that are ``given``, else that of ``[lake]``, else all of ``[lakes]``. Raises LakeError."""
    if not given and config.lake.path is None and config.lakes:
        given = tuple(config.lakes)
    found: dict[str, tuple[str, StoreConfig]] = {}
    for text in given or (config.lake.path or "./lake",):
        named = re.fullmatch(r"([\w-]+)=(.+)", text)
        name, uri = named.groups() if named else (text, text)
        if name in found:
            raise LakeError(f"two lakes are {name}: give each a name of its own, --lake NAME=URI")
        known = config.lakes.get(text)
        found[name] = (uri, config.lake.storage) if known is None else (known.path, known.storage)
    return found


def run(argv: Sequence[str]) -> int:
    """Runs one query and prints its answer; exit status 1 on an error, which goes to stderr in one line."""
    options = parser().parse_args(argv)
    path: Path | None = options.cloud
    # Whoever names a lake by its place, as the demo does, doesn't mean this machine's.
    if path is None and not any("/" in lake for lake in options.lake) and CLOUD_CONFIG.exists():
        path = CLOUD_CONFIG
    config = CloudConfig() if path is None else load(path)
    lakes: Lakes = {}
    try:
        lakes = lakes_of(options.lake, config)
        opened = LazyLakes(lakes)
        try:
            answer: Any = opened.sql(options.sql)
            found = answer.to_arrow_table() if answer is not None else None
        finally:
            opened.connection.close()
    except (CloudError, DeltaError, duckdb.Error) as error:
        sys.stderr.write(f"error: {_one_line(error)}\n")
        return 1
    if found is None:
        return 0
    columns = list(found.column_names)
    values = (column.to_pylist(maps_as_pydicts="strict") for column in found.columns)
    rows = list(zip(*values, strict=True)) if columns else []
    forms = ((options.json, _write_json), (options.csv, _write_csv), (options.all, _write_all))
    write = next((form for chosen, form in forms if chosen), _write_table)
    write(columns, rows, sys.stdout)
    return 0
