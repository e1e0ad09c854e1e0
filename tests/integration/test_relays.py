"""Relays of a daemon that is stopped or killed, without any broker: the emulated pins are in a file."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.config import config_text, dht, write_config
from tests.support.servers import eventually, fieldgate

FAN = {"name": "fan", "pin": 23, "active": "low"}
WARM = {"when": "dht.temperature > 1", "then": "relay.fan on", "stale_s": 60}
OFF, ON = {"23": True}, {"23": False}


def levels(directory: Path) -> dict[str, bool]:
    """The pins that were driven, and whether each is high."""
    file = directory / "pins.json"
    found: dict[str, bool] = json.loads(file.read_text()) if file.exists() else {}
    return found


@contextmanager
def daemon(directory: Path, nowhere: str) -> Iterator[subprocess.Popen[bytes]]:
    """One whose Kafka and Mosquitto don't exist."""
    text = config_text(
        dht(),
        actuator=[FAN],
        interlock=[WARM],
        board={"pins_file": "pins.json"},
        mqtt={"port": int(nowhere.partition(":")[2])},
        kafka={"bootstrap_servers": nowhere},
        status={"listen": ""},
    )
    path = write_config(directory, text)
    with subprocess.Popen([sys.executable, "-m", "gateway.cli", "run", "-c", str(path)]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_after_kill_9_the_units_command_makes_it_safe_whatever_else_is_wrong(
    tmp_path: Path, nowhere: str
) -> None:
    with daemon(tmp_path, nowhere) as process:
        assert eventually(lambda: levels(tmp_path), until=lambda found: found == ON) == ON
        process.send_signal(signal.SIGKILL)
        process.wait()
    # As on a kernel that keeps a released pin's level.
    assert levels(tmp_path) == ON
    path = tmp_path / "gateway.toml"
    path.write_text(path.read_text().replace('id = "mast-07"', "id = 7"))
    done = fieldgate("service", "relays", "--safe", "-c", str(path))
    assert (done.returncode, done.stdout, levels(tmp_path)) == (0, "fan: off\n", OFF)


def test_a_stop_leaves_it_safe(tmp_path: Path, nowhere: str) -> None:
    with daemon(tmp_path, nowhere) as process:
        eventually(lambda: levels(tmp_path), until=lambda found: found == ON)
        process.send_signal(signal.SIGTERM)
        eventually(lambda: levels(tmp_path), until=lambda found: found == OFF)
        assert process.wait(60) in (0, 1)


def test_a_relay_that_has_an_error_is_named(tmp_path: Path) -> None:
    path = write_config(tmp_path, config_text(actuator=[{**FAN, "safe": "out"}]))
    done = fieldgate("service", "relays", "--safe", "-c", str(path))
    assert done.returncode == 1
    assert 'actuator[1].safe: must be one of "off", "on", not "out"' in done.stderr
