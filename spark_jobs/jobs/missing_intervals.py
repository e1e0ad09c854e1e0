"""Rows for missing intervals: finds the gaps around rows with readings, and writes them.

A channel's missing intervals are written before the row with readings that follows them, or with it: so after
a crash everything missing before the newest row of each channel is there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from spark_jobs.intervals import DAY_US, SECOND_US, Channel, Interval, intervals_of
from spark_jobs.sources.configured import ConfiguredChannels
from spark_jobs.sources.statistics import NewestRow, StatisticsRows
from spark_jobs.state.channels import LONGEST_US, ChannelRows, Newest
from spark_jobs.state.configured import FOREVER_US, Span, without
from spark_jobs.transforms.gaps import Stretch, gap_rows

log = logging.getLogger("fieldgate.jobs.statistics")

_RECENT_DAYS: Final = 2
"""Channels with rows on the table's last days are read at the start, others when they send again."""
_PART: Final = 50_000
"""Rows merged at a time."""
_MARGIN_US: Final = 3600 * SECOND_US
_ALWAYS: Final = ((-FOREVER_US, FOREVER_US),)


class MissingIntervals:
    """Guarded by the lock of the statistics job.

    ``table`` and ``records`` are read, ``write`` merges an Arrow table of rows, ``delete`` deletes rows of
    missing intervals in these times of their channels.
    """

    def __init__(
        self,
        interval_s: int,
        table: StatisticsRows,
        records: ConfiguredChannels,
        write: Callable[[Any], None],
        delete: Callable[[Mapping[Channel, Sequence[Span]]], None],
    ) -> None:
        self._table = table
        self._records = records
        self._write = write
        self._delete = delete
        self._interval_s = interval_s
        self._length_us = interval_s * SECOND_US
        self._rows = ChannelRows(interval_s)
        # Whether all channels with rows were read; then any other has none.
        self._all_read = False
        # Late rows whose neighbours are to be read; gateways whose first reading may be another.
        self._late: dict[Interval, tuple[int, str]] = {}
        self._leading: set[str] = set()
        self._considered: set[str] = set()
        # Channels whose records changed shortly before the table was last written.
        self._unapplied: set[Channel] = set()

    def restore(self, now_s: float) -> list[NewestRow]:
        """Takes up the channels with rows on the last days; their newest rows."""
        self._rows.records = self._records.changed()
        dates = self._table.dates()
        if dates is None:
            self._all_read = True
            return []
        since = dates[1] - timedelta(days=_RECENT_DAYS)
        self._all_read = dates[0] >= since
        rows = self._take_up(self._table.newest(since), now_s)
        # Records that came after the table was last written have perhaps not been applied.
        written_us = max((row.computed_us for row in rows), default=0)
        self._unapplied = self._records.updated_since(written_us - _MARGIN_US)
        return rows

    def learn(self, channels: Collection[Channel], now_s: float) -> list[NewestRow]:
        """Reads the newest rows of channels that have not sent since the start."""
        unknown = {channel for channel in channels if channel not in self._rows}
        if not unknown:
            return []
        found = [] if self._all_read else self._take_up(self._table.newest(None, unknown), now_s)
        new = unknown - {row.channel for row in found}
        self._leading |= {gateway for gateway, _ in new}
        return found

    def is_new(self, interval: Interval) -> bool:
        """Whether the table has no row of the interval nor a later one, its channel having been learned."""
        return self._rows.is_new(interval)

    def _take_up(self, rows: list[NewestRow], now_s: float) -> list[NewestRow]:
        for row in rows:
            data_us, expected = row.data_us, False
            if data_us is None:
                last = self._table.last_with_readings(row.channel, row.row_us)
                data_us, expected = (row.oldest_us, True) if last is None else (last[0], False)
            solid_us = data_us if data_us == row.row_us else FOREVER_US
            newest = Newest(row.row_us, data_us, row.period_ms, row.unit, now_s, solid_us, expected)
            self._rows.restore(row.channel, newest, row.computed_us)
        return rows

    def before(self, rows: Any, now_s: float, wall_us: int) -> list[Stretch]:
        """What is missing before these rows with readings, each up to its channel's newest row before it."""
        columns = (rows[name].to_pylist() for name in ("period_ms", "unit"))
        given = zip(intervals_of(rows), *columns, strict=True)
        found: list[Stretch] = []
        for interval, period_ms, unit in sorted(given, key=lambda row: row[0][1]):
            missing = self._rows.add(interval, period_ms, unit, now_s)
            self._rows.received(interval[0][0], interval[1], now_s, wall_us)
            if missing is None:
                self._late[interval] = period_ms, unit
            else:
                found += missing
        return found

    def write(self, stretches: Iterable[Stretch], rows: Any = None) -> int:
        """Writes what is missing in these stretches, and then, or together with the last of them, rows."""
        written = 0
        last: Any = None
        for gaps in gap_rows(stretches, self._interval_s, _PART):
            if last is not None:
                self._write(last)
            written, last = written + gaps.num_rows, gaps
        if last is not None and rows is not None and last.num_rows + rows.num_rows <= _PART:
            last, rows = None, pa.concat_tables([last.select(rows.column_names).cast(rows.schema), rows])
        for part in (last, rows):
            if part is not None:
                self._write(part)
        return written

    def around_late(self) -> int:
        """Reads the neighbours of late rows, and writes what is missing there; the number of rows."""
        late, self._late = self._late, {}
        stretches: list[Stretch] = []
        if late:
            beside = {
                (channel, start_us + step)
                for channel, start_us in late
                for step in (self._length_us, -self._length_us)
            } - late.keys()
            there = self._table.at(beside) if beside else {}
            for (channel, start_us), (period_ms, unit) in sorted(late.items()):
                if (channel, start_us - self._length_us) not in there.keys() | late.keys():
                    self._leading.add(channel[0])
                following = (channel, start_us + self._length_us)
                if following in late:
                    continue
                is_data, *in_force = there.get(following, (False, None, None))
                if not is_data and in_force != [period_ms, unit]:
                    stretches += self._following(channel, start_us, period_ms, unit)
        return self.write(stretches) + self._write_leading()

    def _following(self, channel: Channel, start_us: int, period_ms: int, unit: str) -> list[Stretch]:
        """What is missing after a late row, up to the next one with readings."""
        last_us = min(self._rows[channel].row_us, start_us + LONGEST_US)
        end_us, from_us, days = None, start_us, 1
        while end_us is None and from_us < last_us:
            until_us = min(from_us + days * DAY_US, last_us)
            end_us = self._table.next_with_readings(channel, from_us, until_us)
            from_us, days = until_us, days * 8
        # Up to the newest row everything is there, up to the next row with readings nothing is.
        end_us = last_us + self._length_us if end_us is None else end_us
        if period_ms > self._interval_s * 1000:
            # Not every interval has a sample due any more.
            self._delete({channel: [(start_us + self._length_us, end_us)]})
        return self._rows.stretches(channel, start_us + self._length_us, end_us, start_us, period_ms, unit)

    def _write_leading(self) -> int:
        """What is missing before the first reading of configured channels of gateways that may have more."""
        recorded = {gateway for gateway, _ in self._rows.records}
        leading, self._leading = self._leading & recorded, set()
        if not leading:
            return 0
        first = self._table.first_with_readings(leading)
        stretches: list[Stretch] = []
        now_s = time.monotonic()
        for gateway in sorted(leading):
            begins = [start_us for channel, start_us in first.items() if channel[0] == gateway]
            if not begins:
                continue
            mine = [channel for channel in self._rows.records if channel[0] == gateway]
            self.learn([channel for channel in mine if channel not in first], now_s)
            for channel in mine:
                before = list(self._rows.before(channel, min(begins), first.get(channel)))
                if channel in first:
                    stretches += before
                elif channel in self._rows:
                    until_us = self._rows[channel].row_us + self._length_us
                    stretches += [replace(each, end_us=min(each.end_us, until_us)) for each in before]
                elif before:
                    record = self._rows.records[channel]
                    self._rows.expect(channel, before[0].first_us, record, now_s)
        self._leading.clear()
        return self.write(stretches)

    def silent(self, now_s: float, wall_us: int) -> int:
        """Follows the records, and writes what is missing of channels that went silent."""
        written = self._follow_records()
        new = self._rows.without_rows() - self._considered
        self._considered |= new
        self._leading |= new
        return written + self._write_leading() + self.write(self._rows.silent(now_s, wall_us))

    def all(self) -> int:
        """Follows the records, and writes what is missing up to the newest interval of each gateway."""
        written = self._follow_records()
        self._leading |= self._rows.without_rows()
        return written + self._write_leading() + self.write(self._rows.all())

    def _follow_records(self) -> int:
        changed = self._records.changed()
        unapplied, self._unapplied = self._unapplied - changed.keys(), set()
        if not changed and not unapplied:
            return 0
        known = self._rows.records
        changed |= {channel: known[channel] for channel in unapplied}
        gone: dict[Channel, tuple[Span, ...]] = {}
        again: list[tuple[Channel, Span]] = []
        for channel, record in changed.items():
            old = known[channel].spans if channel in known.keys() - unapplied else _ALWAYS
            if old == record.spans:
                continue
            self._leading.add(channel[0])
            if channel in self._rows:
                until_us = self._rows[channel].row_us + self._length_us
                written = ((-FOREVER_US, until_us),)
                gone[channel] = _common(without(old, record.spans), written)
                new = record.spans[1:] if channel in unapplied else without(record.spans, old)
                again += [(channel, span) for span in _common(new, written)]
        self._rows.records = {**known, **changed}
        self._considered.clear()
        if any(gone.values()):
            self._delete(gone)
        stretches = [stretch for channel, span in again for stretch in self._again(channel, *span)]
        log.info("event=statistics.records channels=%d", len(changed))
        return self.write(stretches)

    def _again(self, channel: Channel, begin_us: int, end_us: int) -> list[Stretch]:
        """What is missing between readings in a time in which the channel turned out to be configured."""
        begin_us = begin_us // self._length_us * self._length_us
        end_us = -(-end_us // self._length_us) * self._length_us
        last = self._table.last_with_readings(channel, begin_us)
        rows = ([] if last is None else [last]) + self._table.with_readings(channel, begin_us, end_us)
        ends = [*(start_us for start_us, _, _ in rows[1:]), end_us]
        return [
            stretch
            for (start_us, period_ms, unit), until_us in zip(rows, ends, strict=False)
            for stretch in self._rows.stretches(
                channel,
                max(start_us + self._length_us, begin_us),
                until_us,
                start_us,
                period_ms,
                unit,
            )
        ]


def _common(spans: Iterable[Span], others: Iterable[Span]) -> tuple[Span, ...]:
    """The times in both."""
    mine = tuple(spans)
    return without(mine, without(mine, others))
