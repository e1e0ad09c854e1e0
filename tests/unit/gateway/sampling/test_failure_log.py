from __future__ import annotations

import logging

import pytest

from drivers.interface import ChecksumError, ReadError
from gateway.sampling.failure_log import FailureLog


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING)
    return caplog


def test_a_silence_is_logged_when_it_begins_and_when_it_ends(records: pytest.LogCaptureFixture) -> None:
    complaints = FailureLog("baro")
    complaints.answered()
    for second in range(50):
        complaints.failed(ReadError("no answer"), 100.0 + second)
    complaints.answered()
    complaints.answered()
    assert records.messages == [
        "event=sensor.silent sensor=baro error=no answer",
        "event=sensor.answers sensor=baro",
    ]


def test_a_sensor_that_fails_now_and_then_is_logged_once_an_hour(records: pytest.LogCaptureFixture) -> None:
    complaints = FailureLog("dht")
    for second in range(0, 86_400, 2):
        if second % 40 == 0:
            complaints.failed(ChecksumError("checksum"), float(second))
        else:
            complaints.answered()
    silences = [message for message in records.messages if "silent" in message]
    assert len(silences) == 24
    assert silences[0] == "event=sensor.silent sensor=dht error=checksum"
    assert silences[1:] == ["event=sensor.silent sensor=dht error=checksum failures=90"] * 23
    assert len(records.messages) == 48


def test_a_silence_that_lasts_is_logged_within_the_hour(records: pytest.LogCaptureFixture) -> None:
    complaints = FailureLog("dht")
    complaints.failed(ChecksumError("checksum"), 0.0)
    complaints.answered()
    for second in range(100, 200, 2):
        complaints.failed(ChecksumError("checksum"), float(second))
    complaints.answered()
    assert records.messages[2:] == [
        "event=sensor.silent sensor=dht error=checksum failures=31",
        "event=sensor.answers sensor=dht",
    ]


def test_a_sensor_that_stays_silent_is_logged_again_each_hour(records: pytest.LogCaptureFixture) -> None:
    complaints = FailureLog("baro")
    for second in range(7_201):
        complaints.failed(ReadError("no answer"), float(second))
    assert [message.rpartition(" ")[2] for message in records.messages] == [
        "answer",
        "failures=3600",
        "failures=3600",
    ]


def test_another_kind_of_failure_is_logged_other_figures_are_not(
    records: pytest.LogCaptureFixture,
) -> None:
    complaints = FailureLog("gps")
    for failure in (
        "gpsd closed the connection",
        "no fix for 3 s",
        "no fix for 14 s",
        "gpsd closed the connection",
    ):
        complaints.failed(ReadError(failure), 10.0)
        complaints.answered()
    assert [message for message in records.messages if "silent" in message] == [
        "event=sensor.silent sensor=gps error=gpsd closed the connection",
        "event=sensor.silent sensor=gps error=no fix for 3 s",
    ]


def test_texts_that_are_others_each_time_do_not_fill_the_log(records: pytest.LogCaptureFixture) -> None:
    complaints = FailureLog("odd")
    for number in range(1, 1_000):
        complaints.failed(ReadError("x" * number), 10.0)
        complaints.answered()
    assert len(records.messages) == 2 * 9
