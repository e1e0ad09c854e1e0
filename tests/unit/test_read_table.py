"""``fieldgate read`` for people shows what a driver says as it stands, on a wide and a narrow terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gateway.read_command import Row, print_rows

TROUBLE = 'pins need a Raspberry Pi; elsewhere use [board] kind = "simulated"'


@pytest.mark.parametrize("width", [160, 40])
def test_brackets_in_a_drivers_words_are_no_markup(width: int) -> None:
    told = io.StringIO()
    row = Row("cup", "cup.wind_speed", None, None, "m/s", None, None, 9, ("READ_ERROR",), 1, TROUBLE)
    print_rows([row], Console(file=told, width=width, highlight=False), None)
    assert TROUBLE in " ".join(told.getvalue().split())
