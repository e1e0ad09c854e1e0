"""One file of a logger into the lake: what is new of it, with what says that it was imported.

First what is refused, the channels' records, the site, and which rows come from this file (``imports``); then
the rows. So no row is there without its mark, and what a crash cuts short is completed by importing again. A
row that is there stays as it is, but where it says that nothing was measured: measured ones always, earlier
imports' unless they are to be replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import pyarrow.dataset as ds

from cloud.importing.logger_file import BadLine, Rows
from cloud.importing.mapping import Channel, Mapping as FileMapping
from cloud.importing.provenance import FLAGS, Provenance, moment_of
from cloud.importing.tables import QUARANTINE, LakeTables
from cloud.importing.values import Interval, Sample, figures_of, interval, sample
from cloud.wire.lake_tables import READINGS, STATISTICS, LakeTable
from cloud.wire.number_set import NumberSet
from cloud.wire.reading_records import IMPORT_RUN, SYNCED

_AT_ONCE: Final = 100_000
"""Rows that are compared and merged at a time."""
_GAP_US: Final = 400 * 86_400_000_000
"""So long rows are made for what is missing, as by the job: a wrong date doesn't make a million."""
_ROWS: Final = 4_500
"""Rows of a file whose channels are made one after the other: of ten minutes a month."""
_VALUES: Final = ("avg", "min", "max", "sd", "gust", "sum")
"""The columns by which two imports of an interval are compared, as they stand in Interval."""
_FIRST_VALUE: Final = Interval._fields.index(_VALUES[0])
_NEVER: Final = NumberSet()

_T = TypeVar("_T")
_Row = TypeVar("_Row", Interval, Sample)


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
    """Brings one file's rows into a lake. One thread uses it, once."""

    def __init__(
        self, mapping: FileMapping, tables: LakeTables, rows: Rows, now_us: int, *, replaces: bool = False
    ) -> None:
        """``replaces``: rows of earlier imports give way to those of the file. Raises WriteError."""
        self._mapping, self._file, self._tables, self._rows = mapping, mapping.file, tables, rows
        self._gateway = mapping.file.gateway
        self._now_us = now_us
        self._replaces = replaces
        self._length_us, self._phase_us = mapping.file.length_us, mapping.file.phase_us
        self._provenance = Provenance(mapping, tables, rows, now_us, replaces=replaces)
        self._imported = self._provenance.before()
        self._given: dict[str, NumberSet] = {}
        self._overlapped: set[str] = set()
        begin_us, end_us = self._provenance.span
        self._outcome = Outcome(
            rows.name, self._provenance.table.name, rows.lines, repeated_lines=rows.repeated,
            short_lines=rows.short, bad_lines=rows.reasons, in_quarantine=len(rows.bad),
            often_impossible=rows.often_impossible(), begin_us=begin_us, end_us=end_us,
        )  # fmt: skip

    def write(self) -> Outcome:
        """Returns what became of the file. Raises WriteError."""
        self._quarantine()
        self._outcome.has_other_site = self._provenance.write_records()
        if self._file.has_readings:
            self._write(self._samples(), self._new_samples, self._merge_samples)
        else:
            self._write(self._intervals(), self._new_intervals, self._merge_intervals)
        self._outcome.taken_back = self._provenance.take_back(self._given, self._overlapped)
        return self._outcome

    def _quarantine(self) -> None:
        bad = self._rows.bad
        if not bad:
            return
        columns = {
            "reason": [each.reason for each in bad],
            "payload": [each.payload for each in bad],
            "payload_bytes": [each.payload_bytes for each in bad],
            "key": [self._gateway] * len(bad),
            "headers": [[{"key": "detail", "value": each.detail.encode()}] for each in bad],
            "source": [_source(self._rows, each) for each in bad],
            "ingested_at": [moment_of(self._now_us)] * len(bad),
            "gateway": [self._gateway] * len(bad),
        }
        self._tables.merge(QUARANTINE, columns)

    def _write(
        self,
        made: Iterator[_Row],
        new_of: Callable[[list[_Row]], Iterator[_Row]],
        merge: Callable[[list[_Row]], None],
    ) -> None:
        for part in _parts(made):
            if new := list(new_of(part)):
                self._provenance.mark((each.channel, each.at_us) for each in new if each.has_readings)
                merge(new)
            for each in part if self._replaces else ():
                given = self._given.setdefault(each.channel, NumberSet())
                given.add(each.at_us, each.at_us + self._length_us - 1)

    def _slots(self) -> Iterator[tuple[int, int | None]]:
        """The file's times in order, each with its row's number, and those of its gaps without one."""
        times_us, end_us = self._rows.times_us, self._provenance.span[0]
        for at in sorted(range(len(times_us)), key=times_us.__getitem__):
            yield from ((time_us, None) for time_us in self._gap(end_us, times_us[at]))
            yield times_us[at], at
            end_us = times_us[at] + self._length_us

    def _gap(self, begin_us: int, end_us: int) -> range:
        """The intervals that the logger has nothing of, by their beginnings; single readings have none."""
        if self._file.has_readings or end_us - begin_us > _GAP_US:
            return range(0)
        # What was imported before may be by another clock.
        begin_us += (self._phase_us - begin_us) % self._length_us
        return range(begin_us, end_us - self._length_us + 1, self._length_us)

    def _by_channel(self) -> Iterator[tuple[Channel, int, dict[str, float]]]:
        """Figures by channel and time, a month of a channel after the other."""
        channels = self._mapping.channels
        figures = [list(figures_of(self._rows, number)) for number in range(len(channels))]
        for slots in _parts(self._slots(), _ROWS):
            for channel, own in zip(channels, figures, strict=True):
                yield from ((channel, time_us, {} if at is None else own[at]) for time_us, at in slots)

    def _intervals(self) -> Iterator[Interval]:
        """All intervals of the file, and those without anything between it and what was imported before."""
        begin_us, end_us = self._provenance.span
        imported = [
            (channel, list(self._imported.get(channel.name, _NEVER).spans()))
            for channel in self._mapping.channels
        ]
        for channel, spans in imported:
            ended_us = max((last + 1 for _, last in spans if last < begin_us), default=begin_us)
            for time_us in self._gap(ended_us, begin_us):
                yield interval(self._file, channel, time_us, {})
        for channel, time_us, figures in self._by_channel():
            yield interval(self._file, channel, time_us, figures)
        for channel, spans in imported:
            next_us = min((first for first, _ in spans if first >= end_us), default=end_us)
            for time_us in self._gap(end_us, next_us):
                yield interval(self._file, channel, time_us, {})

    def _new_intervals(self, part: list[Interval]) -> Iterator[Interval]:
        """Those that the lake doesn't have, or are to be replaced, counting the others.

        Nothing takes the place of something only where this very file gave it by another mapping.
        """
        outcome, stale = self._outcome, self._provenance.stale()
        starts = [each.interval_start for each in part]
        condition = self._within(min(starts) - self._length_us, max(starts) + self._length_us) & (
            ds.field("interval_s") == round(self._file.interval)
        )
        names = ("channel", "interval_start", *FLAGS, *_VALUES, "count", "expected")
        known = {row[:2]: row[2:] for row in self._tables.rows(STATISTICS, names, condition)}
        measured, imported = self._by_other_clocks(known)
        for each in part:
            span = each.interval_start, each.interval_start + self._length_us - 1
            row = known.get((each.channel, each.interval_start))
            is_empty = row is not None and not any(row[: len(FLAGS)])
            if row is None and measured.get(each.channel, _NEVER).overlaps(*span):
                outcome.measured += each.has_readings
            elif row is None and not self._replaces and imported.get(each.channel, _NEVER).overlaps(*span):
                outcome.other += each.has_readings
            elif row is None or (is_empty and each.has_readings):
                outcome.new += each.has_readings
                outcome.missing += not each.has_readings
                yield each
            elif is_empty or not (
                each.has_readings or each.interval_start in stale.get(each.channel, _NEVER)
            ):
                continue
            elif each.interval_start not in self._imported.get(each.channel, _NEVER):
                outcome.measured += each.has_readings
            else:
                values = each[_FIRST_VALUE : _FIRST_VALUE + len(_VALUES)]
                if self._gives_way(is_same=row[len(FLAGS) :] == (*values, each.valid, each.expected)):
                    yield each

    def _gives_way(self, *, is_same: bool) -> bool:
        """Whether a row that was imported before makes room for the file's; counts it."""
        self._outcome.there += is_same
        self._outcome.replaced += not is_same and self._replaces
        self._outcome.other += not is_same and not self._replaces
        return self._replaces

    def _by_other_clocks(
        self, known: Mapping[tuple[Any, ...], Any]
    ) -> tuple[dict[str, NumberSet], dict[str, NumberSet]]:
        """When each channel has intervals that begin otherwise than the file's: measured, and imported."""
        measured, imported = dict[str, NumberSet](), dict[str, NumberSet]()
        for (channel, start_us), row in known.items():
            if (start_us - self._phase_us) % self._length_us and any(row[: len(FLAGS)]):
                times = imported if start_us in self._imported.get(channel, _NEVER) else measured
                times.setdefault(channel, NumberSet()).add(start_us, start_us + self._length_us - 1)
        self._overlapped.update(imported)
        return measured, imported

    def _within(self, first_us: int, last_us: int) -> Any:
        """A condition: rows of the gateway on the days of these times."""
        begin, end = (moment_of(each).date() for each in (first_us, last_us))
        of_gateway: Any = ds.field("gateway") == self._gateway
        return (ds.field("date") >= begin) & (ds.field("date") <= end) & of_gateway

    def _merge_intervals(self, new: list[Interval]) -> None:
        where = "t.n_good + t.n_suspect + t.n_missing = 0"
        if not self._replaces:
            empty = " + ".join(f"t.{name}" for name in FLAGS)
            where = f"{empty} = 0 and s.n_not_evaluated + s.n_fail > 0"
        columns = self._columns(
            new, "interval_start", n_good=0, n_suspect=0, n_missing=0,
            interval_s=round(self._file.interval), version=1, updated_at=moment_of(self._now_us),
        )  # fmt: skip
        columns["count"] = columns.pop("valid")
        update = _updated(STATISTICS, columns) | {"version": "t.version + 1"}
        self._tables.merge(STATISTICS, columns, update=update, where=where)

    def _samples(self) -> Iterator[Sample]:
        for channel, time_us, figures in self._by_channel():
            if (made := sample(self._file, channel, time_us, figures)) is not None:
                yield made

    def _new_samples(self, part: list[Sample]) -> Iterator[Sample]:
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
            before = known.get((each.channel, each.seq))
            if before is not None:
                if self._gives_way(is_same=before == (each.raw, each.value, each.quality)):
                    yield each
            elif (each.channel, each.time // self._length_us) in measured:
                self._outcome.measured += 1
            else:
                self._outcome.new += 1
                yield each

    @property
    def _run(self) -> str:
        """Of imported readings: by their period, so that a sample has one identity whatever file it is in."""
        return f"{IMPORT_RUN}{self._file.period_ms}"

    def _merge_samples(self, new: list[Sample]) -> None:
        columns = self._columns(
            new, "time", run=self._run, clock=SYNCED, replayed=True, ingested_at=moment_of(self._now_us)
        )
        update = _updated(READINGS, columns) if self._replaces else None
        self._tables.merge(READINGS, columns, update=update)

    def _columns(self, new: list[_Row], time: str, **more: Any) -> dict[str, list[Any]]:
        """Rows as columns, and ``more`` that is the same in all of them; ``time`` is the column of times."""
        columns = dict(zip(new[0]._fields, map(list, zip(*new, strict=True)), strict=True))
        columns |= {name: [value] * len(new) for name, value in more.items()}
        columns[time] = [moment_of(each.at_us) for each in new]
        columns["date"] = [each.date() for each in columns[time]]
        columns["gateway"] = [self._gateway] * len(new)
        return columns


def _updated(table: LakeTable, columns: Iterable[str]) -> dict[str, str]:
    return {name: f"s.{name}" for name in columns if name not in (*table.key, "date")}


def _source(rows: Rows, bad: BadLine) -> str:
    """Which line it was: the same each time the file is imported."""
    return f"import {rows.name}:{bad.number} sha256:{rows.digest[:12]}"


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
