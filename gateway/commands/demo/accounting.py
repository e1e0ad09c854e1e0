"""Counts what was sampled against what the tables, the quarantine and the outbox hold.

Every sampled reading has an identity (gateway, channel, run, seq) with seq counting from 1, so a run's last
seq per channel names all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import duckdb
from deltalake import DeltaTable

from buffer.sqlite_outbox import SqliteOutbox
from cloud.lake.tables import LakeError, open_lake, table_locations
from cloud.wire.reading_records import (
    DEAD_LETTER_TOPIC,
    READING_TOPIC_PREFIX,
    InvalidReading,
    claimed_identity,
    parse_reading,
)
from cloud.wire.run_records import RunRecord
from gateway.forwarding.record_codec import from_bytes

Identity = tuple[str, str, int]
"""Channel, run, seq of this gateway."""

_PEEK_RECORDS: Final = 1000
_PEEK_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class TableCounts:
    """What the tables hold now.

    ``own`` are distinct identities among the sampled ones. ``covered`` readings stand in the statistics, out
    of ``synced`` that belong there.
    """

    rows: int = 0
    distinct: int = 0
    own: int = 0
    synced: int = 0
    covered: int = 0
    statistics_rows: int = 0
    quarantined: int = 0
    quarantined_readings: int = 0
    quarantined_letters: int = 0


def sampled(runs: Iterable[RunRecord]) -> int:
    """How many readings the runs issued."""
    return sum(sum(run.last_seq.values()) for run in runs)


class Lake:
    """Reads the Delta tables under one directory; a table that isn't there yet is empty."""

    def __init__(self, root: Path, gateway: str, interval_s: int) -> None:
        self._root = root
        self._gateway = gateway
        self._interval_s = interval_s

    def count(self, runs: Iterable[RunRecord]) -> TableCounts:
        """Counts over all tables; ``runs`` says which identities are the gateway's own."""
        connection, present = self._open()
        with connection:
            _attach_sampled(connection, runs)
            rows = distinct = synced = own = 0
            if "readings" in present:
                rows, distinct, synced = _row(
                    connection,
                    "SELECT count(*), count(DISTINCT (gateway, channel, run, seq)), "
                    "count(*) FILTER (clock <> 'unsynced') FROM readings",
                )
                (own,) = _row(
                    connection,
                    "SELECT count(DISTINCT (channel, run, seq)) "
                    "FROM readings JOIN sampled USING (channel, run) WHERE gateway = ? AND seq <= last_seq",
                    self._gateway,
                )
            quarantined = readings = letters = 0
            if "quarantine" in present:
                quarantined, readings, letters = _row(
                    connection,
                    "SELECT count(*), count(*) FILTER (starts_with(kafka_topic, ?)), "
                    "count(*) FILTER (kafka_topic = ?) FROM quarantine",
                    READING_TOPIC_PREFIX,
                    DEAD_LETTER_TOPIC,
                )
            covered = statistics_rows = 0
            if "statistics" in present:
                covered, statistics_rows = _row(
                    connection,
                    "SELECT coalesce(sum(n_good + n_not_evaluated + n_suspect + n_fail + n_missing), 0), "
                    "count(*) FROM statistics WHERE interval_s = ?",
                    self._interval_s,
                )
        return TableCounts(
            rows, distinct, own, synced, int(covered), statistics_rows, quarantined, readings, letters
        )

    def missing(self, runs: Iterable[RunRecord], elsewhere: Iterable[Identity]) -> int:
        """Sampled identities that are neither in ``readings`` nor ``elsewhere``, less those never sampled.

        Below zero when readings of these runs are there that the gateway says it never issued.
        """
        runs = tuple(runs)
        found = set(elsewhere)
        names = tuple(run.run for run in runs)
        connection, present = self._open()
        with connection:
            if names and "readings" in present:
                query = (
                    "SELECT DISTINCT channel, run, seq FROM readings "
                    "WHERE gateway = ? AND list_contains(?, run)"
                )
                found.update(connection.execute(query, [self._gateway, list(names)]).fetchall())
        return sampled(runs) - len(found)

    def quarantined(self, runs: Iterable[RunRecord]) -> set[Identity]:
        """Sampled identities that a payload in the quarantine carries."""
        last_seq = {run.run: run.last_seq for run in runs}
        connection, present = self._open()
        with connection:
            if "quarantine" not in present:
                return set()
            payloads = connection.execute("SELECT payload FROM quarantine").fetchall()
        found = (_identity(payload, self._gateway) for (payload,) in payloads)
        return {
            (channel, run, seq)
            for channel, run, seq in filter(None, found)
            if 1 <= seq <= last_seq.get(run, {}).get(channel, 0)
        }

    def glance(self) -> TableCounts:
        """Rows only, from the tables' logs, without reading data."""
        try:
            locations = table_locations(self._root)
        except LakeError:
            return TableCounts()
        rows = {name: DeltaTable(location).count() for name, location in locations.items()}
        return TableCounts(
            rows=rows.get("readings", 0),
            statistics_rows=rows.get("statistics", 0),
            quarantined=rows.get("quarantine", 0),
        )

    def furthest(self, runs: Iterable[RunRecord]) -> list[RunRecord]:
        """The runs as far as the tables know them: a killed run's last record is up to a second old."""
        connection, present = self._open()
        with connection:
            if "readings" not in present:
                return list(runs)
            query = "SELECT run, channel, max(seq) FROM readings WHERE gateway = ? GROUP BY ALL"
            highest = connection.execute(query, [self._gateway]).fetchall()
        reached: dict[str, dict[str, int]] = {}
        for run, channel, seq in highest:
            reached.setdefault(run, {})[channel] = seq
        return [run if run.state == "stopped" else _further(run, reached.get(run.run, {})) for run in runs]

    def rows_per_channel(self) -> dict[str, int]:
        """Rows of each of the gateway's channels."""
        connection, present = self._open()
        with connection:
            if "readings" not in present:
                return {}
            query = "SELECT channel, count(*) FROM readings WHERE gateway = ? GROUP BY 1 ORDER BY 1"
            return dict(connection.execute(query, [self._gateway]).fetchall())

    def _open(self) -> tuple[duckdb.DuckDBPyConnection, frozenset[str]]:
        """A connection and the tables there are."""
        try:
            return open_lake(self._root), frozenset(table_locations(self._root))
        except LakeError:
            return duckdb.connect(), frozenset()


def in_outbox(path: Path, gateway: str) -> set[Identity]:
    """Identities of the gateway's readings that wait in the outbox. The gateway must have ended."""
    found: set[Identity] = set()
    if not path.exists():
        return found
    outbox = SqliteOutbox(path)
    try:
        after = 0
        while rows := outbox.peek(after, _PEEK_RECORDS, _PEEK_BYTES):
            after = rows[-1][0]
            for _, stored in rows:
                try:
                    reading = parse_reading(from_bytes(stored).value, unrepaired=True)
                except (InvalidReading, ValueError):
                    continue
                if reading.gateway == gateway:
                    found.add((reading.channel, reading.run, reading.seq))
    finally:
        outbox.close()
    return found


def _further(run: RunRecord, reached: Mapping[str, int]) -> RunRecord:
    channels = {*run.last_seq, *reached}
    last_seq = {name: max(run.last_seq.get(name, 0), reached.get(name, 0)) for name in channels}
    return replace(run, last_seq=last_seq)


def _attach_sampled(connection: duckdb.DuckDBPyConnection, runs: Iterable[RunRecord]) -> None:
    connection.execute("CREATE TABLE sampled (channel VARCHAR, run VARCHAR, last_seq BIGINT)")
    rows = [(channel, run.run, seq) for run in runs for channel, seq in run.last_seq.items()]
    if rows:
        connection.executemany("INSERT INTO sampled VALUES (?, ?, ?)", rows)


def _row(connection: duckdb.DuckDBPyConnection, query: str, *values: object) -> tuple[Any, ...]:
    row = connection.execute(query, list(values)).fetchone()
    if row is None:
        raise LookupError("a count always gives a row")
    return row


def _identity(payload: bytes | None, gateway: str) -> Identity | None:
    claimed = claimed_identity(payload or b"")
    return claimed[1:] if claimed is not None and claimed[0] == gateway else None
