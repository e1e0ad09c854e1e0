"""The record of a mast's site (``gateway.sites``), for the gateway and its readers.

A gateway stands, at any time, at the site of its newest ``valid_from_us`` at or before that time. The
highest ``revision`` counts among records of one such beginning. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from cloud.wire.bounds import Revision
from cloud.wire.channel_records import MAX_LABEL
from cloud.wire.fields import check_label, convert, format_time, split_object, time_of, to_json
from cloud.wire.reading_records import VERSION, GatewayId, Version

SITES_TOPIC: Final = "gateway.sites"
UTC_OFFSET_MIN: Final = (-12 * 60, 14 * 60)
"""The least and the greatest there is."""
MAX_SITE_BYTES: Final = 64 << 10
"""A record is some 250 bytes."""


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """Where a gateway stands from ``valid_from_us`` on, microseconds since the epoch.

    Degrees (WGS 84), metres above sea level, minutes that local time is ahead of UTC all year; None is
    unknown. ``extra`` holds fields that this version doesn't have.
    """

    gateway: GatewayId
    valid_from_us: int
    revision: Revision
    latitude: Annotated[float, Meta(ge=-90, le=90)]
    longitude: Annotated[float, Meta(ge=-180, le=180)]
    elevation_m: Annotated[float, Meta(ge=-500, le=9000)] | None = None
    utc_offset_min: Annotated[int, Meta(ge=UTC_OFFSET_MIN[0], le=UTC_OFFSET_MIN[1])] | None = None
    name: str | None = None
    owner: str | None = None
    extra: Mapping[str, Any] | None = None

    @property
    def key(self) -> bytes:
        """Kafka key: of each beginning its topic keeps the last record."""
        return f"{self.gateway}/{format_time(self.valid_from_us)}".encode()


class _Written(msgspec.Struct):
    """What is written of a record beside its own fields, or in another form."""

    v: Version
    valid_from: str


_NAMES: Final = (
    *("v", "gateway", "valid_from", "revision", "name", "owner"),
    *("latitude", "longitude", "elevation_m", "utc_offset_min"),
)
"""A record's fields in the order in which they are written."""


def encode_site(record: SiteRecord) -> bytes:
    """The JSON bytes of a record."""
    fields = {**asdict(record), "v": VERSION, "valid_from": format_time(record.valid_from_us)}
    return to_json({name: fields[name] for name in _NAMES} | dict(record.extra or {}))


def parse_site(payload: bytes) -> SiteRecord:
    """The record in a payload. Raises InvalidFields with the first problem found."""
    fields, extra = split_object(payload, MAX_SITE_BYTES, _NAMES)
    given = {name: value for name, value in fields.items() if value is not None}
    valid_from_us = time_of("valid_from", convert(given, _Written).valid_from)
    record = convert({**given, "valid_from_us": valid_from_us, "extra": extra}, SiteRecord)
    for name in ("name", "owner"):
        check_label(name, getattr(record, name), MAX_LABEL)
    return record
