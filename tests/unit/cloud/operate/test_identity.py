"""A gateway's keys and what counts from when, as ``provision gateway`` decides it. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud.command_line import CommandError
from cloud.operate.identity import Known, enforced, handed_out, lifted, revoked
from cloud.wire.identities import Identity, IdentityRecord, Step, gateway_key, proving_run

MASTER = "m" * 32
SOON = 1_000_000_000


def run(generation: int, nonce: str = "0123456789ab") -> str:
    return proving_run(gateway_key(MASTER, "mast-07", generation), "mast-07", nonce)


def given(known: Known, *, another: bool = False, from_us: int = SOON) -> Known:
    return replace(known, record=handed_out(known, "mast-07", MASTER, from_us, another=another))


def accepts(record: IdentityRecord | None, run: str, at_us: int) -> bool:
    assert record is not None
    return Identity.of(record, MASTER).accepts(run, at_us)


def test_one_that_nobody_has_seen_must_from_the_first_key_on() -> None:
    known = given(Known(None, {}))
    assert known.record == IdentityRecord("mast-07", 1, (Step(SOON, 1),))
    # The same key once more, as for a renewed certificate, changes nothing.
    assert given(known).record == known.record


def test_one_at_work_must_once_it_has_shown_its_key() -> None:
    known = given(Known(None, {"plain": 5}))
    assert known.record == IdentityRecord("mast-07", 1)
    with pytest.raises(CommandError, match="no run of mast-07 has proven itself by key 1 yet"):
        enforced(known, MASTER, SOON)
    shown = replace(known, runs={"plain": 5, run(1): 6})
    record = enforced(shown, MASTER, SOON)
    assert record == IdentityRecord("mast-07", 1, (Step(SOON, 1),), frozenset({"plain"}))
    assert enforced(replace(shown, record=record), MASTER, 2 * SOON) == record


def test_another_key_leaves_the_one_before_in_force_until_it_is_shown() -> None:
    known = given(given(Known(None, {})), another=True)
    assert known.record is not None
    assert known.record.generation == 2
    for generation in (1, 2):
        assert accepts(known.record, run(generation), SOON)
    with pytest.raises(CommandError, match="by key 2 yet"):
        enforced(replace(known, runs={run(1): SOON}), MASTER, 2 * SOON)
    # What was refused before isn't let in by the list of those that were welcome.
    shown = replace(known, runs={run(1): SOON, run(2): SOON, "forged": SOON, "before": 5})
    record = enforced(shown, MASTER, 2 * SOON)
    assert record.runs == {run(1), "before"}
    assert accepts(record, run(1), 3 * SOON), "its backlog"
    assert not accepts(record, run(1, "ffffffffffff"), 3 * SOON)
    assert not accepts(record, "forged", 3 * SOON)


def test_what_was_taken_is_given_again_with_another_key() -> None:
    known = given(Known(None, {}))
    taken = revoked(known, "mast-07", 2 * SOON)
    assert revoked(replace(known, record=taken), "mast-07", 3 * SOON) == taken
    assert not accepts(taken, run(1), 2 * SOON)
    again = given(Known(taken, {run(1): SOON, "forged": 2 * SOON}), from_us=3 * SOON).record
    assert again is not None
    assert again.generation == 2
    assert again.runs == {run(1)}
    assert [accepts(again, run(1), at * SOON) for at in (1, 2, 3)] == [True, False, True]
    assert not accepts(again, run(1, "ffffffffffff"), 3 * SOON)
    assert accepts(again, run(2), 3 * SOON)
    # Of one that never had a key too.
    assert not accepts(revoked(Known(None, {}), "mast-07", SOON), "any", SOON)


def test_it_is_lifted() -> None:
    known = given(Known(None, {}))
    record = lifted(known, 2 * SOON)
    assert [accepts(record, "any", at * SOON) for at in (1, 2)] == [False, True]
    assert lifted(replace(known, record=record), 3 * SOON) == record
