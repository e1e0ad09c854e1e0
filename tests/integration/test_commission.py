"""``fieldgate commission`` on a terminal beside a running daemon, with hands on a simulated mast's cups."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.support.config import ID, baro, config_text, cup
from tests.support.mast import records, run_gateway
from tests.support.servers import eventually, fieldgate, unique_name
from tests.support.terminal import Person, at_a_terminal


def mast_config(directory: Path, name: str, listen: str) -> str:
    calibrated = date(2026, 3, 12)
    hands = [
        {"sensor": f"cup-{letter}", "kind": "stuck", "while_file": str(directory / f"hand-on-{letter}")}
        for letter in "ab"
    ]
    return config_text(
        cup("cup-a", serial="179500123456", calibrated=calibrated),
        cup("cup-b", 27, serial="179500123457", calibrated=calibrated, slope=0.761, offset=0.37),
        baro(),
        gateway={"id": name, "elevation_m": 2100},
        status={"listen": listen},
        board={"faults": hands},
    )


_WAIT_S = 90.0


class Installer:
    """Hands on the cups of a simulated mast, whose config is in a directory."""

    def __init__(self, person: Person, directory: Path) -> None:
        self._person, self._directory = person, directory
        self.until, self.type, self.hang_up = person.until, person.type, person.hang_up
        self.process = person.process

    @property
    def seen(self) -> str:
        """All that the terminal has shown."""
        return self._person.seen

    def cup(self, name: str, hand_on: str) -> None:
        """Hold it, then let it turn in the wind, as a hand would turn it."""
        hand = self._directory / f"hand-on-{hand_on}"
        self.until(f"Hold {name} still.")
        hand.touch()
        self.type("")
        self.until(f"Now spin {name} by hand.")
        hand.unlink()


@contextmanager
def commission(config: Path, *arguments: str) -> Iterator[Installer]:
    command = [sys.executable, "-m", "gateway.cli", "commission", "-c", str(config), *arguments]
    with at_a_terminal(command, _WAIT_S) as person:
        yield Installer(person, config.parent)


def events(kafka: str, name: str) -> list[dict[str, Any]]:
    events = [json.loads(each.value() or b"") for each in records(kafka, ["gateway.events"])]
    return [each for each in events if (each["gateway"], each.get("event")) == (name, "commissioned")]


def papers(installer: Installer, serial: str) -> None:
    installer.until(f"Does the label say serial {serial}? y/n")
    installer.type("y")
    installer.until("Does its certificate of 2026-03-12 say slope")
    installer.until("y/n")
    installer.type("y")


def test_a_mast_is_signed_off_over_a_connection_that_breaks(
    provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    name = unique_name("mast")
    config = tmp_path / "gateway.toml"
    text = mast_config(tmp_path, name, "")
    with run_gateway(tmp_path, text, name, provisioned, mosquitto) as mast:
        eventually(lambda: len(mast.status_now().get("channels", {})), 60, until=lambda found: found == 3)
        config.write_text(text.replace('listen = ""', f'listen = "127.0.0.1:{mast.status_port}"'))
        with commission(config) as installer:
            installer.until("readings from the daemon")
            papers(installer, "179500123456")
            # The wires of the two are swapped.
            installer.cup("cup-a", hand_on="b")
            installer.until("cup-b moved instead: the two are swapped")
            # They are put right, and it is looked at again.
            installer.type("r")
            installer.cup("cup-a", hand_on="a")
            installer.until("Passed: stood while held, up to")
            installer.type("")
            installer.until("[2/3] cup-b")
            papers(installer, "179500123457")
            installer.until("Hold cup-b still.")
            installer.hang_up()
        assert not (tmp_path / "outbox.db.notices").exists()
        with commission(config) as installer:
            installer.until("was broken off after 5 checks. Go on with it? y/n")
            installer.type("y")
            assert "Hold cup-a" not in installer.until("[2/3] cup-b")
            installer.cup("cup-b", hand_on="b")
            installer.until("Passed: stood while held")
            installer.type("")
            installer.until("standard at 2100 m 78.51 ± 5.8 kPa.")
            installer.type("")
            installer.until("kafka: ok: last confirmation")
            installer.until("All passed. To sign this, type your name.")
            installer.type("A. Person")
            installer.until("The daemon sends it with the readings.")
            assert installer.process.wait(_WAIT_S) == 0
            assert max(map(len, installer.seen.splitlines())) <= 40
        (event,) = eventually(lambda: events(provisioned, name), 60)
        assert mast.stop() == 0
    (file,) = (tmp_path / "commissioning").glob("*.json")
    content = file.read_bytes()
    assert event["sha256"] == hashlib.sha256(content).hexdigest()
    assert event["report"] == json.loads(content)
    report = event["report"]
    assert (report["ok"], report["complete"], report["signed_by"], report["faults"]) == (
        True,
        True,
        "A. Person",
        [],
    )
    assert {sensor["name"]: [each["check"] for each in sensor["checks"]] for sensor in report["sensors"]} == {
        "cup-a": ["serial", "certificate", "pulses"],
        "cup-b": ["serial", "certificate", "pulses"],
        "baro": ["pressure"],
    }
    # What goes on from here begins again.
    assert sorted(each.suffix for each in file.parent.iterdir()) == [".json", ".lock"]


def test_without_a_terminal_or_a_daemon(tmp_path: Path, nowhere: str) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(mast_config(tmp_path, ID, nowhere))
    done = fieldgate("commission", "-c", config)
    assert (done.returncode, done.stdout) == (2, "")
    assert "commission needs a person: run it on a terminal (ssh -t)" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["gateway.toml"]
    with commission(config, "--sensor", "baro") as installer:
        installer.until("readings from the board")
        installer.until("Passed: ")
        installer.type("")
        installer.until("To sign this, type your name.")
        installer.hang_up()
    with commission(config, "--sensor", "baro") as installer:
        installer.until("was broken off after 1 checks. Go on with it? y/n")
        installer.type("y")
        assert "baro: done" not in installer.until("pressure: done (passed)")
        installer.until("1 fault noted. To sign this, type your name.")
        installer.type("A. Person")
        installer.until("The daemon sends it with the readings.")
        # The daemon doesn't run: that is a fault of its own.
        assert installer.process.wait(_WAIT_S) == 1
    (path,) = (tmp_path / "commissioning").glob("*Z.json")
    report = json.loads(path.read_bytes())
    assert (report["readings_from"], report["complete"], report["ok"]) == ("board", False, False)
    assert report["faults"] == [
        "gateway: daemon: the daemon doesn't run: sudo systemctl enable --now fieldgate"
    ]
    (notice,) = (tmp_path / "outbox.db.notices").iterdir()
    assert json.loads(notice.read_text())["report"] == report
    with commission(config, "--sensor", "bar") as installer:
        installer.until("fieldgate: no sensor 'bar' (did you mean baro?)")
        assert installer.process.wait(_WAIT_S) == 1
