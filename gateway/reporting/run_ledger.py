"""Keeps the run ledger: what a run has issued, so that the pipeline can separate pending from lost.

A record goes to Kafka (``gateway.runs``, compacted by gateway/run) at start, every minute, at each drop and
at stop, and every second, retained, to the local broker. A run that was killed cannot report its end: the
next one finds its last retained record and closes it. After a power cut there is no such record: each record
names the latest runs that did not end themselves, and how many seconds of readings they may have lost.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from buffer.errors import Drop
from cloud.wire.fields import InvalidFields, split_object, to_json
from cloud.wire.number_set import NumberSet
from cloud.wire.reading_records import EVENTS_TOPIC, MAX_PAYLOAD_BYTES, RUN_ID, RUNS_TOPIC, VERSION
from cloud.wire.run_records import DroppedFields
from gateway.clock.hold import Released
from gateway.forwarding.records import Range, ranges
from gateway.ports import Record
from gateway.reporting.previous_runs import Predecessors
from gateway.system.times import now_text

log = logging.getLogger(__name__)

ANNOUNCE_EVERY_S: Final = 60.0
# Some 50 bytes each: half a megabyte, where Kafka takes one.
_MOST_RANGES: Final = 10_000

State = Literal["running", "ended", "stopped", "killed"]


class _Dropped:
    """Collects what was dropped for one reason, adjoining ranges joined."""

    def __init__(self) -> None:
        self.count = 0
        self._unknown = False
        self._seqs: defaultdict[tuple[str, str, str], NumberSet] = defaultdict(NumberSet)

    def add(self, count: int | None, lost: Iterable[Range]) -> None:
        self.count += count or 0
        self._unknown = self._unknown or count is None
        for each in lost:
            self._seqs[each.gateway, each.run, each.channel].add(each.first, each.last)

    def lost_of(self, gateway: str, channel: str) -> int:
        """Returns how many of a channel were lost, in all runs, as far as their numbers are known."""
        return sum(
            len(seqs) for (of, _, named), seqs in self._seqs.items() if (of, named) == (gateway, channel)
        )

    def fields(self, reason: str, own: str) -> DroppedFields:
        spans = [(key, span) for key, of in self._seqs.items() for span in of.spans()]
        # More would make a record that Kafka refuses; each range was announced by an event of its own.
        left_out = max(len(spans) - _MOST_RANGES, 0)
        named = [_text(Range(*key, *span), own) for key, span in spans[left_out:]]
        return DroppedFields(reason, self.count, named, more_unknown=self._unknown or left_out > 0)


def _text(lost: Range, own: str) -> str:
    """Formats ``run channel first-last``; another device's with ``gateway/`` before its run."""
    run = lost.run if lost.gateway == own else f"{lost.gateway}/{lost.run}"
    return f"{run} {lost.channel} {lost.first}-{lost.last}"


class RunLedger:
    """Makes the records of one run. Any thread may call it.

    ``counts`` is what changes in a run's record: last_seq by channel, in_flight, outbox_records. ``started``
    is now unless it is given.
    """

    def __init__(
        self, gateway: str, run: str, boot: str, predecessors: Predecessors, started: str | None = None
    ) -> None:
        self._gateway = gateway
        self._run = run
        self._of_all = {"v": VERSION, "gateway": gateway, "run": run}
        self._boot = boot
        self._predecessors = predecessors
        self._started = now_text() if started is None else started
        self._dropped: dict[str, _Dropped] = {}
        self._revision = 0
        self._last_event = 0
        self._lock = threading.Lock()

    def note(self, drop: Drop) -> None:
        """Logs a drop and adds it to every later record of the run."""
        with self._lock:
            self._dropped.setdefault(drop.reason, _Dropped()).add(drop.count, ranges(drop.summary))
        log.error(
            "event=outbox.dropped reason=%s records=%s numbers=%d-%d",
            drop.reason,
            "unknown" if drop.count is None else drop.count,
            drop.first,
            drop.last,
        )

    def drop_counts(self) -> dict[str, int]:
        """Returns how many records this run has dropped, by reason, as far as they were counted."""
        with self._lock:
            return {reason: dropped.count for reason, dropped in self._dropped.items()}

    def dropped_of(self, channel: str) -> int:
        """Returns how many readings of a channel of this gateway were dropped since the daemon started."""
        with self._lock:
            return sum(each.lost_of(self._gateway, channel) for each in self._dropped.values())

    def dropped(self, drop: Drop) -> Record:
        """Makes the event that announces a drop."""
        lost = [_text(each, self._gateway) for each in ranges(drop.summary)]
        return self.event("dropped", reason=drop.reason, count=drop.count, ranges=lost)

    def broker_dropped(self, count: int, total: int) -> Record:
        """Makes the event that the local broker has dropped messages: since the last one, and in all."""
        log.warning(
            "event=broker.dropped messages=%d total=%d remedy=raise_max_queued_messages_in_mosquitto.conf",
            count,
            total,
        )
        return self.event("broker-dropped", count=count, total=total)

    def event(self, event: str, **fields: Any) -> Record:
        """Makes an event of this run, for ``gateway.events``; its ``seq`` counts from 1."""
        with self._lock:
            self._last_event += 1
            seq = self._last_event
        value = to_json({**self._of_all, "seq": seq, "time": now_text(), "event": event, **fields})
        return Record(EVENTS_TOPIC, self._gateway.encode(), value, ())

    def released(self, released: Released) -> Record:
        """Makes the event that readings of a boot now leave: with the time they were given, or without."""
        boot, offset_ms, first = released.boot_time.boot, released.boot_time.offset_ms, released.first
        if offset_ms is None:
            log.warning("event=clock.unsynced boot=%s first=%s", boot, first)
        else:
            log.warning("event=clock.repaired boot=%s offset_ms=%d first=%s", boot, offset_ms, first)
        event = "clock_unsynced" if offset_ms is None else "clock_repaired"
        return self.event(event, boot=boot, offset_ms=offset_ms, first=first)

    def payload(self, state: State, counts: Mapping[str, Any]) -> bytes:
        """Returns the run as it stands, as JSON."""
        with self._lock:
            self._revision += 1
            revision, last_event = self._revision, self._last_event
            dropped = [what.fields(reason, self._gateway) for reason, what in self._dropped.items()]
        # The gateway counts more than the accounting reads.
        return to_json(
            {
                **self._of_all,
                "previous_run": self._predecessors.previous_run,
                "unfinished": self._predecessors.unfinished,
                "boot": self._boot,
                "started": self._started,
                "state": state,
                "revision": revision,
                "last_event": last_event,
                **counts,
                "dropped": dropped,
            }
        )

    def record(self, state: State, counts: Mapping[str, Any]) -> Record:
        """Returns the run as a Kafka record."""
        return _record(self._gateway, self._run, self.payload(state, counts))

    def close_previous(self, payload: bytes) -> Record | None:
        """Returns the closing record of another run that by its last retained record never ended itself."""
        try:
            named, others = split_object(payload, MAX_PAYLOAD_BYTES, ("gateway", "run", "state"))
            gateway, run, state = named["gateway"], named["run"], named["state"]
        except (InvalidFields, KeyError) as error:
            log.warning("event=run.unreadable error=%s", error)
            return None
        if (gateway, run) == (self._gateway, self._run) or state not in ("running", "ended"):
            return None
        if gateway != self._gateway or not isinstance(run, str) or RUN_ID.fullmatch(run) is None:
            log.warning("event=run.unreadable error=not a run of this gateway")
            return None
        log.warning("event=run.closed run=%s state=killed", run)
        return _record(self._gateway, run, to_json({**named, **(others or {}), "state": "killed"}))


def _record(gateway: str, run: str, value: bytes) -> Record:
    return Record(RUNS_TOPIC, f"{gateway}/{run}".encode(), value, ())
