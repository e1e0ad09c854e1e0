"""``fieldgate commission swap`` beside a daemon: taken over, refused; the event follows with the uplink."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from gateway.calibration.history import read_history
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.support.commands import called
from tests.support.config import ID, config_text, cup
from tests.support.mast import records, run_gateway
from tests.support.servers import eventually, unique_name


def mast_config(name: str) -> str:
    text = config_text(cup(serial="old"), gateway={"id": name}, status={"listen": ""})
    return text.replace("slope = 0.765", "slope = 0.765   # from the certificate")


def swap(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return called("commission", "swap", "-c", config, *arguments, "--yes")


def swaps(kafka: str, name: str) -> list[dict[str, Any]]:
    events = [json.loads(each.value() or b"") for each in records(kafka, ["gateway.events"])]
    return [each for each in events if (each["gateway"], each.get("event")) == (name, "sensor-swapped")]


def test_a_daemon_takes_it_over_or_reports_why_not(
    provisioned: str, nowhere: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    name = unique_name("mast")
    text = mast_config(name)
    history = tmp_path / "outbox.db.channels"
    config = tmp_path / "gateway.toml"
    with run_gateway(tmp_path, text, name, nowhere, mosquitto) as mast:
        eventually(mast.sampled, 30)
        # By the file the page is off: the daemon answers the command itself.
        done = swap(config, "cup", "--serial", "new", "--slope", "0.761", "--offset", "0.37")
        assert (done.returncode, done.stderr) == (0, "")
        assert f"daemon: taken over: the daemon (process {mast.pid}) measures with it" in done.stdout
        old, new = read_history(history)
        assert [(old.serial, old.in_force), (new.serial, new.in_force)] == [("old", False), ("new", True)]
        assert (new.slope, new.offset, old.periods[0].end_us) == (0.761, 0.37, new.periods[0].begin_us)
        expected = text.replace('"old"', '"new"').replace("0.765", "0.761").replace("0.35", "0.37")
        assert config.read_text() == expected

        # Another change takes a restart: the daemon refuses all of it, and its reason is printed.
        config.write_text(f"{expected}\n[clock]\nhold_s = 60\n")
        done = swap(config, "cup", "--serial", "third", "--keep", "slope", "--keep", "offset")
        assert done.returncode == 1
        assert "daemon: refused: " in done.stdout
        assert "clock.hold_s: takes a restart: sudo systemctl restart fieldgate" in done.stdout
        assert "it goes on with the old figures" in done.stdout
        assert 'serial = "third"' in config.read_text()
        assert [each.serial for each in read_history(history) if each.in_force] == ["new"]
        assert mast.stop() == 0
    # No uplink so far: the event was stored like a reading.
    assert swaps(provisioned, name) == []
    assert list((tmp_path / "outbox.db.notices").iterdir()) == []
    with run_gateway(tmp_path, expected, name, provisioned, mosquitto) as mast:
        eventually(lambda: len(swaps(provisioned, name)) == 2, 60)
        event, third = swaps(provisioned, name)
        assert mast.stop() == 0
    assert event["changes"] == {"serial": ["old", "new"], "slope": [0.765, 0.761], "offset": [0.35, 0.37]}
    assert (event["v"], third["changes"]["serial"]) == (1, ["new", "third"])


def test_another_process_with_the_outbox_is_no_daemon(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(mast_config(ID))
    holding = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX);"
        " print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holding, str(tmp_path / "outbox.db.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        done = swap(config, "cup", "--serial", "new", "--slope", "0.761", "--offset", "0.37")
        assert done.returncode == 1
        assert f"daemon: not reloaded: the daemon (process {other.pid}) can't be reached" in done.stdout
        other.communicate("")
