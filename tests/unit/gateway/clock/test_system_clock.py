"""The machine's clock."""

from __future__ import annotations

import threading
import time

import pytest

from gateway.clock.system_clock import Machine, SystemClock, kernel_synchronised


def test_waiting_ends_when_the_time_has_come() -> None:
    clock = SystemClock("always")
    due_ns = time.time_ns() + 50_000_000
    assert clock.wait_until(due_ns)
    assert time.time_ns() >= due_ns


def test_stop_ends_every_wait() -> None:
    clock = SystemClock("always")
    woken: list[bool] = []
    waiter = threading.Thread(target=lambda: woken.append(clock.wait_until(time.time_ns() + 10**12)))
    waiter.start()
    clock.stop()
    waiter.join(10)
    assert woken == [False]
    assert not clock.wait_until(0)


class Kernel:
    """The kernel's clocks, set at the ``set_at``-th read of the wall clock."""

    def __init__(self, by_ns: int = 0, set_at: int = 1_000_000) -> None:
        self.by_ns = by_ns
        self.set_at = set_at
        self.reads = 0

    def wall_ns(self) -> int:
        self.reads += 1
        return time.time_ns() + (self.by_ns if self.reads >= self.set_at else 0)

    def clock(self) -> SystemClock:
        return SystemClock("always", Machine(wall_ns=self.wall_ns))


@pytest.mark.parametrize("by_ns", [-3600 * 10**9, 3600 * 10**9])
def test_a_clock_that_is_set_ends_the_wait(by_ns: int) -> None:
    kernel = Kernel(by_ns)
    clock = kernel.clock()
    before_ns = clock.offset_ns()
    kernel.set_at = kernel.reads + 4
    began_s = time.monotonic()
    assert clock.wait_until(time.time_ns() + 20 * 10**9)
    assert time.monotonic() - began_s < 15
    assert abs(clock.offset_ns() - before_ns - by_ns) < 10**7


def test_a_clock_that_was_set_just_before_is_not_waited_for() -> None:
    kernel = Kernel(-3600 * 10**9)
    clock = kernel.clock()
    before_ns = clock.offset_ns()
    kernel.set_at = 0
    assert clock.wait_until(time.time_ns() + 20 * 10**9, before_ns)


def test_the_offset_is_wall_time_less_time_since_boot() -> None:
    clock = SystemClock("always", Machine(wall_ns=lambda: 5_000_000_007, boot_ns=lambda: 2_000_000_003))
    assert clock.offset_ns() == 3_000_000_004


def test_the_offset_stays_the_same_while_the_clock_is_not_set() -> None:
    offsets_ns = iter([0, 400_000, -900_000, 1_000_001, 1_100_000])
    at_ns = 0

    def boot_ns() -> int:
        return at_ns

    clock = SystemClock("always", Machine(wall_ns=lambda: at_ns + next(offsets_ns), boot_ns=boot_ns))
    seen: list[int] = []
    for at_ns in range(1, 5):  # noqa: B007
        seen.append(clock.offset_ns())
    assert seen == [0, 0, 1_000_001, 1_000_001]


def test_what_was_synchronised_once_stays_so() -> None:
    answers = iter([False, True, False])
    clock = SystemClock("kernel", Machine(synchronised=lambda: next(answers)))
    assert [clock.synced for _ in range(5)] == [False, True, True, True, True]
    assert SystemClock("kernel", Machine(synchronised=lambda: False), known_synced=True).synced


def test_trust_decides_whether_the_kernels_flag_counts() -> None:
    assert SystemClock("always").synced
    assert SystemClock("kernel").synced == kernel_synchronised()
