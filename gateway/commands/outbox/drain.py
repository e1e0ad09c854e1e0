"""``fieldgate outbox drain``: sends an outbox to Kafka without a daemon, by the daemon's own forwarder.

It is a run of its own in the run ledger, one that samples nothing: its record tells what is still in the
outbox, and what was dropped.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from buffer.drops import Drop
from buffer.errors import OutboxLocked
from cloud.errors import CloudError
from gateway.clock.sync import open_clock
from gateway.clock.system_clock import Machine
from gateway.commands.arguments import FAILED, INTERRUPTED, OK, CommandError
from gateway.commands.progress import Progress
from gateway.config import Config
from gateway.forwarding.forwarder import Forwarder
from gateway.forwarding.inbox import Inbox
from gateway.forwarding.kafka_health import Pace
from gateway.forwarding.outbox_writer import OutboxWriter, open_outbox
from gateway.forwarding.sinks import KafkaSinks
from gateway.forwarding.state import State
from gateway.mqtt.intake import Intake
from gateway.ports import Ack, Record
from gateway.reporting.previous_runs import PreviousRuns
from gateway.reporting.run_ledger import RunLedger
from gateway.sequences import Sequences, new_run
from gateway.system.host import boot_id

_POLL_S: Final = 0.2
_GRACE_S: Final = 5.0


def run(config: Config, timeout_s: float) -> int:
    """Send all there is: 0 when the outbox is empty, 1 where it can't be, 130 after Ctrl-C.

    Gives up after ``timeout_s`` in which Kafka has confirmed nothing. What it has confirmed is removed.
    Raises CommandError, OutboxError, CloudError.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR, format="%(message)s")
    if not config.outbox.path.exists():
        raise CommandError(f"there is no outbox at {config.outbox.path}")
    drops: SimpleQueue[Drop] = SimpleQueue()
    try:
        outbox = open_outbox(config, drops.put)
    except OutboxLocked as error:
        raise CommandError(f"{error}; a running daemon drains it by itself") from error
    try:
        kafka = KafkaSinks.open(config)
    except CloudError:
        outbox.close()
        raise
    run_id = new_run()
    clock, timekeeper = open_clock(config, Machine())
    inbox = Inbox()
    intake = Intake(config.gateway.id, run_id, Sequences(), config.kafka.topic, clock)
    state = State(inbox, intake, Pace(config.outbox.commit_interval_s), timekeeper.hold())
    writer = OutboxWriter(outbox, inbox.put)
    forwarder = Forwarder(state, kafka.live, kafka.backlog, writer, _NoBroker())
    found = forwarder.outbox.records
    forwarder.start()
    interrupted = False
    try:
        _wait(forwarder, found, timeout_s)
    except KeyboardInterrupt:
        interrupted = True
    ledger = _Ledger(config, run_id, forwarder)
    while not drops.empty():
        inbox.announce(ledger.dropped(drops.get()))
    drained = forwarder.counters.drained
    parked = forwarder.kafka.parked_topics
    # Without anything to tell, a record would only add to the outbox.
    forwarder.take_no_more()
    if drained or ledger.used:
        inbox.announce(ledger.farewell())
    unsaved = forwarder.stop(_GRACE_S)
    if not unsaved:
        ledger.end()
    kafka.close()
    left, held = forwarder.outbox.records, forwarder.held_rows
    sys.stderr.write(f"{drained:,} records sent and removed, {left:,} left\n")
    if parked:
        sys.stderr.write(f"Kafka doesn't take {', '.join(parked)}: provision the topics, or the permission\n")
    elif held:
        sys.stderr.write(f"{held:,} of them wait for this machine's clock to be synchronised\n")
    elif left and not interrupted:
        servers = config.kafka.bootstrap_servers
        sys.stderr.write(f"Kafka at {servers} has confirmed nothing for {timeout_s:g} s\n")
    if interrupted:
        return INTERRUPTED
    return FAILED if left or unsaved else OK


def _wait(forwarder: Forwarder, found: int, timeout_s: float) -> None:
    progress = Progress("records sent")
    seen, seen_s = forwarder.counters.drained, time.monotonic()
    try:
        while forwarder.outbox.records > forwarder.held_rows and forwarder.is_alive():
            time.sleep(_POLL_S)
            drained = forwarder.counters.drained
            if drained != seen:
                seen, seen_s = drained, time.monotonic()
            elif time.monotonic() > seen_s + timeout_s:
                return
            progress(drained, found)
    finally:
        progress.end()


class _NoBroker:
    """Stands for the local broker, which has no part in this."""

    def acknowledge(self, ack: Ack) -> None:
        """Nothing was received."""

    def resume(self) -> None:
        """Nothing is held."""


class _Ledger:
    """The run record of a drain: made only when there is something to tell."""

    def __init__(self, config: Config, run_id: str, forwarder: Forwarder) -> None:
        # It samples nothing: nothing of it can be lost.
        self._state_file = PreviousRuns(Path(f"{config.outbox.path}.run"), run_id, lost_at_most_s=0.0)
        self._gateway = config.gateway.id
        self._run_id = run_id
        self._forwarder = forwarder
        self._ledger: RunLedger | None = None

    @property
    def used(self) -> bool:
        """Whether a drop was told."""
        return self._ledger is not None

    def dropped(self, drop: Drop) -> Record:
        """The event that announces a drop."""
        ledger = self._opened()
        ledger.note(drop)
        return ledger.dropped(drop)

    def farewell(self) -> Record:
        """The run's last word."""
        return self._opened().record("stopped", self._counts())

    def _opened(self) -> RunLedger:
        if self._ledger is None:
            before = self._state_file.begin()
            self._ledger = RunLedger(self._gateway, self._run_id, boot_id(), before)
        return self._ledger

    def end(self) -> None:
        """The run's record is in Kafka or in the outbox."""
        if self._ledger is not None:
            self._state_file.end()

    def _counts(self) -> dict[str, Any]:
        return {
            "last_seq": {},
            "in_flight": self._forwarder.in_flight,
            "outbox_records": self._forwarder.outbox.records,
        }
