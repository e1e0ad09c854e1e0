"""Counts what was sampled against what the tables and the quarantine hold.

Every sampled reading has an identity (gateway, channel, run, seq) with seq counting from 1, so a run's last
seq per channel names all of them. How far each run got, its record in Kafka has. A thread of its own asks
gateway, Kafka and tables: some take seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from cloud.errors import CloudError
from cloud.kafka.end_offsets import EndOffsets
from cloud.kafka.run_accounts import Books, RunAccount
from cloud.lake.tables import LakeError, open_lake, table_locations
from cloud.wire.reading_records import DEAD_LETTER_TOPIC, READING_TOPIC_PREFIX, claimed_identity
from gateway.status.client import NoStatus, fetch
from gateway.status.status import Status

log = logging.getLogger(__name__)

_PERIOD_S: Final = 1.0
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


@dataclass(frozen=True, slots=True)
class Observation:
    """What was found in one round. ``status`` and ``ends`` are None where there was no response.

    The tables were counted where there are ``accounts``; else ``counts`` has the rows by their logs only.
    """

    status: Status | None = None
    ends: Mapping[str, int] | None = None
    counts: TableCounts = field(default_factory=TableCounts)
    accounts: Sequence[RunAccount] | None = None


def kafka_records(ends: Mapping[str, int]) -> int:
    """Records in all mqtt.* topics."""
    return sum(end for topic, end in ends.items() if topic.startswith(READING_TOPIC_PREFIX))


class Observer(threading.Thread):
    """Observes until stopped. Any thread may read ``latest``.

    ``exact``, once set, has the tables read, not only their logs.
    """

    def __init__(
        self, listen: str, offsets: EndOffsets, lake: Lake, accounts: Callable[[], Sequence[RunAccount]]
    ) -> None:
        super().__init__(name="observer", daemon=True)
        self._listen = listen
        self._offsets = offsets
        self._lake = lake
        self._accounts = accounts
        self._ending = threading.Event()
        self.latest = Observation()
        self.exact = False

    def stop(self) -> None:
        """End; takes as long as the slowest response."""
        self._ending.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        """Observe about once a second."""
        while not self._ending.is_set():
            started_s = time.monotonic()
            self.latest = self._observe()
            # Counting takes half the time at most: a large table's must not starve the jobs that fill it.
            self._ending.wait(max(_PERIOD_S, time.monotonic() - started_s))

    def _observe(self) -> Observation:
        status = ends = accounts = None
        counts = self.latest.counts
        with suppress(NoStatus):
            status = fetch(self._listen)
        with suppress(CloudError):
            ends = self._offsets.by_topic()
        try:
            if self.exact:
                accounts = self._accounts()
                counts = self._lake.count()
            else:
                counts = self._lake.glance()
        except (CloudError, DeltaError, OSError) as error:
            # A table that is being created has no schema yet; Kafka may be restarting.
            log.debug("event=demo.tables_unreadable error=%s", error)
            accounts = None
        return Observation(status, ends, counts, accounts)


def missing(seen: Observation) -> list[str]:
    """What is still on its way once the gateway has ended sampling, one sentence each; empty: nothing.

    Kafka may hold a record twice after a fault: what counts is each reading that was issued.
    """
    counts, status, accounts = seen.counts, seen.status, seen.accounts
    if status is None:
        return ["the gateway does not answer"]
    if seen.ends is None:
        return ["Kafka does not answer"]
    if accounts is None:
        return ["the tables are not counted yet"]
    # A run's record in Kafka may be a minute old while it is going on.
    issued = status.sampled + sampled(each for each in accounts if each.run != status.run)
    letters = seen.ends.get(DEAD_LETTER_TOPIC, 0) - counts.quarantined_letters
    numbers = {
        "messages are in flight in the gateway": status.in_flight,
        "records are in the outbox": status.outbox_records,
        "sampled readings are in no table": issued - stored(accounts),
        "readings are not in the statistics": counts.synced - counts.covered,
        "dead letters are not in quarantine": letters,
    }
    return [f"{number} {what}" for what, number in numbers.items() if number]
