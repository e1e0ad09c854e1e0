"""Acknowledgements: who has seen which alert, and until when, in the lake's table ``acknowledgements``.

Rows are only ever added; of one alert the row noted last counts. An alert's own row stays as it is: the
alerts job alone writes it. An alert that is raised anew has another id, and is acknowledged by nobody.
``fieldgate alerts`` lists what is open, and acknowledges it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

from cloud.command_line import OK, operator
from cloud.lake.answers import write_json, write_table
from cloud.lake.query import add_lake, named_lakes
from cloud.lake.reader import ALL, Frame, LakeReader
from cloud.lake.tables import LakeError, append
from cloud.values import duration_s

TABLE: Final = "acknowledgements"
_TEXT, _TIME = pa.string(), pa.timestamp("us", tz="UTC")
_COLUMNS: Final = (("alert", _TEXT), ("gateway", _TEXT), ("until", _TIME), ("note", _TEXT), ("author", _TEXT),
                   ("noted_at", _TIME))  # fmt: skip
SCHEMA: Final = pa.schema(_COLUMNS)
NEWEST: Final = (
    "SELECT alert, gateway, epoch_ms(until) AS until_at, note, author, epoch_ms(noted_at) AS noted_at "
    "FROM acknowledgements QUALIFY row_number() OVER (PARTITION BY alert ORDER BY noted_at DESC) = 1"
)
"""SQL of each alert's acknowledgement, for ``in_force``."""
_LONGEST_DAYS: Final = 7
"""Kafka has an alert's record so long by default, and ``notify`` has it from there until the time is over."""


@dataclass(frozen=True)
class Acknowledgement:
    """That ``author`` has seen an alert; it comes back after ``until``, if that isn't None."""

    alert: str
    gateway: str
    until: datetime | None
    note: str
    author: str
    noted_at: datetime

    def __str__(self) -> str:
        """Who, when, until when, and the note, on one line."""
        until = "" if self.until is None else f", until {self.until:%Y-%m-%d %H:%M}"
        return f"{self.author}, {self.noted_at:%Y-%m-%d %H:%M} UTC{until}{': ' * bool(self.note)}{self.note}"


def in_force(newest: Frame, now: datetime) -> dict[str, Acknowledgement]:
    """The acknowledgements whose time isn't over, by the alert's id."""
    found = {}
    for alert, gateway, until_ms, note, author, noted_ms in newest.rows:
        until = None if until_ms is None else _moment(until_ms)
        if until is None or until > now:
            found[alert] = Acknowledgement(alert, gateway, until, note, author, _moment(noted_ms))
    return found


def _moment(since_1970_ms: int) -> datetime:
    return datetime.fromtimestamp(since_1970_ms / 1000, UTC)


def acknowledged(reader: LakeReader, now: datetime) -> dict[str, Acknowledgement]:
    """Those of the masts that the reader shows, as of its last look. Raises LakeError."""
    return {} if reader.version(TABLE) < 0 else in_force(reader.read(TABLE, NEWEST), now)


def with_acknowledged(reader: LakeReader, alerts: Frame) -> Frame:
    """Alerts with a last column that says in words who has acknowledged each, by their column ``id``."""
    try:
        seen = acknowledged(reader, datetime.now(UTC))
    except LakeError:
        # An alert twice seen is better than one that nobody sees.
        seen = {}
    words = (str(seen[name]) if name in seen else None for name in alerts.column("id"))
    rows = [(*row, each) for row, each in zip(alerts.rows, words, strict=True)]
    return Frame((*alerts.columns, "acknowledged"), rows)


IS_OPEN: Final = "(cleared_at IS NULL OR cleared_at <= raised_at)"
"""SQL: whether an alert can be acknowledged; one that was over at once can be, too: nothing else ends it."""
_OPEN: Final = f"SELECT id, gateway FROM alerts WHERE list_contains(?, id) AND {IS_OPEN}"  # noqa: S608


def acknowledge(
    reader: LakeReader, author: str, alerts: Iterable[str], *, note: str = "", lasts: str = ""
) -> list[Acknowledgement]:
    """Notes that ``author`` has seen open alerts, by their ids; ``lasts`` is a time such as 2h, or empty.

    Those that are over by now are left out. Raises LakeError where all are, or the time is none.
    """
    now, gateways = datetime.now(UTC), dict(reader.read("alerts", _OPEN, [list(alerts)]).rows)
    if not gateways:
        raise LakeError("No such alert is open any more.")
    try:
        length_s = duration_s(lasts) if lasts.strip() else None
    except ValueError as error:
        raise LakeError(f"For: {error}") from None
    if length_s is not None and not 0 < length_s <= _LONGEST_DAYS * 86_400:
        raise LakeError(f"For: {lasts} isn't above 0 and at most {_LONGEST_DAYS}d.")
    until = None if length_s is None else now + timedelta(seconds=length_s)
    made = [Acknowledgement(*each, until, note.strip(), author, now) for each in gateways.items()]
    append(reader.lakes, TABLE, SCHEMA, [asdict(each) for each in made])
    return made


def open_alerts(reader: LakeReader) -> Frame:
    """Open alerts and this week's that were over at once, with who has seen each; first what nobody has."""
    found = reader.read(
        "alerts",
        f"""SELECT gateway, rule, kind, severity, channel, epoch_ms(raised_at) AS raised_at, value, detail, id
        FROM alerts WHERE {IS_OPEN} AND (cleared_at IS NULL OR alerts.raised_at > now() - INTERVAL 7 DAY)
        AND NOT historical ORDER BY alerts.raised_at DESC LIMIT 500""",  # noqa: S608 - a text of ours
    )
    made = with_acknowledged(reader, found)
    return Frame(made.columns, sorted(made.rows, key=lambda row: row[-1] is not None))


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.description = "The open alerts of a lake, and who has seen them."
    lake = argparse.ArgumentParser(add_help=False)
    add_lake(lake)
    actions = arguments.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = actions.add_parser("list", parents=[lake], help="open alerts, those that nobody has seen first")
    listed.add_argument("--mast", metavar="M", help="only this one's")
    listed.add_argument("--json", action="store_true", help="a JSON list of objects, with every column")
    seen = actions.add_parser("acknowledge", parents=[lake], help="note that they have been seen")
    seen.add_argument("alerts", nargs="+", metavar="ID", help="as list shows it")
    seen.add_argument(
        "--for", dest="lasts", default="", metavar="TIME", help="2h, 1d (default: until it is over)"
    )
    seen.add_argument("--note", default="", metavar="TEXT", help="what is done about it")
    seen.add_argument("--who", metavar="NAME", help="who has seen them (default this user)")


_LISTED: Final = ("id", "gateway", "severity", "raised_at", "detail", "acknowledged")


def run(options: argparse.Namespace) -> int:
    """Lists alerts, or acknowledges some. Raises CloudError."""
    reader = LakeReader(
        named_lakes(options), [options.mast] if options.action == "list" and options.mast else ALL
    )
    reader.look()
    if options.action == "list":
        found = open_alerts(reader).dicts()
        for row in found:
            row["raised_at"] = _moment(row["raised_at"])
        write, columns = (write_json, found[0] if found else ()) if options.json else (write_table, _LISTED)
        write(tuple(columns), [tuple(row[name] for name in columns) for row in found], sys.stdout)
        return OK
    who = options.who or operator()
    made = {
        each.alert
        for each in acknowledge(reader, who, options.alerts, note=options.note, lasts=options.lasts)
    }
    for each in options.alerts:
        sys.stdout.write(f"{each} {'is acknowledged' if each in made else 'is not open any more'}\n")
    return OK
