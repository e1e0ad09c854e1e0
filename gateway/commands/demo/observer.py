"""Asks gateway, Kafka and tables how they are, on its own thread: a silent one must not hold up the rest."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from deltalake.exceptions import DeltaError

from cloud.kafka.end_offsets import EndOffsets, NoOffsetsError
from cloud.wire.reading_records import DEAD_LETTER_TOPIC, RAW_TOPIC, READING_TOPIC_PREFIX
from gateway.commands.demo.accounting import Lake, TableCounts, sampled
from gateway.commands.demo.run_records import RunRecords
from gateway.status.client import NoStatus, fetch

log = logging.getLogger(__name__)

_PERIOD_S: Final = 1.0
_RATE_OVER_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen in one round. ``status`` and ``ends`` are None where there was no answer.

    ``sampled`` is over all runs, ``sampled_now`` of the current one, both from the run records. ``exact``
    tells that ``counts`` were counted, not only glanced at; ``quarantined_own`` is counted then too.
    """

    at_s: float = 0.0
    status: Mapping[str, Any] | None = None
    ends: Mapping[str, int] | None = None
    counts: TableCounts = field(default_factory=TableCounts)
    exact: bool = False
    sampled: int = 0
    sampled_now: int = 0
    quarantined_own: int = 0
    readings_per_s: float = 0.0

    @property
    def kafka_records(self) -> int | None:
        """Records in all mqtt.* topics."""
        return None if self.ends is None else kafka_records(self.ends)


def kafka_records(ends: Mapping[str, int]) -> int:
    """Records in all mqtt.* topics."""
    return sum(end for topic, end in ends.items() if topic.startswith(READING_TOPIC_PREFIX))


class Observer:
    """Observes until stopped; ``latest`` may be read from any thread."""

    def __init__(self, listen: str, offsets: EndOffsets, lake: Lake, records: RunRecords) -> None:
        self._listen = listen
        self._offsets = offsets
        self._lake = lake
        self._records = records
        self._exact = threading.Event()
        self._stop = threading.Event()
        self._sampled: deque[tuple[float, int]] = deque()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self.latest = Observation()

    def start(self) -> None:
        """Begin to observe."""
        self._thread.start()

    def stop(self) -> None:
        """End; takes as long as the slowest answer."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def count_exactly(self) -> None:
        """From now on read the tables, not only their logs."""
        self._exact.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            started_s = time.monotonic()
            self.latest = self._observe(started_s)
            # At most half the time: counting a large table must not starve the jobs that fill it.
            self._stop.wait(max(_PERIOD_S, time.monotonic() - started_s))

    def _observe(self, now_s: float) -> Observation:
        exact = self._exact.is_set()
        status, ends = self._status(), self._ends()
        runs = tuple(self._records.all().values())
        current = self._records.current
        quarantined_own = 0
        try:
            counts = self._lake.count(runs) if exact else self._lake.glance()
            if exact and counts.quarantined and counts.own < sampled(runs):
                quarantined_own = len(self._lake.quarantined(runs))
        except (DeltaError, OSError) as error:
            # A table that is being created has no schema yet.
            log.debug("event=demo.tables_unreadable error=%s", error)
            counts, exact = self.latest.counts, False
        return Observation(
            at_s=now_s,
            status=status,
            ends=ends,
            counts=counts,
            exact=exact,
            sampled=sampled(runs),
            sampled_now=0 if current is None else sampled((current,)),
            quarantined_own=quarantined_own,
            readings_per_s=self._rate(now_s, status),
        )

    def _status(self) -> Mapping[str, Any] | None:
        try:
            return fetch(self._listen)
        except NoStatus:
            return None

    def _ends(self) -> Mapping[str, int] | None:
        try:
            return self._offsets.by_topic()
        except NoOffsetsError:
            return None

    def _rate(self, now_s: float, status: Mapping[str, Any] | None) -> float:
        if status is None:
            self._sampled.clear()
            return 0.0
        count = int(status.get("sampled", 0))
        if self._sampled and self._sampled[-1][1] > count:
            self._sampled.clear()
        self._sampled.append((now_s, count))
        while now_s - self._sampled[0][0] > _RATE_OVER_S:
            self._sampled.popleft()
        since_s, before = self._sampled[0]
        return (count - before) / (now_s - since_s) if now_s > since_s else 0.0


class Completeness:
    """Tells what is still on its way once the gateway has ended sampling.

    Kafka may hold a record twice (after a fault) while the tables take it once, so records that are in no
    table are waited for only until the tables have stood still for ``patience_s``.
    """

    def __init__(self, patience_s: float = 8.0) -> None:
        self._patience_s = patience_s
        self._still_since_s: float | None = None
        self._last: tuple[object, ...] = ()

    def missing(self, seen: Observation) -> list[str]:
        """One sentence for each thing that is missing; empty when all is where it belongs."""
        counts, status = seen.counts, seen.status
        if status is None:
            return ["the gateway does not answer"]
        if seen.ends is None:
            return ["Kafka does not answer"]
        if not seen.exact:
            return ["the tables are not counted yet"]
        if status.get("sampled") != seen.sampled_now:
            return ["the gateway's run record is behind"]
        found = [
            f"{number} {what}"
            for number, what in (
                (status.get("in_flight", 0), "messages are in flight in the gateway"),
                (status.get("outbox_records", 0), "records are in the outbox"),
                (seen.sampled - counts.own - seen.quarantined_own, "sampled readings are in no table"),
                (counts.synced - counts.covered, "readings are not in the statistics"),
                (
                    seen.ends.get(DEAD_LETTER_TOPIC, 0) - counts.quarantined_letters,
                    "dead letters are not in quarantine",
                ),
            )
            if number != 0
        ]
        behind = (
            kafka_records(seen.ends) - seen.ends.get(RAW_TOPIC, 0) - counts.rows - counts.quarantined_readings
        )
        if behind and not self._stands_still(seen):
            found.append(f"{behind} Kafka records are in no table")
        return found

    def _stands_still(self, seen: Observation) -> bool:
        state = (seen.counts, tuple(sorted((seen.ends or {}).items())))
        if state != self._last or self._still_since_s is None:
            self._last, self._still_since_s = state, seen.at_s
        return seen.at_s - self._still_since_s >= self._patience_s
