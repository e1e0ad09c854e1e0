"""``fieldgate health``: what wears on a mast and when it gets to its limit. Needs the extra ``analyst``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, date, datetime
from typing import Final

import duckdb

from cloud.command_line import OK
from cloud.lake.answers import write_csv, write_json, write_table
from cloud.lake.mast import check_known
from cloud.lake.query import add_lake, named_lakes
from cloud.lake.reader import LakeReader
from cloud.lake.tables import LakeError, Lakes, LazyLakes
from cloud.trends import MONTH_DAYS, Daily, Trend, queries, reported, trends

_ALL: Final = tuple(each.name for each in fields(Trend))
_SHOWN: Final = ("gateway", "channel", "kind", "detail")


def read_trends(lakes: Lakes, until: date, gateway: str | None = None) -> tuple[list[Trend], list[str]]:
    """The trends of days before ``until``, of all masts or one; and what couldn't be read, in words.

    Raises LakeError without a lake.
    """
    opened, missing = LazyLakes(lakes), list[str]()
    daily: list[Daily] = []
    with opened.connection:
        for name, sql in queries(until, gateway).items():
            try:
                answer = opened.sql(sql)
                rows = answer.fetchall() if answer is not None else []
            except LakeError as error:
                missing.append(str(error))
            except duckdb.Error as error:
                raise LakeError(str(error).partition("\n")[0]) from error
            else:
                daily += reported(rows) if name == "reports" else (Daily(*row) for row in rows)
    return list(trends(daily, until)), list(dict.fromkeys(missing))


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no day such as 2026-11-30") from None


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.description = (
        "Trends of what wears: cups beside their twins, soiling, supply, failing sensors, outbox, disk; with "
        f"the day on which each gets to its limit. Slopes are for a month of {MONTH_DAYS} days."
    )
    add_lake(arguments)
    arguments.add_argument("--mast", metavar="M", help="only this one's")
    arguments.add_argument("--at", type=_day, metavar="DAY", help="as of that day, UTC (default today)")
    form = arguments.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="a JSON list of objects, with every column")
    form.add_argument("--csv", action="store_true", help="CSV with a header, with every column")


def run(options: argparse.Namespace) -> int:
    """Prints the trends, what gets to its limit first at the top. Raises CloudError."""
    until = options.at or datetime.now(UTC).date()
    lakes = named_lakes(options)
    found, missing = read_trends(lakes, until, options.mast)
    if not found and options.mast is not None:
        reader = LakeReader(lakes)
        reader.look()
        check_known(reader, options.mast)
    for each in missing:
        sys.stderr.write(f"warning: {each}\n")
    found.sort(key=lambda each: (each.days_left is None, each.days_left, each.gateway))
    columns: Sequence[str] = _ALL if options.json or options.csv else _SHOWN
    rows = [tuple(getattr(each, name) for name in columns) for each in found]
    write = write_json if options.json else write_csv if options.csv else write_table
    write(columns, rows, sys.stdout)
    return OK
