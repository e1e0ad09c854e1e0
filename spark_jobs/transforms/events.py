"""Records of ``gateway.events`` to rows of ``events``, and daily reports among them to rows of ``health``.

An event is known by its ``id``: that of the file in which a command left it for the daemon, else its run and
number, else (older daemons don't number them) its run and the hash of its bytes. It comes again with the same
bytes where Kafka repeats it, and with another run and number where a daemon died before it could delete the
file. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from cloud.wire.bounds import Count, Number, Seq
from cloud.wire.fields import InvalidFields, convert, split_object, time_of
from cloud.wire.reading_records import MAX_PAYLOAD_BYTES, ChannelId, GatewayId, RunId, Version
from spark_jobs.platform.intervals import day_of
from spark_jobs.platform.schemas import EVENTS, HEALTH
from spark_jobs.transforms.dedupe import RECORD
from spark_jobs.transforms.records import RecordKind, Row

REPORT: Final = "report"
"""The kind of a gateway's daily reports."""
_CONTENT: Final = ("kind", "fields")


class _Event(msgspec.Struct):
    """What every event has; ``id`` and ``at``, when a command left it, are of those alone."""

    v: Version
    gateway: GatewayId
    run: RunId
    time: str
    event: Annotated[str, Meta(pattern=r"^[!-~]{1,64}\Z")]
    seq: Seq | None = None
    id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")] | None = None
    at: str | None = None


def event_row(value: bytes, reported_us: int, offset: int) -> Row:
    """A record of ``gateway.events`` as a row of ``events``. Raises InvalidFields."""
    named, others = split_object(value, MAX_PAYLOAD_BYTES, _Event.__struct_fields__)
    event = convert({name: given for name, given in named.items() if given is not None}, _Event)
    announced_us = time_of("time", event.time)
    own = hashlib.sha256(value).hexdigest()[:32] if event.seq is None else event.seq
    return {
        "gateway": event.gateway,
        "id": f"{event.run}/{own}" if event.id is None else event.id,
        "time": announced_us if event.at is None else time_of("at", event.at),
        "kind": event.event,
        "run": event.run,
        "seq": event.seq,
        "fields": json.dumps(others or {}, separators=(",", ":"), allow_nan=False),
        "announced": [{"run": event.run, "seq": event.seq, "time": announced_us}],
        "date": day_of(reported_us),
    }


def announced_once(known: Row | None, new: Row) -> Row:
    """The first record of an event, with the announcements of all.

    Raises InvalidFields (EVENT_CHANGED) where another event has its id and time.
    """
    if known is None:
        return new
    if any(known[name] != new[name] for name in _CONTENT):
        raise InvalidFields("EVENT_CHANGED", f"{new['id']} is another event than before")
    more = [each for each in new["announced"] if each not in known["announced"]]
    return {**known, "announced": known["announced"] + more} if more else known


class _Machine(msgspec.Struct):
    fieldgate: str | None = None
    python: str | None = None
    kernel: str | None = None
    system: str | None = None


class _ChannelCounts(msgspec.Struct):
    sampled: Count | None = None
    forwarded: Count | None = None
    dropped: Count | None = None
    recovery: Number | None = None


class _Finding(msgspec.Struct):
    area: str | None = None
    severity: str | None = None
    what: str | None = None
    remedy: str | None = None


_TYPES: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("daemon", "uplink", "outbox_problem", "clock", "config_hash"), str),
    **dict.fromkeys(("since_s", "run_uptime_s", "machine_uptime_s", "kafka_confirmed_ago_s"), Number),
    **dict.fromkeys(("cpu_celsius", "load", "site_moved_m"), Number),
    **dict.fromkeys(("outbox_records", "outbox_bytes", "outbox_max_bytes", "held", "disk_free_bytes"), Count),
    **dict.fromkeys(("under_voltage", "throttled", "bytes_sent"), Count),
    "troubles": dict[str, str],
    "findings": list[_Finding],
    "parked": dict[str, Any],
    "channels": Annotated[dict[ChannelId, _ChannelCounts], Meta(max_length=1000)],
    "versions": _Machine,
}
"""The fields of a report that ``health`` is made of."""


def health_row(event: Row) -> Row:
    """A daily report's row of ``events`` as one of ``health``."""
    found: dict[str, Any] = dict.fromkeys(_TYPES)
    for name, given in json.loads(event["fields"]).items():
        try:
            found[name] = convert(given, _TYPES[name] | None) if name in _TYPES else None
        except InvalidFields:
            # The event keeps it as it came: one wrong field doesn't hide the others.
            continue
    channels: dict[str, _ChannelCounts] = found["channels"] or {}
    versions = found["versions"] or _Machine()
    counts = {
        name: sum(getattr(each, name) or 0 for each in channels.values()) if channels else None
        for name in ("sampled", "forwarded", "dropped")
    }
    recovery = [(name, each.recovery) for name, each in channels.items() if each.recovery is not None]
    return {
        **found,
        **counts,
        **msgspec.structs.asdict(versions),
        **{name: event[name] for name in ("gateway", "id", "time", "run", "date", "reason", *RECORD)},
        "recovery": sorted(recovery) if channels else None,
        "troubles": None if found["troubles"] is None else sorted(found["troubles"].items()),
        "parked": None if found["parked"] is None else sorted(found["parked"]),
        "findings": None
        if found["findings"] is None
        else list(map(msgspec.structs.asdict, found["findings"])),
    }


def reports(events: Iterable[Row]) -> Iterator[Row]:
    """The rows of ``health`` that parsed events make; what is refused is counted as an event alone."""
    return (health_row(each) for each in events if each["reason"] is None and each["kind"] == REPORT)


def first_report(known: Row | None, new: Row) -> Row:
    """The first record of a report."""
    return new if known is None else known


EVENT_RECORDS: Final = RecordKind(EVENTS, event_row, announced_once, bounded_by="time")
HEALTH_RECORDS: Final = RecordKind(HEALTH, event_row, first_report, reports, bounded_by="time")
