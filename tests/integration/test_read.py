"""``fieldgate read``: from the board where no daemon runs, from the daemon where one does."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.support.commands import called
from tests.support.config import ID, PLACE, Table, baro, config_text, cup, sensor, write_config
from tests.support.mast import run_gateway
from tests.support.servers import eventually

TEN_PAST = {"start": "2026-01-01T00:10:00Z"}
"""The board's time: no full hour passes, at which a sensor that is read each hour would be."""


def mast_config(listen: str, *more: Table) -> str:
    sensors = cup("cup-a"), baro(), sensor("gps", "gpsd"), *more
    return config_text(*sensors, gateway=PLACE, board=TEN_PAST, status={"listen": listen})


def read(config: Path, *arguments: str, columns: int = 100) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        return called("read", "-c", config, *arguments)


def by_channel(done: subprocess.CompletedProcess[str]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    answer = json.loads(done.stdout)
    return answer, {each["channel"]: each for each in answer["readings"]}


def test_without_a_daemon_the_board_is_opened_and_given_back(tmp_path: Path, free_port: int) -> None:
    config = write_config(tmp_path, mast_config(f"127.0.0.1:{free_port}"))
    done = read(config, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer, readings = by_channel(done)
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
    assert 1 <= len(lines) <= 3
    assert [each["seq"] for each in lines] == list(range(1, len(lines) + 1))


def test_what_is_wrong_is_reported(tmp_path: Path, nowhere: str) -> None:
    gps = sensor("gps", "gpsd", port=int(nowhere.partition(":")[2]), **PLACE)
    text = config_text(gps, board={"kind": "raspberry-pi"}, status={"listen": ""})
    config = write_config(tmp_path, text)
    done = read(config, "--json")
    assert done.returncode == 1
    answer, readings = by_channel(done)
    gps = readings["gps.location"]
    assert not answer["ok"]
    assert (gps["value"], gps["quality"], gps["reasons"]) == (None, 9, ["READ_ERROR"])
    words = "the sensor does not answer: check plug, wiring and supply; "
    assert gps["words"].startswith(f"{words}nothing answers at {nowhere} (")
    assert "is the service running?" in gps["trouble"]
    done = read(config, "gsp")
    assert (done.returncode, done.stderr) == (1, "fieldgate: no sensor 'gsp' (did you mean gps?)\n")
    done = read(write_config(tmp_path, "[gateway]\n"))
    assert done.returncode == 1
    assert "gateway.id" in done.stderr


def test_a_running_daemons_readings_are_shown_and_first_ones_are_waited_for(
    tmp_path: Path, nowhere: str, mosquitto: LocalMosquitto
) -> None:
    slow = baro("slow", adc={"input": 1}, interval_s=3600)
    with run_gateway(tmp_path, mast_config("", slow), ID, nowhere, mosquitto) as gateway:
        eventually(gateway.status_now)
        # The daemon's address was given on its command line; by the file its page is off.
        config = tmp_path / "gateway.toml"
        done = read(config)
        assert done.returncode == 1
        assert f"the daemon (process {gateway.pid}) has the sensors" in done.stderr
        assert "set [status] listen" in done.stderr
        config.write_text(mast_config(f"127.0.0.1:{gateway.status_port}", slow))
        done = read(config, "--json")
        # Those that answer each second have answered; an hour isn't waited for, and is no failure.
        assert done.returncode == 75, done
        answer, readings = by_channel(done)
        assert not answer["ok"]
        assert list(readings) == ["cup-a.wind_speed", "baro.pressure", "gps.location", "slow"]
        assert [each["due_s"] is None for each in readings.values()] == [True, True, True, False]
        assert readings["slow"]["words"].startswith("no reading yet, due within 7")
        assert read(config, "--json", "cup-a", "baro").returncode == 0
        assert "no reading yet" in read(config).stdout
        done = read(config, "--json", "cup-a")
        assert done.returncode == 0, done.stderr
        answer, readings = by_channel(done)
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
        config.write_text(config.read_text().replace("mast-07", "other"))
        assert "answers for gateway 'mast-07'" in read(config).stderr
        assert gateway.stop() == 0
