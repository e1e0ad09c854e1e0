"""Each kind of fate, counted once, with exact figures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from cloud.kafka.run_accounts import LOST_RECORD, NO_RECORD, Books, RunAccount
from cloud.wire.reading_records import Reading, dead_letter, encode_dead_letter, encode_reading
from cloud.wire.run_records import DroppedRange, RunRecord

TOPIC = "mqtt.wind_speed"
CUP = "cup-a.wind_speed"


def reading(seq: int, *, run: str = "r1", channel: str = CUP, gateway: str = "mast-07") -> bytes:
    return encode_reading(
        Reading(
            gateway=gateway, channel=channel, quantity="wind_speed", unit="m/s",
            time_us=1_767_225_600_000_000, period_ms=1000, value=7.235, raw=9.0, raw_unit="Hz", quality=1,
            reasons=(), run=run, seq=seq, clock="synced", cal=None,
        )
    )  # fmt: skip


def run_record(run: str = "r1", state: str = "stopped", last: int = 10, **more: Any) -> bytes:
    fields: dict[str, Any] = {
        "gateway": "mast-07", "run": run, "previous_run": None, "state": state, "last_seq": {CUP: last},
        "in_flight": 0, "outbox_records": 0, "dropped": [],
    }  # fmt: skip
    return json.dumps(fields | more).encode()


def letter_of(payload: bytes) -> bytes:
    letter = dead_letter(
        "mast-07", "r1", 1, "TOO_LARGE", "refused", "devices/x", 1_767_225_600_000_000, payload
    )
    return encode_dead_letter(letter)


def books(*records: bytes, seqs: Iterable[int] = (), run: str = "r1") -> Books:
    new = Books()
    for at_ms, record in enumerate(records, 1000):
        new.take_run("gateway.runs", record, at_ms)
    for seq in seqs:
        new.take_reading(TOPIC, reading(seq, run=run), replayed=False)
    return new


def only(books: Books) -> RunAccount:
    (account,) = books.accounts()
    return account


def test_a_run_that_was_reset_may_lack_its_last_seconds() -> None:
    cut = [{"run": run, "end": "reset", "lost_at_most_s": 2.0} for run in ("r1", "r2")]
    later = run_record("r3", last=0, previous_run="r2", unfinished=cut)
    accounts = books(run_record(state="running", last=4), later, seqs=[1, 2, 3, 4, 5, 7]).accounts()
    # r1 reported four, and more of it arrived; r2 was cut off before it had reported anything.
    assert [
        (each.run, each.state, each.sampled, each.unaccounted, each.unannounced_s) for each in accounts
    ] == [("r1", "reset", 7, 1, 2.0), ("r2", LOST_RECORD, 0, 0, 2.0), ("r3", "stopped", 0, 0, None)]


def test_everything_is_there() -> None:
    account = only(books(run_record(), seqs=range(1, 11)))
    assert account == RunAccount(
        gateway="mast-07", run="r1", state="stopped", told_ms=1000, sampled=10, in_kafka=10, repeats=0,
        replayed=0, dead_letters=0, dropped=0, expired=0, pending=0, unaccounted=0, never_sampled=0,
        last_seq={CUP: 10},
    )  # fmt: skip
    assert account.balanced


def test_each_reading_counts_in_the_first_place_that_has_it() -> None:
    drops = [{"reason": "OUTBOX_FULL", "count": 4, "ranges": [f"r1 {CUP} 4-7"]}]
    found = books(run_record(dropped=drops), seqs=[1, 2, 3, 4, 4])
    found.take_reading(TOPIC, reading(2), replayed=True)
    found.take_letter("gateway.dead-letter", letter_of(reading(4)))
    found.take_letter("gateway.dead-letter", letter_of(reading(5)))
    found.take_letter("gateway.dead-letter", letter_of(b"no reading"))
    account = only(found)
    assert (account.in_kafka, account.repeats, account.replayed) == (4, 2, 1)
    assert (account.dead_letters, account.dropped) == (1, 2)
    assert account.unaccounted == 3
    assert not account.balanced
    assert found.letters == {("mast-07", "TOO_LARGE"): 3}


def test_a_stopped_gateway_with_an_empty_outbox_has_lost_what_is_nowhere() -> None:
    account = only(books(run_record(), seqs=[1, 2, 3, 5, 6, 7, 8, 9]))
    assert (account.pending, account.unaccounted) == (0, 2)


def test_the_outbox_can_hold_only_so_much() -> None:
    account = only(books(run_record(outbox_records=3), seqs=[1, 2, 3, 4]))
    assert (account.pending, account.unaccounted) == (3, 3)


def test_a_stopped_run_published_its_last_record() -> None:
    account = only(books(run_record(last=10), seqs=range(1, 13)))
    assert (account.sampled, account.in_kafka, account.never_sampled, account.unaccounted) == (10, 12, 2, 0)
    assert not account.balanced


def test_a_killed_run_may_have_gone_on() -> None:
    account = only(books(run_record(state="killed", last=10), seqs=[*range(1, 11), 12]))
    assert (account.sampled, account.never_sampled, account.unaccounted) == (12, 0, 1)


def test_what_a_running_gateway_has_not_reported_is_pending() -> None:
    # Reported up to 10, of which 10 was on its way; 12 overtook 11.
    account = only(books(run_record(state="running", last=10), seqs=[*range(1, 10), 12]))
    assert (account.sampled, account.pending, account.unaccounted) == (12, 2, 0)


def test_a_hole_in_what_a_running_gateway_has_reported_is_lost() -> None:
    account = only(books(run_record(state="running", last=10), seqs=[1, 2, 3, *range(6, 11)]))
    assert (account.pending, account.unaccounted) == (0, 2)


def test_a_channel_that_is_wholly_missing_is_no_tail() -> None:
    account = only(books(run_record(state="running", last=1000, in_flight=5)))
    assert (account.pending, account.unaccounted) == (105, 895)


def test_the_latest_run_reports_what_the_outbox_holds_of_earlier_ones() -> None:
    found = books(
        run_record("r1", "killed", outbox_records=50),
        run_record("r2", "stopped", previous_run="r1", last=0, outbox_records=4),
        seqs=[1, 2, 3],
    )
    first, second = found.accounts()
    assert (first.run, first.pending, first.unaccounted) == ("r1", 4, 3)
    assert (second.run, second.sampled, second.unaccounted) == ("r2", 0, 0)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 3, 0, 1)])
def test_an_old_run_record_that_comes_late_changes_nothing(order: tuple[int, ...]) -> None:
    records = [
        run_record(state="running", last=4), run_record(state="running", last=9),
        run_record(state="killed", last=9), run_record(state="stopped", last=10),
    ]  # fmt: skip
    account = only(books(*(records[at] for at in order), seqs=range(1, 11)))
    assert (account.state, account.sampled, account.never_sampled) == ("stopped", 10, 0)


def test_only_the_current_run_has_something_in_flight() -> None:
    found = books(
        run_record("r1", "killed", last=4, in_flight=9),
        run_record("r2", "stopped", previous_run="r1", last=6, in_flight=2, outbox_records=3),
    )
    first, second = found.accounts()
    assert (second.run, second.pending, second.unaccounted) == ("r2", 5, 1)
    assert (first.run, first.pending, first.unaccounted) == ("r1", 0, 4)


def test_a_later_run_announces_what_was_dropped_of_an_earlier_one() -> None:
    drops = [{"reason": "CORRUPT", "count": 2, "ranges": [f"r1 {CUP} 9-10", f"dev-1/r9 {CUP} 1-5"]}]
    found = books(
        run_record("r1", "killed"),
        run_record("r2", previous_run="r1", last=0, dropped=drops),
        seqs=range(1, 9),
    )
    device, first, _ = found.accounts()
    assert (first.run, first.dropped, first.unaccounted) == ("r1", 2, 0)
    assert (device.gateway, device.run, device.dropped, device.state) == ("dev-1", "r9", 5, NO_RECORD)


def test_a_device_that_counts_by_itself_has_no_account() -> None:
    account = only(books(seqs=[5, 7]))
    assert (account.state, account.sampled, account.in_kafka, account.unaccounted) == (NO_RECORD, None, 2, 0)


def test_a_run_whose_record_is_lost_shows() -> None:
    found = books(run_record("r2", previous_run="r1", last=0), seqs=[1, 2, 4])
    lost, _ = found.accounts()
    assert (lost.run, lost.state, lost.sampled, lost.unaccounted) == ("r1", LOST_RECORD, 4, 1)


def test_what_kafka_has_deleted_is_not_called_lost() -> None:
    found = books(run_record(), seqs=[5, 6, 8, 9, 10])
    found.truncated(TOPIC)
    account = only(found)
    assert (account.expired, account.unaccounted) == (4, 1)
    found = books(run_record())
    found.truncated(TOPIC)
    assert only(found).expired == 10
    found = books(run_record(), seqs=[5])
    found.truncated("mqtt.pressure")
    assert only(found).expired == 0


def test_one_gateway_only() -> None:
    found = Books("mast-07")
    for gateway in ("mast-07", "mast-070", "mast-08"):
        found.take_reading(TOPIC, reading(1, gateway=gateway), replayed=False)
        found.take_run("gateway.runs", run_record(gateway=gateway), 1)
    assert only(found).gateway == "mast-07"
    assert not found.unreadable


def test_what_is_no_record_is_counted() -> None:
    found = Books()
    found.take_reading(TOPIC, b"{}", replayed=False)
    found.take_run("gateway.runs", b'{"gateway": 1}', 1)
    found.take_letter("gateway.dead-letter", b"[]")
    assert found.unreadable == {TOPIC: 1, "gateway.runs": 1, "gateway.dead-letter": 1}
    assert found.accounts() == []


def test_runs_that_name_each_other_in_a_circle_end() -> None:
    found = books(run_record("r1", previous_run="r2"), run_record("r2", previous_run="r1"))
    assert {account.run for account in found.accounts()} == {"r1", "r2"}


@given(
    st.sets(st.integers(1, 30)), st.sets(st.integers(1, 30)), st.integers(1, 30), st.integers(0, 5),
    st.integers(0, 30), st.integers(0, 10), st.sampled_from(["running", "stopped", "killed", "ended"]),
)  # fmt: skip
def test_the_figures_add_up(
    kafka: set[int], letters: set[int], drop: int, dropped: int, last: int, outbox: int, state: str
) -> None:
    drops = [{"reason": "X", "count": dropped, "ranges": [f"r1 {CUP} {drop}-{drop + dropped}"]}]
    found = books(run_record(state=state, last=last, outbox_records=outbox, dropped=drops), seqs=kafka)
    for seq in letters:
        found.take_letter("gateway.dead-letter", letter_of(reading(seq)))
    account = only(found)
    counted = account.in_kafka + account.dead_letters + account.dropped + account.expired
    assert account.sampled is not None
    assert counted + account.pending + account.unaccounted == account.sampled + account.never_sampled
    missing = set(range(1, account.sampled + 1)) - kafka - letters - set(range(drop, drop + dropped + 1))
    assert account.pending + account.unaccounted == len(missing)


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


def test_topics_that_run_records_name() -> None:
    assert books(run_record()).reading_topics == set()
    of_two = books(
        run_record(reading_topics=["plant.co2"]), run_record("r2", reading_topics=["a", "plant.co2"])
    )
    assert of_two.reading_topics == {"a", "plant.co2"}
