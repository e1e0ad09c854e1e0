"""``fieldgate outbox drain``: sends an outbox to Kafka without a daemon, by the daemon's own forwarder.

It is a run of its own in the run ledger, one that samples nothing: its record has what is still in the
outbox, and what was dropped.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from buffer.errors import Drop, OutboxLocked
from buffer.files import boot_id
from cloud.command_line import FAILED, INTERRUPTED, OK, CommandError
from cloud.errors import CloudError
from cloud.terminal import progress_bar
from gateway.clock.sync import open_clock
from gateway.clock.system_clock import Machine
from gateway.config import Config
from gateway.forwarding.forwarder import Forwarder, Inbox
from gateway.forwarding.outbox_writer import OutboxWriter, open_outbox
from gateway.forwarding.sinks import KafkaSinks
from gateway.forwarding.state import Pace, State
from gateway.mqtt.intake import Intake
from gateway.ports import Ack, Message
from gateway.reporting.previous_runs import PreviousRuns
from gateway.reporting.run_ledger import RunLedger
from gateway.sequences import Sequences, new_run

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
    kafka = KafkaSinks.open(config)
    if not kafka.backlog.usable:
        outbox.close()
        raise CloudError(kafka.backlog.problem or "no producer")
    run_id = new_run(config.gateway.id, config.gateway.identity_key)
    clock, timekeeper = open_clock(config, Machine())
    inbox = Inbox()
    intake = Intake(config.gateway.id, Sequences(run_id), config.kafka.topic, clock)
    state = State(intake, Pace(config.outbox.commit_interval_s), timekeeper.hold())
    writer = OutboxWriter(outbox, inbox.put)
    forwarder = Forwarder(inbox, state, kafka.live, kafka.backlog, writer, _NoBroker())
    found = forwarder.outbox.records
    forwarder.start()
    interrupted = False
    try:
        _wait(forwarder, found, timeout_s)
    except KeyboardInterrupt:
        interrupted = True
    dropped = [drops.get() for _ in range(drops.qsize())]
    drained, parked = forwarder.counters.drained, forwarder.kafka.parked()
    # Where nothing was sent or dropped, a run record would only add to the outbox.
    recorded = bool(drained or dropped)
    # It samples nothing: nothing of it can be lost.
    state_file = PreviousRuns(Path(f"{config.outbox.path}.run"), run_id, lost_at_most_s=0.0)
    if recorded:
        ledger = RunLedger(config.gateway.id, run_id, boot_id(), state_file.begin())
        for drop in dropped:
            ledger.note(drop)
            inbox.announce(ledger.dropped(drop))
    forwarder.take_no_more()
    if recorded:
        waiting = {"in_flight": forwarder.in_flight, "outbox_records": forwarder.outbox.records}
        inbox.announce(ledger.record("stopped", {"last_seq": {}, **waiting}))
    unsaved = forwarder.stop(_GRACE_S)
    if recorded and not unsaved:
        state_file.end()
    kafka.close()
    left, held = forwarder.outbox.records, forwarder.held_rows
    sys.stderr.write(f"{drained:,} records sent and removed, {left:,} left\n")
    if parked:
        reasons = "".join(f"  {topic}: {each.problem}\n" for topic, each in parked.items())
        sys.stderr.write(f"Kafka doesn't take these: provision the topics, or the permission\n{reasons}")
    elif held:
        sys.stderr.write(f"{held:,} of them wait for this machine's clock to be synchronised\n")
    elif left and not interrupted:
        servers = config.kafka.bootstrap_servers
        sys.stderr.write(f"Kafka at {servers} has confirmed nothing for {timeout_s:g} s\n")
    if interrupted:
        return INTERRUPTED
    return FAILED if left or unsaved else OK


def _wait(forwarder: Forwarder, found: int, timeout_s: float) -> None:
    seen, seen_s = forwarder.counters.drained, time.monotonic()
    with progress_bar("records sent") as progress:
        while forwarder.outbox.records > forwarder.held_rows and forwarder.is_alive():
            time.sleep(_POLL_S)
            drained = forwarder.counters.drained
            if drained != seen:
                seen, seen_s = drained, time.monotonic()
            elif time.monotonic() > seen_s + timeout_s:
                return
            progress(drained, found)


class _NoBroker:
    """Stands in for the local broker, which has no part in this."""

    def interest(self) -> tuple[None, int]:
        """Nothing to wait for."""
        return None, 0

    def wake_s(self) -> float:
        """Never."""
        return float("inf")

    def read(self, now_s: float, *, take: bool) -> tuple[Message, ...]:
        """Nothing comes."""
        return ()

    def write(self) -> None:
        """Nothing to send."""

    def acknowledge(self, ack: Ack) -> None:
        """Nothing was received."""

    def publish(self, topic: str, payload: bytes) -> None:
        """Nothing is sampled."""

    def retain(self, messages: Mapping[str, bytes]) -> None:
        """Nothing is retained."""
