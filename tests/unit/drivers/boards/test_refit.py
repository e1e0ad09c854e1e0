"""Sensors that come, go and change on a board that runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from drivers.emulation.board import EmulatedBoard
from drivers.interface import BoardError, Driver, FittedSensor
from drivers.registry import driver_type
from tests.support.masts import NRG_CUP, SECOND_NS, fitted, replayed, simulated

CUP = fitted("cup", "hall-anemometer", 50.0, pin=17, **NRG_CUP)
TWIN = fitted("twin", "hall-anemometer", 50.0, pin=27, **NRG_CUP)
BARO = fitted("baro", "bp20")
SUN = fitted("sun", "pyranometer")
DHT = fitted("dht", "dht11", pin=4)


def started(board: EmulatedBoard, sensor: FittedSensor) -> Driver:
    driver = driver_type(sensor.driver).make(board, sensor.options)
    driver.start()
    return driver


def pass_time(board: EmulatedBoard, seconds: int) -> None:
    assert board.clock.wait_until(board.clock.now_ns() + seconds * SECOND_NS)


def speeds(changes: bool) -> list[float]:
    """What a cup reads over 20 s, beside another that comes, changes and goes, or not."""
    board = simulated([CUP])
    board.clock.join()
    cup, read = started(board, CUP), []
    for second in range(20):
        if changes and second == 5:
            board.refit([TWIN, CUP])()
        if changes and second == 10:
            board.refit([CUP, replace(TWIN, height_m=10.0)])()
        if changes and second == 15:
            board.refit([CUP])()
        pass_time(board, 1)
        read.append(cup.read()[0].value)
    return read


def test_a_cup_that_stays_counts_on_as_if_nothing_happened() -> None:
    assert speeds(changes=True) == speeds(changes=False)


def test_chips_and_lines_come_and_go_and_a_shared_chip_keeps_working() -> None:
    board = simulated([BARO])
    board.clock.join()
    baro = started(board, BARO)
    board.refit([BARO, SUN, DHT])()
    dht = started(board, DHT)
    pass_time(board, 2)
    assert started(board, SUN).read()[0].value == pytest.approx(0, abs=1500)
    assert 60 < baro.read()[0].value < 105
    first, second = dht.read(), None
    pass_time(board, 2)
    second = dht.read()
    assert abs(first[0].value - second[0].value) < 1
    board.refit([DHT])()
    with pytest.raises(BoardError, match="no ADS1115 answers at 0x48"):
        started(board, BARO)


def test_a_replayed_file_has_no_columns_for_sensors_that_come_later(tmp_path: Path) -> None:
    rows = [f"2026-01-01T00:00:{second:02}Z,{7 + second % 3}" for second in range(30)]
    (tmp_path / "mast.csv").write_text("\n".join(["time,wind", *rows, ""]))
    board = replayed(tmp_path / "mast.csv", [CUP], {"cup": "wind"})
    with pytest.raises(BoardError, match=r"read once, at the start, and twin\.wind_speed had none"):
        board.refit([CUP, TWIN])
    board.clock.join()
    other = replace(CUP, options=replace(CUP.options, slope=0.5, pin=22))
    board.refit([other])()
    cup = started(board, other)
    pass_time(board, 3)
    assert cup.read()[0].value == pytest.approx(8, abs=0.5)
