"""Faults of a simulated board: what the real drivers see of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from drivers.boards.registry import BOARDS, open_board
from drivers.emulation.board import EmulatedBoard
from drivers.emulation.environment import Fault, Faults
from drivers.interface import ChecksumError, FittedSensor, ReadError
from tests.support.masts import AS_FAST_AS_POSSIBLE, SECOND_NS, Sample, fitted, sample

CUP = fitted("cup", "hall-anemometer", 50.0, pin=17, slope=0.765, offset=0.35)
TWIN = fitted("twin", "hall-anemometer", 50.0, pin=27, slope=0.765, offset=0.35)
DHT = fitted("dht", "dht11", pin=4)
BARO = fitted("baro", "bp20")
SUN = fitted("sun", "pyranometer")


def run(
    sensors: Sequence[FittedSensor], faults: Sequence[Fault], seconds: int, **periods_s: float
) -> dict[str, list[Sample]]:
    options: Any = BOARDS["simulated"](
        speed=AS_FAST_AS_POSSIBLE, start="2026-03-01T06:00:00Z", faults=tuple(faults)
    )
    board = open_board(options, sensors, Path())
    assert isinstance(board, EmulatedBoard)
    return sample(board, sensors, periods_s, board.clock.now_ns() + seconds * SECOND_NS)


def values(samples: Sequence[Sample]) -> list[float]:
    return [one.value for one in samples]


def test_a_stuck_cup_gives_no_pulses_while_the_fault_lasts() -> None:
    taken = run([CUP, TWIN], [Fault("cup", "stuck", 5, 10)], 20)
    assert [speed == 0 for speed in values(taken["cup"])] == [False] * 5 + [True] * 10 + [False] * 5
    assert min(values(taken["twin"])) > 1


def test_a_drifting_cup_has_a_share_of_the_pulses() -> None:
    true = run([CUP], [], 400)["cup"]
    slow = run([CUP], [Fault("cup", "drift", amount=0.5)], 400)["cup"]
    turns = sum((one.value - 0.35) / 0.765 for one in true if one.value > 0)
    fewer = sum((one.value - 0.35) / 0.765 for one in slow if one.value > 0)
    assert abs(fewer - turns / 2) <= 1


def test_an_icing_cup_slows_down_to_a_stop_and_thaws() -> None:
    taken = values(run([CUP], [Fault("cup", "icing", 0, 300, amount=200)], 320)["cup"])
    quarters = [sum(taken[at : at + 50]) for at in (0, 50, 100, 150)]
    assert quarters == sorted(quarters, reverse=True)
    assert set(taken[200:300]) == {0.0}
    assert min(taken[300:]) > 1


def test_a_spike_is_in_one_reading_only() -> None:
    true = run([CUP, BARO], [], 30)
    spiked = run(
        [CUP, BARO], [Fault("cup", "spike", 5, amount=20), Fault("baro", "spike", 7, 10, 0.02, 5)], 30
    )
    more = [b - a for a, b in zip(values(true["cup"]), values(spiked["cup"]), strict=True)]
    assert [at for at, each in enumerate(more) if each > 0] == [5]
    assert more[5] == pytest.approx(20 * 0.765)
    more = [b - a for a, b in zip(values(true["baro"]), values(spiked["baro"]), strict=True)]
    assert [at for at, each in enumerate(more) if each > 0.1] == [7, 12]
    assert more[7] == pytest.approx(0.02 * 21.79, abs=0.005)


def test_loose_wires_float_and_the_drivers_flag_it() -> None:
    taken = run([BARO, SUN], [Fault("baro", "open-input", 10, 10), Fault("sun", "open-input", 10, 20)], 40)
    reasons = [one.got[0].reasons for one in taken["baro"] if not isinstance(one.got, ReadError)]
    assert reasons == [()] * 10 + [("UNDER_RANGE",)] * 10 + [()] * 20
    assert taken["baro"][10].value == pytest.approx(0.57 * 21.79 + 10.55, abs=0.005)
    reasons = [one.got[0].reasons for one in taken["sun"] if not isinstance(one.got, ReadError)]
    assert reasons == [()] * 10 + [("NOISY",)] * 20 + [()] * 10


def test_a_flipped_bit_is_a_checksum_error_and_nothing_else_goes_wrong() -> None:
    fault = Fault("dht", "bit-errors", amount=0.3)
    taken = run([DHT], [fault], 200, dht=2.0)["dht"]
    wrong = [isinstance(one.got, ChecksumError) for one in taken]
    start_ns = taken[0].time_ns
    errs = Faults([fault]).errs
    assert wrong == [errs("dht", one.time_ns - start_ns) for one in taken]
    assert 15 < sum(wrong) < 45
    assert not any(isinstance(one.got, ReadError) for one, bad in zip(taken, wrong, strict=True) if not bad)


def test_a_fault_leaves_other_sensors_alone_and_ends() -> None:
    faults = Faults([Fault("cup", "stuck", 5, 10), Fault("cup", "drift", 0, 20, 0.9)], 100 * SECOND_NS)
    at = [100 * SECOND_NS + second * SECOND_NS for second in (0, 5, 14.999, 15, 20)]
    assert [faults.turning("cup", round(ns)) for ns in at] == [0.9, 0.0, 0.0, 0.9, 1.0]
    assert faults.turning("twin", round(at[1])) == 1.0
    assert faults.turning("cup", 0) == 1.0
    assert not faults.loose("cup", lambda: 0)()
