"""A query's answer as a table, JSON or CSV; the last two hold a part of it at a time."""

from __future__ import annotations

import base64
import csv
import json
import math
import shutil
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TextIO

import duckdb

from cloud.lake.tables import LakeError
from cloud.values import no_formula

Columns = Sequence[str]
Rows = Iterable[Sequence[Any]]

_DIGITS: Final = 6
"""Significant digits of numbers in a table that had to be made narrower."""
_BATCH: Final = 10_000


def rows_of(answer: duckdb.DuckDBPyRelation) -> Iterator[Sequence[Any]]:
    """The rows of an answer as it is computed. Raises duckdb.Error; LakeError after the first rows."""
    for batch in batches_of(answer):
        values = (column.to_pylist(maps_as_pydicts="strict") for column in batch.columns)
        yield from zip(*values, strict=True)


def batches_of(answer: duckdb.DuckDBPyRelation) -> Iterator[Any]:
    """An answer as Arrow batches, as it is computed. Raises duckdb.Error; LakeError after the first rows."""
    reader = answer.to_arrow_reader(_BATCH)
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (OSError, ValueError) as error:
            raise LakeError(str(error)) from error
        yield batch


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


def write_json(columns: Columns, rows: Rows, out: TextIO) -> None:
    """A list of objects, written as they come."""
    before = "["
    for row in rows:
        out.write(before)
        json.dump(dict(zip(columns, map(_plain, row), strict=True)), out, ensure_ascii=False)
        before = ", "
    out.write("[]\n" if before == "[" else "]\n")


def write_csv(columns: Columns, rows: Rows, out: TextIO) -> None:
    """With a header, written as it comes."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_text(no_formula(value)) for value in row] for row in rows)


def write_all(columns: Columns, rows: Rows, out: TextIO) -> None:
    """A table of every column, however wide."""
    kept = list(rows)
    _print_table(columns, [[_text(value) for value in row] for row in kept], kept, out)


def write_table(columns: Columns, answered: Rows, out: TextIO) -> None:
    """Fits the terminal's width: columns that don't fit are left out and named below."""
    rows = list(answered)
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
    # It needs a height too: else a terminal called dumb has 80 columns.
    Console(file=out, width=sum(_widths(columns, texts)) + 1, height=25, soft_wrap=True).print(table)
