"""``fieldgate service relays --safe``."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivers.hardware.gpio_chip import Kernel
from gateway.cli import main
from tests.support.config import config_text, write_config


def test_without_relays_nothing_is_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A Raspberry Pi's board, which isn't here.
    path = write_config(tmp_path, config_text(board={"kind": "raspberry-pi"}))
    assert main(["service", "relays", "--safe", "-c", str(path)]) == 0
    assert capsys.readouterr().out == ""


def test_each_relay_is_tried_and_one_that_fails_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not those of the machine that the test runs on.
    monkeypatch.setattr(Kernel, "chips", lambda _kernel: [])
    relays = [{"name": "fan", "pin": 23}, {"name": "lamp", "pin": 24}]
    path = write_config(tmp_path, config_text(board={"kind": "raspberry-pi"}, actuator=relays))
    assert main(["service", "relays", "--safe", "-c", str(path)]) == 1
    error = capsys.readouterr().err
    assert "fan: there is no /dev/gpiochip*" in error
    assert "lamp: there is no /dev/gpiochip*" in error
