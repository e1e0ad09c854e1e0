"""``fieldgate read`` for people shows a driver's message as it stands, on a wide and a narrow terminal."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from gateway.commands.reading_rows import Row, print_rows, rows_of_status
from gateway.config import load
from tests.support.config import baro, config_text, write_config
from tests.support.status import CONFIG, status

TROUBLE = 'pins need a Raspberry Pi; elsewhere use [board] kind = "simulated"'


@pytest.mark.parametrize("width", [160, 40])
def test_brackets_in_a_drivers_words_are_no_markup(width: int) -> None:
    out = io.StringIO()
    row = Row("cup", "cup.wind_speed", None, None, "m/s", None, None, 9, ("READ_ERROR",), 1, TROUBLE)
    print_rows([row], Console(file=out, width=width, highlight=False), None)
    assert TROUBLE in " ".join(out.getvalue().split())


def row_without_reading(tmp_path: Path, interval_s: float, **changes: Any) -> Row:
    """The row of a barometer of which the daemon has no reading."""
    path = write_config(tmp_path, config_text(baro(interval_s=interval_s)))
    (row,) = rows_of_status(status(**changes), load(path, {}).sensors)
    return row


@pytest.mark.parametrize(
    ("interval_s", "uptime_s", "words"),
    [
        (1, 0.0, "no reading yet, due within 7 s"),
        (600, 300.0, "no reading yet, due within 905 s"),
        (1, 6.5, "no reading yet, due now"),
    ],
)
def test_a_sensor_that_is_not_due_yet_is_no_failure(
    tmp_path: Path, interval_s: float, uptime_s: float, words: str
) -> None:
    row = row_without_reading(tmp_path, interval_s, uptime_s=uptime_s)
    assert (row.sensor, row.words, row.pending, row.failed) == ("baro", words, True, False)


@pytest.mark.parametrize(
    ("loaded", "pending"),
    [(timedelta(seconds=-1), True), (timedelta(days=1), False)],
    ids=["reloaded", "a clock that was set back since"],
)
def test_a_reload_begins_the_waiting_again(tmp_path: Path, loaded: timedelta, pending: bool) -> None:
    config = replace(CONFIG, loaded_at=(datetime.now(UTC) + loaded).isoformat())
    row = row_without_reading(tmp_path, 60, uptime_s=9_000, config=config)
    assert (row.pending, row.failed) == (pending, not pending)


def test_a_sensor_whose_reading_is_overdue_has_failed(tmp_path: Path) -> None:
    row = row_without_reading(tmp_path, 1, uptime_s=8, troubles={"baro": "no ADS1115 answers"})
    assert (row.pending, row.failed) == (False, True)
    assert row.words == (
        "no ADS1115 answers; no reading, though it is due: "
        "reload the daemon if the sensor is new in the config"
    )
