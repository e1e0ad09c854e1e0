"""What goes with imported rows into a lake: the channels' records, the site, and which file they are of.

Records of imports don't overlap: of two for one period the later written has it, and the other ends there. A
record is for rows that are written, so an import that leaves the earlier rows leaves their records too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow.dataset as ds

from cloud.importing.logger_file import Rows
from cloud.importing.mapping import DRIVER, Channel, Mapping as FileMapping
from cloud.importing.tables import LakeTables
from cloud.wire.lake_tables import CHANNELS, IMPORTS, MAST, READINGS, SITES, STATISTICS
from cloud.wire.number_set import NumberSet

FLAGS: Final = ("n_good", "n_not_evaluated", "n_suspect", "n_fail", "n_missing")
"""The columns of ``statistics`` that count samples; their sum is 0 where nothing was measured."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PLACE: Final = ("latitude", "longitude", "elevation_m", "utc_offset_min", "name", "owner")
_INSTRUMENT: Final = ("model", "serial", "certificate", "lab", "height_m", "boom_deg", "pair")
_ATTEMPTS: Final = 5
_NEVER: Final = NumberSet()


def moment_of(time_us: int) -> datetime:
    """A time as a table has it."""
    return _EPOCH + timedelta(microseconds=time_us)


def _us_of(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _in_force(periods: Iterable[Mapping[str, datetime | None]] | None) -> NumberSet:
    """When a record of ``channels`` was in force; without periods whose begin or end isn't known."""
    spans = ((each["begin"], each["end"]) for each in periods or ())
    return NumberSet((_us_of(begin), _us_of(end) - 1) for begin, end in spans if begin and end)


def _within(column: str, times: NumberSet) -> list[str]:
    """SQL's conditions that a time is one of these."""
    spans = ((moment_of(first).isoformat(), moment_of(last + 1).isoformat()) for first, last in times.spans())
    return [f"{column} >= '{begin}' AND {column} < '{end}'" for begin, end in spans]


def _stretches(times_us: Iterable[int], length_us: int) -> Iterator[tuple[int, int, int]]:
    """Begin, end and number of times that follow each other without a gap; readings may be off the grid."""
    in_order = sorted(times_us)
    first = 0
    for at, time_us in enumerate(in_order):
        following = in_order[at + 1] if at + 1 < len(in_order) else None
        if following is None or following // length_us > time_us // length_us + 1:
            yield in_order[first], time_us + length_us, at + 1 - first
            first = at + 1


class Provenance:
    """The marks and records of one file's import. ``replaces``: what was imported before gives way.

    Sets of times are in microseconds since the epoch. Raises WriteError, as each call does.
    """

    def __init__(
        self, mapping: FileMapping, tables: LakeTables, rows: Rows, now_us: int, *, replaces: bool
    ) -> None:
        self._mapping, self._file, self._tables = mapping, mapping.file, tables
        self._gateway, self._now = mapping.file.gateway, moment_of(now_us)
        self._rows, self._replaces = rows, replaces
        self._length_us = mapping.file.length_us
        self._interval_s = None if self._file.has_readings else round(self._file.interval)
        self.table: Final = READINGS if self._file.has_readings else STATISTICS
        self.span: Final = min(rows.times_us), max(rows.times_us) + self._length_us
        """Where the file begins, and where its last row ends."""
        self._of_gateway = ds.field("gateway") == self._gateway
        names = ("channel", "begin", "end", "cal", "file_sha256", "interval_s", "mapping_sha256")
        self._marks = [
            (channel, (begin, end - 1), cal, sha == rows.digest and by != mapping.digest)
            for channel, begin, end, cal, sha, each_s, by in tables.rows(IMPORTS, names, self._of_gateway)
            if each_s == self._interval_s
        ]

    def before(self) -> dict[str, NumberSet]:
        """When each channel has rows that were imported before."""
        times: dict[str, NumberSet] = {}
        for channel, span, _, _ in self._marks:
            times.setdefault(channel, NumberSet()).add(*span)
        return times

    def stale(self) -> dict[str, NumberSet]:
        """When each channel has rows of this very file by another mapping, that are replaced."""
        times: dict[str, NumberSet] = {}
        for channel, span, _, of_this in self._marks if self._replaces else ():
            if of_this:
                times.setdefault(channel, NumberSet()).add(*span)
        return times

    def write_records(self) -> bool:
        """Writes channels' records and the site; whether a site stays that is another."""
        # Again where another import of theirs came between.
        for _ in range(_ATTEMPTS):
            changed = list(self._changed_records())
            if not changed:
                break
            columns = {name: [row.get(name) for row in changed] for name in CHANNELS.columns}
            update = {
                name: f"s.{name}" for name in ("valid_from", "valid_to", "periods", "revision", "updated_at")
            }
            where = "s.revision > t.revision and s.valid_from is not null"
            self._tables.merge(CHANNELS, columns, update=update, where=where, drop="s.valid_from is null")
        return self._write_site()

    def _changed_records(self) -> Iterator[dict[str, Any]]:
        """The mapping's records, and earlier imports' that end where these begin, if they say anything new.

        One that is left without a time has no ``valid_from``.
        """
        names, imported = ("channel", "cal", "revision", "periods"), ds.field("driver") == DRIVER
        known = {
            (name, cal): (revision, _in_force(periods))
            for name, cal, revision, periods in self._tables.rows(
                CHANNELS, names, self._of_gateway & imported
            )
        }
        mine = {channel.name: (channel, self._own(channel)) for channel in self._mapping.channels}
        new = {(channel.name, channel.cal): (0, NumberSet()) for channel, _ in mine.values()}
        stale = self.stale()
        for (name, cal), (revision, before) in (new | known).items():
            channel, own = mine.get(name, (None, _NEVER))
            times, instrument = before.without(stale.get(name, _NEVER)).without(own), dict[str, Any]()
            if channel is not None and cal == channel.cal:
                times.update(own)
                instrument = self._instrument(channel)
            spans = [(moment_of(first), moment_of(last + 1)) for first, last in times.spans()]
            if list(times.spans()) == list(before.spans()):
                continue
            yield {
                "gateway": self._gateway, "channel": name, "cal": cal, "revision": revision + 1,
                "valid_from": spans[0][0] if spans else None, "valid_to": spans[-1][1] if spans else None,
                "periods": [{"begin": begin, "end": end} for begin, end in spans],
                "updated_at": self._now, **instrument,
            }  # fmt: skip

    def _own(self, channel: Channel) -> NumberSet:
        """When a record holds: not where rows of other ones stay."""
        others = (span for name, span, cal, _ in self._marks if name == channel.name and cal != channel.cal)
        begin_us, end_us = self.span
        return NumberSet([(begin_us, end_us - 1)]).without(NumberSet(() if self._replaces else others))

    def _instrument(self, channel: Channel) -> dict[str, Any]:
        """What the record of a channel has besides its times."""
        slope, offset = channel.to_lake
        of = channel.of
        return {
            "in_force": False,
            "sensor": channel.sensor,
            "quantity": channel.quantity,
            "unit": of.unit,
            "raw_unit": channel.unit or of.unit,
            "driver": DRIVER,
            "interval_s": self._file.period_ms / 1000,
            "slope": slope,
            "offset": offset,
            "settings": sorted((name, json.dumps(column)) for name, column in channel.columns().items()),
            "reported": [],
            "range_min": of.lower if math.isfinite(of.lower) else None,
            "range_max": of.upper if math.isfinite(of.upper) else None,
            **{name: getattr(channel, name) for name in _INSTRUMENT},
            "extra": self._extra(channel.plane),
            "kind": channel.is_a,
        }

    def _extra(self, more: Mapping[str, float]) -> str:
        return json.dumps({"imported": self._file.format} | dict(more), separators=(",", ":"))

    def _write_site(self) -> bool:
        site, begin_us = self._mapping.site, self.span[0]
        if site is None:
            return False
        place = {name: getattr(site, name.removesuffix("_min")) for name in _PLACE}
        there = {
            valid_from: values
            for valid_from, *values in self._tables.rows(SITES, ("valid_from", *_PLACE), self._of_gateway)
        }
        since_us = max((each for each in there if each <= begin_us), default=None)
        if since_us is not None and there[since_us] == list(place.values()):
            return False
        is_other = begin_us in there
        if self._replaces or not is_other:
            row = {
                "gateway": self._gateway, "valid_from": moment_of(begin_us), **place, "revision": 1,
                "extra": self._extra({}), "updated_at": self._now,
            }  # fmt: skip
            update = {name: f"s.{name}" for name in (*_PLACE, "updated_at")} | {"revision": "t.revision + 1"}
            self._tables.merge(SITES, {name: [value] for name, value in row.items()}, update=update)
        return is_other and not self._replaces

    def mark(self, places: Iterable[tuple[str, int]]) -> None:
        """Notes which rows come from this file, by channel and time."""
        times_us: dict[str, list[int]] = {}
        for name, time_us in places:
            times_us.setdefault(name, []).append(time_us)
        made = [
            {
                "gateway": self._gateway, "channel": channel.name, "into": self.table.name,
                "rows": rows, "interval_s": self._interval_s,
                "period_ms": self._file.period_ms, "cal": channel.cal, "imported_at": self._now,
                "begin": moment_of(begin_us), "end": moment_of(end_us), "file": self._rows.name,
                "file_sha256": self._rows.digest, "mapping_sha256": self._mapping.digest,
            }
            for channel in self._mapping.channels
            for begin_us, end_us, rows in _stretches(times_us.get(channel.name, []), self._length_us)
        ]  # fmt: skip
        if made:
            update = {name: f"s.{name}" for name in made[0] if name not in IMPORTS.key}
            columns = {name: [row[name] for row in made] for name in made[0]}
            self._tables.merge(IMPORTS, columns, update=update if self._replaces else None)

    def take_back(self, given: Mapping[str, NumberSet], overlapped: Iterable[str]) -> int:
        """Deletes rows of this file by another mapping where this one gives none; how many they were.

        And those of ``overlapped`` channels that began otherwise, by another clock.
        """
        time, import_only, length = "time", "run LIKE 'import-%'", ""
        if not self._file.has_readings:
            time, import_only = "interval_start", "n_good + n_suspect + n_missing = 0"
            length = f" AND interval_s = {self._interval_s}"
        parts, freed, stale = [], NumberSet(), self.stale()
        for channel, times in stale.items():
            away = times.without(given.get(channel, _NEVER))
            freed.update(away)
            parts += [f"(channel = '{channel}' AND {at})" for at in _within(time, away)]
        phase_s = self._file.phase_us // 1_000_000
        for channel in overlapped:
            for first, last in given.get(channel, _NEVER).spans():
                begin, end = (moment_of(each).isoformat() for each in (first - self._length_us, last))
                off = f"date_part('epoch', {time}) % {self._interval_s} <> {phase_s}"
                parts.append(f"(channel = '{channel}' AND {time} > '{begin}' AND {time} < '{end}' AND {off})")
        mine = f"gateway = '{self._gateway}'"
        gone = 0
        if parts:
            rows = f"{mine}{length} AND {import_only} AND ({' OR '.join(parts)})"
            gone = self._tables.delete(self.table, rows)
        if parts and not self._file.has_readings:
            # The job computes again what other channels leave of an interval, and makes nothing of nothing.
            first_flag, *others = (ds.field(flag) for flag in FLAGS)
            is_left = (ds.field("interval_s") == self._interval_s) & (sum(others, first_flag) > 0)
            starts = self._tables.rows(STATISTICS, ("interval_start",), self._of_gateway & is_left)
            left = NumberSet((start, start + self._length_us - 1) for (start,) in starts)
            if empty := [f"({at})" for at in _within(time, freed.without(left))]:
                self._tables.delete(MAST, f"{mine}{length} AND ({' OR '.join(empty)})")
        if stale:
            other = f"file_sha256 = '{self._rows.digest}' AND mapping_sha256 <> '{self._mapping.digest}'"
            self._tables.delete(IMPORTS, f"{mine} AND \"into\" = '{self.table.name}' AND {other}")
        return gone
