"""Event time moves in lock-step, whole, paced and interruptibly."""

from __future__ import annotations

import threading
import time

import pytest

from drivers.emulation.stepped_clock import SteppedClock
from tests.support.servers import eventually

S = 1_000_000_000
START = 1_700_000_000 * S
FAST = 1e9


def clock_of(end_s: int | None = 100, speed: float = FAST) -> tuple[SteppedClock, list[tuple[int, int]]]:
    crossed: list[tuple[int, int]] = []
    end_ns = None if end_s is None else START + end_s * S

    def cross(start_ns: int, end_ns: int) -> None:
        crossed.append(((start_ns - START) // S, (end_ns - START) // S))

    return SteppedClock(START, end_ns, speed, cross), crossed


class Waiter(threading.Thread):
    """Waits for one instant in a thread of its own."""

    def __init__(self, clock: SteppedClock, second: float) -> None:
        super().__init__(daemon=True)
        self.clock, self.time_ns = clock, START + round(second * S)
        self.came: bool | None = None
        self.start()

    def run(self) -> None:
        self.came = self.clock.wait_until(self.time_ns)

    def ended(self) -> bool | None:
        self.join(60)
        assert not self.is_alive()
        return self.came


def test_time_stands_still_until_every_sampler_waits() -> None:
    clock, crossed = clock_of()
    clock.join()
    clock.join()
    first = Waiter(clock, 5)
    eventually(lambda: len(clock._waiting) == 1)
    assert (clock.now_ns(), crossed, first.is_alive()) == (START, [], True)
    second = Waiter(clock, 3)
    assert second.ended() is True
    assert clock.now_ns() == START + 3 * S
    assert crossed == [(0, 3)]
    assert first.is_alive()
    third = Waiter(clock, 9)
    assert first.ended() is True
    assert crossed == [(0, 3), (3, 5)]
    clock.leave()
    assert third.ended() is True
    assert crossed == [(0, 3), (3, 5), (5, 9)]
    assert clock.monotonic() == 9.0


def test_the_world_moves_before_anyone_wakes() -> None:
    seen: list[str] = []
    clock = SteppedClock(START, None, FAST, lambda _start, _end: seen.append("pulses"))
    clock.join()
    assert clock.wait_until(START + S)
    seen.append("woke")
    assert seen == ["pulses", "woke"]


def test_a_sampler_that_joins_while_time_is_paced_is_waited_for() -> None:
    clock, crossed = clock_of(end_s=None, speed=10.0)
    clock.join()
    late = Waiter(clock, 1000)
    eventually(lambda: clock._pacing is not None)
    clock.join()
    # The pace is now the earlier instant's: it doesn't come with the later one, in a hundred seconds.
    assert Waiter(clock, 1).ended() is True
    assert clock.now_ns() == START + S
    assert crossed == [(0, 1)]
    clock.stop()
    assert late.ended() is False


def test_many_samplers_see_exactly_their_own_grid() -> None:
    clock, crossed = clock_of(end_s=60)
    seen: dict[int, list[int]] = {}

    def run(period_s: int) -> None:
        at_s = 0
        while clock.covers(START + at_s * S, START + (at_s + period_s) * S):
            assert clock.wait_until(START + at_s * S)
            seen.setdefault(period_s, []).append((clock.now_ns() - START) // S)
            at_s += period_s
        clock.leave()

    threads = [threading.Thread(target=run, args=(period_s,), daemon=True) for period_s in (1, 2, 3, 5, 7)]
    for _ in threads:
        clock.join()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert seen == {period_s: list(range(0, 60 - period_s + 1, period_s)) for period_s in (1, 2, 3, 5, 7)}
    assert [start for start, _ in crossed[1:]] == [end for _, end in crossed[:-1]]


def test_the_end_of_the_world() -> None:
    clock, _ = clock_of(end_s=10)
    clock.join()
    assert clock.covers(START + 9 * S, START + 10 * S)
    assert not clock.covers(START + 9 * S, START + 11 * S)
    assert clock.wait_until(START + 10 * S)
    assert not clock.wait_until(START + 10 * S + 1)
    clock.leave()


def test_stop_wakes_those_that_wait_and_those_that_pace() -> None:
    clock, crossed = clock_of(end_s=None, speed=1e-6)
    for _ in range(3):
        clock.join()
    pacing = [Waiter(clock, 1), Waiter(clock, 2), Waiter(clock, 3)]
    eventually(lambda: clock._pacing is not None)
    clock.stop()
    assert [waiter.ended() for waiter in pacing] == [False, False, False]
    assert not clock.wait_until(START)
    assert crossed == []


def test_speed_is_an_upper_bound_on_an_absolute_schedule() -> None:
    clock, _ = clock_of(end_s=None, speed=50.0)
    clock.join()
    begin = time.monotonic()
    for second in range(1, 11):
        assert clock.wait_until(START + second * S)
        assert time.monotonic() - begin >= second / 50 - 0.001
    # Real time would take ten.
    assert time.monotonic() - begin < 8.0


def test_lost_time_is_caught_up() -> None:
    # A minute was lost, and more.
    clock = SteppedClock(START, None, 10.0, lambda _start, _end: None, anchor_s=time.monotonic() - 70)
    clock.join()
    begin = time.monotonic()
    for second in range(1, 601):
        assert clock.wait_until(START + second * S)
    # Paced from one step to the next it would take a minute.
    assert time.monotonic() - begin < 30


def test_event_time_never_runs_ahead_of_real_time() -> None:
    real_ns = [START + 5 * S]
    clock = SteppedClock(START, None, FAST, lambda _start, _end: None, lambda: real_ns[0])
    clock.join()
    assert clock.wait_until(START + 5 * S)
    ahead = Waiter(clock, 6)
    eventually(lambda: clock._pacing is not None)
    assert clock.now_ns() == START + 5 * S
    real_ns[0] = START + 6 * S
    assert ahead.ended() is True


def test_what_goes_wrong_in_the_world_reaches_the_sampler() -> None:
    def broken(_start_ns: int, _end_ns: int) -> None:
        raise ZeroDivisionError

    clock = SteppedClock(START, None, FAST, broken)
    clock.join()
    with pytest.raises(ZeroDivisionError):
        clock.wait_until(START + S)
    assert clock.now_ns() == START


def test_the_samplers_of_an_instant_go_one_after_the_other() -> None:
    clock, _ = clock_of(end_s=3)
    at_work: list[int] = []
    most: list[int] = []

    def sample(number: int) -> None:
        for second in (1, 2, 3):
            assert clock.wait_until(START + second * S)
            at_work.append(number)
            threading.Event().wait(0.01)
            most.append(len(at_work))
            at_work.remove(number)
        clock.leave()

    threads = [threading.Thread(target=sample, args=(number,), daemon=True) for number in range(4)]
    for _ in threads:
        clock.join()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1] * 12


def test_one_that_hangs_does_not_keep_the_others_of_its_instant_for_long() -> None:
    clock, _ = clock_of()
    for _ in range(3):
        clock.join()
    # None of the threads comes back after it.
    waiters = [Waiter(clock, 1) for _ in range(3)]
    assert [waiter.ended() for waiter in waiters] == [True, True, True]
