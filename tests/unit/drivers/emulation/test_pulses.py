"""Pulses are whole, exact and never lost."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from drivers.emulation.parts import EmulatedCounter, PulseTrain, pulse_frequency_hz
from drivers.hall_anemometer import HallAnemometer, HallAnemometerOptions
from drivers.interface import BoardError, ReadError
from tests.support.masts import SECOND_NS

TRANSFER_FUNCTIONS = st.sampled_from([(0.765, 0.35), (0.0935, 0.139), (0.0462, 0.21)])


@given(TRANSFER_FUNCTIONS, st.integers(1, 1082), st.sampled_from([3, 4, 6]))
def test_a_printed_speed_gives_back_its_whole_frequency(
    transfer: tuple[float, float], hz: int, digits: int
) -> None:
    slope, offset = transfer
    printed = float(f"{slope * hz + offset:.{4 if digits == 3 else digits}f}")
    frequency_hz = pulse_frequency_hz(printed, slope, offset, SECOND_NS)
    assert frequency_hz == hz
    assert PulseTrain().advance(frequency_hz, SECOND_NS) == hz


@given(st.lists(st.tuples(st.floats(0, 1082), st.integers(1, 5 * SECOND_NS)), min_size=1, max_size=60))
def test_any_frequencies_over_any_pieces_sum_to_the_phase(pieces: list[tuple[float, int]]) -> None:
    train = PulseTrain()
    phase, pulses = 0.0, 0
    for hz, duration_ns in pieces:
        phase += hz * duration_ns / SECOND_NS
        pulses += train.advance(hz, duration_ns)
        assert abs(pulses - phase) <= 0.5 + 1e-6


@given(st.integers(1, 1082), st.lists(st.integers(1, 99), min_size=1, max_size=9, unique=True))
def test_how_a_second_is_cut_doesnt_change_its_pulses(hz: int, cuts: list[int]) -> None:
    train = PulseTrain()
    edges = [0, *sorted(cuts), 100]
    pieces = [(later - earlier) * SECOND_NS // 100 for earlier, later in pairwise(edges)]
    assert sum(train.advance(hz, piece) for piece in pieces) == hz


class Bench:
    """A cup on an emulated pin, with seconds moved by hand."""

    def __init__(self, options: HallAnemometerOptions) -> None:
        self.pins: dict[int, EmulatedCounter] = {}
        self.seconds = 0.0
        self.cup = HallAnemometer(self, options)  # type: ignore[arg-type] # the part of a board a cup uses

    def count_edges(self, pin: int) -> EmulatedCounter:
        return EmulatedCounter(self.pins, pin)

    def monotonic(self) -> float:
        return self.seconds


def test_no_time_passed_is_a_read_error_that_loses_no_pulse() -> None:
    bench = Bench(HallAnemometerOptions(17, 0.765, 0.35))
    bench.cup.start()
    bench.pins[17].fall(3)
    with pytest.raises(ReadError, match="no time has passed"):
        bench.cup.read()
    bench.seconds = 1.0
    assert bench.cup.read()[0].raw == 3.0


def test_lost_edges_are_a_read_error_once() -> None:
    bench = Bench(HallAnemometerOptions(17, 0.765, 0.35))
    bench.cup.start()
    bench.pins[17].lose()
    bench.seconds = 1.0
    with pytest.raises(ReadError, match="went missing"):
        bench.cup.read()
    bench.pins[17].fall(2)
    bench.seconds = 2.0
    assert bench.cup.read()[0].raw == 2.0


def test_an_emulated_pin_is_taken_once() -> None:
    pins: dict[int, EmulatedCounter] = {}
    first = EmulatedCounter(pins, 17)
    with pytest.raises(BoardError, match="BCM pin 17 is in use"):
        EmulatedCounter(pins, 17)
    first.close()
    second = EmulatedCounter(pins, 17)
    first.close()
    assert pins == {17: second}
