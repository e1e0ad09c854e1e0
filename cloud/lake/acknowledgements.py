"""Acknowledgements: who has seen which alert, and until when, in the lake's table ``acknowledgements``.

Rows are only ever added; of one alert the row noted last counts. An alert's own row stays as it is: the
alerts job alone writes it. An alert that is raised anew has another id, and is acknowledged by nobody.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

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


_OPEN: Final = "SELECT id, gateway FROM alerts WHERE list_contains(?, id) AND cleared_at IS NULL"


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
