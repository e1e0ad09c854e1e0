"""What goes with imported rows into a lake: the channels' records, the site, and which file they are of.

Records of imports don't overlap: of two for one period the later written has it, and the other ends there. A
record is for rows that are written, so an import that leaves the earlier rows leaves their records too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow.dataset as ds

from cloud.importing.logger_file import Rows
from cloud.importing.mapping import DRIVER, Channel, File, Mapping as FileMapping, Site
from cloud.importing.tables import LakeTables
from cloud.importing.values import stretches
from cloud.wire.lake_tables import CHANNELS, IMPORTS, MAST, SITES, STATISTICS
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


_ATTEMPTS: Final = 5
_CHANGED: Final = ("valid_from", "valid_to", "periods", "revision")


_FLAGS: Final = ("good", "not_evaluated", "suspect", "fail", "missing")


def _within(column: str, times: NumberSet) -> list[str]:
    """SQL's conditions that a time is one of these."""
    spans = ((moment_of(first).isoformat(), moment_of(last + 1).isoformat()) for first, last in times.spans())
    return [f"{column} >= '{begin}' AND {column} < '{end}'" for begin, end in spans]


def _set(spans: Iterable[Span]) -> NumberSet:
    return NumberSet((begin, end - 1) for begin, end in spans)


class Provenance:
    """The marks and records of one file's import. ``replaces``: what was imported before gives way."""

    def __init__(
        self,
        mapping: FileMapping,
        tables: LakeTables,
        gateway: str,
        now_us: int,
        rows: Rows,
        *,
        replaces: bool,
    ) -> None:
        self._mapping, self._file, self._tables = mapping, mapping.file, tables
        self._gateway, self._now_us = gateway, now_us
        self._rows, self._replaces = rows, replaces
        self._length_us = mapping.file.length_us
        self._span = min(rows.times_us), max(rows.times_us) + self._length_us
        self._of_gateway = ds.field("gateway") == gateway
        names = ("channel", "begin", "end", "cal", "file_sha256", "interval_s", "mapping_sha256")
        interval_s = self._interval_s
        self._marks = [
            (channel, (begin, end), cal, sha == rows.digest and by != mapping.digest)
            for channel, begin, end, cal, sha, each_s, by in tables.rows(IMPORTS, names, self._of_gateway)
            if each_s == interval_s
        ]

    @property
    def _interval_s(self) -> int | None:
        return None if self._file.has_readings else round(self._file.interval)

    def before(self) -> dict[str, list[Span]]:
        """When each channel has rows that were imported before."""
        return self._spans(is_stale=False)

    def stale(self) -> dict[str, list[Span]]:
        """When each channel has rows of this very file by another mapping, that are replaced."""
        return self._spans(is_stale=True) if self._replaces else {}

    def _spans(self, *, is_stale: bool) -> dict[str, list[Span]]:
        spans: dict[str, list[Span]] = {}
        for channel, span, _, of_this in self._marks:
            if of_this or not is_stale:
                spans.setdefault(channel, []).append(span)
        return {channel: joined(each) for channel, each in spans.items()}

    def write_records(self) -> bool:
        """Writes channels' records and the site; whether a site stays that is another."""
        # Again where another import of theirs came between.
        for _ in range(_ATTEMPTS):
            names = ("channel", "cal", "revision", "periods", "driver")
            there = {row[:2]: row[2:] for row in self._tables.rows(CHANNELS, names, self._of_gateway)}
            known = {key: {"revision": revision, "periods": periods}
                     for key, (revision, periods, _) in there.items()}  # fmt: skip
            new, cut, mine = [], [], {}
            for channel in self._mapping.channels:
                own, there_now = self._own(channel), known.get((channel.name, channel.cal))
                mine[channel.name] = channel.cal, own
                spans = [*own, *self._left(channel.name, there_now)]
                record = ChannelRecord(self._mapping, self._gateway, channel, spans)
                if own and (row := record.row(there_now, self._now_us)) is not None:
                    new.append(row)
            for (name, cal), (_, _, driver) in there.items():
                own_cal, own = mine.get(name, (None, []))
                if driver == DRIVER and cal != own_cal:
                    cut += self._cut(name, cal, known[name, cal], own)
            if not new and not cut:
                break
            self._merge(new, "s.revision > t.revision", (*_CHANGED, "updated_at"))
            self._merge(cut, "s.revision > t.revision and s.valid_from is not null", _CHANGED)
        return self._write_site()

    def _own(self, channel: Channel) -> list[Span]:
        """When a record holds: not where rows of other ones stay."""
        others = [span for name, span, cal, _ in self._marks if name == channel.name and cal != channel.cal]
        own = _set([self._span]).without(_set([] if self._replaces else others))
        return [(first, last + 1) for first, last in own.spans()]

    def _left(self, name: str, known: dict[str, Any] | None, away: Iterable[Span] = ()) -> list[Span]:
        """What stays of a record's time."""
        rest = _set(spans_of(known)).without(_set([*away, *self.stale().get(name, [])]))
        return [(first, last + 1) for first, last in rest.spans()]

    def _cut(self, channel: str, cal: str, known: dict[str, Any], away: list[Span]) -> list[dict[str, Any]]:
        left = self._left(channel, known, away)
        if left == spans_of(known):
            return []
        return [
            {
                "gateway": self._gateway, "channel": channel, "cal": cal, "revision": known["revision"] + 1,
                "valid_from": moment_of(left[0][0]) if left else None,
                "valid_to": moment_of(left[-1][1]) if left else None,
                "periods": [{"begin": moment_of(begin), "end": moment_of(end)} for begin, end in left],
            }
        ]  # fmt: skip

    def _merge(self, rows: list[dict[str, Any]], where: str, changed: Iterable[str]) -> None:
        if rows:
            columns = {name: [row[name] for row in rows] for name in rows[0]}
            update = {name: f"s.{name}" for name in changed}
            self._tables.merge(CHANNELS, columns, update=update, where=where, drop="s.valid_from is null")

    def _write_site(self) -> bool:
        if self._mapping.site is None:
            return False
        sites = list(self._tables.rows(SITES, ("valid_from", *PLACE), self._of_gateway))
        row = site_row(self._mapping.site, self._gateway, self._span[0], sites, self._file, self._now_us)
        if row is None:
            return False
        is_other = any(valid_from == self._span[0] for valid_from, *_ in sites)
        if self._replaces or not is_other:
            update = {name: f"s.{name}" for name in (*PLACE, "updated_at")} | {"revision": "t.revision + 1"}
            self._tables.merge(SITES, {name: [value] for name, value in row.items()}, update=update)
        return is_other and not self._replaces

    def mark(self, into: str, places: Iterable[tuple[str, int]]) -> None:
        """Notes which rows come from this file, by channel and time in microseconds since the epoch."""
        times_us: dict[str, list[int]] = {}
        for name, time_us in places:
            times_us.setdefault(name, []).append(time_us)
        made = []
        for channel in self._mapping.channels:
            for begin, end, number in stretches(times_us.get(channel.name, []), self._length_us):
                made.append({
                    "gateway": self._gateway, "channel": channel.name, "into": into, "rows": number,
                    "interval_s": self._interval_s, "period_ms": self._file.period_ms,
                    "begin": moment_of(begin), "end": moment_of(end), "cal": channel.cal,
                    "file": self._rows.name, "file_sha256": self._rows.digest,
                    "mapping_sha256": self._mapping.digest, "imported_at": moment_of(self._now_us),
                })  # fmt: skip
        if made:
            update = None
            if self._replaces:
                update = {name: f"s.{name}" for name in made[0] if name not in IMPORTS.key}
            self._tables.merge(
                IMPORTS, {name: [row[name] for row in made] for name in made[0]}, update=update
            )

    def take_back(self, into: str, given: dict[str, NumberSet], overlapped: Iterable[str]) -> int:
        """Deletes rows of this file by another mapping where this one gives none; how many they were.

        And those of ``overlapped`` channels that began otherwise, by another clock.
        """
        import_only = "n_good + n_suspect + n_missing = 0" if into == "statistics" else "run LIKE 'import-%'"
        time = "interval_start" if into == "statistics" else "time"
        parts, freed = [], NumberSet()
        for channel, spans in self.stale().items():
            away = _set(spans).without(given.get(channel, NumberSet()))
            freed.update(away)
            parts += [f"(channel = '{channel}' AND {at})" for at in _within(time, away)]
        phase_s = self._file.phase_us // 1_000_000
        for channel in overlapped:
            for first, last in given.get(channel, NumberSet()).spans():
                begin, end = (moment_of(each).isoformat() for each in (first - self._length_us, last))
                off = f"date_part('epoch', {time}) % {self._interval_s} <> {phase_s}"
                parts.append(f"(channel = '{channel}' AND {time} > '{begin}' AND {time} < '{end}' AND {off})")
        mine = f"gateway = '{self._gateway}'"
        gone = 0
        length = f" AND interval_s = {self._interval_s}" if into == "statistics" else ""
        if parts:
            gone = self._tables.delete(into, f"{mine}{length} AND {import_only} AND ({' OR '.join(parts)})")
        if parts and into == "statistics":
            # The job computes again what other channels leave of an interval, and makes nothing of nothing.
            first, *others = (ds.field(f"n_{flag}") for flag in _FLAGS)
            is_left = (
                self._of_gateway & (ds.field("interval_s") == self._interval_s) & (sum(others, first) > 0)
            )
            starts = self._tables.rows(STATISTICS, ("interval_start",), is_left)
            left = _set((start, start + self._length_us) for (start,) in starts)
            if empty := [f"({at})" for at in _within(time, freed.without(left))]:
                self._tables.delete(MAST.name, f"{mine}{length} AND ({' OR '.join(empty)})")
        if self.stale():
            other = f"file_sha256 = '{self._rows.digest}' AND mapping_sha256 <> '{self._mapping.digest}'"
            self._tables.delete(IMPORTS.name, f"{mine} AND \"into\" = '{into}' AND {other}")
        return gone
