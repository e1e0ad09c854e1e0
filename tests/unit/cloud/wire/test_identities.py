"""Runs that prove themselves, and since when a gateway's must: by the record and Kafka's time alone."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st

from cloud.wire.fields import InvalidFields
from cloud.wire.identities import (
    NOBODY,
    Identities,
    Identity,
    IdentityRecord,
    Step,
    claimed_run,
    gateway_key,
    proves,
    proving_run,
)
from cloud.wire.reading_records import GATEWAY_ID, RUN_ID

MASTER = "0123456789abcdef0123456789abcdef"
NONCE = "00a1b2c3d4e5"
GATEWAYS = st.text("abz019-", min_size=1, max_size=63)
NONCES = st.text("0123456789abcdef", min_size=12, max_size=12)
KEYS = st.binary(min_size=32, max_size=32).map(bytes.hex)
TIMES = st.integers(0, 4_000_000_000).map(lambda ms: ms * 1000)
RECORDS = st.builds(
    IdentityRecord,
    GATEWAYS,
    st.integers(1, 50),
    st.lists(st.builds(Step, TIMES, st.none() | st.integers(0, 50)), max_size=5).map(
        lambda steps: tuple(sorted(steps, key=lambda step: step.from_us))
    ),
    st.frozensets(st.text("aZ0-", min_size=1, max_size=64), max_size=5),
)


def run_of(gateway: str, generation: int, nonce: str = NONCE) -> str:
    return proving_run(gateway_key(MASTER, gateway, generation), gateway, nonce)


def identity(*steps: Step, generation: int = 2, runs: tuple[str, ...] = ()) -> Identity:
    return Identity.of(IdentityRecord("mast-07", generation, steps, frozenset(runs)), MASTER)


def test_a_key_and_a_run_are_the_same_in_every_version() -> None:
    # By openssl: printf 'fieldgate gateway key|mast-07|1' | openssl dgst -sha256 -hmac $MASTER, and
    # printf 'mast-07|00a1b2c3d4e5' | openssl dgst -sha256 -mac HMAC -macopt hexkey:$KEY
    key = gateway_key(MASTER, "mast-07", 1)
    assert key == "cb8c9ae48f4fbe0a939c3d76a52b87a241fad4abfc9a2718ab48c96990232ced"
    assert proving_run(key, "mast-07", NONCE) == "00a1b2c3d4e5-9bb5f05fecca2847ea96"


@given(gateway=GATEWAYS, key=KEYS, nonce=NONCES)
def test_a_run_proves_itself_and_is_a_run_of_every_version(gateway: str, key: str, nonce: str) -> None:
    run = proving_run(key, gateway, nonce)
    assert proves(key, gateway, run)
    assert RUN_ID.fullmatch(run)
    assert len(run) == 33


@given(gateway=GATEWAYS, other=GATEWAYS, nonce=NONCES, generation=st.integers(1, 99))
def test_it_proves_one_gateway_by_one_key(gateway: str, other: str, nonce: str, generation: int) -> None:
    run = run_of(gateway, generation, nonce)
    assert not proves(gateway_key(MASTER, gateway, generation + 1), gateway, run)
    assume(other != gateway)
    assert gateway_key(MASTER, other, generation) != gateway_key(MASTER, gateway, generation)
    assert not proves(gateway_key(MASTER, other, generation), other, run)
    assert not proves(gateway_key(MASTER, gateway, generation), other, run)


@pytest.mark.parametrize("place", [0, 11, 13, 32])
def test_one_digit_changed_proves_nothing(place: int) -> None:
    run = run_of("mast-07", 1)
    changed = run[:place] + ("0" if run[place] != "0" else "1") + run[place + 1 :]
    assert not proves(gateway_key(MASTER, "mast-07", 1), "mast-07", changed)


@given(record=RECORDS)
def test_a_record_is_read_as_it_was_written(record: IdentityRecord) -> None:
    assert IdentityRecord.from_json(record.to_json()) == record


@given(st.binary(max_size=200) | st.recursive(st.none() | st.integers() | st.text(max_size=9), st.lists).map(
    lambda value: json.dumps(
        {"v": 1, "gateway": "mast-07", "generation": value, "steps": value, "runs": value}
    ).encode()
))  # fmt: skip
def test_whatever_the_bytes_are_it_is_a_record_or_refused(payload: bytes) -> None:
    try:
        record = IdentityRecord.from_json(payload)
    except InvalidFields:
        return
    assert GATEWAY_ID.fullmatch(record.gateway)


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2}, {"gateway": "Mast"}, {"generation": 0}, {"steps": [{"from": "now", "least": 1}]},
        {"steps": [{"from": "2026-11-26T00:00:00Z", "least": -1}]}, {"runs": ["a/b"]},
        {"steps": [{"from": f"2026-11-{day}T00:00:00Z", "least": 1} for day in (26, 25)]},
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused(change: dict[str, Any]) -> None:
    fields = json.loads(IdentityRecord("mast-07", 1).to_json()) | change
    with pytest.raises(InvalidFields):
        IdentityRecord.from_json(json.dumps(fields).encode())


def test_before_a_step_everything_is_welcome_and_then_what_proves_itself() -> None:
    known = identity(Step(1000, 1))
    for run in ("plain-run", run_of("mast-08", 1), None):
        assert known.accepts(run, 999)
        assert not known.accepts(run, 1000)
    assert known.accepts(run_of("mast-07", 1), 1000)
    assert known.accepts(run_of("mast-07", 2), 1000)
    assert not known.accepts(run_of("mast-07", 3), 1000), "a key that was never given"


def test_a_new_key_leaves_the_runs_that_were_known() -> None:
    old, late = run_of("mast-07", 1), run_of("mast-07", 1, "ffffffffffff")
    known = identity(Step(1000, 1), Step(2000, 2), runs=(old, "plain-run"))
    assert all(known.accepts(run, 1500) for run in (old, late, "plain-run"))
    assert not known.accepts("other", 1500)
    assert [known.accepts(run, 2500) for run in (old, late, "plain-run")] == [True, False, True]
    assert known.accepts(run_of("mast-07", 2), 2500)


def test_what_is_taken_is_nobodys_until_it_is_given_or_lifted() -> None:
    mine = run_of("mast-07", 2)
    known = identity(Step(1000, None), Step(2000, 2), Step(3000, 0), runs=("plain-run",))
    assert [known.accepts("plain-run", us) for us in (999, 1500, 2500, 3500)] == [True, False, True, True]
    assert [known.accepts(mine, us) for us in (999, 1500, 2500, 3500)] == [True, False, True, True]
    assert [known.accepts("other", us) for us in (999, 1500, 2500, 3500)] == [True, False, False, True]


@given(record=RECORDS, nonce=NONCES, generation=st.integers(1, 51), time_us=TIMES)
def test_what_is_always_welcome_is_so_at_each_time(
    record: IdentityRecord, nonce: str, generation: int, time_us: int
) -> None:
    known = Identities([Identity.of(record, MASTER)])
    for run in (run_of(record.gateway, generation, nonce), nonce, *record.runs):
        if not known.doubts(record.gateway, run):
            assert known.accepts(record.gateway, run, time_us)


def test_of_others_everything_is_welcome_and_a_worker_decides_the_same() -> None:
    known = pickle.loads(pickle.dumps(Identities([identity(Step(0, 1))])))  # noqa: S301 - made here
    for each, mine in ((known, False), (NOBODY, True)):
        assert each.accepts("mast-08", "anything", 5)
        assert each.accepts("mast-07", "anything", 5) is mine
        assert each.accepts("mast-07", run_of("mast-07", 1), 5)
    assert gateway_key(MASTER, "mast-07", 1) not in repr(identity(Step(0, 1)))


def test_rejects_count_as_a_gateways_by_its_own_records_alone() -> None:
    known = Identities([identity(Step(0, 1))])
    mine, forged = (
        json.dumps({"gateway": "mast-07", "run": run, "x": 1}).encode() for run in (run_of("mast-07", 1), "r")
    )
    assert known.counted("mast-07/cup.wind_speed", mine, 5) == "mast-07"
    for payload in (forged, b"garbage", None, mine.replace(b"mast-07", b"mast-09")):
        assert known.counted("mast-07/cup.wind_speed", payload, 5) == ""
        assert NOBODY.counted("mast-07/cup.wind_speed", payload, 5) == "mast-07"
        assert known.counted("mast-08/cup.wind_speed", payload, 5) == "mast-08"
    # Records that have no run in their value have it in a header.
    assert known.counted("mast-07/cup.wind_speed/5d1c0a7e", b"garbage", 5, run_of("mast-07", 1)) == "mast-07"
    assert known.counted("mast-07/cup.wind_speed/5d1c0a7e", b"garbage", 5, "r") == ""
    assert known.counted("no gateway's", mine, 5) == known.counted(None, mine, 5) == ""


@given(st.binary(max_size=100) | st.none())
def test_any_bytes_claim_a_run_or_none(payload: bytes | None) -> None:
    assert claimed_run(payload) is None
