"""Makes the records of ``gateway.status``: online or offline, the clock, the uplink.

The same bytes go to Kafka, through the forwarder like everything else, and retained to the local broker. A
change is published at once, but not more often than every ten seconds, as an uplink may come and go all the
time. The broker publishes the last will of a run that was killed; the next run receives it and forwards it
as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from cloud.wire.fields import InvalidFields
from cloud.wire.reading_records import STATUS_TOPIC, SYNCED, UNSYNCED
from cloud.wire.status_records import OFFLINE, ONLINE, StatusRecord, encode_status, parse_status, status_key
from gateway.ports import Record, Snapshot

log = logging.getLogger(__name__)

PUBLISH_EVERY_S: Final = 10.0


class GatewayStatus:
    """Makes the statuses of one run. The main thread calls it; the forwarder's thread passes wills.

    ``now_ns`` is this machine's time, nanoseconds since the epoch.
    """

    def __init__(self, gateway: str, run: str, now_ns: Callable[[], int], version: str | None) -> None:
        self._gateway = gateway
        self._run = run
        self._now_ns = now_ns
        self._version = version
        self._revision = 0
        self._published: tuple[str, str] | None = None
        self._publish_at_s = float("-inf")
        self._forwarded_will_of: str | None = None

    @property
    def will(self) -> bytes:
        """Returns the last will: it is made now, so it has no time."""
        return encode_status(StatusRecord(self._gateway, OFFLINE, self._run, version=self._version))

    def due(self, snapshot: Snapshot) -> Record | None:
        """Returns the status to publish now: the first one, or one that changed."""
        state = _clock_and_uplink(snapshot)
        if state == self._published or snapshot.at_s < self._publish_at_s:
            return None
        self._published = state
        self._publish_at_s = snapshot.at_s + PUBLISH_EVERY_S
        return self._record(ONLINE, *state)

    def offline(self, snapshot: Snapshot) -> Record:
        """Returns the last status of a run that ends itself."""
        return self._record(OFFLINE, *_clock_and_uplink(snapshot))

    def forwarded_will(self, payload: bytes) -> Record | None:
        """Returns the last will of another run of this gateway, as it is; None for anything else.

        A status that a run has published itself is on its own way to Kafka.
        """
        try:
            status = parse_status(payload)
        except InvalidFields as error:
            log.warning("event=status.unreadable error=%s", error)
            return None
        if status.gateway != self._gateway or status.run in (self._run, self._forwarded_will_of):
            return None
        if not status.is_will:
            return None
        self._forwarded_will_of = status.run
        log.warning("event=status.will run=%s", status.run)
        return Record(STATUS_TOPIC, status_key(self._gateway), payload, ())

    def repeat(self) -> None:
        """Makes this run's status due again after an earlier run's will: Kafka keeps what comes last."""
        self._published = None

    def _record(self, state: str, clock: str, uplink: str) -> Record:
        self._revision += 1
        status = StatusRecord(
            self._gateway,
            state,
            self._run,
            time_us=self._now_ns() // 1_000_000 * 1000,
            version=self._version,
            clock=clock,
            uplink=uplink,
            revision=self._revision,
        )
        return Record(STATUS_TOPIC, status_key(self._gateway), encode_status(status), ())


def _clock_and_uplink(snapshot: Snapshot) -> tuple[str, str]:
    return SYNCED if snapshot.synced else UNSYNCED, snapshot.uplink
