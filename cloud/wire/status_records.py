"""The status of a gateway (``gateway.status``, and retained on its local broker), for it and its readers.

The topic keeps the last status of each gateway. The broker publishes the last will of a run that was killed,
which the next run forwards as it is: a will of another run than the newest is no statement about the gateway
now. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from cloud.wire.bounds import Revision
from cloud.wire.fields import check_label, convert, format_time, split_object, time_of, to_json
from cloud.wire.reading_records import VERSION, GatewayId, RunId, Version

ONLINE, OFFLINE = "online", "offline"
MAX_STATUS_BYTES: Final = 64 << 10
"""A status is some 180 bytes."""


@dataclass(frozen=True, slots=True)
class StatusRecord:
    """What one run of a gateway reported of itself.

    ``time_us`` is when, by the gateway's clock, microseconds since the epoch; a last will, which is written
    before it is needed, has none. ``revision`` counts a run's statuses from 1, 0 in a will. ``version`` is
    fieldgate's, ``clock`` "synced" or "unsynced", ``uplink`` a word ("healthy", "spilling", "draining",
    "metered"); None is unknown. ``extra`` holds fields this version doesn't have.
    """

    gateway: GatewayId
    state: Annotated[str, Meta(pattern=r"^(?:online|offline)\Z")]
    run: RunId
    time_us: int | None = None
    version: str | None = None
    clock: Annotated[str, Meta(pattern=r"^(?:synced|unsynced)\Z")] | None = None
    uplink: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,31}\Z")] | None = None
    revision: Revision = 0
    extra: Mapping[str, Any] | None = None

    @property
    def is_will(self) -> bool:
        """Whether the broker published it for a run that couldn't any more."""
        return self.state == OFFLINE and self.time_us is None


def status_key(gateway: str) -> bytes:
    """Kafka key: of each gateway the topic keeps the last status."""
    return gateway.encode()


class _Written(msgspec.Struct):
    """What is written of a status beside its own fields, or in another form."""

    v: Version
    time: str | None = None


_NAMES: Final = ("v", "gateway", "state", "run", "time", "version", "clock", "uplink", "revision")
"""A status's fields in the order in which they are written."""


def encode_status(record: StatusRecord) -> bytes:
    """The JSON bytes of a status, the same on MQTT and Kafka; what is unknown is left out."""
    time = None if record.time_us is None else format_time(record.time_us)
    written = {"v": VERSION, "time": time, "revision": record.revision or None}
    known = {name: written.get(name, getattr(record, name, None)) for name in _NAMES}
    return to_json(
        {name: value for name, value in known.items() if value is not None} | dict(record.extra or {})
    )


def parse_status(payload: bytes) -> StatusRecord:
    """The status in a payload. Raises InvalidFields with the first problem found."""
    fields, extra = split_object(payload, MAX_STATUS_BYTES, _NAMES)
    given = {name: value for name, value in fields.items() if value is not None}
    time = convert(given, _Written).time
    time_us = None if time is None else time_of("time", time)
    record = convert({**given, "time_us": time_us, "extra": extra}, StatusRecord)
    check_label("version", record.version)
    return record
