"""Requests status, offsets and counts of gateway, Kafka and tables, on its own thread: some take seconds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from deltalake.exceptions import DeltaError

from cloud.errors import CloudError
from cloud.kafka.end_offsets import EndOffsets
from cloud.kafka.run_accounts import RunAccount
from cloud.wire.reading_records import DEAD_LETTER_TOPIC, READING_TOPIC_PREFIX
from gateway.commands.demo.accounting import Lake, TableCounts, sampled, stored
from gateway.status.client import NoStatus, fetch

log = logging.getLogger(__name__)

_PERIOD_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Observation:
    """What was found in one round. ``status`` and ``ends`` are None where there was no response.

    With ``accounts`` the tables were counted; without, ``counts`` has the rows by their logs only.
    """

    status: Mapping[str, Any] | None = None
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
            # At most half the time: counting a large table must not starve the jobs that fill it.
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
    issued = status["sampled"] + sampled(each for each in accounts if each.run != status["run"])
    letters = seen.ends.get(DEAD_LETTER_TOPIC, 0) - counts.quarantined_letters
    numbers = {
        "messages are in flight in the gateway": status.get("in_flight", 0),
        "records are in the outbox": status.get("outbox_records", 0),
        "sampled readings are in no table": issued - stored(accounts),
        "readings are not in the statistics": counts.synced - counts.covered,
        "dead letters are not in quarantine": letters,
    }
    return [f"{number} {what}" for what, number in numbers.items() if number]
