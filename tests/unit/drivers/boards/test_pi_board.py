"""Away from a Raspberry Pi, its errors name what is missing and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivers.boards.registry import BOARDS, open_board
from drivers.interface import BoardError, FittedSensor
from drivers.registry import driver_type
from tests.support.masts import ALL_KINDS

pytestmark = pytest.mark.skipif(
    Path("/sys/firmware/devicetree/base/model").exists(), reason="this is a board with pins"
)


# The others connect at their first read, and need no Pi.
@pytest.mark.parametrize(
    "sensor", [s for s in ALL_KINDS if s.driver not in ("gpsd", "modbus")], ids=lambda s: s.driver
)
def test_start_names_the_remedy(sensor: FittedSensor, capfd: pytest.CaptureFixture[str]) -> None:
    board = open_board(BOARDS["raspberry-pi"](), [sensor], Path())
    assert board.clock is None
    driver = driver_type(sensor.driver).make(board, sensor.options)
    with pytest.raises(BoardError, match="Raspberry Pi"):
        driver.start()
    driver.stop()
    board.close()
    assert capfd.readouterr().out == ""
