"""``fieldgate read``: from the board where no daemon runs, from the daemon where one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cloud.local.process import free_port
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.support.gateways import run_gateway
from tests.support.servers import eventually

CONFIG = """
[gateway]
id = "mast-07"
latitude = 27.7
longitude = 85.5
[outbox]
path = "outbox.db"
[board]
kind = "simulated"
[status]
listen = "{listen}"
[[sensor]]
name = "cup-a"
driver = "hall-anemometer"
pin = 17
slope = 0.765
offset = 0.35
[[sensor]]
name = "baro"
driver = "bp20"
[[sensor]]
name = "gps"
driver = "gpsd"
"""
MISSING_SENSOR = """
[gateway]
id = "mast-07"
[outbox]
path = "outbox.db"
[board]
kind = "raspberry-pi"
[status]
listen = ""
[[sensor]]
name = "gps"
driver = "gpsd"
latitude = 27.7
longitude = 85.5
port = {port}
"""


def read(config: Path, *arguments: str, columns: int = 100) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway.cli", "read", "-c", str(config), *arguments]
    environment = {**os.environ, "COLUMNS": str(columns)}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def written(directory: Path, text: str) -> Path:
    path = directory / "gateway.toml"
    path.write_text(text)
    return path


def by_channel(told: subprocess.CompletedProcess[str]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    answer = json.loads(told.stdout)
    return answer, {each["channel"]: each for each in answer["readings"]}


def test_without_a_daemon_the_board_is_opened_and_given_back(tmp_path: Path, free_port: int) -> None:
    config = written(tmp_path, CONFIG.format(listen=f"127.0.0.1:{free_port}"))
    told = read(config, "--json")
    assert (told.returncode, told.stderr) == (0, "")
    answer, readings = by_channel(told)
    assert (answer["ok"], answer["source"]) == (True, "board")
    assert list(readings) == ["cup-a.wind_speed", "baro.pressure", "gps.location"]
    cup = readings["cup-a.wind_speed"]
    # Counted over two seconds: half pulses a second.
    assert cup["raw"] * 2 == int(cup["raw"] * 2)
    assert cup["value"] == pytest.approx(0.765 * cup["raw"] + 0.35)
    assert (cup["unit"], cup["raw_unit"], cup["quality"], cup["words"]) == ("m/s", "Hz", 1, "")
    # It leaves nothing behind.
    assert [each.name for each in tmp_path.iterdir()] == ["gateway.toml"]

    lines = [
        json.loads(line) for line in read(config, "baro", "--seconds", "2.5", "--json").stdout.splitlines()
    ]
    assert len(lines) in (2, 3)
    assert [each["seq"] for each in lines] == list(range(1, len(lines) + 1))


def test_what_is_wrong_is_said(tmp_path: Path, free_port: int) -> None:
    config = written(tmp_path, MISSING_SENSOR.format(port=free_port))
    told = read(config, "--json")
    assert told.returncode == 1
    answer, readings = by_channel(told)
    gps = readings["gps.location"]
    assert not answer["ok"]
    assert (gps["value"], gps["quality"], gps["reasons"]) == (None, 9, ["READ_ERROR"])
    said = "the sensor does not answer: check plug, wiring and supply; "
    assert gps["words"].startswith(f"{said}nothing answers at 127.0.0.1:{free_port} (")
    assert "is the service running?" in gps["trouble"]
    told = read(config, "gsp")
    assert (told.returncode, told.stderr) == (1, "fieldgate: no sensor 'gsp' (did you mean gps?)\n")
    told = read(written(tmp_path, "[gateway]\n"))
    assert told.returncode == 1
    assert "gateway.id" in told.stderr


SLOW_SENSOR = """
[[sensor]]
name = "slow"
driver = "bp20"
adc.input = 1
interval_s = 3600
"""


def test_in_a_daemons_first_seconds_first_readings_are_waited_for(
    tmp_path: Path, mosquitto: LocalMosquitto
) -> None:
    text, kafka = CONFIG + SLOW_SENSOR, f"127.0.0.1:{free_port()}"
    with run_gateway(tmp_path, text.format(listen=""), "mast-07", kafka, mosquitto) as gateway:
        eventually(gateway.asked, 20)
        config = written(tmp_path, text.format(listen=f"127.0.0.1:{gateway.status_port}"))
        told = read(config, "--json")
        # Those that answer each second have answered; an hour isn't waited for, and is no failure.
        assert told.returncode == 75, told
        answer, readings = by_channel(told)
        assert not answer["ok"]
        assert list(readings) == ["cup-a.wind_speed", "baro.pressure", "gps.location", "slow"]
        assert [each["due_s"] is None for each in readings.values()] == [True, True, True, False]
        assert readings["slow"]["words"].startswith("no reading yet, due within 7")
        assert read(config, "--json", "cup-a", "baro").returncode == 0
        assert "no reading yet" in read(config).stdout
        assert gateway.stop() == 0


def test_a_running_daemon_is_asked(tmp_path: Path, mosquitto: LocalMosquitto) -> None:
    kafka = f"127.0.0.1:{free_port()}"
    with run_gateway(tmp_path, CONFIG.format(listen=""), "mast-07", kafka, mosquitto) as gateway:
        eventually(lambda: len(gateway.asked().get("channels", {})), until=lambda found: found == 3)
        # The daemon's address was given on its command line; as far as the file says its page is off.
        config = tmp_path / "gateway.toml"
        told = read(config)
        assert told.returncode == 1
        assert f"the daemon (process {gateway.process.pid}) has the sensors" in told.stderr
        assert "set [status] listen" in told.stderr
        config.write_text(CONFIG.format(listen=f"127.0.0.1:{gateway.status_port}"))
        told = read(config, "--json", "cup-a")
        assert told.returncode == 0, told.stderr
        answer, readings = by_channel(told)
        assert answer["source"] == "daemon"
        assert list(readings) == ["cup-a.wind_speed"]
        assert readings["cup-a.wind_speed"]["seq"] >= 1
        table = read(config, "baro").stdout.splitlines()
        assert table[0].split() == ["channel", "raw", "value", "quality", "age", "reason"]
        assert table[1].split()[0] == "baro.pressure"
        assert table[1].split()[2:5:2] == ["V", "kPa"]
        assert "\x1b" not in "".join(table)
        narrow = read(config, "baro", columns=40).stdout.splitlines()
        assert narrow[0].split() == ["baro.pressure", "good"]
        assert max(map(len, narrow)) <= 40
        lines = [
            json.loads(line) for line in read(config, "cup-a", "--seconds", "4", "--json").stdout.splitlines()
        ]
        seqs = [each["seq"] for each in lines]
        assert len(seqs) >= 2
        assert seqs == sorted(set(seqs))
        config.write_text(
            CONFIG.format(listen=f"127.0.0.1:{gateway.status_port}").replace("mast-07", "other")
        )
        assert "answers for gateway 'mast-07'" in read(config).stderr
        assert gateway.stop() == 0
