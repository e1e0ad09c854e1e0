"""Commands are carried out at most once, never late, and always answered, wherever the gateway is killed."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cloud.errors import CloudError
from cloud.kafka.readers import Place, TopicRecord
from cloud.wire.command_records import Command, CommandResult, parse_result
from cloud.wire.fields import format_time
from gateway.config.outputs import CommandsConfig
from gateway.ports import Record
from gateway.remote import receiver as history_module
from gateway.remote.actions import Action, NotDone
from gateway.remote.receiver import Executor, History, HistoryError

S = 1_000_000
T0 = 1_780_000_000 * S
ALLOWED = CommandsConfig(allow=("switch heater", "self-test"))


class Killed(BaseException):
    """The process ends here."""


class Time:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.us = T0
        self.synced = True

    def now_ns(self) -> int:
        return self.us * 1000


class Mast:
    """Kafka's partition, the disk, the heater; and of the process only what a kill leaves."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "commands"
        self.clock = Time()
        self.log: list[bytes] = []
        self.claimed = 0
        self.refusal: CloudError | None = None
        self.switched: Counter[str] = Counter()
        self.results: dict[str | None, list[CommandResult]] = {}
        self.steps_left = -1
        self.actions: Mapping[str, Action] = {}

    def step(self) -> None:
        """A moment at which the process may be killed."""
        if self.steps_left == 0:
            raise Killed
        self.steps_left -= 1

    def claim(self, offset: int) -> None:
        self.step()
        if self.refusal is not None:
            raise self.refusal
        self.claimed = offset
        self.step()

    def switch(self, command: Command) -> Mapping[str, Any]:
        self.step()
        assert self.clock.synced
        assert self.clock.us < command.expires_us
        self.switched[command.id] += 1
        self.step()
        return {"state": "off"}

    def announce(self, record: Record) -> None:
        self.step()
        result = parse_result(record.value)
        self.results.setdefault(result.id, []).append(result)

    def run(self, kill_after: int = -1, config: CommandsConfig = ALLOWED) -> Executor:
        """Start a process, which reads to the end and settles; it is killed after so many steps."""
        self.steps_left = kill_after
        history = _History(self.path, T0 // 1000, self)
        executor = Executor(
            ("mast-07", "run"), self.actions or {"switch": self.switch}, self.clock,  # type: ignore[arg-type]
            lambda: self.clock.synced, self.announce, lambda: self.clock.us / S,
        )  # fmt: skip
        try:
            executor.resume(history)
            # A reader takes what another run has claimed for done, as it may be a clone's.
            history.pass_over(Place(0, max(history.place.offset or 0, self.claimed), T0 // 1000))
            while (at := history.place.offset or 0) < len(self.log):
                fetched = TopicRecord(("gateway.commands", 0), at, b"mast-07", self.log[at], T0 // 1000)
                executor.take(fetched, history, config, partial(self.claim, at + 1))
            self.clock.us += 11 * S
            executor.settle(history)
            history.close()
        except Killed:
            history.drop()
        return executor

    def send(self, name: str, lasts_s: float = 600, **fields: Any) -> None:
        made = Command(
            id=name, gateway="mast-07", target="heater", action="switch", args={},
            issued_at=format_time(self.clock.us), expires_at=format_time(self.clock.us + round(lasts_s * S)),
        )  # fmt: skip
        self.log.append(msgspec.structs.replace(made, **fields).to_json())

    def reason(self, name: str | None) -> str | None:
        return self.results[name][-1].reason


class _History(History):
    """The real one; a kill may come before and after each write."""

    def __init__(self, path: Path, now_ms: int, mast: Mast) -> None:
        super().__init__(path, now_ms)
        self._mast = mast

    def begin(self, *given: Any) -> history_module.Begun:
        self._mast.step()
        begun = super().begin(*given)
        self._mast.step()
        return begun

    def finish(self, *given: Any) -> None:
        self._mast.step()
        super().finish(*given)
        self._mast.step()

    def note_left(self, names: list[str]) -> None:
        self._mast.step()
        super().note_left(names)

    def drop(self) -> None:
        """As a kill does: nothing more is written."""
        self._database.close()


class Kills(RuleBasedStateMachine):
    """Commands, repeats, kills, a clock that is set forth and back."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self.mast = Mast(Path(self._directory.name))
        self.sent = 0

    @rule(lasts_s=st.sampled_from([5, 60, 600]), times=st.integers(1, 2))
    def send(self, lasts_s: float, times: int) -> None:
        self.sent += 1
        self.mast.send(f"c{self.sent}", lasts_s)
        self.mast.log += self.mast.log[-1:] * (times - 1)

    @rule(back=st.integers(1, 5))
    def send_again(self, back: int) -> None:
        self.mast.log += self.mast.log[-back:][:1]

    @rule(kill_after=st.integers(0, 18))
    def run_and_kill(self, kill_after: int) -> None:
        self.mast.run(kill_after)

    @rule()
    def run_to_the_end(self) -> None:
        self.mast.run()

    @rule(seconds=st.sampled_from([-300, -30, 1, 30, 700]))
    def set_clock(self, seconds: float) -> None:
        self.mast.clock.us += round(seconds * S)

    @rule(synced=st.booleans())
    def lose_or_find_the_time(self, synced: bool) -> None:
        self.mast.clock.synced = synced

    @invariant()
    def at_most_once(self) -> None:
        assert all(times == 1 for times in self.mast.switched.values())

    def teardown(self) -> None:
        self.mast.run()
        for number in range(1, self.sent + 1):
            name = f"c{number}"
            outcomes = {each.outcome for each in self.mast.results[name]}
            if "done" in outcomes:
                assert self.mast.switched[name] == 1
            if self.mast.switched[name]:
                assert outcomes & {"done", "unknown"}
        self._directory.cleanup()


Kills.TestCase.settings = settings(
    max_examples=25, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
TestKills = Kills.TestCase


@pytest.fixture
def mast(tmp_path: Path) -> Mast:
    return Mast(tmp_path)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"action": "explode"}, "UNKNOWN_ACTION"),
        ({"target": ""}, "UNKNOWN_TARGET"),
        ({"target": "fan"}, "NOT_ALLOWED"),
        ({"action": "reload", "target": ""}, "NOT_ALLOWED"),
        ({"gateway": "mast-08"}, "FOREIGN"),
        ({"lasts_s": 1, "issued_at": "2026-01-01T00:00:00Z"}, "MALFORMED"),
    ],
)
def test_what_is_refused_has_its_reason(mast: Mast, fields: dict[str, Any], reason: str) -> None:
    mast.send("c", **fields)
    mast.run()
    assert [each.reason for found in mast.results.values() for each in found] == [reason]
    assert not mast.switched


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b'{"id": 1}', b"\xff", b"[" * 5000, b'{"id":"c"}'])
def test_what_is_no_command_is_answered_and_the_next_one_is_done(mast: Mast, payload: bytes) -> None:
    mast.log.append(payload)
    mast.send("c")
    executor = mast.run()
    assert mast.reason(None) == "MALFORMED"
    assert executor.counts == {"MALFORMED": 1, "done": 1}


def test_never_after_it_has_expired_and_never_without_the_time(mast: Mast) -> None:
    mast.send("late", 5)
    mast.send("early", 600, issued_at=format_time(T0))
    mast.clock.us += 5 * S
    mast.clock.synced = False
    mast.run()
    assert (mast.reason("late"), mast.reason("early")) == ("CLOCK_UNSYNCED", "CLOCK_UNSYNCED")
    mast.clock.synced = True
    mast.send("over", 1)
    mast.clock.us += 1 * S
    mast.run()
    assert mast.reason("over") == "EXPIRED"
    assert not mast.switched


def test_a_clock_that_is_set_back_brings_no_forgotten_command_back(mast: Mast) -> None:
    mast.send("c", 60)
    mast.run()
    mast.clock.us += 100 * S
    mast.send("other")
    mast.run()
    assert "c" not in {name for name, *_ in sqlite3.connect(mast.path).execute("SELECT id FROM command")}
    mast.clock.us = T0
    mast.log.append(mast.log[0])
    mast.run()
    assert mast.switched["c"] == 1
    assert mast.reason("c") == "EXPIRED"


def test_a_command_that_a_kill_cut_off_is_unknown_and_not_begun_again(mast: Mast) -> None:
    mast.send("c")
    mast.run(kill_after=5)
    assert mast.switched == {"c": 1}
    assert not mast.results
    mast.run()
    assert (mast.switched, mast.reason("c")) == ({"c": 1}, "INTERRUPTED")


@pytest.mark.parametrize("kill_after", range(10))
def test_a_command_is_answered_at_whichever_step_a_kill_comes(mast: Mast, kill_after: int) -> None:
    mast.send("c")
    mast.run(kill_after)
    mast.run()
    assert {each.reason for each in mast.results["c"]} <= {None, "INTERRUPTED"}


def test_beyond_its_bound_commands_are_refused(mast: Mast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "MOST", 2)
    for name in ("a", "b", "c"):
        mast.send(name)
    mast.run()
    assert [mast.reason(name) for name in ("a", "b", "c")] == [None, None, "HISTORY_FULL"]
    mast.clock.us += 1000 * S
    mast.send("d")
    mast.run()
    assert mast.reason("d") is None


@pytest.mark.parametrize("synced", [True, False])
def test_commands_of_the_far_future_do_not_stay(
    mast: Mast, monkeypatch: pytest.MonkeyPatch, synced: bool
) -> None:
    """Each is valid for a minute, of the year 2199."""
    monkeypatch.setattr(history_module, "MOST", 2)
    mast.clock.synced = synced
    for name in ("a", "b"):
        mast.send(name, issued_at="2199-01-01T00:00:00Z", expires_at="2199-01-01T00:01:00Z")
    mast.run()
    assert {mast.reason(name) for name in ("a", "b")} == {"BAD_TIME" if synced else "CLOCK_UNSYNCED"}
    mast.clock.synced = True
    mast.send("now")
    mast.run()
    assert mast.reason("now") is None
    kept = {name for name, *_ in sqlite3.connect(mast.path).execute("SELECT id FROM command")}
    assert kept == {"now"}


def test_what_was_carried_out_stays_when_the_clock_is_set_back_by_days(mast: Mast) -> None:
    mast.send("c")
    mast.run()
    mast.clock.us -= 3 * 86_400 * S
    mast.send("other")
    mast.run()
    mast.clock.us += 3 * 86_400 * S - 60 * S
    mast.log.append(mast.log[0])
    mast.run()
    assert mast.switched["c"] == 1


def test_an_action_that_fails_is_answered(mast: Mast) -> None:
    def fails(command: Command) -> Mapping[str, Any]:
        raise OSError("no such pin") if command.id == "a" else NotDone("INTERLOCK", "it is on")

    mast.switch = fails  # type: ignore[method-assign]
    mast.send("a")
    mast.send("b")
    mast.run()
    found = {name: (each[0].outcome, each[0].reason) for name, each in mast.results.items()}
    assert found == {"a": ("failed", "FAILED"), "b": ("refused", "INTERLOCK")}


def test_a_history_that_is_no_database_refuses_all(mast: Mast) -> None:
    mast.path.write_bytes(b"\0\1" * 4096)
    with pytest.raises(HistoryError, match="commands: file is not a database"):
        History(mast.path, 0)


def test_a_command_that_another_gateway_has_claimed_is_neither_done_nor_answered(mast: Mast) -> None:
    mast.send("c1")
    mast.refusal = CloudError("another gateway with this id reads them")
    with pytest.raises(CloudError):
        mast.run()
    assert (mast.switched["c1"], mast.results) == (0, {})
    mast.refusal = None
    mast.run()
    assert (mast.switched["c1"], mast.reason("c1")) == (1, None)
