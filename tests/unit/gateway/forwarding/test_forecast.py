"""Days left in the outbox, with a measurement that the test plays."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from buffer.errors import OutboxError
from gateway.config import Config, load
from gateway.forwarding import forecast
from gateway.forwarding.forecast import Forecast
from tests.support.servers import eventually

MIB = 1 << 20
DAY_S = 86_400
PER_READING = 50.0


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """One reading a second, a cap of 1,009 MiB, of which ballast and log take 9."""
    file = tmp_path / "gateway.toml"
    file.write_text(
        '[gateway]\nid = "m"\n[board]\nkind = "simulated"\n'
        '[outbox]\npath = "o.db"\nmax_bytes = "1009 MiB"\nmin_free_disk = "100 MiB"\n'
        '[[sensor]]\nname = "c"\ndriver = "hall-anemometer"\npin = 4\nslope = 0.765\noffset = 0.35\n'
    )
    monkeypatch.setattr(forecast, "free_bytes", lambda directory: 5_000 * MIB)
    return load(file)


def test_it_is_unknown_until_it_was_measured_and_then_what_waits_counts(config: Config) -> None:
    measured = threading.Event()

    def measure(config: Config) -> float:
        assert measured.wait(60)
        return PER_READING

    days = Forecast(measure)
    assert days.days_left(config, 0, 0) is None
    measured.set()
    found = eventually(lambda: days.days_left(config, 0, 0), 60)
    assert found is not None
    assert found == pytest.approx(1000 * MIB / PER_READING / DAY_S, abs=0.005)
    # A day of readings waits; a file that was larger once has the same room.
    assert days.days_left(config, 200 * MIB, DAY_S) == pytest.approx(found - 1, abs=0.011)
    assert days.days_left(config, 0, 10**9) == 0.0


def test_the_disk_counts_where_it_holds_less_than_the_cap(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "free_bytes", lambda directory: 309 * MIB)
    days = Forecast(lambda config: PER_READING)
    found = eventually(lambda: days.days_left(config, 0, 0), 60)
    assert found == pytest.approx(200 * MIB / PER_READING / DAY_S, abs=0.005)

    def no_disk(directory: Path) -> int:
        raise OSError("gone")

    monkeypatch.setattr(forecast, "free_bytes", no_disk)
    assert days.days_left(config, 0, 0) is None


def test_another_config_is_measured_anew_and_an_old_answer_is_not_taken_for_it(config: Config) -> None:
    late = threading.Event()
    other = replace(config)
    asked: list[Config] = []

    def measure(given: Config) -> float:
        asked.append(given)
        if given is config:
            assert late.wait(60)
        return PER_READING if given is other else 1.0

    days = Forecast(measure)
    assert days.days_left(config, 0, 0) is None
    found = eventually(lambda: days.days_left(other, 0, 0), 60)
    late.set()
    for thread in threading.enumerate():
        if thread.name == "forecast":
            thread.join()
    assert days.days_left(other, 0, 0) == found == pytest.approx(1000 * MIB / PER_READING / DAY_S, abs=0.005)
    assert asked == [config, other]


def test_a_measurement_that_fails_is_told_and_not_repeated(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[Config] = []

    def measure(given: Config) -> float:
        asked.append(given)
        raise OutboxError("no room in /dev/shm")

    days = Forecast(measure)
    assert days.days_left(config, 0, 0) is None
    eventually(lambda: "event=forecast.unknown error=no room in /dev/shm" in caplog.text, 60)
    assert days.days_left(config, 0, 0) is None
    assert len(asked) == 1
