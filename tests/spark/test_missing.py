"""Rows for missing intervals against the definition, whatever order readings and records arrive in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from spark_jobs.intervals import Channel, Interval, day_of
from spark_jobs.jobs.missing_intervals import MissingIntervals
from spark_jobs.sources.configured import ConfiguredChannels
from spark_jobs.sources.statistics import NewestRow, StatisticsRows
from spark_jobs.state.channels import LONGEST_US, ChannelRows
from spark_jobs.state.configured import FOREVER_US, Configured, Span, configured, union, without
from spark_jobs.transforms.gaps import Stretch, gap_rows

S = 1_000_000
DAY = 86_400 * S
EPOCH = 1_767_225_600 * S
"""2026-01-01T00:00Z."""

Row = tuple[bool, int, str]
"""Whether of readings, the period in force, the unit."""


@dataclass
class Rows(StatisticsRows):
    """The table as a mapping, read as ``sources.statistics`` reads it."""

    rows: dict[Interval, Row] = field(default_factory=dict)

    def write(self, table: Any) -> None:
        names = ("gateway", "channel", "period_ms", "unit", "n_good")
        starts = table["interval_start"].cast(pa.int64()).to_pylist()
        for start_us, *row in zip(starts, *(table[name].to_pylist() for name in names), strict=True):
            gateway, channel, period_ms, unit, readings = row
            there = self.rows.get(((gateway, channel), start_us))
            assert readings or there is None or not there[0], "a gap on readings"
            self.rows[(gateway, channel), start_us] = (bool(readings), period_ms, unit)

    def delete(self, times: Mapping[Channel, Sequence[Span]], length_us: int) -> None:
        for interval in [
            (channel, start_us)
            for (channel, start_us), row in self.rows.items()
            if not row[0]
            and any(start_us < end and start_us + length_us > begin for begin, end in times.get(channel, ()))
        ]:
            del self.rows[interval]

    def dates(self) -> tuple[date, date] | None:
        days = [day_of(start_us) for _, start_us in self.rows]
        return (min(days), max(days)) if days else None

    def newest(self, since: date | None, channels: Collection[Channel] = ()) -> list[NewestRow]:
        found: dict[Channel, list[int]] = {}
        for channel, start_us in self.rows:
            if (since is None or day_of(start_us) >= since) and (not channels or channel in channels):
                found.setdefault(channel, []).append(start_us)
        return [
            NewestRow(
                channel,
                max(starts),
                max((start for start in starts if self.rows[channel, start][0]), default=None),
                min(starts),
                *self.rows[channel, max(starts)][1:],
                EPOCH,
            )
            for channel, starts in found.items()
        ]

    def at(self, intervals: Collection[Interval]) -> dict[Interval, Row]:
        return {interval: self.rows[interval] for interval in intervals if interval in self.rows}

    def next_with_readings(self, channel: Channel, after_us: int, until_us: int) -> int | None:
        starts = [start for start, _, _ in self.with_readings(channel, after_us + 1, until_us + 1)]
        return min(starts, default=None)

    def last_with_readings(self, channel: Channel, before_us: int) -> tuple[int, int, str] | None:
        return max(self.with_readings(channel, -FOREVER_US, before_us), default=None)

    def with_readings(self, channel: Channel, first_us: int, end_us: int) -> list[tuple[int, int, str]]:
        return sorted(
            (start_us, *row[1:])
            for (mine, start_us), row in self.rows.items()
            if mine == channel and row[0] and first_us <= start_us < end_us
        )

    def first_with_readings(self, gateways: Collection[str]) -> dict[Channel, int]:
        found: dict[Channel, int] = {}
        for (channel, start_us), row in self.rows.items():
            if row[0] and channel[0] in gateways:
                found[channel] = min(start_us, found.get(channel, start_us))
        return found


@dataclass
class Records(ConfiguredChannels):
    """Records as they come."""

    now: dict[Channel, Configured] = field(default_factory=dict)
    news: dict[Channel, Configured] = field(default_factory=dict)

    def changed(self) -> dict[Channel, Configured]:
        news, self.news = self.news, {}
        self.now |= news
        return news

    def updated_since(self, micros: int) -> set[Channel]:
        return set(self.now)


def data_row(interval: Interval, period_ms: int, interval_s: int) -> Any:
    """A row with readings; of the columns only these matter here."""
    (channel, start_us) = interval
    # A period of the length at most, or nothing would be due and no row made.
    (row,) = gap_rows([Stretch(channel, start_us, start_us + interval_s * S, 1, "m/s")], interval_s, 9)
    for name, kind, value in (("n_good", pa.int64(), 1), ("period_ms", pa.int32(), period_ms)):
        row = row.set_column(row.column_names.index(name), name, pa.array([value], kind))
    return row


def expected_rows(
    readings: Mapping[Interval, int], records: Mapping[Channel, Configured], interval_s: int
) -> dict[Interval, Row]:
    """The definition, interval by interval."""
    length_us = interval_s * S
    wanted: dict[Interval, Row] = {key: (True, period_ms, "m/s") for key, period_ms in readings.items()}
    for gateway in {channel[0] for channel, _ in readings}:
        mine = {channel for channel, _ in readings if channel[0] == gateway}
        mine |= {channel for channel in records if channel[0] == gateway}
        starts = [start_us for channel, start_us in readings if channel[0] == gateway]
        for channel in mine:
            own = sorted(start_us for known, start_us in readings if known == channel)
            record = records.get(channel)
            for start_us in range(min(starts), max(starts) + length_us, length_us):
                span = record and next(
                    (
                        (begin, end)
                        for begin, end in record.spans
                        if begin <= start_us and start_us + length_us <= end
                    ),
                    None,
                )
                before = max((start for start in own if start < start_us), default=None)
                if start_us in own or (record and not span):
                    continue
                if before is not None:
                    since_us, period_ms = before, readings[channel, before]
                elif record and span and span[0] != -FOREVER_US:
                    begin = -(-span[0] // length_us) * length_us
                    since_us, period_ms = max(min(starts), begin), record.period_ms
                else:
                    continue
                due = any(at % (period_ms * 1000) == 0 for at in range(start_us, start_us + length_us, S))
                if start_us - since_us < LONGEST_US and due:
                    wanted[channel, start_us] = (False, period_ms, "m/s")
    return wanted


CHANNELS = [("m1", "cup.wind_speed"), ("m1", "baro.pressure"), ("m2", "cup.wind_speed")]
times = st.integers(0, 15)
readings = st.dictionaries(
    st.tuples(st.sampled_from(CHANNELS), times.map(lambda at: EPOCH + at * 60 * S)),
    st.sampled_from([1000, 2000, 120_000]),
    min_size=1,
    max_size=14,
)
half_minutes = st.integers(0, 32).map(lambda at: EPOCH + at * 30 * S)


@st.composite
def record(draw: st.DrawFn, *, begin_unknown: bool) -> Configured:
    bounds = sorted(draw(st.lists(half_minutes, min_size=1, max_size=4, unique=True)))
    if begin_unknown:
        bounds[0] = -FOREVER_US
    ends = [*bounds[1:], FOREVER_US]
    return Configured(tuple(zip(bounds[::2], ends[::2], strict=True)), 1000, "m/s")


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[dict[Interval, int], dict[Channel, Configured], list[Any]]:
    """Readings, the records as they are in the end, and steps that bring them in some order."""
    wanted = draw(readings)
    recorded = draw(st.sets(st.sampled_from(CHANNELS)))
    final = {channel: draw(record(begin_unknown=channel == CHANNELS[2])) for channel in sorted(recorded)}
    earlier = {
        channel: draw(record(begin_unknown=channel == CHANNELS[2]))
        for channel in sorted(final)
        if draw(st.booleans())
    }
    order = draw(st.permutations(sorted(wanted)))
    steps: list[Any] = []
    while order:
        size = draw(st.integers(1, 4))
        steps.append(order[:size])
        order = order[size:]
    changes = [{channel: each} for channel, each in earlier.items()] + [
        {channel: each} for channel, each in final.items()
    ]
    places = sorted(draw(st.lists(st.integers(0, len(steps)), min_size=len(changes), max_size=len(changes))))
    for at, news in reversed(list(zip(places, changes, strict=True))):
        steps.insert(at, news)
    for what in draw(st.lists(st.sampled_from(["silence", "restart"]), max_size=4)):
        steps.insert(draw(st.integers(0, len(steps))), what)
    return wanted, final, steps


@settings(max_examples=150, phases=[Phase.generate])
@given(arrivals())
def test_missing_rows_follow_from_readings_and_records_whatever_their_order(
    case: tuple[dict[Interval, int], dict[Channel, Configured], list[Any]],
) -> None:
    wanted, final, steps = case
    rows, records = Rows(), Records()
    now_s = 0.0

    def start() -> MissingIntervals:
        # What is in the tables is read again; an empty restart would have nothing to do.
        records.news = {**records.now, **records.news}
        started = MissingIntervals(60, rows, records, rows.write, lambda times: rows.delete(times, 60 * S))
        started.restore(now_s)
        return started

    job = start()
    for step in [*steps, "end"]:
        now_s += 100.0
        if step == "silence":
            job.silent(now_s, EPOCH)
        elif step == "restart":
            job.silent(now_s, EPOCH)
            job = start()
        elif step == "end":
            job.all()
        elif isinstance(step, dict):
            records.news |= step
        else:
            job.learn({channel for channel, _ in step}, now_s)
            computed = pa.concat_tables([data_row(interval, wanted[interval], 60) for interval in step])
            job.write(job.before(computed, now_s, EPOCH), computed)
            job.around_late()
    assert rows.rows == expected_rows(wanted, final, 60)


def test_the_first_reading_of_a_channel_that_was_expected_sets_the_period() -> None:
    """It comes late, before all that its record alone had made due."""
    baro, cup = ("m1", "baro.pressure"), ("m1", "cup.wind_speed")
    records, rows = Records(), Rows()
    records.news = {baro: Configured(spans=((EPOCH + 480 * S, FOREVER_US),), period_ms=1000, unit="m/s")}
    job = MissingIntervals(60, rows, records, rows.write, lambda times: rows.delete(times, 60 * S))
    job.restore(0.0)
    wanted = {(cup, EPOCH): 1000, (cup, EPOCH + 900 * S): 1000, (baro, EPOCH + 240 * S): 120_000}
    for now_s, interval in (
        (100.0, (cup, EPOCH)),
        (200.0, (cup, EPOCH + 900 * S)),
        (300.0, (baro, EPOCH + 240 * S)),
    ):
        job.learn({interval[0]}, now_s)
        row = data_row(interval, wanted[interval], 60)
        job.write(job.before(row, now_s, EPOCH), row)
        job.around_late()
        job.silent(now_s + 90.0, EPOCH)
    job.all()
    assert rows.rows == expected_rows(wanted, records.now, 60)


def test_a_row_of_a_missing_interval() -> None:
    minutes = Stretch(("m1", "cup.wind_speed"), EPOCH, EPOCH + 120 * S, 400, "m/s")
    (table,) = gap_rows([minutes], 60, 9)
    _, row = table.to_pylist()
    named = {"gateway": "m1", "channel": "cup.wind_speed", "quantity": "wind_speed", "unit": "m/s"}
    counts = dict.fromkeys(
        ("count", "n_good", "n_not_evaluated", "n_suspect", "n_fail", "n_missing", "recovery"), 0
    )
    nothing = dict.fromkeys(("avg", "min", "max", "sd", "gust", "cube_mean", "max_time", "gust_time"))
    assert row == {
        **named,
        **counts,
        **nothing,
        "interval_start": datetime(2026, 1, 1, 0, 1, tzinfo=UTC),
        "date": date(2026, 1, 1),
        "interval_s": 60,
        "expected": 150.0,
        "period_ms": 400,
        "quality": 9,
    }


def test_a_year_is_written_in_parts_of_a_month() -> None:
    year = [Stretch((f"m{n}", "cup.wind_speed"), EPOCH, EPOCH + 365 * DAY, 1000, "m/s") for n in range(12)]
    tables = list(gap_rows(year, 600, 50_000))
    assert sum(table.num_rows for table in tables) == 12 * 365 * 144
    assert max(table.num_rows for table in tables) <= 50_000
    assert max(len(set(table["date"].to_pylist())) for table in tables) <= 32
    # Each interval once, and in order of time.
    starts_us = [at for table in tables for at in table["interval_start"].cast(pa.int64()).to_pylist()]
    assert starts_us == [EPOCH + at * 600 * S for at in range(365 * 144) for _ in range(12)]


def test_what_is_missing_first_is_written_first() -> None:
    """Killed between two writes, the job finds by a channel's newest row that all before it is there."""
    written: list[Any] = []
    row = data_row((CUP, EPOCH + 100 * DAY), 1000, 60)
    job = MissingIntervals(60, Rows(), Records(), written.append, lambda times: None)
    assert job.write([Stretch(CUP, EPOCH, EPOCH + 100 * DAY, 1000, "m/s")], row) == 100 * 1440
    starts = [start for table in written for start in table["interval_start"].to_pylist()]
    assert len(written) == 4
    assert starts == sorted(starts)


def test_an_hourly_sensor_misses_only_the_intervals_it_has_samples_in() -> None:
    hourly = Stretch(("m1", "baro.pressure"), EPOCH, EPOCH + DAY, 3_600_000, "kPa")
    (rows,) = gap_rows([hourly], 600, 999)
    assert [start.minute for start in rows["interval_start"].to_pylist()] == [0] * 24
    assert set(rows["expected"].to_pylist()) == {600 / 3600}


CUP, BARO = CHANNELS[:2]


def known(*starts: tuple[Channel, int], now_s: float = 0.0, wall_us: int = EPOCH + DAY * 365) -> ChannelRows:
    rows = ChannelRows(60)
    for channel, at_us in starts:
        rows.add((channel, at_us), 1000, "m/s", now_s)
        rows.received(channel[0], at_us, now_s, wall_us)
    return rows


def spans_of(stretches: list[Stretch]) -> dict[Channel, Span]:
    """Minutes after EPOCH."""
    return {
        each.channel: ((each.first_us - EPOCH) // S // 60, (each.end_us - EPOCH) // S // 60)
        for each in stretches
    }


def test_a_channel_that_fell_silent_is_missing_while_its_gateway_goes_on() -> None:
    rows = known((CUP, EPOCH), (BARO, EPOCH), (CUP, EPOCH + 300 * S))
    # Its readings of the last minute may be on their way: a minute after its own last word.
    assert spans_of(rows.silent(59.9, EPOCH + DAY)) == {}
    # The cup's newest interval is still open by the clock, then it is closed.
    assert spans_of(rows.silent(60.0, EPOCH + 419 * S)) == {BARO: (1, 5)}
    assert spans_of(rows.silent(61.0, EPOCH + 420 * S)) == {BARO: (5, 6)}
    assert spans_of(rows.silent(999.0, EPOCH + DAY)) == {}


def test_an_interval_is_new_only_after_all_rows_of_its_channel() -> None:
    rows = known((CUP, EPOCH + 300 * S), (BARO, EPOCH))

    def new(channel: Channel) -> list[int]:
        return [minute for minute in range(9) if rows.is_new((channel, EPOCH + minute * 60 * S))]

    assert (new(CUP), new(BARO)) == ([6, 7, 8], [1, 2, 3, 4, 5, 6, 7, 8])
    # It is taken for silent: its next minutes are in the table as missing ones.
    assert spans_of(rows.silent(60.0, EPOCH + DAY)) == {BARO: (1, 6)}
    assert (new(CUP), new(BARO)) == ([6, 7, 8], [6, 7, 8])
    assert new(CHANNELS[2]) == list(range(9))


def test_a_gateway_that_fell_silent_is_missing_if_it_was_live() -> None:
    wall_us = EPOCH + 70 * S
    live = known((CUP, EPOCH), wall_us=wall_us)
    assert spans_of(live.silent(900.0, EPOCH + 1019 * S)) == {}
    # A quarter of an hour after the end of the minute that is missing.
    assert spans_of(live.silent(900.0, EPOCH + 1020 * S)) == {CUP: (1, 2)}
    assert spans_of(live.silent(9000.0, EPOCH + 300 * DAY)) == {CUP: (2, 31 * 1440)}
    # What is replayed a day late is not expected to go on now.
    assert spans_of(known((CUP, EPOCH), wall_us=EPOCH + DAY).silent(900.0, EPOCH + 2 * DAY)) == {}


def test_a_reading_of_a_wrong_date_makes_rows_for_400_days_at_most() -> None:
    rows = known((CUP, EPOCH))
    late = rows.add((CUP, EPOCH + 9000 * DAY), 1000, "m/s", 1.0)
    assert late is not None
    assert spans_of(late) == {CUP: (1, 400 * 1440)}


def test_when_a_channel_was_configured() -> None:
    def record_of(
        in_force: bool, *periods: tuple[int | None, int | None], revision: int = 1
    ) -> dict[str, Any]:
        return {
            "gateway": "m1", "channel": "cup.wind_speed", "in_force": in_force, "revision": revision,
            "interval_s": 0.5, "unit": "m/s", "periods": list(periods),
        }  # fmt: skip

    # A calibration replaced by another is one time in force; a swap back makes another.
    record = configured(
        [record_of(False, (10, 20), (40, 50)), record_of(True, (20, 30), (50, None), revision=2)]
    )
    assert record == {CUP: Configured(((10, 30), (40, FOREVER_US)), 500, "m/s")}
    # Unknown begins and ends: a gateway without a clock.
    assert configured([record_of(True, (None, 20))])[CUP].spans == ((-FOREVER_US, 20),)
    assert configured([record_of(False, (10, None), (40, None))])[CUP].spans == ((10, 40),)
    assert list(Configured(((90 * S, 300 * S),), 1000, "").within(0, 240 * S, 60)) == [(120 * S, 240 * S)]
    assert union([(5, 7), (1, 3), (3, 4)]) == ((1, 4), (5, 7))
    assert without([(0, 10), (20, 30)], [(5, 22), (28, 40)]) == ((0, 5), (22, 28))
