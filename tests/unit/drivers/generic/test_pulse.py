"""Tipping buckets and meters: every tip once, however its reed bounces."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from cloud.wire.quantities import QUANTITIES, Quantity
from drivers.driver_type import Nameplate, OptionError
from drivers.emulation.environment import Fault
from drivers.generic.pulse import TYPE, Pulse, PulseOptions, debounced
from drivers.interface import Board, BoardError, Channel, Edges, ReadError
from tests.support.masts import fitted, replayed, sample
from tests.unit.drivers.emulation.test_faults import run

RAIN = QUANTITIES["precipitation"]
FLOW = Quantity("flow", "L/s", "linear", 0.0, 50.0)
MS = 1_000_000


class Pin:
    """A board of one pin, whose edges and time are given by hand."""

    method = "edges by hand"
    timed = True

    def __init__(self) -> None:
        self.now_s = 0.0
        self.edges = Edges(0)
        self.high = True
        self.closed = 0

    def count_edges(self, pin: int) -> Pin:
        assert pin == 25
        return self

    def monotonic(self) -> float:
        return self.now_s

    def take(self) -> Edges:
        edges, self.edges = self.edges, Edges(0)
        return edges

    def total(self) -> int:
        return 7

    def is_high(self) -> bool:
        return self.high

    def close(self) -> None:
        self.closed += 1

    @property
    def board(self) -> Board:
        return self  # type: ignore[return-value] # the part of a board this driver uses


def counter(pin: Pin, quantity: Quantity = RAIN, slope: float = 0.2, **options: Any) -> Pulse:
    driver = Pulse(pin.board, PulseOptions(quantity, 25, slope, **options))
    driver.start()
    return driver


def read(
    driver: Pulse, pin: Pin, edges: Edges, seconds: float = 10.0
) -> tuple[float, float, tuple[str, ...]]:
    pin.now_s += seconds
    pin.edges = edges
    (one,) = driver.read()
    return round(one.value, 9), one.raw, one.reasons


# Bounces.


@given(st.lists(st.integers(0, 10_000)).map(sorted), st.none() | st.integers(-500, 0), st.integers(1, 300))
def test_no_two_counted_edges_are_closer_than_the_debounce_and_no_other_is_left_out(
    times: list[int], before: int | None, debounce: int
) -> None:
    counted = debounced(times, before, debounce)
    known = [*([] if before is None else [before]), *counted]
    assert all(later - earlier >= debounce for earlier, later in pairwise(known))
    for time in set(times) - set(counted):
        assert any(0 <= time - each < debounce for each in known)


@given(st.lists(st.integers(150, 5_000), min_size=1, max_size=30), st.data())
def test_a_bouncing_reed_counts_once_a_tip_however_the_edges_are_read(gaps: list[int], data: Any) -> None:
    tips = [sum(gaps[:at]) for at in range(len(gaps))]
    bounces = data.draw(st.lists(st.sampled_from((1, 2, 134, 135)), unique=True))
    edges = sorted(tip + after for tip in tips for after in (0, *bounces))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(edges)), max_size=4)))
    counted: list[int] = []
    for begin, end in pairwise((0, *cuts, len(edges))):
        counted += debounced(edges[begin:end], counted[-1] if counted else None, 150)
    assert counted == tips


def test_a_tips_bounces_add_nothing_also_across_two_readings() -> None:
    pin = Pin()
    driver = counter(pin, debounce_s=0.2)
    first = [1000 * MS, 1001 * MS, 1135 * MS, 9990 * MS]
    assert read(driver, pin, Edges(4, times_ns=first)) == (0.4, 2.0, ())
    assert read(driver, pin, Edges(2, times_ns=[9991 * MS, 10_126 * MS])) == (0.0, 0.0, ())
    assert read(driver, pin, Edges(1, times_ns=[10_300 * MS])) == (0.2, 1.0, ())
    assert driver.pulses() == 7


def test_edges_that_the_kernel_merged_are_bounces_and_one_under_way_counts_once() -> None:
    pin = Pin()
    driver = counter(pin, debounce_s=0.2)
    assert read(driver, pin, Edges(9, times_ns=[1000 * MS], crowded=True)) == (0.2, 1.0, ())
    # Its interrupt has been counted, its time comes later.
    assert read(driver, pin, Edges(1)) == (0.0, 0.0, ())
    assert read(driver, pin, Edges(0, times_ns=[5000 * MS])) == (0.2, 1.0, ())


def test_without_debounce_all_edges_count_and_crowded_ones_are_noisy() -> None:
    pin = Pin()
    driver = counter(pin, QUANTITIES["energy"], 0.001)
    assert read(driver, pin, Edges(150)) == (0.15, 150.0, ())
    assert read(driver, pin, Edges(3, crowded=True)) == (0.003, 3.0, ("NOISY",))


def test_lost_pulses_are_no_value() -> None:
    pin = Pin()
    driver = counter(pin)
    with pytest.raises(ReadError, match="pulses of pin 25 went missing"):
        read(driver, pin, Edges(3, lost=True))
    assert read(driver, pin, Edges(1)) == (0.2, 1.0, ())
    with pytest.raises(ReadError, match="no time has passed"):
        driver.read()


def test_a_flow_is_the_mean_since_the_reading_before() -> None:
    pin = Pin()
    driver = counter(pin, FLOW, 0.5, offset=0.1)
    assert driver.channels == (Channel("flow", "L/s", "Hz", 0.0, 50.0),)
    assert read(driver, pin, Edges(30)) == (1.6, 3.0, ())
    assert read(driver, pin, Edges(0), 2.0) == (0.1, 0.0, ())
    assert counter(Pin()).channels == (Channel("precipitation", "mm", "1", 0.0, 500.0),)


def test_who_counts_without_times_cant_debounce() -> None:
    pin = Pin()
    pin.timed = False
    with pytest.raises(BoardError, match="edges by hand have no times, which debounce_s needs: have the"):
        counter(pin, debounce_s=0.2)
    assert pin.closed == 1
    counter(pin)


# Wires.


def test_a_pin_that_is_low_is_named_until_pulses_come() -> None:
    pin = Pin()
    driver = counter(pin, debounce_s=0.2)
    assert driver.diagnose() == ()
    pin.high = False
    assert "BCM pin 25 is low and no pulse comes" in driver.diagnose()[0]
    read(driver, pin, Edges(1, times_ns=[5]))
    assert driver.diagnose() == ()


def test_a_contact_that_bounces_more_than_contacts_do_is_named() -> None:
    pin = Pin()
    driver = counter(pin, debounce_s=0.2)
    read(driver, pin, Edges(20, times_ns=[MS * at for at in range(20)]))
    assert driver.diagnose() == ()
    read(driver, pin, Edges(30, times_ns=[500 * MS + at for at in range(30)]))
    assert "BCM pin 25 has 50 edges for 2 pulses" in driver.diagnose()[0]


# On an emulated board.


def test_a_bucket_whose_reed_is_stuck_adds_nothing() -> None:
    rain = fitted("rain", "pulse", quantity=FLOW, pin=25, slope=0.5, debounce_s=0.01)
    taken = run([rain], [Fault("rain", "stuck", 3, 3), Fault("rain", "spike", 6, amount=5)], 9)["rain"]
    raw = [one.got[0].raw for one in taken if not isinstance(one.got, ReadError)]
    assert [each == 0 for each in raw] == [False] * 3 + [True] * 3 + [False] * 3


# Millimetres of five minutes: drizzle, a shower, a dry spell, a cloudburst that the reed can just follow.
SHOWERS = [0.0, 0.05, 0.13, 1.7, 12.4, 0.0, 0.0, 0.31, 60.0, 0.2, 0.0]


@pytest.mark.parametrize("debounce_s", [0.0, 0.2])
def test_rain_comes_back_within_half_a_tip(
    tmp_path: Path, debounce_s: float, record_property: Callable[[str, object], None]
) -> None:
    path = tmp_path / "rain.csv"
    rows = [f"2026-03-01T{at // 12:02}:{at % 12 * 5:02}:00Z,{mm}" for at, mm in enumerate(SHOWERS)]
    path.write_text("\n".join(("time,rain", *rows)))
    rain = fitted("rain", "pulse", quantity=RAIN, pin=25, slope=0.2, debounce_s=debounce_s)
    board = replayed(path, [rain], {"rain": "rain"})
    values = [one.value for one in sample(board, [rain], {"rain": 60.0})["rain"]]
    assert len(values) == 5 * len(SHOWERS)
    worst = max(abs(sum(values[: 5 * (at + 1)]) - sum(SHOWERS[: at + 1])) for at in range(len(SHOWERS)))
    # Never more than half a tip of 0.2 mm waits in the bucket, whatever fell before.
    assert worst <= 0.1 + 1e-9
    assert all(abs(value / 0.2 - round(value / 0.2)) < 1e-9 for value in values)
    record_property("rain", f"{worst:.3g}")
    print(f"rain, debounce {debounce_s}: {worst:.3f} mm")  # noqa: T201


# The config.


@pytest.mark.parametrize(
    ("quantity", "options", "key", "words"),
    [
        (RAIN, {"slope": 0.0}, "slope", "must not be 0"),
        (RAIN, {"slope": 0.2, "offset": 1.0}, "offset", "precipitation is summed up: no pulses must add"),
    ],
)
def test_options_that_make_no_value_are_refused(
    quantity: Quantity, options: dict[str, Any], key: str, words: str
) -> None:
    with pytest.raises(OptionError, match=words) as caught:
        TYPE.settle(PulseOptions(quantity, 25, **options), None)
    assert caught.value.key == (key,)


def test_an_undebounced_bucket_is_a_concern() -> None:
    def keys(quantity: Quantity, debounce_s: float) -> list[tuple[str, ...]]:
        options = PulseOptions(quantity, 25, 0.2, debounce_s=debounce_s)
        return [each.key for each in TYPE.concerns(options, Nameplate())]

    assert keys(RAIN, 0.0) == [("debounce_s",)]
    assert keys(RAIN, 0.2) == keys(FLOW, 0.0) == []
