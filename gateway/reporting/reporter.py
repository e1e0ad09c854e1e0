"""Publishes what a run reports, to Kafka and the local broker.

That is its status, its record, drops, a failing disk, and topics that reject records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from queue import SimpleQueue
from typing import Any, Final

from buffer.errors import NOT_STORED, Drop
from gateway.clock.given_time import ManualTime
from gateway.clock.hold import ClockHold
from gateway.clock.sync import ClockSync
from gateway.forwarding.forwarder import Inbox
from gateway.forwarding.records import joined
from gateway.mqtt.broker_drops import BrokerDrops
from gateway.mqtt.intake import Topics
from gateway.ports import Record, Snapshot
from gateway.reporting.gateway_status import GatewayStatus
from gateway.reporting.run_ledger import ANNOUNCE_EVERY_S, RunLedger

# In an outage each announcement is stored, too. At the outbox's cap one a second took the room of 19 % of the
# readings (284,000 in 16 MiB, measured). The next run record, to the local broker too, has every drop.
_STORED_EVERY_S: Final = 10.0
# A topic that keeps silent while others are confirmed may be parked for a second.
_PARKED_S: Final = 60.0


class Reporter:
    """Publishes what a run reports about itself. Owned by the main thread; ``drops`` come from others."""

    def __init__(
        self,
        runs: RunLedger,
        status: GatewayStatus,
        topics: Topics,
        inbox: Inbox,
        drops: SimpleQueue[Drop],
        broker_drops: BrokerDrops,
    ) -> None:
        self._runs = runs
        self._status = status
        self._topics = topics
        self._inbox = inbox
        self._drops = drops
        self._broker_drops = broker_drops
        self._unannounced: list[Drop] = []
        self._drops_at_s = float("-inf")
        self._disk_works = True
        self._parked: dict[str, float] = {}
        self._record_at_s = float("-inf")

    def begin(self, snapshot: Snapshot) -> None:
        """Announces the run's first record."""
        self._record_at_s = snapshot.at_s + ANNOUNCE_EVERY_S
        self._inbox.announce(self._runs.record("running", snapshot.counts))

    def tick(self, snapshot: Snapshot) -> None:
        """Reports what has changed, and the run as it stands."""
        self._report_disk(snapshot.outbox_problem)
        self._report_parked(snapshot)
        self.report_status(snapshot)
        self.report_drops(snapshot)
        self._report_run(snapshot)

    def report_status(self, snapshot: Snapshot) -> None:
        """Publishes the gateway's status if it has changed."""
        status = self._status.due(snapshot)
        if status is not None:
            self._inbox.retain({self._topics.status: status.value})
            self._inbox.announce(status)

    def report_drops(self, snapshot: Snapshot, *, at_once: bool = False) -> None:
        """Announces what the outbox and the local broker have dropped; seldom while Kafka doesn't answer."""
        self._unannounced = list(joined((*self._unannounced, *self._new_drops())))
        grown = self._broker_drops.due(snapshot.at_s, at_once=at_once)
        if grown is not None:
            self._inbox.announce(self._runs.broker_dropped(grown, self._broker_drops.count or 0))
        stored = snapshot.uplink == "spilling" and not at_once
        if not self._unannounced or (stored and snapshot.at_s < self._drops_at_s + _STORED_EVERY_S):
            return
        for drop in self._unannounced:
            self._inbox.announce(self._runs.dropped(drop))
        self._unannounced, self._drops_at_s = [], snapshot.at_s
        self._inbox.announce(self._runs.record("running", snapshot.counts))

    def report_offline(self, snapshot: Snapshot) -> Record:
        """Announces the last status, and returns it; the local broker gets it when the session ends."""
        offline = self._status.offline(snapshot)
        self._inbox.announce(offline)
        return offline

    def report_stopped(self, counts: Mapping[str, Any]) -> None:
        """Announces the run's last record."""
        self._inbox.announce(self._runs.record("stopped", counts))

    def note_lost(self, left: Drop | None) -> int:
        """Notes what neither Kafka nor the disk has taken at the end; returns how many messages were lost so.

        It goes to the journal, and to the local broker with the run's last record: nothing else is open.
        """
        if left is not None:
            self._drops.put(left)
        return sum(drop.count or 0 for drop in self._new_drops() if drop.reason == NOT_STORED)

    def last_messages(self, counts: Mapping[str, Any], offline: Record) -> dict[str, bytes]:
        """Returns what the local broker retains of this run, by topic."""
        return {self._topics.run: self._runs.payload("stopped", counts), self._topics.status: offline.value}

    def _report_disk(self, problem: str | None) -> None:
        """Announces that the outbox's disk fails, or works again."""
        if (problem is None) != self._disk_works:
            self._disk_works = problem is None
            event = "outbox-usable" if self._disk_works else "outbox-in-memory"
            self._inbox.announce(self._runs.event(event, problem=problem))

    def _report_parked(self, snapshot: Snapshot) -> None:
        """Announces which topics have rejected records for a minute, and that they accept them again."""
        for topic, (since_s, problem) in snapshot.parked.items():
            if topic not in self._parked and snapshot.at_s >= since_s + _PARKED_S:
                self._parked[topic] = since_s
                lasts_s = round(snapshot.at_s - since_s)
                event = self._runs.event("topic-parked", topic=topic, problem=problem, lasts_s=lasts_s)
                self._inbox.announce(event)
        for topic in self._parked.keys() - snapshot.parked.keys():
            lasted_s = round(snapshot.at_s - self._parked.pop(topic))
            self._inbox.announce(self._runs.event("topic-delivers", topic=topic, lasted_s=lasted_s))

    def _report_run(self, snapshot: Snapshot) -> None:
        """Publishes the run to the local broker each turn, to Kafka once a minute."""
        payload = self._runs.payload(snapshot.state, snapshot.counts)
        self._inbox.retain({self._topics.run: payload}, soon=False)
        if snapshot.at_s >= self._record_at_s and snapshot.uplink != "spilling":
            # During an outage each would be stored, and the last of them has everything.
            self._record_at_s = snapshot.at_s + ANNOUNCE_EVERY_S
            self._inbox.announce(self._runs.record(snapshot.state, snapshot.counts))

    def _new_drops(self) -> list[Drop]:
        """Returns what was dropped since the last call, and notes it for the run's records."""
        found = list(joined(self._drops.get() for _ in range(self._drops.qsize())))
        for drop in found:
            self._runs.note(drop)
        return found


class ClockUpdates:
    """From the kernel's clock, or the time offered at the mast, to the forwarder; announces what then leaves.

    Owned by the main thread.
    """

    def __init__(
        self, offers: ManualTime, sync: ClockSync, hold: ClockHold, inbox: Inbox, runs: RunLedger
    ) -> None:
        self._offers = offers
        self._sync = sync
        self._hold = hold
        self._inbox = inbox
        self._runs = runs

    def tick(self, snapshot: Snapshot) -> None:
        """Takes the times offered, checks the clock, and announces which readings have got their time."""
        for offer in self._offers.take():
            try:
                given = self._sync.give(offer.offset_ms)
            except ValueError as error:
                offer.accepted.set_exception(error)
                continue
            self._inbox.put(given)
            event = self._runs.event(
                "clock_given", **asdict(given), uncertain_ms=offer.uncertain_ms, source=offer.source
            )
            self._inbox.announce(event)
            offer.accepted.set_result(None)
        boot_time = self._sync.check(snapshot.reachable_s)
        if boot_time is not None:
            self._inbox.put(boot_time)
        while not self._hold.released.empty():
            self._inbox.announce(self._runs.released(self._hold.released.get()))


class RetainedRecords:
    """Forwards an earlier run's retained messages: its last record, closed, and its last will.

    Called by the forwarder's thread.
    """

    def __init__(
        self, topics: Topics, runs: RunLedger, status: GatewayStatus, drops: BrokerDrops, inbox: Inbox
    ) -> None:
        self._topics = topics
        self._runs = runs
        self._status = status
        self._drops = drops
        self._inbox = inbox

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the topics of runs and status."""
        return self._topics.run, self._topics.status

    def arrived(self, topic: str, payload: bytes) -> bool:
        """Takes a retained message; returns True if this run's status must be published over it again."""
        is_status = topic == self._topics.status
        if is_status:
            record = self._status.forwarded_will(payload)
        else:
            self._drops.inherit(payload)
            record = self._runs.close_previous(payload)
        if record is None:
            return False
        self._inbox.announce(record)
        if is_status:
            # Only now: a status that the main thread makes at this moment may be ahead of the will.
            self._status.repeat()
        return is_status
