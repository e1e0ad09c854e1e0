"""The beginning and the end of a sensor's failures are logged; the log's limit takes care of repetitions."""

from __future__ import annotations

import logging

import pytest

from drivers.interface import ReadError
from tests.support.clocks import SteppingClock
from tests.unit.gateway.sampling.test_sampler import T0_NS, ScriptedDriver, answer, failure, run


def logged(caplog: pytest.LogCaptureFixture, *answers: float | str) -> list[str]:
    """What a sensor's run logs whose reads give these values, or fail with these messages."""
    calls = [failure(ReadError(each)) if isinstance(each, str) else answer(each) for each in answers]
    clock = SteppingClock(T0_NS, T0_NS + len(calls) * 1_000_000_000)
    caplog.set_level(logging.WARNING)
    run(ScriptedDriver(clock, calls))
    return caplog.messages


def test_a_silence_is_logged_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, 1.0, *["no answer"] * 50, 2.0, 3.0) == [
        "event=sensor.silent sensor=cup error=no answer",
        "event=sensor.answers sensor=cup",
    ]


def test_another_kind_of_failure_is_logged_other_figures_are_not(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, "gpsd closed the connection", "no fix for 3 s", "no fix for 14 s") == [
        "event=sensor.silent sensor=cup error=gpsd closed the connection",
        "event=sensor.silent sensor=cup error=no fix for 3 s",
    ]
