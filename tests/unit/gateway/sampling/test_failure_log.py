"""The beginning and the end of a sensor's failures are logged; the log's limit takes care of repetitions."""

from __future__ import annotations

import logging

import pytest

from drivers.interface import ReadError
from gateway.sampling.sampler import FailureLog


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING)
    return caplog


def test_a_silence_is_logged_when_it_begins_and_when_it_ends(records: pytest.LogCaptureFixture) -> None:
    failures = FailureLog("baro")
    failures.answered()
    for _ in range(50):
        failures.failed(ReadError("no answer"))
    failures.answered()
    failures.answered()
    assert records.messages == [
        "event=sensor.silent sensor=baro error=no answer",
        "event=sensor.answers sensor=baro",
    ]


def test_another_kind_of_failure_is_logged_other_figures_are_not(records: pytest.LogCaptureFixture) -> None:
    failures = FailureLog("gps")
    for failure in ("gpsd closed the connection", "no fix for 3 s", "no fix for 14 s"):
        failures.failed(ReadError(failure))
    assert records.messages == [
        "event=sensor.silent sensor=gps error=gpsd closed the connection",
        "event=sensor.silent sensor=gps error=no fix for 3 s",
    ]
