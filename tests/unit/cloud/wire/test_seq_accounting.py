"""Each kind of fate, counted once, and which channels' readings a gateway still has."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, strategies as st

from cloud.wire.number_set import NumberSet
from cloud.wire.run_records import DroppedRange, RunRecord
from cloud.wire.seq_accounting import ChannelBalance, held_of_channels
from tests.support.accounts import CUP, LOST_RECORD, Accounts, RunAccount, dead_letter_of, reading, run_record

GATEWAY = "mast-07"


def accounts(*records: bytes, seqs: Iterable[int] = (), run: str = "r1") -> Accounts:
    counted = Accounts()
    for at_ms, record in enumerate(records, 1000):
        counted.take_run(record, at_ms)
    for seq in seqs:
        counted.take_reading(reading(seq, run=run))
    return counted


def only(counted: Accounts) -> RunAccount:
    (account,) = counted.of(GATEWAY)
    return account


def test_a_run_that_was_reset_may_lack_its_last_seconds() -> None:
    cut = [{"run": run, "end": "reset", "lost_at_most_s": 2.0} for run in ("r1", "r2")]
    later = run_record("r3", last=0, previous_run="r2", unfinished=cut)
    found = accounts(run_record(state="running", last=4), later, seqs=[1, 2, 3, 4, 5, 7]).of(GATEWAY)

    def figures(account: RunAccount) -> tuple[object, ...]:
        return (account.run, account.state, account.sampled, account.lost, account.unannounced_s)

    # r1 reported four, and more of it arrived; r2 was cut off before it had reported anything.
    assert list(map(figures, found)) == [
        ("r1", "reset", 7, 1, 2.0),
        ("r2", LOST_RECORD, 0, 0, 2.0),
        ("r3", "stopped", 0, 0, None),
    ]


def test_each_reading_counts_in_the_first_place_that_has_it() -> None:
    drops = [{"reason": "OUTBOX_FULL", "count": 4, "ranges": [f"r1 {CUP} 4-7"]}]
    counted = accounts(run_record(dropped=drops), seqs=[1, 2, 3, 4, 4])
    counted.take_dead_letter(dead_letter_of(reading(4)))
    counted.take_dead_letter(dead_letter_of(reading(5)))
    counted.take_dead_letter(dead_letter_of(b"no reading"))
    account = only(counted)
    assert account.balance.channels[CUP].stored == 4
    assert (account.balance.channels[CUP].dead_letters, account.dropped, account.lost) == (1, 2, 3)


@pytest.mark.parametrize(
    ("state", "last", "stored", "expected"),
    [
        # Sampled, pending, lost, never sampled.
        ("stopped", 10, range(1, 11), (10, 0, 0, 0)),
        # A stopped run published its last record; a killed one may have gone on.
        ("stopped", 10, range(1, 13), (10, 0, 0, 2)),
        ("killed", 10, [*range(1, 11), 12], (12, 0, 1, 0)),
        # Reported up to 10, of which 10 was on its way; 12 overtook 11.
        ("running", 10, [*range(1, 10), 12], (12, 2, 0, 0)),
        # A hole in what a running gateway has reported is lost.
        ("running", 10, [1, 2, 3, *range(6, 11)], (10, 0, 2, 0)),
    ],
)
def test_what_is_missing_of_a_run(
    state: str, last: int, stored: Iterable[int], expected: tuple[int, ...]
) -> None:
    account = only(accounts(run_record(state=state, last=last), seqs=stored))
    assert (account.sampled, account.pending, account.lost, account.never_sampled) == expected


def test_a_stopped_gateway_with_an_empty_outbox_has_lost_what_is_nowhere() -> None:
    account = only(accounts(run_record(), seqs=[1, 2, 3, 5, 6, 7, 8, 9]))
    assert (account.pending, account.lost) == (0, 2)


def test_the_outbox_can_hold_only_so_much() -> None:
    account = only(accounts(run_record(outbox_records=3), seqs=[1, 2, 3, 4]))
    assert (account.pending, account.lost) == (3, 3)


def test_a_channel_that_is_wholly_missing_is_no_tail() -> None:
    account = only(accounts(run_record(state="running", last=1000, in_flight=5)))
    assert (account.pending, account.lost) == (105, 895)


def test_the_latest_run_reports_what_the_outbox_holds_of_earlier_ones() -> None:
    first, second = accounts(
        run_record("r1", "killed", outbox_records=50),
        run_record("r2", "stopped", previous_run="r1", last=0, outbox_records=4),
        seqs=[1, 2, 3],
    ).of(GATEWAY)
    assert (first.run, first.pending, first.lost) == ("r1", 4, 3)
    assert (second.run, second.sampled, second.lost) == ("r2", 0, 0)


def test_only_the_current_run_has_something_in_flight() -> None:
    first, second = accounts(
        run_record("r1", "killed", last=4, in_flight=9),
        run_record("r2", "stopped", previous_run="r1", last=6, in_flight=2, outbox_records=3),
    ).of(GATEWAY)
    assert (second.run, second.pending, second.lost) == ("r2", 5, 1)
    assert (first.run, first.pending, first.lost) == ("r1", 0, 4)


def test_a_later_run_announces_what_was_dropped_of_an_earlier_one() -> None:
    drops = [{"reason": "CORRUPT", "count": 2, "ranges": [f"r1 {CUP} 9-10", f"dev-1/r9 {CUP} 1-5"]}]
    counted = accounts(
        run_record("r1", "killed"),
        run_record("r2", previous_run="r1", last=0, dropped=drops),
        seqs=range(1, 9),
    )
    first, _ = counted.of(GATEWAY)
    assert (first.run, first.dropped, first.lost) == ("r1", 2, 0)
    (device,) = counted.of("dev-1")
    assert (device.run, device.dropped, device.state) == ("r9", 5, None)


def test_a_device_that_counts_by_itself_lacks_nothing_and_a_run_whose_record_is_lost_does() -> None:
    assert only(accounts(seqs=[5, 7])).lost == 0
    lost, _ = accounts(run_record("r2", previous_run="r1", last=0), seqs=[1, 2, 4]).of(GATEWAY)
    assert (lost.run, lost.state, lost.sampled, lost.lost) == ("r1", LOST_RECORD, 4, 1)


def test_runs_that_name_each_other_in_a_circle_end() -> None:
    found = accounts(run_record("r1", previous_run="r2"), run_record("r2", previous_run="r1")).of(GATEWAY)
    assert {account.run for account in found} == {"r1", "r2"}


@given(
    st.sets(st.integers(1, 30)), st.sets(st.integers(1, 30)), st.integers(1, 30), st.integers(0, 5),
    st.integers(0, 30), st.integers(0, 10), st.sampled_from(["running", "stopped", "killed", "ended"]),
)  # fmt: skip
def test_the_figures_add_up(
    stored: set[int], dead_letters: set[int], drop: int, dropped: int, last: int, outbox: int, state: str
) -> None:
    drops = [{"reason": "X", "count": dropped, "ranges": [f"r1 {CUP} {drop}-{drop + dropped}"]}]
    counted = accounts(run_record(state=state, last=last, outbox_records=outbox, dropped=drops), seqs=stored)
    for seq in dead_letters:
        counted.take_dead_letter(dead_letter_of(reading(seq)))
    account = only(counted)
    arrived = account.stored + account.dropped
    assert arrived + account.pending + account.lost == account.sampled + account.never_sampled
    missing = (
        set(range(1, account.sampled + 1)) - stored - dead_letters - set(range(drop, drop + dropped + 1))
    )
    assert account.pending + account.lost == len(missing)


def test_a_run_record_has_what_it_dropped() -> None:
    drops = [
        {"reason": "CORRUPT", "count": None, "more_unknown": True, "ranges": []},
        {"reason": "OUTBOX_FULL", "count": 3, "more_unknown": False, "ranges": [f"r0 {CUP} 4-6"]},
    ]
    record = RunRecord.from_json(run_record(dropped=drops, previous_run="r0"))
    assert record.dropped == (DroppedRange("OUTBOX_FULL", "mast-07", "r0", CUP, 4, 6),)
    assert record.dropped_records == {"CORRUPT": 0, "OUTBOX_FULL": 3}
    assert record.drops_unknown
    assert record.previous_run == "r0"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{}",
        run_record(last_seq=None),
        run_record(dropped=[{}]),
        run_record(dropped=[{"reason": "X", "count": 1, "ranges": ["r1 1-2"]}]),
    ],
)
def test_what_is_no_run_record_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        RunRecord.from_json(payload)


def missing(issued: int, *spans: tuple[int, int]) -> ChannelBalance:
    settled = NumberSet()
    for first, last in spans:
        settled.add(first, last)
    return ChannelBalance(issued, 0, 0, 0, 0, 0, settled)


def test_what_is_held_is_the_newest_whatever_the_channels_periods() -> None:
    # A cup at 1 Hz and a barometer at 1/10 Hz, of the same 1,000 s: the last 20 s are on their way.
    balances = {
        "cup": missing(1000, (200, 209), (981, 1000)),
        "baro": missing(100, (99, 100)),
        "sun": missing(1000),
        "aft": missing(1000, (300, 304)),
    }
    assert held_of_channels(balances, 22) == {"cup": 20, "baro": 2, "aft": 0}
    assert held_of_channels(balances, 32) == {"cup": 25, "baro": 2, "aft": 5}
    assert held_of_channels(balances, 99) == {"cup": 30, "baro": 2, "aft": 5}
    assert held_of_channels(balances, 0) == {}
    # 10 s ago: one of the barometer's, eleven of the cup's.
    assert held_of_channels(balances, 12) == {"cup": 10, "baro": 2, "aft": 0}
    assert held_of_channels(balances, 25) == {"cup": 20, "baro": 2, "aft": 3}


_SPANS = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 40)), max_size=5)


@given(
    st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(500, 5000), _SPANS), max_size=4),
    st.integers(0, 300),
)
def test_it_adds_up_and_no_channel_has_more_than_it_lacks(
    channels: dict[str, tuple[int, list[tuple[int, int]]]], held: int
) -> None:
    balances = {
        name: missing(issued, *((first, min(first + more, issued)) for first, more in spans))
        for name, (issued, spans) in channels.items()
    }
    shares = held_of_channels(balances, held)
    lacking = {name: len(account.settled) for name, account in balances.items()}
    assert sum(shares.values()) == min(held, sum(lacking.values()))
    assert all(0 <= shares.get(name, 0) <= count for name, count in lacking.items())
