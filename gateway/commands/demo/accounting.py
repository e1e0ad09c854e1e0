"""Counts what was sampled against what the tables and the quarantine hold.

Every sampled reading has an identity (gateway, channel, run, seq) with seq counting from 1, so a run's last
seq per channel names all of them; the table ``runs`` has it. A thread of its own asks gateway, Kafka and
tables: some take seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from cloud.errors import CloudError
from cloud.kafka.topic_scan import EndOffsets
from cloud.lake.tables import LakeError, open_lake, table_locations
from cloud.wire.reading_records import DEAD_LETTER_TOPIC, READING_TOPIC_PREFIX
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
        f"count(*) FILTER (kafka_topic = '{DEAD_LETTER_TOPIC}') AS quarantined_dead_letters"
    ),
}
_RUNS: Final = """
WITH issued AS (
    SELECT run, unnest(map_keys(last_seq)) AS channel, unnest(map_values(last_seq)) AS last
    FROM runs WHERE gateway = $gateway
), found AS (
    SELECT run, channel, count(DISTINCT seq) AS stored, max(seq) AS highest
    FROM readings WHERE gateway = $gateway GROUP BY ALL
), channels AS (
    SELECT run, channel, coalesce(last, 0) AS last, coalesce(highest, 0) AS highest,
        coalesce(stored, 0) AS stored
    FROM issued FULL JOIN found USING (run, channel)
)
SELECT run, state, in_flight, outbox_records, channel,
    if(state = 'stopped', last, greatest(last, highest)) AS sampled, stored
FROM runs LEFT JOIN channels USING (run) WHERE gateway = $gateway ORDER BY started, run, channel
"""
"""Each run's channels. Only a run that has stopped has published its last record; others may have gone on."""


@dataclass(slots=True)
class RunCounts:
    """One run by its last record in the lake: ``sampled`` by channel, ``stored`` are the readings there.

    ``waiting`` were in flight or in the outbox.
    """

    run: str
    state: str
    waiting: int
    sampled: dict[str, int] = field(default_factory=dict)
    stored: int = 0


@dataclass(frozen=True, slots=True)
class TableCounts:
    """What the tables hold now: ``covered`` readings are in the statistics, ``synced`` ones belong there.

    ``runs`` are the gateway's, the oldest first; None where only the tables' logs were read.
    """

    rows: int = 0
    rows_per_channel: Mapping[str, int] = field(default_factory=dict)
    distinct_rows: int = 0
    synced: int = 0
    covered: int = 0
    statistics_rows: int = 0
    alerts: int = 0
    quarantined: int = 0
    quarantined_dead_letters: int = 0
    runs: Sequence[RunCounts] | None = None


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
        """Counts over all tables, read. No runs are known until both of their tables are there."""
        try:
            present = frozenset(table_locations(self._root))
            connection = open_lake(self._root)
        except LakeError:
            return TableCounts(runs=())
        counts: dict[str, Any] = {"runs": ()}
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
            if {"runs", "readings"} <= present:
                counts["runs"] = self._runs(connection)
        return TableCounts(**counts)

    def _runs(self, connection: duckdb.DuckDBPyConnection) -> list[RunCounts]:
        runs: dict[str, RunCounts] = {}
        rows = connection.execute(_RUNS, {"gateway": self._gateway}).fetchall()
        for run, state, in_flight, outbox, channel, sampled, stored in rows:
            counts = runs.setdefault(run, RunCounts(run, state, (in_flight or 0) + (outbox or 0)))
            if channel is not None:
                counts.sampled[channel] = sampled
                counts.stored += stored
        return list(runs.values())


@dataclass(frozen=True, slots=True)
class Observation:
    """What was found in one round. ``status`` and ``ends`` are None where there was no response."""

    status: Status | None = None
    ends: Mapping[str, int] | None = None
    counts: TableCounts = field(default_factory=TableCounts)


def waiting_and_lost(runs: Sequence[RunCounts]) -> tuple[int, int]:
    """How many readings still wait on the mast, and how many are nowhere; more than were sampled: below 0."""
    lacking = sum(sum(run.sampled.values()) - run.stored for run in runs)
    waiting = min(runs[-1].waiting, max(lacking, 0)) if runs else 0  # events may be in flight as well
    return waiting, lacking - waiting


def kafka_records(ends: Mapping[str, int]) -> int:
    """Records in all mqtt.* topics."""
    return sum(end for topic, end in ends.items() if topic.startswith(READING_TOPIC_PREFIX))


class Observer(threading.Thread):
    """Observes until stopped. Any thread may read ``latest``.

    ``exact``, once set, has the tables read, not only their logs.
    """

    def __init__(self, listen: str, offsets: EndOffsets, lake: Lake) -> None:
        super().__init__(name="observer", daemon=True)
        self._listen = listen
        self._offsets = offsets
        self._lake = lake
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
        status = ends = None
        with suppress(NoStatus):
            status = fetch(self._listen)
        with suppress(CloudError):
            ends = self._offsets.by_topic()
        try:
            counts = self._lake.count() if self.exact else self._lake.glance()
        except (CloudError, DeltaError, OSError) as error:
            # A table that is being created has no schema yet; Kafka may be restarting.
            log.debug("event=demo.tables_unreadable error=%s", error)
            counts = replace(self.latest.counts, runs=None)
        return Observation(status, ends, counts)


def missing(seen: Observation) -> list[str]:
    """What is still on its way once the gateway has ended sampling, one sentence each; empty: nothing.

    Kafka may hold a record twice after a fault: what counts is each reading that was issued.
    """
    counts, status, runs = seen.counts, seen.status, seen.counts.runs
    if status is None:
        return ["the gateway does not answer"]
    if seen.ends is None:
        return ["Kafka does not answer"]
    if runs is None:
        return ["the tables are not counted yet"]
    # The record of a run that goes on may be a minute old.
    issued = status.sampled + sum(sum(each.sampled.values()) for each in runs if each.run != status.run)
    dead_letters = seen.ends.get(DEAD_LETTER_TOPIC, 0) - counts.quarantined_dead_letters
    numbers = {
        "messages are in flight in the gateway": status.in_flight,
        "records are in the outbox": status.outbox_records,
        "sampled readings are in no table": issued - sum(each.stored for each in runs),
        "readings are not in the statistics": counts.synced - counts.covered,
        "dead letters are not in quarantine": dead_letters,
    }
    return [f"{number} {what}" for what, number in numbers.items() if number]
