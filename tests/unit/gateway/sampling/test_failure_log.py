"""The beginning and the end of a sensor's failures are logged; the log's limit takes care of repetitions."""

from __future__ import annotations

import logging

import pytest

from drivers.interface import ChecksumError, ReadError
from gateway.sampling.sampler import FailureLog
from gateway.system.logs import AGAIN_S, IN_A_ROW, LogQueue, RateLimit


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


def test_a_sensor_that_fails_now_and_then_does_not_fill_the_log() -> None:
    written: list[str] = []
    now_s = 0.0
    limit, queued = RateLimit(lambda record: written.append(record.getMessage()), lambda: now_s), LogQueue()
    log = logging.getLogger("gateway.sampling.sampler")
    log.addHandler(queued)
    try:
        failures = FailureLog("dht")
        for second in range(0, 86_400, 2):
            now_s = float(second)
            if second % 40 == 0:
                failures.failed(ChecksumError("checksum"))
            else:
                failures.answered()
            limit.release_due()
            while not queued.lines.empty():
                limit.handle(queued.lines.get())
    finally:
        log.removeHandler(queued)
    # Beginnings, and as many ends.
    assert len(written) <= 2 * (IN_A_ROW + 86_400 / AGAIN_S)
    assert sum(int(line.rpartition("suppressed=")[2]) for line in written if "suppressed" in line) > 4_000
