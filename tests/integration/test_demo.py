"""The demo as a program: what it refuses, how it ends, what it survives."""

from __future__ import annotations

import csv
import signal
import urllib.request
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from gateway.commands.demo.layout import MAST
from tests.integration.demo_runs import UP_S, left_over, running_demo
from tests.support.config import baro, config_text, cup
from tests.support.servers import eventually, fieldgate

PROJECT = Path(__file__).resolve().parents[2]
ADC = {"address": 0x48, "input": 0, "gain": "6.144V"}
CONFIG = config_text(cup(), baro(adc=ADC), gateway={"id": "small"}, outbox=None, board={"seed": 5})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "small.toml"
    file.write_text(CONFIG)
    return file


def refused(*arguments: str, **environment: str) -> str:
    """What a demo that can't start writes to stderr."""
    done = fieldgate("demo", *arguments, environment=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    return done.stderr


def test_the_packaged_mast_is_the_documented_one() -> None:
    assert MAST.read_text() == (PROJECT / "docs" / "examples" / "simulated.toml").read_text()


def test_a_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    error = refused("--workdir", str(tmp_path))
    assert error == (
        f"fieldgate: {tmp_path} is not empty: name another --workdir, or go on in it with --resume\n"
    )


def test_a_broken_config_is_refused_with_its_line(tmp_path: Path, config: Path) -> None:
    config.write_text(CONFIG.replace("slope = 0.765", "slpoe = 0.765"))
    error = refused("-c", str(config), "--workdir", str(tmp_path / "demo"))
    assert f"{config}:12: " in error
    assert "slpoe" in error


def test_without_jars_it_ends_at_once_with_the_remedy(tmp_path: Path) -> None:
    error = refused("--workdir", str(tmp_path / "demo"), FIELDGATE_JARS=str(tmp_path / "none"))
    assert error.startswith(f"fieldgate: no jars in {tmp_path / 'none' / 'kafka'}: run `make setup`")
    assert not (tmp_path / "demo").exists()


@pytest.mark.system
@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_running(tmp_path: Path, config: Path, number: signal.Signals) -> None:
    with running_demo(tmp_path, "-c", str(config), "--set", "gateway.id=ended") as demo:
        started = psutil.Process(demo.process.pid)

        def names() -> set[str]:
            found = set()
            for child in started.children(recursive=True):
                # It may have ended since.
                with suppress(psutil.Error):
                    found.add(child.name())
            return found

        eventually(names, UP_S, until=lambda found: found >= {"java", "mosquitto"})
        demo.process.send_signal(number)
        code = demo.process.wait(180)
        if number is signal.SIGKILL:
            assert code == -signal.SIGKILL
            eventually(lambda: left_over(demo.workdir), 120, until=lambda left: left == [])
        else:
            assert code == 130
            assert left_over(demo.workdir) == []


@pytest.mark.system
@pytest.mark.spark
@pytest.mark.timeout(1300)
def test_a_second_demo_goes_on(tmp_path: Path, config: Path, full: bool) -> None:
    if not full:
        pytest.skip("only with --full: test_forwarder.py has two runs of a gateway on one outbox")
    with running_demo(tmp_path, "-c", str(config), "--seconds", "12") as demo:
        first = demo.result(500)
        assert first["unaccounted"] == first["duplicates"] == 0
        assert first["table_rows"] == first["sampled"] >= 2 * 11
        assert demo.described_last()["state"] == "stopped"
    with running_demo(tmp_path, "-c", str(config), "--seconds", "6", "--resume") as demo:
        second = demo.result(500)
        assert len(second["runs"]) == 2
        assert second["runs"][0] == first["runs"][0]
        assert second["unaccounted"] == second["duplicates"] == 0
        assert second["table_rows"] == second["sampled"] >= first["sampled"] + 2 * 5


@pytest.mark.system
@pytest.mark.spark
@pytest.mark.timeout(1500)
def test_a_fleets_history_is_on_the_pages_whose_address_stands_last(tmp_path: Path, full: bool) -> None:
    if not full:
        pytest.skip("only with --full: test_simulate.py has the fleet, test_dashboard_browser.py the pages")
    with running_demo(tmp_path, "--fleet", as_json=False) as demo:
        url = str(demo.described()["dashboard"]["url"])
        eventually(demo.errors, UP_S, until=lambda text: f"{url}   # the dashboard\n" in text)

        def fleet() -> dict[str, dict[str, str]]:
            with urllib.request.urlopen(f"{url}csv/fleet", timeout=60) as answer:  # noqa: S310 - http
                rows = csv.DictReader(answer.read().decode().splitlines())
            return {row["gateway"]: row for row in rows}

        masts = ["demo-mast", *(f"sim-{at:02d}" for at in range(1, 7))]
        found = eventually(
            fleet, 900, until=lambda rows: sorted(rows) == masts and all(row["day"] for row in rows.values())
        )
        # While `ingest` is behind by all that history it was silent.
        found = eventually(fleet, 300, until=lambda rows: rows["demo-mast"]["state"] == "online")
        assert all(0.5 < float(found[mast]["month"]) <= 1 and found[mast]["name"] for mast in masts[1:])
        # Of intervals of one reading there would be none.
        with urllib.request.urlopen(f"{url}csv/mast/sim-01/turbulence", timeout=60) as answer:  # noqa: S310
            assert answer.read().count(b"\n") > 5
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(180) == 0
