"""What a run tells unasked, Kafka and the local broker: its status, its record, drops, a failing disk."""

from __future__ import annotations

import time
from collections.abc import Iterable
from queue import SimpleQueue
from typing import Final

from buffer.drops import NOT_STORED, Drop
from gateway.clock.hold import ClockHold
from gateway.clock.manual_time import ManualTime
from gateway.clock.sync import ClockSync
from gateway.forwarding.forwarder import Forwarder
from gateway.forwarding.seq_summary import joined, summarise
from gateway.mqtt.broker_drops import BrokerDrops
from gateway.mqtt.session import MqttSession
from gateway.mqtt.topics import Topics
from gateway.ports import Record
from gateway.reporting.gateway_status import GatewayStatus
from gateway.reporting.run_ledger import ANNOUNCE_EVERY_S, RunLedger, State

# In an outage each announcement is stored, too. At the outbox's cap one a second took the room of 19 % of the
# readings (284,000 in 16 MiB, measured). The next run record, to the local broker too, has every drop.
_STORED_EVERY_S: Final = 10.0


class UnannouncedDrops:
    """Drops that are not announced yet. Owned by the main loop."""

    def __init__(self) -> None:
        self._waiting: list[Drop] = []
        self._told_s = float("-inf")

    def add(self, drops: Iterable[Drop]) -> None:
        """These are to be announced."""
        self._waiting = list(joined((*self._waiting, *drops)))

    def due(self, now_s: float, *, stored: bool, at_once: bool) -> list[Drop]:
        """What is to be announced now; ``stored`` while announcements go to the outbox."""
        if not self._waiting or (stored and not at_once and now_s < self._told_s + _STORED_EVERY_S):
            return []
        due, self._waiting, self._told_s = self._waiting, [], now_s
        return due


class Reporter:
    """Owned by the main thread, but for ``left_by_another``. ``drops`` is filled by the outbox's threads."""

    def __init__(
        self,
        runs: RunLedger,
        status: GatewayStatus,
        topics: Topics,
        forwarder: Forwarder,
        link: MqttSession,
        drops: SimpleQueue[Drop],
        broker_drops: BrokerDrops,
    ) -> None:
        self._runs = runs
        self._status = status
        self._topics = topics
        self._forwarder = forwarder
        self._link = link
        self._drops = drops
        self._broker_drops = broker_drops
        self._untold = UnannouncedDrops()
        self._disk_works = True
        self._record_at_s = float("-inf")

    def begin_run(self) -> None:
        """The run's first record, to Kafka."""
        self._record_at_s = time.monotonic() + ANNOUNCE_EVERY_S
        self._forwarder.announce(self._runs.record("running"))

    def tell_run(self, state: State, now_s: float) -> None:
        """The run as it stands: to the local broker, and to Kafka once a minute (``now_s``: monotonic)."""
        self._link.publish(self._topics.run, self._runs.payload(state), retain=True)
        if now_s >= self._record_at_s and self._forwarder.uplink != "spilling":
            # During an outage each would be stored, and the last of them tells everything.
            self._record_at_s = now_s + ANNOUNCE_EVERY_S
            self._forwarder.announce(self._runs.record(state))

    def tell_status(self) -> None:
        """The gateway's status, where it has changed."""
        status = self._status.due(time.monotonic())
        if status is not None:
            self._link.greet(self._topics.status, status.value)
            self._forwarder.announce(status)

    def tell_disk(self) -> None:
        """That the outbox's disk fails, or works again."""
        problem = self._forwarder.outbox_in_memory.problem
        if (problem is None) != self._disk_works:
            self._disk_works = problem is None
            self._forwarder.announce(self._runs.disk(problem))

    def tell_drops(self, *, at_once: bool = False) -> None:
        """What the outbox and the local broker have dropped; not all the time while Kafka is away."""
        found = self._waiting_drops()
        for drop in found:
            self._runs.note(drop)
        self._untold.add(found)
        stored = self._forwarder.uplink == "spilling"
        drops = self._untold.due(time.monotonic(), stored=stored, at_once=at_once)
        for drop in drops:
            self._forwarder.announce(self._runs.dropped(drop))
        grown = self._broker_drops.due(time.monotonic(), at_once=at_once)
        if grown is not None:
            self._forwarder.announce(self._runs.broker_dropped(grown, self._broker_drops.count or 0))
        if drops:
            self._forwarder.announce(self._runs.record("running"))

    def farewell(self) -> Record:
        """The last status, on its way to Kafka; the local broker is told it when the link ends."""
        farewell = self._status.farewell()
        self._forwarder.announce(farewell)
        return farewell

    def note_lost(self, left: Iterable[Record]) -> int:
        """Note what neither Kafka nor the disk has taken at the very end; how many messages were lost so.

        To the journal, and to the local broker with the run's last record: nobody else listens now.
        """
        left = tuple(left)
        if left:
            self._drops.put(Drop(NOT_STORED, 0, 0, len(left), summarise(left)))
        lost = 0
        for drop in self._waiting_drops():
            self._runs.note(drop)
            lost += (drop.count or 0) if drop.reason == NOT_STORED else 0
        return lost

    def left_by_another(self, topic: str, payload: bytes) -> None:
        """Pass on what another run has left on one of our own topics; the broker's network thread calls."""
        if topic == self._topics.run:
            self._broker_drops.left_by(payload)
            last_word = self._runs.close_previous(payload)
        else:
            last_word = self._status.left_by_another(payload)
            if last_word is not None:
                self._link.greet_again()
        if last_word is not None:
            self._forwarder.announce(last_word)

    def _waiting_drops(self) -> list[Drop]:
        return list(joined(self._drops.get() for _ in range(self._drops.qsize())))


class ClockVerdicts:
    """From a phone's gift or the kernel's clock to the forwarder; what then leaves is announced."""

    def __init__(
        self,
        gifts: ManualTime,
        timekeeper: ClockSync,
        holdback: ClockHold,
        forwarder: Forwarder,
        runs: RunLedger,
    ) -> None:
        self._gifts = gifts
        self._timekeeper = timekeeper
        self._holdback = holdback
        self._forwarder = forwarder
        self._runs = runs

    def check(self) -> None:
        """Take what was given, look at the clock, and tell which readings have got their time."""
        for gift in self._gifts.take():
            try:
                given = self._timekeeper.give(gift.offset_ms)
            except ValueError as error:
                gift.answer(str(error))
                continue
            self._forwarder.judged(given)
            self._forwarder.announce(self._runs.clock_given(given, gift.uncertain_ms))
            gift.answer(None)
        verdict = self._timekeeper.check(self._forwarder.reachable_s)
        if verdict is not None:
            self._forwarder.judged(verdict)
        while not self._holdback.news.empty():
            self._forwarder.announce(self._runs.released(self._holdback.news.get()))
