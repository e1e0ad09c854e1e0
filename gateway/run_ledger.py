"""The run ledger: what one run of this gateway has issued, so that the pipeline can tell pending from lost.

A record goes to Kafka (``gateway.runs``, compacted by gateway/run) at start, every minute, at each drop and
at stop, and every second, retained, to the local broker. A run that was killed cannot tell its end: the next
one finds its last retained record and closes it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from cloud.schema import MAX_READING_BYTES, RUN_ID, RUNS_TOPIC, VERSION
from gateway.ports import Record

log = logging.getLogger(__name__)

ANNOUNCE_EVERY_S: Final = 60.0

State = Literal["running", "ended", "stopped", "killed"]


@dataclass(frozen=True, slots=True)
class Drop:
    """Readings that were given up: how many, why, and which (``channel first-last`` of one run)."""

    reason: str
    count: int
    ranges: tuple[str, ...]


class RunLedger:
    """Makes the records of one run. Any thread may call it.

    ``counts`` gives what changes: last_seq by channel, in_flight, outbox_records.
    """

    def __init__(
        self,
        gateway: str,
        run: str,
        boot: str,
        previous_run: str | None,
        counts: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._gateway = gateway
        self._run = run
        self._boot = boot
        self._previous_run = previous_run
        self._started = datetime.now(UTC)
        self._counts = counts
        self._drops: list[Drop] = []
        self._lock = threading.Lock()

    def dropped(self, drop: Drop) -> None:
        """Remember a drop; every later record tells it."""
        with self._lock:
            self._drops.append(drop)

    def payload(self, state: State) -> bytes:
        """The run as it stands, JSON."""
        with self._lock:
            drops = [
                {"reason": drop.reason, "count": drop.count, "ranges": list(drop.ranges)}
                for drop in self._drops
            ]
        return json.dumps(
            {
                "v": VERSION,
                "gateway": self._gateway,
                "run": self._run,
                "previous_run": self._previous_run,
                "boot": self._boot,
                "started": self._started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "state": state,
                **self._counts(),
                "dropped": drops,
            }
        ).encode()

    def record(self, state: State) -> Record:
        """The run as a Kafka record."""
        return _record(self._gateway, self._run, self.payload(state))

    def close_previous(self, payload: bytes) -> Record | None:
        """The closing record of another run whose last retained record says that it never ended itself."""
        if len(payload) > MAX_READING_BYTES:
            log.warning("event=run.unreadable error=%d bytes", len(payload))
            return None
        try:
            fields = json.loads(payload)
            gateway, run, state = fields["gateway"], fields["run"], fields["state"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            log.warning("event=run.unreadable error=%s", error)
            return None
        if (gateway, run) == (self._gateway, self._run) or state not in ("running", "ended"):
            return None
        if gateway != self._gateway or not isinstance(run, str) or RUN_ID.fullmatch(run) is None:
            log.warning("event=run.unreadable error=not a run of this gateway")
            return None
        log.warning("event=run.closed run=%s state=killed", run)
        return _record(self._gateway, run, json.dumps({**fields, "state": "killed"}).encode())


def _record(gateway: str, run: str, value: bytes) -> Record:
    return Record(RUNS_TOPIC, f"{gateway}/{run}".encode(), value, ())
