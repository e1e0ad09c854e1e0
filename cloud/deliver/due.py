"""What has been sent, in one SQLite file; and what is due: periods that are over, or have changed since.

Each change of the file is on the disk when its call returns. One thread uses a ``Sent``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from cloud.backoff import backoff_s
from cloud.config.model import DeliverConfig
from cloud.dashboard.report.figures import PERIOD_NAMES, Period
from cloud.errors import CloudError
from cloud.lake.mast import DAY_MS, masts, read_sites, within
from cloud.lake.reader import LakeReader
from cloud.wire.reading_records import GATEWAY_ID

_LOOKS_BACK_MS: Final = 92 * DAY_MS
"""Periods that ended before are neither sent nor corrected: each run counts the statistics of this time."""
_AGAIN_S: Final = (1500.0, 4 * 3600.0)
"""The timer runs each hour: a failed target is tried by the next run, then later and later."""
_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS deliveries (name TEXT PRIMARY KEY, begun_s INTEGER, failures INTEGER, "
    "again_s INTEGER) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS sendings (name TEXT, mast TEXT, period TEXT, number INTEGER, "
    "intervals INTEGER, versions INTEGER, seen_s INTEGER, handed INTEGER, is_sent INTEGER, "
    "PRIMARY KEY (name, mast, period, number)) WITHOUT ROWID",
)


class Sending(NamedTuple):
    """One sending of a mast's period: ``number`` 0 is the first, others are corrections.

    So many closed ``intervals`` of all channels, with so many ``versions``, were first seen at ``seen_s``; of
    the first sending that is the period's end. ``handed``: how often a mail server got the end of the mail.
    """

    number: int
    intervals: int
    versions: int
    seen_s: int
    handed: int = 0
    is_sent: bool = False


class Sent:
    """What the delivery ``name`` has sent; ``again_s`` is when its target may be tried again.

    ``is_dry``: what is noted is forgotten. Each call raises CloudError where the file can't be used.
    """

    def __init__(self, path: Path, name: str, now_s: int, *, is_dry: bool = False) -> None:
        self._path, self._name = path, name
        try:
            self._file = sqlite3.connect(":memory:" if is_dry else path, isolation_level=None, timeout=30)
            if is_dry and path.exists():
                with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as there:
                    there.backup(self._file)
        except sqlite3.Error as error:
            raise self._problem(error) from error
        for each in _TABLES:
            self._do(each)
        # ``seen_s`` is never before its period's end, which an offset may move by a day.
        self._do("DELETE FROM sendings WHERE seen_s < ?", now_s - (_LOOKS_BACK_MS + 2 * DAY_MS) // 1000)
        self._do("INSERT OR IGNORE INTO deliveries VALUES (?, ?, 0, 0)", name, now_s)
        sql = "SELECT begun_s, failures, again_s FROM deliveries WHERE name = ?"
        [(self.begun_s, self._failures, self.again_s)] = self._do(sql, name)

    def of(self, mast: str) -> dict[str, Sending]:
        """The newest sending of each of a mast's periods."""
        sql = f"SELECT period, {', '.join(Sending._fields)} FROM sendings WHERE name = ? AND mast = ? "  # noqa: S608
        return {row[0]: Sending(*row[1:]) for row in self._do(f"{sql} ORDER BY number", self._name, mast)}

    def note(self, mast: str, period: str, sending: Sending) -> None:
        """Note how a sending is now."""
        sql = "INSERT OR REPLACE INTO sendings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        self._do(sql, self._name, mast, period, *sending)

    def tried(self, now_s: int, *, is_reached: bool) -> None:
        """Note whether the target could be reached."""
        self._failures = 0 if is_reached else self._failures + 1
        again_s = now_s + int(backoff_s(self._failures, *_AGAIN_S)) if self._failures else 0
        sql = "UPDATE deliveries SET failures = ?, again_s = ? WHERE name = ?"
        self._do(sql, self._failures, again_s, self._name)

    def close(self) -> None:
        """End."""
        self._file.close()

    def _do(self, sql: str, *values: Any) -> Sequence[Any]:
        try:
            return self._file.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._problem(error) from error

    def _problem(self, error: Exception) -> CloudError:
        return CloudError(f"{self._path}: {error}: --state names another place")


FLEET: Final = "fleet"
"""Stands in a mast's place for a page of all of them, and in the names of its files."""

Due = tuple[str, Period, Sending]
"""The mast's period that is to be sent, and as which sending."""


def due(reader: LakeReader, config: DeliverConfig, sent: Sent, now_ms: int) -> Iterator[Due]:
    """Yields what is due of the reader's masts, each mast's oldest first, and notes changed statistics.

    Raises CloudError.
    """
    now_s = now_ms // 1000
    sites = read_sites(reader, [])
    for mast in (FLEET,) if config.what == "fleet" else masts(reader):
        # It becomes the name of a file.
        if GATEWAY_ID.fullmatch(mast) is None:
            continue
        members = masts(reader) if config.what == "fleet" else [mast]
        own = [row for row in sites if config.what == "fleet" or row["gateway"] == mast]
        periods = _periods(config, own, 1000 * sent.begun_s, now_ms)
        found, known = _statistics(reader, members, own, config.period, periods), sent.of(mast)
        for before, period in pairwise(periods):
            there, last = found.get(period, (0, 0)), known.get(period)
            # Of a mast that falls silent the first empty period is sent, and not one after the other.
            if last is None and not there[0] and before not in found:
                continue
            if last is None:
                sending = Sending(0, *there, periods[period].end_ms // 1000)
            elif last[1:3] == there:
                sending = last
            elif last.is_sent and there[0] < last.intervals:
                # Retention has taken some of them out.
                continue
            elif last.is_sent:
                sending = Sending(last.number + 1, *there, now_s)
            else:
                # Waited for anew: late data that trickle in would be many corrections.
                seen_s = now_s if last.number else last.seen_s
                sending = last._replace(intervals=there[0], versions=there[1], seen_s=seen_s)
            if sending != last:
                sent.note(mast, period, sending)
            if not sending.is_sent and sending.seen_s + config.wait_s <= now_s:
                yield mast, periods[period], sending


def _periods(
    config: DeliverConfig, sites: Sequence[dict[str, Any]], begun_ms: int, now_ms: int
) -> dict[str, Period]:
    """Those that are over and not left out, the oldest first; before them one more, to compare with.

    Each is by the site's offset as it was then: a mast that moves leaves the edges of older ones as they are.
    """

    def around(day: date) -> Period:
        return Period.around(day, config.period).in_time_of(sites)

    utc = datetime.fromtimestamp(now_ms / 1000, UTC)
    found = [around((utc + timedelta(minutes=around(utc).offset_min)).date())]
    while True:
        newer = found[-1]
        found.append(older := around(newer.first - timedelta(days=1)))
        is_before = newer.end_ms <= begun_ms if config.since is None else older.after <= config.since
        if is_before or older.end_ms <= now_ms - _LOOKS_BACK_MS:
            return {str(each): each for each in found[:0:-1]}


def _statistics(
    reader: LakeReader,
    members: Sequence[str],
    sites: Sequence[dict[str, Any]],
    unit: str,
    periods: Mapping[str, Period],
) -> dict[str, tuple[int, int]]:
    """Closed intervals and the sum of their versions, of each period in which one of the masts has some.

    Each mast's are counted in its own site's time, as its report and the fleet's have them.
    """
    alike: dict[tuple[Period, ...], list[str]] = {}
    for mast in members:
        own = [row for row in sites if row["gateway"] == mast]
        alike.setdefault(tuple(each.in_time_of(own) for each in periods.values()), []).append(mast)
    found: dict[str, tuple[int, int]] = {}
    for own_periods, there in alike.items():
        for offset_min, same in groupby(own_periods, lambda each: each.offset_min):
            begin_ms, end_ms = (each := list(same))[0].begin_ms, each[-1].end_ms
            local = f"(interval_start + to_minutes({offset_min}))::TIMESTAMP"
            rows = reader.read(
                "statistics",
                f"""SELECT strftime({local}, '{PERIOD_NAMES[unit]}') AS period, count(*), sum(version)::BIGINT
                FROM statistics WHERE gateway IN ({", ".join("?" * len(there))}) AND version > 0
                    AND {within("interval_start", begin_ms, end_ms)} GROUP BY period""",  # noqa: S608
                there,
            ).rows
            for period, intervals, versions in rows:
                before = found.get(period, (0, 0))
                found[period] = before[0] + intervals, before[1] + versions
    return found
