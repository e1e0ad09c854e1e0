"""Counts what was sampled against what the tables and the quarantine hold.

Every sampled reading has an identity (gateway, channel, run, seq) with seq counting from 1, so a run's last
seq per channel names all of them. How far each run got, its record in Kafka has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import duckdb
from deltalake import DeltaTable

from cloud.kafka.run_accounts import Books, RunAccount
from cloud.lake.tables import LakeError, open_lake, table_locations
from cloud.wire.reading_records import DEAD_LETTER_TOPIC, claimed_identity

_COUNTS: Final = {
    "readings": (
        'count(*) AS "rows", count(DISTINCT (gateway, channel, run, seq)) AS distinct_rows, '
        "count(*) FILTER (clock <> 'unsynced') AS synced"
    ),
    "statistics": (
        "CAST(coalesce(sum(n_good + n_not_evaluated + n_suspect + n_fail + n_missing), 0) AS BIGINT) "
        "AS covered, count(*) AS statistics_rows"
    ),
    "alerts": "count(*) AS alerts",
    "quarantine": (
        "count(*) AS quarantined, "
        f"count(*) FILTER (kafka_topic = '{DEAD_LETTER_TOPIC}') AS quarantined_letters"
    ),
}
_SPANS: Final = """
SELECT run, channel, min(seq), max(seq) FROM (
    SELECT run, channel, seq, seq - dense_rank() OVER (PARTITION BY run, channel ORDER BY seq) AS stretch
    FROM readings WHERE gateway = ?
) GROUP BY run, channel, stretch
"""


@dataclass(frozen=True, slots=True)
class TableCounts:
    """What the tables hold now: ``covered`` readings are in the statistics, ``synced`` ones belong there."""

    rows: int = 0
    rows_per_channel: Mapping[str, int] = field(default_factory=dict)
    distinct_rows: int = 0
    synced: int = 0
    covered: int = 0
    statistics_rows: int = 0
    alerts: int = 0
    quarantined: int = 0
    quarantined_letters: int = 0


def sampled(accounts: Iterable[RunAccount]) -> int:
    """How many readings the runs issued."""
    return sum(account.sampled or 0 for account in accounts)


def stored(accounts: Iterable[RunAccount]) -> int:
    """How many of them are in the tables or the quarantine."""
    return sum(account.in_kafka + account.dead_letters - account.never_sampled for account in accounts)


class Lake:
    """Reads the Delta tables under one directory; a table that isn't there yet is empty."""

    def __init__(self, root: Path, gateway: str, interval_s: int) -> None:
        self._root = root
        self._gateway = gateway
        self._interval_s = interval_s

    def glance(self) -> TableCounts:
        """Rows only, from the tables' logs, without reading data."""
        try:
            locations = table_locations(self._root)
        except LakeError:
            return TableCounts()
        rows = {name: DeltaTable(location).count() for name, location in locations.items() if name in _COUNTS}
        return TableCounts(
            rows=rows.get("readings", 0),
            statistics_rows=rows.get("statistics", 0),
            alerts=rows.get("alerts", 0),
            quarantined=rows.get("quarantine", 0),
        )

    def count(self) -> TableCounts:
        """Counts over all tables, read."""
        connection, present = self._open()
        counts: dict[str, Any] = {}
        with connection:
            if "readings" in present:
                query = "SELECT channel, count(*) FROM readings WHERE gateway = ? GROUP BY channel"
                counts["rows_per_channel"] = dict(connection.execute(query, [self._gateway]).fetchall())
            for name in present & _COUNTS.keys():
                table = connection.view(name)
                if name == "statistics":
                    table = table.filter(f"interval_s = {self._interval_s}")
                found = table.aggregate(_COUNTS[name])
                (row,) = found.fetchall()
                counts |= dict(zip(found.columns, row, strict=True))
        return TableCounts(**counts)

    def accounts(self, books: Books) -> list[RunAccount]:
        """What became of each run's readings: ``in_kafka`` are those in the table, the rest as it is called.

        ``books`` have the run records and nothing else. The quarantine is read where readings are missing.
        """
        connection, present = self._open()
        with connection:
            if "readings" in present:
                for run, channel, first, last in connection.execute(_SPANS, [self._gateway]).fetchall():
                    books.of(self._gateway, run).kafka[channel].add(first, last)
            accounts = books.accounts()
            if "quarantine" not in present or stored(accounts) == sampled(accounts):
                return accounts
            payloads = connection.execute("SELECT payload FROM quarantine").fetchall()
        last_seq = {account.run: account.last_seq for account in accounts}
        for claimed in (claimed_identity(payload or b"") for (payload,) in payloads):
            if claimed is not None and claimed[0] == self._gateway:
                _, channel, run, seq = claimed
                if 1 <= seq <= last_seq.get(run, {}).get(channel, 0):
                    books.of(self._gateway, run).dead_letters[channel].add(seq)
        return books.accounts()

    def _open(self) -> tuple[duckdb.DuckDBPyConnection, frozenset[str]]:
        """A connection and the tables there are."""
        try:
            present = frozenset(table_locations(self._root))
            return open_lake(self._root), present
        except LakeError:
            return duckdb.connect(), frozenset()
