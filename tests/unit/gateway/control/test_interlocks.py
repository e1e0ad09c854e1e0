"""Interlocks on emulated pins: what good, bad and missing readings do, what is announced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloud.wire.reading_records import FAIL, GOOD, NOT_EVALUATED, SUSPECT, Reading
from drivers.boards.registry import SimulatedOptions, open_board
from drivers.emulation.board import EmulatedBoard
from gateway.config.outputs import ActuatorConfig, InterlockConfig
from gateway.control.interlocks import Interlocks, NotSwitched
from gateway.ports import Record
from gateway.status.status import Interlock, RelayStatus
from tests.support.forwarding import snapshot

PIN = 23
HOT = InterlockConfig("enclosure.temperature > 70 for 30 s", "relay.heater off", "enclosure.temperature < 60")
COLD = InterlockConfig("enclosure.temperature <= 3", "relay.heater on", "enclosure.temperature > 6 for 5 s")


class Box:
    """An enclosure with a heater that is on at high level."""

    def __init__(self, *interlocks: InterlockConfig, **options: Any) -> None:
        self.now_s = 1000.0
        self.announced: list[dict[str, Any]] = []
        board = open_board(SimulatedOptions(), (), Path())
        assert isinstance(board, EmulatedBoard)
        self.board = board
        self.interlocks = Interlocks(
            [ActuatorConfig(name="heater", pin=PIN, **options)],
            interlocks,
            board,
            lambda event, **fields: Record("e", b"", json.dumps({"event": event, **fields}).encode(), ()),
            lambda record: self.announced.append(json.loads(record.value)),
            lambda: self.now_s,
        )
        self.interlocks.start()

    @property
    def on(self) -> bool:
        return self.board.outputs.high[PIN]

    @property
    def relay(self) -> RelayStatus:
        return self.interlocks.status["heater"]

    def read(self, value: float | None, after_s: float = 1.0, quality: int = GOOD) -> bool:
        """Take a reading; whether the heater is on then."""
        self.now_s += after_s
        self.interlocks.take(
            Reading(
                gateway="mast-07", channel="enclosure.temperature", run="r", seq=1, quantity="temperature",
                time_us=0, period_ms=1000, value=value, unit="Cel", raw=value, raw_unit="Cel",
                quality=quality, reasons=(), clock="synced", cal="c",
            )
        )  # fmt: skip
        return self.on

    def wait(self, seconds: int) -> bool:
        """Pass time without a reading; whether the heater is on then."""
        for _ in range(seconds):
            self.now_s += 1
            self.interlocks.tick(snapshot(self.now_s))
        return self.on


def test_a_relay_is_safe_until_the_first_good_reading_then_normal() -> None:
    box = Box(HOT, normal="on")
    assert not box.on
    assert not box.read(20.0, quality=FAIL)
    assert box.relay.why == "no good reading of enclosure.temperature"
    assert box.read(20.0)
    rule = Interlock(HOT.when, HOT.then, "clear")
    assert box.relay == RelayStatus(state="on", why="normal", problem=None, switches=1, interlocks=(rule,))


def test_overheating_switches_off_with_the_reading_that_completes_the_time() -> None:
    box = Box(HOT, normal="on")
    box.read(20.0)
    assert box.read(71.0)
    assert box.read(71.0, 29)
    assert not box.read(71.0)
    # Back between the limits it stays off; below the lower one it is released.
    assert not box.read(60.0)
    assert box.read(59.9)
    assert [each["event"] for each in box.announced] == [
        "relay-switched", "interlock-clear", "relay-switched", "interlock-held",
        "relay-switched", "interlock-clear",
    ]  # fmt: skip
    assert box.announced[2:4] == [
        {"event": "relay-switched", "relay": "heater", "state": "off", "why": HOT.when},
        {"event": "interlock-held", "when": HOT.when, "then": HOT.then, "value": 71.0},
    ]


def test_one_reading_that_does_not_fulfil_it_begins_the_time_anew() -> None:
    box = Box(HOT, normal="on")
    box.read(20.0)
    assert box.read(75.0)
    assert box.read(70.0, 20)
    assert box.read(75.0, 20)
    assert box.read(75.0, 29)
    assert not box.read(75.0)


@pytest.mark.parametrize(
    ("value", "quality"), [(20.0, FAIL), (20.0, SUSPECT), (None, GOOD), (float("nan"), GOOD)]
)
def test_a_bad_reading_keeps_what_is_and_after_stale_s_it_is_safe(value: float | None, quality: int) -> None:
    box = Box(HOT, normal="on")
    box.read(20.0, quality=NOT_EVALUATED)
    for _ in range(60):
        assert box.read(value, quality=quality)
        box.interlocks.tick(snapshot(box.now_s))
    assert not box.wait(1)
    assert box.announced[-1] == {
        "event": "interlock-stale",
        "when": HOT.when,
        "then": HOT.then,
        "value": None,
    }
    assert box.read(20.0)


@pytest.mark.parametrize("before", [None, 20.0])
def test_between_the_limits_nothing_shows_what_was_so_it_stays_safe(before: float | None) -> None:
    box = Box(HOT, normal="on")
    if before is not None:
        box.read(before)
        box.wait(61)
    assert not box.read(65.0)
    assert not box.read(69.0)
    assert box.relay.interlocks[0].state == "held"
    assert box.read(59.0)


def test_the_safe_state_has_the_last_word_and_never_waits() -> None:
    box = Box(InterlockConfig("enclosure.temperature < 80", "relay.heater on"), HOT, min_on_s=600)
    assert box.read(20.0)
    box.read(71.0)
    assert not box.read(71.0, 30)
    assert box.relay.why == HOT.when


def test_what_is_released_waits_for_the_minimum_time() -> None:
    box = Box(COLD, min_on_s=60, min_off_s=10)
    assert not box.read(3.0)
    assert not box.wait(8)
    assert box.wait(1)
    assert box.read(7.0)
    assert box.read(7.0, 5)
    assert box.relay.interlocks[0].state == "clear"
    assert box.wait(53)
    assert not box.wait(1)


def test_a_stop_is_safe_at_once_and_no_late_reading_switches() -> None:
    box = Box(COLD, min_on_s=600)
    assert box.read(1.0)
    box.interlocks.stop()
    assert not box.on
    assert not box.read(1.0)
    assert not box.wait(2)
    box.interlocks.stop()


def test_a_pin_in_use_is_announced_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    box = Box(COLD)
    box.interlocks.stop()
    taken = box.board.count_edges(PIN)
    box.interlocks.start()
    box.wait(3)
    assert not box.read(1.0)
    failed = {"event": "relay-failed", "relay": "heater", "problem": "BCM pin 23 is in use"}
    assert [each["event"] for each in box.announced] == ["relay-failed", "interlock-held"]
    assert box.announced[0] == failed
    assert caplog.text.count("event=relay.failed relay=heater") == 1
    assert (box.relay.state, box.relay.problem) == ("unknown", "BCM pin 23 is in use")
    taken.close()
    assert box.wait(1)
    assert (box.relay.state, box.relay.problem) == ("on", None)


def test_a_command_stands_in_for_the_normal_state_until_its_time_is_over() -> None:
    box = Box(HOT, normal="on")
    assert box.read(20.0)
    assert box.interlocks.command("heater", False, 40, "command c1") == "off"
    assert not box.read(20.0)
    assert box.relay.why == "command c1"
    assert not box.wait(38)
    assert box.wait(1)
    assert box.interlocks.command("heater", False, 40, "command c2") == "off"
    assert box.interlocks.command("heater", None, 40, "command c3") == "on"
    assert box.on


def test_an_interlock_in_force_wins_over_a_command_which_then_counts_for_nothing() -> None:
    box = Box(HOT, normal="on")
    with pytest.raises(NotSwitched, match=r"the relay is off: no good reading of enclosure\.temperature"):
        box.interlocks.command("heater", True, 600, "command c0")
    box.read(20.0)
    box.read(71.0)
    box.read(71.0, 30)
    with pytest.raises(NotSwitched, match="the relay is off: enclosure") as refused:
        box.interlocks.command("heater", True, 600, "command c1")
    assert refused.value.reason == "INTERLOCK"
    assert not box.on
    assert box.read(20.0)
    assert box.relay.why == "normal"


def test_an_interlock_that_begins_to_hold_wins_over_a_command_in_force() -> None:
    box = Box(HOT)
    box.read(20.0)
    box.interlocks.command("heater", True, 600, "command c1")
    box.read(71.0)
    assert not box.read(71.0, 30)
    assert box.read(50.0)
    assert box.relay.why == "command c1"


def test_a_command_waits_for_the_minimum_time_and_says_so() -> None:
    box = Box(min_off_s=10)
    assert box.interlocks.command("heater", True, 600, "command") == "on, once its minimum time is over"
    assert not box.on
    assert box.wait(10)


def test_what_cannot_be_commanded() -> None:
    box = Box()
    with pytest.raises(NotSwitched, match="there is no relay fan"):
        box.interlocks.command("fan", True, 1, "command")
    box.interlocks.stop()
    with pytest.raises(NotSwitched, match="the gateway stops"):
        box.interlocks.command("heater", True, 1, "command")
