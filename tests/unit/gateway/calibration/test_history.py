"""Which calibration was in force when: swaps and swaps back, restarts, clocks that are not set, bad files."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from cloud.wire.channel_records import ChannelRecord, Period, parse_channel
from gateway.calibration.history import MAX_PERIODS, CalibrationHistory, UnreadableHistory, read_history
from gateway.ports import Record
from tests.support.clocks import SteppingClock
from tests.support.disks import full_disk
from tests.support.forwarding import snapshot
from tests.unit.cloud.wire.test_channel_records import RECORD

SECOND_NS = 1_000_000_000
T0_NS = 1_795_246_500 * SECOND_NS
T0_US = T0_NS // 1000
A = replace(RECORD, cal="aaaaaaaa", revision=1, periods=(Period(None),), slope=0.765)
B = replace(A, cal="bbbbbbbb", serial="179500123457", slope=0.761)
BARO = replace(A, sensor="baro", quantity="pressure", unit="kPa", driver="bp20", cal="cccccccc", pair=None)


class Daemon:
    """One run after the other on one file; time passes only where a test moves it."""

    def __init__(self, directory: Path, *, synced: bool = True) -> None:
        self.path = directory / "outbox.db.channels"
        self.clock = SteppingClock(T0_NS, T0_NS + 10**9 * SECOND_NS, synced=synced)
        self.sent: list[Record] = []
        self.boot = "boot-1"
        self.monotonic_s = 0.0
        self.history = self.restart()

    def restart(self) -> CalibrationHistory:
        self.history = CalibrationHistory(
            self.path,
            self.boot,
            self.clock,
            lambda record: self.sent.append(record),
            wall_s=lambda: 0.0,
            monotonic=lambda: self.monotonic_s,
        )
        return self.history

    def reload(self, *configured: ChannelRecord) -> list[ChannelRecord]:
        self.history.apply(configured)
        self.history.publish()
        return self.published()

    def start(self, *configured: ChannelRecord) -> list[ChannelRecord]:
        self.restart().begin(configured)
        return self.published()

    def published(self) -> list[ChannelRecord]:
        sent, self.sent = self.sent, []
        for record in sent:
            assert record.topic == "gateway.channels"
            fields = json.loads(record.value)
            assert record.key == "{gateway}/{channel}/{cal}".format(**fields).encode()
        return [parse_channel(record.value) for record in sent]

    def after(self, seconds: float) -> int:
        """Let time pass; now, in microseconds since the first moment."""
        self.clock.time_ns += round(seconds * SECOND_NS)
        return (self.clock.time_ns - T0_NS) // 1000


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path)


def spans(record: ChannelRecord) -> list[tuple[int | None, int | None]]:
    """Periods in seconds since the first moment."""
    return [
        tuple(None if end is None else (end - T0_US) // 1_000_000 for end in (each.begin_us, each.end_us))  # type: ignore[misc]
        for each in record.periods
    ]


def test_a_start_without_a_change_writes_nothing_and_publishes_everything(daemon: Daemon) -> None:
    first = daemon.start(A, BARO)
    written = daemon.path.stat().st_mtime_ns
    daemon.after(3600)
    assert daemon.start(A, BARO) == first
    for _ in range(100):
        daemon.history.tick(snapshot())
    assert daemon.published() == []
    assert daemon.path.stat().st_mtime_ns == written


def test_a_swap_back_is_a_further_period_of_the_same_record(daemon: Daemon) -> None:
    daemon.start(A)
    daemon.after(60)
    daemon.reload(B)
    daemon.after(60)
    ended, again = daemon.reload(A)
    assert (ended.cal, spans(ended)) == (B.cal, [(60, 120)])
    assert (again.cal, again.in_force, spans(again)) == (A.cal, True, [(0, 60), (120, None)])
    assert again.revision == 3
    assert (again.valid_from_us, again.valid_to_us) == (T0_US, None)


def test_another_name_for_the_gateway_ends_what_was_under_the_old_one(daemon: Daemon) -> None:
    daemon.start(A)
    published = daemon.start(replace(A, gateway="mast-08"))
    assert [(each.gateway, each.in_force) for each in published] == [("mast-07", False), ("mast-08", True)]


def test_what_is_not_part_of_the_name_is_published_again_in_the_same_period(daemon: Daemon) -> None:
    daemon.start(A)
    daemon.after(60)
    (published,) = daemon.reload(replace(A, interval_s=10.0, pair="other"))
    assert (published.interval_s, published.pair, published.revision, spans(published)) == (
        10.0,
        "other",
        2,
        [(0, None)],
    )


def test_what_the_sensor_reports_of_itself(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    daemon.start(A, BARO)
    descriptions = {
        A.sensor: {"serial": 179500999999, "self_calibration": True, "note": "a\nb", "bad": float("nan")}
    }
    with caplog.at_level(logging.WARNING):
        daemon.history.tick(snapshot(descriptions=descriptions))
    (published,) = daemon.published()
    assert published.reported == {
        "serial": 179500999999,
        "self_calibration": True,
        "note": "a?b",
        "bad": "nan",
    }
    assert (
        "event=sensor.other_serial sensor=cup-50m-a configured=179500123456 reported=179500999999"
        in caplog.text
    )
    daemon.history.tick(snapshot(descriptions=descriptions))
    # One that doesn't start reports nothing, and nothing is forgotten.
    daemon.history.tick(snapshot(descriptions={A.sensor: {}}))
    assert daemon.published() == []
    assert daemon.reload(replace(A, interval_s=5.0), BARO)[0].reported == published.reported


def test_before_the_clock_is_set_dates_are_unknown_and_afterwards_they_are_published(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, synced=False)
    (published,) = daemon.start(A)
    assert spans(published) == [(None, None)]
    daemon.after(5)
    ended, begun = daemon.reload(B)
    assert (ended.in_force, spans(ended), spans(begun)) == (False, [(None, None)], [(None, None)])
    daemon.history.tick(snapshot())
    assert daemon.published() == []
    # A restart of the daemon in the same boot still has how long ago that was.
    daemon.restart()
    daemon.clock.set_by(3600 * SECOND_NS)
    daemon.clock.synced = True
    daemon.history.tick(snapshot())
    assert {each.cal: spans(each) for each in daemon.published()} == {
        A.cal: [(3600, 3605)],
        B.cal: [(3605, None)],
    }
    assert {each.cal: spans(each) for each in read_history(daemon.path)} == {
        A.cal: [(3600, 3605)],
        B.cal: [(3605, None)],
    }
    daemon.history.tick(snapshot())
    assert daemon.published() == []


def test_after_a_reboot_without_a_clock_it_stays_unknown(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, synced=False)
    daemon.start(A)
    daemon.boot, daemon.clock.synced = "boot-2", True
    (published,) = daemon.start(A)
    daemon.history.tick(snapshot())
    assert daemon.published() == []
    assert spans(published) == [(None, None)]
    daemon.after(60)
    ended, begun = daemon.reload(B)
    assert (spans(ended), spans(begun)) == ([(None, 60)], [(60, None)])


DAMAGE: Mapping[str, Callable[[str], str]] = {
    "empty": lambda text: "",
    "zeros": lambda text: "\0" * len(text),
    "half": lambda text: text[: len(text) // 2],
    "a bad record": lambda text: text.replace("aaaaaaaa", "AAAAAAAA"),
    "a list": lambda text: "[]",
    "bad waiting ones": lambda text: text.replace('"undated":[]', '"undated":[1]'),
    "a bad period": lambda text: text.replace(
        '"undated":[]', '"undated":[["g", "c", "x", -5, true, "boot-1", 1]]'
    ),
    "deep": lambda text: "[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_file_that_is_damaged_is_set_aside_and_the_history_begins_again(
    daemon: Daemon, damage: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    daemon.start(A)
    text = daemon.path.read_text()
    bad = damage(text)
    assert bad != text
    daemon.path.write_text(bad)
    with pytest.raises(UnreadableHistory):
        read_history(daemon.path)
    daemon.after(60)
    with caplog.at_level(logging.WARNING):
        (published,) = daemon.start(A)
    assert caplog.text.count("event=history.unreadable") == 1
    assert spans(published) == [(60, None)]
    assert daemon.path.with_name("outbox.db.channels.damaged").read_text() == bad
    assert read_history(daemon.path) == (published,)


def test_what_is_published_after_a_loss_overtakes_what_was_published_before(tmp_path: Path) -> None:
    """Of one key the highest revision counts."""
    sent: list[Record] = []
    path = tmp_path / "outbox.db.channels"
    clock = SteppingClock(T0_NS, T0_NS + SECOND_NS)
    for wall_s in (1_000.0, 1_060.0):
        history = CalibrationHistory(path, "boot-1", clock, sent.append, wall_s=iter([wall_s] * 9).__next__)
        history.begin([A])
        history.apply([replace(A, interval_s=wall_s)])
        history.publish()
        path.unlink()
    assert [parse_channel(each.value).revision for each in sent] == [1000, 1001, 1060, 1061]


def test_a_disk_that_refuses_is_tried_again(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    with full_disk():
        (published,) = daemon.start(A)
        assert not daemon.path.exists()
        for daemon.monotonic_s in (1.0, 9.9):
            daemon.history.tick(snapshot())
        assert caplog.text.count("event=state.not_written") == 1
    daemon.history.tick(snapshot())
    assert not daemon.path.exists()
    daemon.monotonic_s = 10.0
    daemon.history.tick(snapshot())
    assert read_history(daemon.path) == (published,)
    # Nothing was published twice.
    assert daemon.published() == []


def test_a_record_stays_bounded(daemon: Daemon) -> None:
    daemon.start(A)
    for _ in range(MAX_PERIODS + 5):
        daemon.after(1)
        daemon.history.apply([A])
        daemon.after(1)
        daemon.history.apply([B])
    last = next(each for each in daemon.history.records if each.cal == B.cal)
    first_s = (daemon.after(0) - (MAX_PERIODS + 5) * 2_000_000) // 1_000_000 + 2
    assert len(last.periods) == MAX_PERIODS
    assert spans(last)[0] == (first_s, first_s + 1)
    assert spans(last)[-1][1] is None
    daemon.reload(B)
    assert {each.cal: each.periods for each in daemon.start(B)}[B.cal] == last.periods


_choices = st.tuples(st.sampled_from([None, A, B]), st.sampled_from([None, BARO])).map(
    lambda chosen: tuple(each for each in chosen if each is not None)
)


@settings(max_examples=30)
@given(steps=st.lists(st.tuples(st.booleans(), _choices), max_size=8))
def test_at_every_moment_the_periods_show_what_was_configured(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, tuple[ChannelRecord, ...]]]
) -> None:
    """Against the plain list of what was configured when; and Kafka's last word on each key is the file's."""
    daemon = Daemon(tmp_path_factory.mktemp("history"))
    newest: dict[bytes, ChannelRecord] = {}
    configured: list[set[str]] = []
    for restarts, chosen in steps:
        for record in daemon.start(*chosen) if restarts else daemon.reload(*chosen):
            known = newest.get(key := f"{record.channel}/{record.cal}".encode())
            assert known is None or record.revision >= known.revision
            newest[key] = record
        configured.append({each.cal for each in chosen})
        daemon.after(1)
    for record in (A, B, BARO):
        last = newest.get(f"{record.channel}/{record.cal}".encode())
        inside = [] if last is None else [
            any(begin <= at and (end is None or at < end) for begin, end in spans(last) if begin is not None)
            for at in range(len(configured))
        ]  # fmt: skip
        assert inside == ([] if last is None else [record.cal in cals for cals in configured])
        assert last is not None or all(record.cal not in cals for cals in configured)
        assert last is None or last.in_force is (record.cal in configured[-1])
    assert sorted(map(repr, daemon.history.records)) == sorted(map(repr, newest.values()))
