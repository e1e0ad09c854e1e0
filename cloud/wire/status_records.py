"""The status of a gateway (``gateway.status``, and retained on its local broker), for it and its readers.

The topic is compacted by gateway: what it keeps is the last status told. A gateway that was killed can't say
so: its broker publishes its last will, which is that of its ``run`` and which the next run forwards as it is.
So a will of another run than the newest says nothing about the gateway now. Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cloud.wire.fields import Fields, InvalidFields, format_time, load_object
from cloud.wire.schema import GATEWAY_ID, RUN_ID, SYNCED, UNSYNCED, VERSION

ONLINE, OFFLINE = "online", "offline"
MAX_STATUS_BYTES: Final = 64 << 10
"""A status is some 180 bytes."""

InvalidStatus = InvalidFields
"""What ``parse_status`` raises."""

_STATE: Final = re.compile(f"{ONLINE}|{OFFLINE}", re.ASCII)
_CLOCK: Final = re.compile(f"{SYNCED}|{UNSYNCED}", re.ASCII)
_WORD: Final = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)
_MAX_INT53: Final = (1 << 53) - 1


@dataclass(frozen=True, slots=True)
class StatusRecord:
    """What one run of a gateway said of itself.

    ``time_us`` is when, by the gateway's clock, microseconds since the epoch; a last will, which is written
    before it is needed, has none. ``revision`` counts a run's statuses from 1, 0 in a will. ``version`` is
    fieldgate's, ``clock`` "synced" or "unsynced", ``uplink`` a word ("healthy", "spilling", "draining",
    "metered"); None is untold. ``extra`` holds fields this version doesn't know.
    """

    gateway: str
    state: str
    run: str
    time_us: int | None = None
    version: str | None = None
    clock: str | None = None
    uplink: str | None = None
    revision: int = 0
    extra: Mapping[str, Any] | None = None

    @property
    def is_will(self) -> bool:
        """Whether the broker said it of a run that couldn't any more."""
        return self.state == OFFLINE and self.time_us is None


def status_key(gateway: str) -> bytes:
    """Kafka key: of each gateway the topic keeps the last status."""
    return gateway.encode()


def encode_status(record: StatusRecord) -> bytes:
    """The JSON bytes of a status, the same on MQTT and Kafka; what is untold is left out."""
    fields: dict[str, Any] = {
        "v": VERSION,
        "gateway": record.gateway,
        "state": record.state,
        "run": record.run,
        "time": None if record.time_us is None else format_time(record.time_us),
        "version": record.version,
        "clock": record.clock,
        "uplink": record.uplink,
        "revision": record.revision or None,
    }
    told = {name: value for name, value in fields.items() if value is not None}
    told.update(record.extra or {})
    return json.dumps(told, separators=(",", ":"), allow_nan=False).encode()


def parse_status(payload: bytes) -> StatusRecord:
    """The status in a payload. Raises InvalidStatus with the first problem found."""
    if len(payload) > MAX_STATUS_BYTES:
        raise InvalidStatus("TOO_LARGE", f"{len(payload)} bytes, at most {MAX_STATUS_BYTES}")
    fields = _Fields(load_object(payload))
    fields.integer("v", VERSION, VERSION)
    return StatusRecord(
        gateway=fields.text("gateway", GATEWAY_ID),
        state=fields.text("state", _STATE),
        run=fields.text("run", RUN_ID),
        time_us=fields.time() if fields.has("time") else None,
        version=fields.label("version"),
        clock=fields.text("clock", _CLOCK) if fields.has("clock") else None,
        uplink=fields.text("uplink", _WORD) if fields.has("uplink") else None,
        revision=fields.integer("revision", 1, _MAX_INT53) if fields.has("revision") else 0,
        # Last, when all that is known has been taken.
        extra=fields.rest(),
    )


class _Fields(Fields):
    """What only a status has."""

    def has(self, name: str) -> bool:
        """Whether the field is there; null counts as absent."""
        if self.left.get(name) is None:
            self.left.pop(name, None)
        return name in self.left
