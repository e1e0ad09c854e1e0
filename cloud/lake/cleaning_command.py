"""``fieldgate cleaning``: marks periods for analysts to leave out; nothing is deleted. Needs ``analyst``."""

from __future__ import annotations

import argparse
import getpass
import sys
from datetime import UTC, datetime
from pathlib import Path

from cloud.command_line import OK
from cloud.lake.answers import write_csv, write_table
from cloud.lake.cleaning import Mark, add, beyond, mark_of, marks, matching, names_of, read_csv, withdraw
from cloud.lake.query import add_lake, named_lakes
from cloud.lake.tables import LakeError, Lakes

_HEAD = ("sensor", "start", "stop", "reason", "who", "mast", "noted_at", "id")


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.description = (
        "The cleaning log of a lake: periods that readings_clean and statistics_clean leave out."
    )
    lake = argparse.ArgumentParser(add_help=False)
    add_lake(lake)
    noted = argparse.ArgumentParser(add_help=False)
    noted.add_argument("--who", metavar="NAME", help="who notes it (default this user)")
    actions = arguments.add_subparsers(dest="action", metavar="ACTION", required=True)
    mark = actions.add_parser("add", parents=[lake, noted], help="mark a period")
    mark.add_argument("--mast", required=True, metavar="M", help="the gateway's name")
    mark.add_argument("--sensor", required=True, metavar="S", help="a channel, a sensor, or all")
    mark.add_argument("--start", required=True, metavar="TIME", help="UTC without a zone; included")
    mark.add_argument("--stop", default="", metavar="TIME", help="not included (default: no end)")
    mark.add_argument("--reason", required=True, metavar="TEXT", help="why")
    listed = actions.add_parser("list", parents=[lake], help="the marks in force")
    listed.add_argument("--mast", metavar="M", help="only this one's")
    listed.add_argument("--csv", action="store_true", help="as import reads it")
    brought = actions.add_parser(
        "import", parents=[lake, noted], help="mark what a CSV file has: sensor, start, stop, reason, who"
    )
    brought.add_argument("file", type=Path, metavar="FILE", help="CSV with a header")
    brought.add_argument("--mast", required=True, metavar="M", help="the gateway's name")
    gone = actions.add_parser("withdraw", parents=[lake, noted], help="take a mark back, which is noted too")
    gone.add_argument("id", metavar="ID", help="as list shows it")
    gone.add_argument("--reason", required=True, metavar="TEXT", help="why")


def run(options: argparse.Namespace) -> int:
    """Does one of them. Raises CloudError."""
    _act(options, named_lakes(options), datetime.now(UTC))
    return OK


def _act(options: argparse.Namespace, lakes: Lakes, now: datetime) -> None:
    if options.action == "list":
        listed = marks(lakes)
        if options.mast is not None and all(mark.gateway != options.mast for mark in listed):
            names_of(lakes, options.mast)
        rows = [
            (
                mark.channel,
                mark.begin,
                mark.end,
                mark.reason,
                mark.author,
                mark.gateway,
                mark.noted_at,
                mark.id,
            )
            for mark in listed
            if options.mast in (None, mark.gateway)
        ]
        (write_csv if options.csv else write_table)(_HEAD, rows, sys.stdout)
        return
    who = options.who or getpass.getuser()
    if options.action == "withdraw":
        mark = withdraw(lakes, options.id, options.reason, who, now)
        sys.stdout.write(f"{mark.id} is withdrawn\n")
        return
    by_prefix = options.action == "import"
    if by_prefix:
        asked = read_csv(options.file, options.mast, who, now)
    else:
        texts = {name: getattr(options, name) for name in ("sensor", "start", "stop", "reason")}
        asked = {"cleaning add": mark_of(texts, options.mast, who, now, "cleaning add")}
    names, given, unknown = names_of(lakes, options.mast), list[Mark](), list[LakeError]()
    for place, mark in asked.items():
        try:
            given += matching(mark, names, place, by_prefix=by_prefix)
        except LakeError as error:
            unknown.append(error)
    if unknown and not given:
        raise unknown[0]
    for each in unknown:
        # A file may name sensors that weren't imported.
        sys.stderr.write(f"warning: {each}; that line is left out\n")
    new = add(lakes, given)
    for warning in beyond(lakes, options.mast, new):
        sys.stderr.write(f"warning: {warning}\n")
    for mark in new:
        sys.stdout.write(f"{mark.id} {mark.channel} {mark.begin:%Y-%m-%dT%H:%MZ}\n")
    if len(new) < len(given):
        sys.stdout.write(f"{len(given) - len(new)} were marked already\n")
