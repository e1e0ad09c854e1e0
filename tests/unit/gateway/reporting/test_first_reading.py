from __future__ import annotations

from pathlib import Path

from gateway.reporting.first_reading import FirstReading
from tests.support.forwarding import snapshot


def test_a_start_is_named_once_a_reading_of_it_is_safe(tmp_path: Path) -> None:
    first = FirstReading({"RUNTIME_DIRECTORY": str(tmp_path), "INVOCATION_ID": "0f3c"})
    first.tick(snapshot(durable=False))
    assert not list(tmp_path.iterdir())
    first.tick(snapshot(durable=True))
    assert (tmp_path / "durable").read_text() == "0f3c\n"
    # Once: the main loop turns each second.
    (tmp_path / "durable").unlink()
    first.tick(snapshot(durable=True))
    assert not list(tmp_path.iterdir())


def test_without_systemd_nothing_is_written(tmp_path: Path) -> None:
    FirstReading({}).tick(snapshot(durable=True))
    FirstReading({"RUNTIME_DIRECTORY": str(tmp_path / "absent")}).tick(snapshot(durable=True))
    assert not list(tmp_path.iterdir())
