"""Acknowledgements: who has seen which alert, and until when, in the lake's table ``acknowledgements``.

Rows are only ever added; of one alert the row noted last counts. An alert's own row stays as it is: the
alerts job alone writes it. An alert that is raised anew has another id, and is acknowledged by nobody.

``fieldgate alerts`` lists the open ones and acknowledges them, as the pages do.
"""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from cloud.command_line import OK
from cloud.lake.query import add_lake, named_lakes
from cloud.lake.reader import Frame, LakeReader
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
_LONGEST_NOTE: Final = 500


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


def open_alerts(reader: LakeReader) -> list[dict[str, Any]]:
    """The alerts that can be acknowledged, the newest first. Raises Missing without a table, LakeError."""
    return reader.read(
        "alerts",
        "SELECT id, gateway, severity, epoch_ms(raised_at) AS raised_at, detail FROM alerts "
        "WHERE cleared_at IS NULL AND NOT historical ORDER BY alerts.raised_at DESC, id",
    ).dicts()


def acknowledge(
    reader: LakeReader, author: str, alerts: Iterable[str], *, note: str = "", lasts: str = ""
) -> list[Acknowledgement]:
    """Notes that ``author`` has seen open alerts, by their ids; ``lasts`` is a time such as 2h, or empty.

    Raises LakeError where one isn't open, or the time is none, and notes nothing.
    """
    now, gateways = datetime.now(UTC), {row["id"]: row["gateway"] for row in open_alerts(reader)}
    wanted, note = list(dict.fromkeys(alerts)), note.strip()
    if unknown := [each for each in wanted if each not in gateways]:
        raise LakeError(f"no open alert {unknown[0]}: `fieldgate alerts list` has those that are open")
    try:
        length_s = duration_s(lasts) if lasts.strip() else None
    except ValueError as error:
        raise LakeError(f"for: {error}") from None
    if length_s is not None and not 0 < length_s <= _LONGEST_DAYS * 86_400:
        raise LakeError(
            f"for: {lasts} isn't above 0 and at most {_LONGEST_DAYS}d; without it, until it is over"
        )
    if len(note) > _LONGEST_NOTE:
        raise LakeError(f"the note has {len(note)} characters, {_LONGEST_NOTE} is the most")
    until = None if length_s is None else now + timedelta(seconds=length_s)
    made = [Acknowledgement(each, gateways[each], until, note, author, now) for each in wanted]
    append(reader.lakes, TABLE, SCHEMA, [asdict(each) for each in made])
    return made


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    shared = argparse.ArgumentParser(add_help=False)
    add_lake(shared)
    shared.add_argument("--mast", metavar="M", help="all of this one, such as a dismantled one")
    actions = arguments.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", parents=[shared], help="the open alerts")
    seen = actions.add_parser("ack", parents=[shared], help="acknowledge open alerts")
    seen.add_argument("id", nargs="*", metavar="ID", help="as list shows it")
    back = "come back if it lasts so long, such as 2h; 7d at most (default: until it is over)"
    seen.add_argument("--for", dest="lasts", default="", metavar="TIME", help=back)
    seen.add_argument("--note", default="", metavar="TEXT", help="what is done about it")
    seen.add_argument("--who", metavar="NAME", help="who has seen it (default this user)")


def run(options: argparse.Namespace) -> int:
    """Lists or acknowledges. Raises CloudError."""
    reader = LakeReader(named_lakes(options))
    reader.look()
    of_mast = [row for row in open_alerts(reader) if options.mast in (None, row["gateway"])]
    if options.action == "list":
        seen = acknowledged(reader, datetime.now(UTC))
        for row in of_mast:
            what = (
                f"{row['id']} {_moment(row['raised_at']):%Y-%m-%d %H:%M} {row['severity']}: {row['detail']}"
            )
            by = f" (acknowledged by {seen[row['id']]})" if row["id"] in seen else ""
            sys.stdout.write(f"{what}{by}\n")
        return OK
    wanted = [*options.id, *(row["id"] for row in of_mast if options.mast is not None)]
    if not wanted:
        none = f"{options.mast} has no open alert" if options.mast else "name alerts by their ID, or --mast"
        raise LakeError(f"{none}: `fieldgate alerts list` has those that are open")
    who = options.who or getpass.getuser()
    for each in acknowledge(reader, who, wanted, note=options.note, lasts=options.lasts):
        sys.stdout.write(f"{each.alert} {each.gateway} {each}\n")
    return OK
