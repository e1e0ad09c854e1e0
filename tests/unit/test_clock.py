"""The machine's clock."""

from __future__ import annotations

import threading
import time

import pytest

from gateway.clock import SystemClock, kernel_synchronised


def test_waiting_ends_when_the_time_has_come() -> None:
    clock = SystemClock("always")
    due_ns = time.time_ns() + 50_000_000
    assert clock.wait_until(due_ns)
    assert time.time_ns() >= due_ns


def test_stop_wakes_whoever_waits() -> None:
    clock = SystemClock("always")
    woken: list[bool] = []
    waiter = threading.Thread(target=lambda: woken.append(clock.wait_until(time.time_ns() + 10**12)))
    waiter.start()
    clock.stop()
    waiter.join(10)
    assert woken == [False]
    assert not clock.wait_until(0)


def test_a_clock_set_back_lengthens_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock("always")
    real, hour_ns = time.time_ns, 3600 * 10**9
    due_ns = real() + 50_000_000
    answers = iter([real()])
    monkeypatch.setattr("gateway.clock.time.time_ns", lambda: next(answers, real() - hour_ns))
    assert clock.wait_until(due_ns)
    assert clock.now_ns() < due_ns


def test_trust_decides_whose_word_the_time_is() -> None:
    assert SystemClock("always").synced
    assert SystemClock("kernel").synced == kernel_synchronised()
