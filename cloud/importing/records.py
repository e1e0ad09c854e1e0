"""What the lake knows of an imported mast beside its values: channels' records, its site, what was imported.

Pure: rows there already, and what a file adds, to rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cloud.importing.mapping import DRIVER, Channel, File, Mapping as FileMapping, Site
from cloud.wire.number_set import NumberSet

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
PLACE: Final = ("latitude", "longitude", "elevation_m", "utc_offset_min", "name", "owner")

Span = tuple[int, int]
"""Begin and end, not included; microseconds since the epoch."""


def moment_of(time_us: int) -> datetime:
    """A time as a table has it."""
    return _EPOCH + timedelta(microseconds=time_us)


def us_of(moment: datetime) -> int:
    """A table's time in microseconds since the epoch."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def joined(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, those that overlap or adjoin in one."""
    return [(first, last + 1) for first, last in NumberSet((begin, end - 1) for begin, end in spans).spans()]


def spans_of(record: Mapping[str, Any] | None) -> list[Span]:
    """When a record of ``channels`` was in force; without those whose begin or end isn't known."""
    periods = (record or {}).get("periods") or ()
    return [
        (us_of(each["begin"]), us_of(each["end"]))
        for each in periods
        if each["begin"] is not None and each["end"] is not None
    ]


@dataclass(frozen=True)
class ChannelRecord:
    """A channel's record for the times it holds, and the row of ``channels`` it becomes."""

    mapping: FileMapping
    gateway: str
    channel: Channel
    spans: list[Span]

    def row(self, known: Mapping[str, Any] | None, now_us: int) -> dict[str, Any] | None:
        """The row; None where the one that is ``known`` says it all."""
        spans = joined(self.spans)
        if known is not None and spans == spans_of(known):
            return None
        channel, file = self.channel, self.mapping.file
        slope, offset = channel.to_lake
        of = channel.of
        return {
            "gateway": self.gateway,
            "channel": channel.name,
            "cal": channel.cal,
            "valid_from": moment_of(spans[0][0]),
            "valid_to": moment_of(spans[-1][1]),
            "periods": [{"begin": moment_of(begin), "end": moment_of(end)} for begin, end in spans],
            "in_force": False,
            "revision": 1 if known is None else known["revision"] + 1,
            "sensor": channel.sensor,
            "quantity": channel.quantity,
            "unit": of.unit,
            "raw_unit": channel.unit or of.unit,
            "driver": DRIVER,
            "interval_s": file.period_ms / 1000,
            "slope": slope,
            "offset": offset,
            "settings": sorted((name, json.dumps(column)) for name, column in channel.columns().items()),
            "reported": [],
            "range_min": of.lower if math.isfinite(of.lower) else None,
            "range_max": of.upper if math.isfinite(of.upper) else None,
            **{name: getattr(channel, name) for name in _INSTRUMENT},
            "extra": _extra(file, **channel.plane),
            "updated_at": moment_of(now_us),
            "kind": channel.is_a,
        }


_INSTRUMENT: Final = ("model", "serial", "certificate", "lab", "height_m", "boom_deg", "pair")


def _extra(file: File, **more: float) -> str:
    return json.dumps({"imported": file.format} | more, separators=(",", ":"))


def site_row(
    site: Site, gateway: str, begin_us: int, known: Iterable[tuple[Any, ...]], file: File, now_us: int
) -> dict[str, Any] | None:
    """A row of ``sites`` from ``begin_us`` on; None where the mast is known to stand there then.

    ``known``: ``valid_from`` in microseconds, and PLACE.
    """
    values = {name: getattr(site, name, None) for name in PLACE}
    values["utc_offset_min"] = site.utc_offset
    _, *place = max((row for row in known if row[0] <= begin_us), default=(None,))
    if place == list(values.values()):
        return None
    return {
        "gateway": gateway,
        "valid_from": moment_of(begin_us),
        **values,
        "revision": 1,
        "extra": _extra(file),
        "updated_at": moment_of(now_us),
    }
