"""The cleaning log: periods of a mast's channels that an analyst marked, in the lake's table ``cleaning``.

Rows are only ever added: a mark, and its withdrawal too. The row noted last counts among those of one ``id``.
Readings stay as they are; the views ``readings_clean`` and ``statistics_clean`` leave out what is marked.

``fieldgate cleaning`` marks and takes back; nothing is deleted.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa

from cloud.command_line import OK, operator
from cloud.lake.answers import write_csv, write_table
from cloud.lake.query import add_lake, named_lakes
from cloud.lake.tables import IN_FORCE, WHOLE_MAST, LakeError, Lakes, append, open_lakes, table_locations
from cloud.toml_problems import nearest

_TIME: Final = pa.timestamp("us", tz="UTC")
SCHEMA: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "gateway", "channel")),
        ("begin", _TIME), ("end", _TIME), ("reason", pa.string()), ("author", pa.string()),
        ("noted_at", _TIME), ("withdrawn", pa.bool_()),
    ]
)  # fmt: skip
"""Columns of ``cleaning``."""


@dataclass(frozen=True)
class Mark:
    """A period from ``begin`` to ``end``, exclusive; None: no end. ``channel`` may be a sensor, or ``*``."""

    gateway: str
    channel: str
    begin: datetime
    end: datetime | None
    reason: str
    author: str
    noted_at: datetime
    withdrawn: bool = False

    @property
    def id(self) -> str:
        """The same for the same period of the same channel."""
        key = (self.gateway, self.channel, self.begin.isoformat(), self.end and self.end.isoformat())
        return hashlib.sha256(repr(key).encode()).hexdigest()[:12]


def marks(lakes: Lakes) -> list[Mark]:
    """The marks in force, by mast and begin; none where the lakes have no log yet. Raises LakeError."""
    with_log = {lake: place for lake, place in lakes.items() if "cleaning" in table_locations(*place)}
    if not with_log:
        return []
    with open_lakes(with_log, ["cleaning"]) as connection:
        rows = connection.sql(
            f'SELECT gateway, channel, epoch_us("begin"), epoch_us("end"), reason, author, '  # noqa: S608
            f"epoch_us(noted_at) FROM ({IN_FORCE}) ORDER BY ALL"
        ).fetchall()
    return [
        Mark(gateway, channel, _moment(begin), None if end is None else _moment(end), reason, author,
             _moment(noted))
        for gateway, channel, begin, end, reason, author, noted in rows
    ]  # fmt: skip


def add(lakes: Lakes, given: Iterable[Mark]) -> list[Mark]:
    """Writes the marks that aren't in force yet, in one commit; those written. Raises LakeError."""
    there = {mark.id for mark in marks(lakes)}
    new = list({mark.id: mark for mark in given if mark.id not in there}.values())
    _append(lakes, new)
    return new


def names_of(lakes: Lakes, gateway: str) -> dict[str, set[str]]:
    """What a mark may name of a mast: its channels, each with the columns of files it was imported from.

    Raises LakeError where the lakes have nothing of the mast.
    """
    columns = {"channels": "map_values(settings)", "statistics": "[]", "readings": "[]"}
    found: dict[str, set[str]] = {}
    masts: set[str] = set()
    for table, given in columns.items():
        having = {lake: place for lake, place in lakes.items() if table in table_locations(*place)}
        if not having or (found and table == "readings"):
            continue
        with open_lakes(having, [table]) as connection:
            rows = connection.sql(f"SELECT DISTINCT gateway, channel, {given} FROM {table}").fetchall()  # noqa: S608
        masts |= {mast for mast, _, _ in rows}
        for channel, names in ((channel, names) for mast, channel, names in rows if mast == gateway):
            found.setdefault(channel, set()).update(each.strip('"') for each in names or ())
    if not found:
        raise LakeError(f"there is no mast {gateway}{_or_rather(gateway, masts)}")
    return found


def beyond(lakes: Lakes, mast: str, given: Iterable[Mark]) -> list[str]:
    """Warnings about marks in whose period a mast has nothing: their year may be wrong."""
    having = {lake: place for lake, place in lakes.items() if "statistics" in table_locations(*place)}
    if not having:
        return []
    with open_lakes(having, ["statistics"]) as connection:
        sql = "SELECT min(interval_start), max(interval_start) FROM statistics WHERE gateway = ?"
        ((first, last),) = connection.execute(sql, [mast]).fetchall()
    return [
        f"{mark.begin:%Y-%m-%d %H:%M}: {mast} has statistics of {first:%Y-%m-%d} to {last:%Y-%m-%d} alone"
        for mark in given
        if first and (mark.begin > last + timedelta(days=1) or (mark.end is not None and mark.end <= first))
    ]


def matching(mark: Mark, names: Mapping[str, set[str]], place: str, *, by_prefix: bool) -> list[Mark]:
    """The mark where its channel or sensor is one of ``names``; by prefix those of each channel it begins.

    Brightwind's file names columns of the logger's that way. Raises LakeError where nothing has the name.
    """
    known = {name for channel in names for name in (channel, channel.rpartition(".")[0])} | {WHOLE_MAST}
    if mark.channel in known:
        return [mark]
    begun = [
        replace(mark, channel=channel)
        for channel, columns in sorted(names.items())
        if by_prefix and any(each.startswith(mark.channel) for each in (channel, *columns))
    ]
    if not begun:
        known |= set().union(*names.values()) if by_prefix else set()
        raise LakeError(
            f"{place}: {mark.gateway} has no sensor {mark.channel}{_or_rather(mark.channel, known)}"
        )
    return begun


def _or_rather(name: str, names: Collection[str]) -> str:
    guess = nearest(name, names)
    if guess is not None:
        return f" (did you mean {guess}?)"
    listed = ", ".join(sorted(names)[:20])
    return f"; there are {listed or 'none'}"


def withdraw(lakes: Lakes, mark_id: str, reason: str, author: str, now: datetime) -> Mark:
    """Notes that a mark isn't in force any more. Raises LakeError where there is none."""
    found = next((mark for mark in marks(lakes) if mark.id == mark_id), None)
    if found is None:
        raise LakeError(f"no mark {mark_id} is in force; `fieldgate cleaning list` has those that are")
    # Not before the mark, whatever the clocks of two machines are: the later one counts.
    noted = max(now, found.noted_at)
    gone = replace(found, reason=reason, author=author, noted_at=noted, withdrawn=True)
    _append(lakes, [gone])
    return gone


def _append(lakes: Lakes, rows: Sequence[Mark]) -> None:
    append(lakes, "cleaning", SCHEMA, [{name: getattr(row, name) for name in SCHEMA.names} for row in rows])


def read_csv(path: Path, gateway: str, author: str, now: datetime) -> dict[str, Mark]:
    """Marks by place of a file with a header: sensor, start, stop, reason, maybe who. Raises LakeError.

    ``All`` is the whole mast; times without a zone are UTC; an empty stop has no end.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.DictReader(file)
            found = {}
            for line in lines:
                place = f"{path}:{lines.line_num}"
                texts = {str(key).strip().lower(): value or "" for key, value in line.items()}
                found[place] = mark_of(texts, gateway, author, now, place)
            return found
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LakeError(f"{path}: {error}") from error


def mark_of(given: Mapping[str, str], gateway: str, author: str, now: datetime, place: str) -> Mark:
    """A mark of texts: ``sensor``, ``start``, ``stop``, ``reason``, ``who``. Raises LakeError by place."""
    if missing := [name for name in ("sensor", "start", "reason") if not given.get(name, "").strip()]:
        raise LakeError(
            f"{place}: no {' and no '.join(missing)}; the columns are sensor, start, stop, reason, who"
        )
    sensor = given["sensor"].strip()
    begin = time_of(given["start"], place)
    end = time_of(given["stop"], place) if given.get("stop", "").strip() else None
    if end is not None and end <= begin:
        raise LakeError(f"{place}: stop {given['stop']} isn't after start {given['start']}")
    who = given.get("who", "").strip() or author
    channel = WHOLE_MAST if sensor.lower() == "all" else sensor
    return Mark(gateway, channel, begin, end, given["reason"].strip(), who, now)


def time_of(text: str, place: str) -> datetime:
    """A time, UTC without a zone. Raises LakeError with the place."""
    try:
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise LakeError(f"{place}: {text[:40]!r} is no time such as 2026-11-03T22:00") from None


def _moment(since_1970_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=since_1970_us)


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
    lakes, now = named_lakes(options), datetime.now(UTC)
    if options.action == "list":
        listed = marks(lakes)
        if options.mast is not None and all(mark.gateway != options.mast for mark in listed):
            names_of(lakes, options.mast)
        rows = [
            (at.channel, at.begin, at.end, at.reason, at.author, at.gateway, at.noted_at, at.id)
            for at in listed if options.mast in (None, at.gateway)
        ]  # fmt: skip
        (write_csv if options.csv else write_table)(_HEAD, rows, sys.stdout)
        return OK
    who = options.who or operator()
    if options.action == "withdraw":
        mark = withdraw(lakes, options.id, options.reason, who, now)
        sys.stdout.write(f"{mark.id} is withdrawn\n")
        return OK
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
    return OK
