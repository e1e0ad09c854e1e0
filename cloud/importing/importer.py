"""One file of a logger into the lake: what is new of it, with what says that it was imported.

First what is refused, the channels' records, the site, and which rows come from this file (``imports``); then
the rows. So no row is there without its mark, and what a crash cuts short is completed by importing again. A
row that is there stays as it is: measured ones always, earlier imports' too. An import takes the place of
a row alone that says that nothing was measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow.dataset as ds

from cloud.importing.logger_file import BadLine, Rows, read_rows
from cloud.importing.mapping import Channel, Mapping as FileMapping
from cloud.importing.records import PLACE, ChannelRecord, Span, joined, moment_of, site_row
from cloud.importing.tables import CHANNELS, IMPORTS, QUARANTINE, READINGS, SITES, STATISTICS, LakeTables
from cloud.importing.values import (
    Interval,
    Sample,
    by_column,
    figures_of,
    interval,
    missing_interval,
    problem,
    sample,
    stretches,
)
from cloud.wire.reading_records import IMPORT_RUN, SYNCED

_AT_ONCE: Final = 100_000
"""Rows that are compared and merged at a time."""
_GAP_US: Final = 400 * 86_400_000_000
"""So long rows are made for what is missing, as by the job: a wrong date doesn't make a million."""
_ATTEMPTS: Final = 5
_ROWS: Final = 4_500
"""Rows of a file whose channels are made one after the other: of ten minutes a month."""
_FLAGS: Final = ("n_good", "n_not_evaluated", "n_suspect", "n_fail", "n_missing")
_VALUES: Final = ("avg", "min", "max", "sd", "gust", "sum")
"""By which two imports of an interval are told apart, as they stand in Interval."""
_FIRST_VALUE: Final = Interval._fields.index(_VALUES[0])


_T = TypeVar("_T")


@dataclass
class Outcome:
    """What became of a file: rows by what happened to them, and its bad lines by reason."""

    file: str
    into: str
    lines: int = 0
    new: int = 0
    there: int = 0
    measured: int = 0
    other: int = 0
    missing: int = 0
    repeated_lines: int = 0
    bad_lines: Counter[str] = field(default_factory=Counter)
    begin_us: int = 0
    end_us: int = 0


class Importer:
    """Imports files by one mapping into one lake. Of one thread."""

    def __init__(self, mapping: FileMapping, tables: LakeTables, gateway: str, now_us: int) -> None:
        self._mapping, self._file = mapping, mapping.file
        self._tables = tables
        self._gateway = gateway
        self._now_us = now_us
        self._length_us = round(mapping.file.interval * 1e6)

    def read(self, path: Path) -> Rows:
        """A file's rows. Raises FileError, ConfigError."""
        return read_rows(path, self._mapping, problem, self._now_us)

    def write(self, rows: Rows) -> Outcome:
        """Brings a file's rows into the lake. Raises WriteError."""
        into = READINGS if self._file.has_readings else STATISTICS
        outcome = Outcome(
            rows.name, into.name, rows.lines, repeated_lines=rows.repeated,
            bad_lines=Counter(bad.reason for bad in rows.bad),
            begin_us=min(rows.times_us), end_us=max(rows.times_us) + self._length_us,
        )  # fmt: skip
        self._quarantine(rows)
        self._records(outcome)
        if self._file.has_readings:
            self._write_samples(rows, outcome)
        else:
            self._write_intervals(rows, outcome)
        return outcome

    def _quarantine(self, rows: Rows) -> None:
        if not rows.bad:
            return
        now = moment_of(self._now_us)
        columns = {
            "reason": [bad.reason for bad in rows.bad],
            "payload": [bad.payload for bad in rows.bad],
            "payload_bytes": [bad.payload_bytes for bad in rows.bad],
            "key": [self._gateway for _ in rows.bad],
            "headers": [[{"key": "detail", "value": bad.detail.encode()}] for bad in rows.bad],
            "source": [_source(rows, bad) for bad in rows.bad],
            "ingested_at": [now for _ in rows.bad],
            "gateway": [self._gateway for _ in rows.bad],
        }
        self._tables.merge(QUARANTINE, columns)

    def _records(self, outcome: Outcome) -> None:
        """Writes channels' records and the site."""
        of_gateway = ds.field("gateway") == self._gateway
        span = outcome.begin_us, outcome.end_us
        changed = ("valid_from", "valid_to", "periods", "revision", "updated_at")
        # Again where another import of theirs came between.
        for _ in range(_ATTEMPTS):
            there = self._tables.rows(CHANNELS, ("channel", "cal", "revision", "periods"), of_gateway)
            known = {(name, cal): {"revision": revision, "periods": periods}
                     for name, cal, revision, periods in there}  # fmt: skip
            made = (
                ChannelRecord(self._mapping, self._gateway, channel, [span]).row(
                    known.get((channel.name, channel.cal)), self._now_us
                )
                for channel in self._mapping.channels
            )
            new = [row for row in made if row is not None]
            if not new:
                break
            self._tables.merge(
                CHANNELS,
                {name: [row[name] for row in new] for name in new[0]},
                update={name: f"s.{name}" for name in changed},
                where="s.revision > t.revision",
            )
        if self._mapping.site is not None:
            sites = self._tables.rows(SITES, ("valid_from", *PLACE), of_gateway)
            row = site_row(
                self._mapping.site, self._gateway, outcome.begin_us, sites, self._file, self._now_us
            )
            if row is not None:
                self._tables.merge(SITES, {name: [value] for name, value in row.items()})

    def _mark(self, rows: Rows, into: str, places: Iterable[tuple[str, int]]) -> None:
        """Notes which rows come from this file, by channel and time in microseconds since the epoch."""
        times_us: dict[str, list[int]] = {}
        for name, time_us in places:
            times_us.setdefault(name, []).append(time_us)
        made = []
        for channel in self._mapping.channels:
            for begin, end, number in stretches(times_us.get(channel.name, []), self._length_us):
                made.append(
                    {
                        "gateway": self._gateway,
                        "channel": channel.name,
                        "into": into,
                        "interval_s": None if self._file.has_readings else round(self._file.interval),
                        "period_ms": self._file.period_ms,
                        "begin": moment_of(begin),
                        "end": moment_of(end),
                        "rows": number,
                        "cal": channel.cal,
                        "file": rows.name,
                        "file_sha256": rows.digest,
                        "mapping_sha256": self._mapping.digest,
                        "imported_at": moment_of(self._now_us),
                    }
                )
        if made:
            self._tables.merge(IMPORTS, {name: [row[name] for row in made] for name in made[0]})

    def _write_intervals(self, rows: Rows, outcome: Outcome) -> None:
        imported = self._imported_before()
        for part in _parts(self._intervals(rows, imported)):
            new = list(self._new_intervals(part, imported, outcome))
            filled = [each for each in new if each.has_readings]
            self._mark(rows, STATISTICS.name, ((each.channel, each.interval_start) for each in filled))
            self._merge_intervals(new)
            outcome.new += len(filled)
            outcome.missing += len(new) - len(filled)

    def _intervals(self, rows: Rows, imported: Mapping[str, list[Span]]) -> Iterator[Interval]:
        """All intervals of the file, a month of a channel after the other, and those without anything."""
        length_us = self._length_us
        order = sorted(range(len(rows.times_us)), key=rows.times_us.__getitem__)
        first_us, end_us = rows.times_us[order[0]], rows.times_us[order[-1]] + length_us
        figures = [list(figures_of(rows, number)) for number in range(len(self._mapping.channels))]
        before = [imported.get(channel.name, []) for channel in self._mapping.channels]
        # Where what was imported before ends before the first row, and begins after the last.
        since = [max((end for _, end in spans if end <= first_us), default=first_us) for spans in before]
        until = [min((begin for begin, _ in spans if begin >= end_us), default=end_us) for spans in before]
        for days in _parts(order, _ROWS):
            for number, channel in enumerate(self._mapping.channels):
                for at in days:
                    time_us = rows.times_us[at]
                    yield from self._missing(channel, since[number], time_us)
                    yield interval(self._file, channel, time_us, figures[number][at])
                    since[number] = time_us + length_us
        for number, channel in enumerate(self._mapping.channels):
            yield from self._missing(channel, end_us, until[number])

    def _missing(self, channel: Channel, begin_us: int, end_us: int) -> Iterator[Interval]:
        if end_us - begin_us <= _GAP_US:
            for time_us in range(begin_us, end_us, self._length_us):
                yield missing_interval(self._file, channel, time_us)

    def _new_intervals(
        self, part: list[Interval], imported: Mapping[str, list[Span]], outcome: Outcome
    ) -> Iterator[Interval]:
        """Those that the lake doesn't have, counting the others."""
        starts = [each.interval_start for each in part]
        condition = self._within(min(starts), max(starts)) & (
            ds.field("interval_s") == round(self._file.interval)
        )
        names = ("channel", "interval_start", *_FLAGS, *_VALUES)
        known = {row[:2]: row[2:] for row in self._tables.rows(STATISTICS, names, condition)}
        for each in part:
            row = known.get((each.channel, each.interval_start))
            is_empty = row is not None and not any(row[: len(_FLAGS)])
            if row is None or (is_empty and each.has_readings):
                yield each
            elif not each.has_readings:
                continue
            elif not _covers(imported.get(each.channel, []), each.interval_start):
                outcome.measured += 1
            elif row[len(_FLAGS) :] == each[_FIRST_VALUE : _FIRST_VALUE + len(_VALUES)]:
                outcome.there += 1
            else:
                outcome.other += 1

    def _imported_before(self) -> dict[str, list[Span]]:
        condition = (ds.field("gateway") == self._gateway) & (ds.field("into") == STATISTICS.name)
        condition &= ds.field("interval_s") == round(self._file.interval)
        spans: dict[str, list[Span]] = {}
        for channel, begin, end in self._tables.rows(IMPORTS, ("channel", "begin", "end"), condition):
            spans.setdefault(channel, []).append((begin, end))
        return {channel: joined(each) for channel, each in spans.items()}

    def _within(self, first_us: int, last_us: int) -> Any:
        """A condition: rows of the gateway on the days of these times."""
        begin, end = (moment_of(each).date() for each in (first_us, last_us))
        of_gateway: Any = ds.field("gateway") == self._gateway
        return (ds.field("date") >= begin) & (ds.field("date") <= end) & of_gateway

    def _merge_intervals(self, new: list[Interval]) -> None:
        columns = by_column(new)
        if not columns:
            return
        number = len(new)
        starts = [moment_of(each.interval_start) for each in new]
        nothing = dict.fromkeys(("n_good", "n_suspect", "n_missing"), [0] * number)
        columns["count"] = columns.pop("valid")
        columns |= nothing | {
            "gateway": [self._gateway] * number,
            "interval_s": [round(self._file.interval)] * number,
            "interval_start": starts,
            "version": [1] * number,
            "updated_at": [moment_of(self._now_us)] * number,
            "date": [each.date() for each in starts],
        }
        key = {*STATISTICS.key, "date", "version"}
        update = {name: f"s.{name}" for name in columns if name not in key} | {"version": "t.version + 1"}
        empty = " + ".join(f"t.{name}" for name in _FLAGS)
        where = f"{empty} = 0 and s.n_not_evaluated + s.n_fail > 0"
        self._tables.merge(STATISTICS, columns, update=update, where=where)

    def _write_samples(self, rows: Rows, outcome: Outcome) -> None:
        for part in _parts(self._samples(rows)):
            new = list(self._new_samples(part, outcome))
            self._mark(rows, READINGS.name, ((each.channel, each.time) for each in new))
            self._merge_samples(new)
            outcome.new += len(new)

    def _samples(self, rows: Rows) -> Iterator[Sample]:
        order = sorted(range(len(rows.times_us)), key=rows.times_us.__getitem__)
        figures = [list(figures_of(rows, number)) for number in range(len(self._mapping.channels))]
        for times in _parts(order, _ROWS):
            for number, channel in enumerate(self._mapping.channels):
                for at in times:
                    made = sample(self._file, channel, rows.times_us[at], figures[number][at])
                    if made is not None:
                        yield made

    def _new_samples(self, part: list[Sample], outcome: Outcome) -> Iterator[Sample]:
        times = [each.time for each in part]
        condition = self._within(min(times), max(times))
        # A measured one may lie anywhere in its period.
        condition &= (ds.field("time") >= moment_of(min(times) - self._length_us)) & (
            ds.field("time") < moment_of(max(times) + self._length_us)
        )
        measured, known = set(), {}
        names = ("channel", "run", "seq", "time", "raw")
        for channel, run, seq, time_us, raw in self._tables.rows(READINGS, names, condition):
            if run == self._run:
                known[channel, seq] = raw
            else:
                measured.add((channel, time_us // self._length_us))
        for each in part:
            if (each.channel, each.seq) in known:
                is_same = known[each.channel, each.seq] == each.raw
                outcome.there, outcome.other = outcome.there + is_same, outcome.other + (not is_same)
            elif (each.channel, each.time // self._length_us) in measured:
                outcome.measured += 1
            else:
                yield each

    @property
    def _run(self) -> str:
        """Of imported readings: by their period, so that a sample has one identity whatever file it is in."""
        return f"{IMPORT_RUN}{self._file.period_ms}"

    def _merge_samples(self, new: list[Sample]) -> None:
        columns = by_column(new)
        if not columns:
            return
        number = len(new)
        times = [moment_of(each.time) for each in new]
        columns |= {
            "gateway": [self._gateway] * number,
            "run": [self._run] * number,
            "time": times,
            "clock": [SYNCED] * number,
            "replayed": [True] * number,
            "ingested_at": [moment_of(self._now_us)] * number,
            "date": [each.date() for each in times],
        }
        self._tables.merge(READINGS, columns)


def _source(rows: Rows, bad: BadLine) -> str:
    """Which line it was: the same each time the file is imported."""
    return f"import {rows.name}:{bad.number} sha256:{rows.digest[:12]}"


def _covers(spans: Iterable[Span], time_us: int) -> bool:
    return any(begin <= time_us < end for begin, end in spans)


def _parts(rows: Iterable[_T], at_once: int = _AT_ONCE) -> Iterator[list[_T]]:
    part: list[_T] = []
    for each in rows:
        part.append(each)
        if len(part) >= at_once:
            yield part
            part = []
    if part:
        yield part


def day_of(time_us: int) -> str:
    """A time in words."""
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
