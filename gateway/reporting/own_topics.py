"""The retained messages of an earlier run on this gateway's own topics."""

from __future__ import annotations

from gateway.forwarding.inbox import Inbox
from gateway.mqtt.broker_drops import BrokerDrops
from gateway.mqtt.topics import Topics
from gateway.reporting.gateway_status import GatewayStatus
from gateway.reporting.run_ledger import RunLedger


class RetainedRecords:
    """Forwards an earlier run's last record, closed, and its last will.

    Called by the session's network thread.
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
        """The topics of runs and status."""
        return self._topics.run, self._topics.status

    def arrived(self, topic: str, payload: bytes) -> bool:
        """Take a retained message; True where this run's status must be published over it again."""
        if topic == self._topics.run:
            self._drops.inherit(payload)
            record = self._runs.close_previous(payload)
        else:
            record = self._status.forwarded_will(payload)
        if record is not None:
            self._inbox.announce(record)
        return record is not None and topic == self._topics.status
