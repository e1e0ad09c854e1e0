"""One file of a logger into the lake: what is new of it, with what says that it was imported.

First what is refused, the channels' records, the site, and which rows come from this file (``imports``); then
the rows. So no row is there without its mark, and what a crash cuts short is completed by importing again. A
row that is there stays as it is, but where it says that nothing was measured: measured ones always, earlier
imports' unless they are to be replaced.
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
from cloud.importing.provenance import Provenance, Span, moment_of
from cloud.importing.tables import QUARANTINE, LakeTables
from cloud.importing.values import (
    Interval,
    Sample,
    by_column,
    figures_of,
    interval,
    missing_interval,
    problem,
    sample,
)
from cloud.wire.lake_tables import READINGS, STATISTICS
from cloud.wire.number_set import NumberSet
from cloud.wire.reading_records import IMPORT_RUN, SYNCED

_AT_ONCE: Final = 100_000
"""Rows that are compared and merged at a time."""
_GAP_US: Final = 400 * 86_400_000_000
"""So long rows are made for what is missing, as by the job: a wrong date doesn't make a million."""
_ROWS: Final = 4_500
"""Rows of a file whose channels are made one after the other: of ten minutes a month."""
_FLAGS: Final = ("n_good", "n_not_evaluated", "n_suspect", "n_fail", "n_missing")
_VALUES: Final = ("avg", "min", "max", "sd", "gust", "sum")
"""The columns by which two imports of an interval are compared, as they stand in Interval."""
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
    replaced: int = 0
    taken_back: int = 0
    has_other_site: bool = False
    missing: int = 0
    repeated_lines: int = 0
    short_lines: int = 0
    bad_lines: Counter[str] = field(default_factory=Counter)
    in_quarantine: int = 0
    often_impossible: dict[str, int] = field(default_factory=dict)
    begin_us: int = 0
    end_us: int = 0


class Importer:
    """Imports files by one mapping into one lake. One thread uses it."""

    def __init__(
        self, mapping: FileMapping, tables: LakeTables, gateway: str, now_us: int, *, replaces: bool = False
    ) -> None:
        """``replaces``: rows of earlier imports give way to those of the file."""
        self._mapping, self._file = mapping, mapping.file
        self._tables = tables
        self._gateway = gateway
        self._now_us = now_us
        self._replaces = replaces
        self._given: dict[str, NumberSet] = {}
        self._length_us, self._phase_us = mapping.file.length_us, mapping.file.phase_us
        self._overlapped: set[str] = set()

    def read(self, path: Path) -> Rows:
        """A file's rows. Raises FileError, ConfigError."""
        return read_rows(path, self._mapping, problem, self._now_us)

    def write(self, rows: Rows) -> Outcome:
        """Brings a file's rows into the lake. Raises WriteError."""
        self._given.clear()
        self._overlapped.clear()
        into = READINGS if self._file.has_readings else STATISTICS
        outcome = Outcome(
            rows.name, into.name, rows.lines, repeated_lines=rows.repeated,
            short_lines=rows.short, bad_lines=rows.reasons, in_quarantine=len(rows.bad),
            often_impossible=rows.often_impossible(),
            begin_us=min(rows.times_us), end_us=max(rows.times_us) + self._length_us,
        )  # fmt: skip
        self._quarantine(rows)
        provenance = Provenance(
            self._mapping, self._tables, self._gateway, self._now_us, rows, replaces=self._replaces
        )
        outcome.has_other_site = provenance.write_records()
        write = self._write_samples if self._file.has_readings else self._write_intervals
        write(rows, provenance, outcome)
        outcome.taken_back = provenance.take_back(into.name, self._given, self._overlapped)
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

    def _write_intervals(self, rows: Rows, provenance: Provenance, outcome: Outcome) -> None:
        imported = provenance.before()
        for part in _parts(self._intervals(rows, imported)):
            new = list(self._new_intervals(part, imported, provenance.stale(), outcome))
            filled = [each for each in new if each.has_readings]
            provenance.mark(STATISTICS.name, ((each.channel, each.interval_start) for each in filled))
            self._merge_intervals(new)
            self._note_given((each.channel, each.interval_start) for each in part)

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
            # What was imported before may be by another clock.
            begin_us += (self._phase_us - begin_us) % self._length_us
            for time_us in range(begin_us, end_us - self._length_us + 1, self._length_us):
                yield missing_interval(self._file, channel, time_us)

    def _new_intervals(
        self,
        part: list[Interval],
        imported: Mapping[str, list[Span]],
        stale: Mapping[str, list[Span]],
        outcome: Outcome,
    ) -> Iterator[Interval]:
        """Those that the lake doesn't have, or are to be replaced, counting the others.

        Nothing takes the place of something only where this very file gave it by another mapping.
        """
        starts = [each.interval_start for each in part]
        condition = self._within(min(starts) - self._length_us, max(starts) + self._length_us) & (
            ds.field("interval_s") == round(self._file.interval)
        )
        names = ("channel", "interval_start", *_FLAGS, *_VALUES, "count", "expected")
        known = {row[:2]: row[2:] for row in self._tables.rows(STATISTICS, names, condition)}
        across = self._by_other_clocks(known, imported)
        for each in part:
            row = known.get((each.channel, each.interval_start))
            is_empty = row is not None and not any(row[: len(_FLAGS)])
            is_measured = across.get((each.channel, self._slot(each.interval_start)))
            if row is None and is_measured is not None and (is_measured or not self._replaces):
                outcome.measured += each.has_readings and is_measured
                outcome.other += each.has_readings and not is_measured
            elif row is None or (is_empty and each.has_readings):
                outcome.new += each.has_readings
                outcome.missing += not each.has_readings
                yield each
            elif is_empty or not (
                each.has_readings or _covers(stale.get(each.channel, []), each.interval_start)
            ):
                continue
            elif not _covers(imported.get(each.channel, []), each.interval_start):
                outcome.measured += each.has_readings
            else:
                values = each[_FIRST_VALUE : _FIRST_VALUE + len(_VALUES)]
                is_same = row[len(_FLAGS) :] == (*values, each.valid, each.expected)
                outcome.there += is_same
                outcome.replaced += not is_same and self._replaces
                outcome.other += not is_same and not self._replaces
                if self._replaces:
                    yield each

    def _slot(self, time_us: int) -> int:
        return (time_us - self._phase_us) // self._length_us

    def _by_other_clocks(
        self, known: Mapping[tuple[Any, ...], Any], imported: Mapping[str, list[Span]]
    ) -> dict[tuple[str, int], bool]:
        """Intervals of the file's clock that overlap those of others, and whether these were measured."""
        found: dict[tuple[str, int], bool] = {}
        for (channel, start_us), row in known.items():
            if (start_us - self._phase_us) % self._length_us and any(row[: len(_FLAGS)]):
                is_measured = not _covers(imported.get(channel, []), start_us)
                for slot in (self._slot(start_us), self._slot(start_us) + 1):
                    found[channel, slot] = found.get((channel, slot), False) or is_measured
                self._overlapped |= set() if is_measured else {channel}
        return found

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
        if self._replaces:
            where = "t.n_good + t.n_suspect + t.n_missing = 0"
        self._tables.merge(STATISTICS, columns, update=update, where=where)

    def _write_samples(self, rows: Rows, provenance: Provenance, outcome: Outcome) -> None:
        for part in _parts(self._samples(rows)):
            new = list(self._new_samples(part, outcome))
            provenance.mark(READINGS.name, ((each.channel, each.time) for each in new))
            self._merge_samples(new)
            self._note_given((each.channel, each.time) for each in part)

    def _note_given(self, places: Iterable[tuple[str, int]]) -> None:
        if self._replaces:
            for channel, time_us in places:
                given = self._given.setdefault(channel, NumberSet())
                given.add(time_us, time_us + self._length_us - 1)

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
        names = ("channel", "run", "seq", "time", "raw", "value", "quality")
        for channel, run, seq, time_us, *values in self._tables.rows(READINGS, names, condition):
            if run == self._run:
                known[channel, seq] = tuple(values)
            else:
                measured.add((channel, time_us // self._length_us))
        for each in part:
            if (each.channel, each.seq) in known:
                is_same = known[each.channel, each.seq] == (each.raw, each.value, each.quality)
                outcome.there += is_same
                outcome.replaced += not is_same and self._replaces
                outcome.other += not is_same and not self._replaces
                if self._replaces:
                    yield each
            elif (each.channel, each.time // self._length_us) in measured:
                outcome.measured += 1
            else:
                outcome.new += 1
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
        update = None
        if self._replaces:
            update = {name: f"s.{name}" for name in columns if name not in (*READINGS.key, "date")}
        self._tables.merge(READINGS, columns, update=update)


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
