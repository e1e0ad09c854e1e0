"""A station of many instruments in the demo: from pulses, codes and frames to tables; then unplugged."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest

from cloud.lake.tables import LakeError
from tests.integration.demo_runs import RunningDemo, running_demo
from tests.support.servers import eventually, fieldgate
from tests.support.station import UNPLUGGED, off, station_text

CHANNELS: Final = {
    "rain.precipitation": "mm",
    "level.water_level": "m",
    "water.water_temperature": "Cel",
    "wind.wind_direction": "deg",
    "wind-b.wind_direction": "deg",
    "battery.voltage": "V",
    "inverter.current": "A",
    "inverter.voltage": "V",
    "inverter.power": "W",
    "inverter.module_temperature": "Cel",
    "inverter-energy.energy": "kW.h",
}
BOARD: Final = {"seed": 2, "start": "2026-03-07T03:44:00Z", "speed": 30}
"""A morning with a shower; the minute of the slow sensors is two seconds."""
OPTIONS: Final = ("--jobs", "ingest,statistics", "--interval", "1m", "--set", 'uplink.mode="live"')


def rows(demo: RunningDemo, sql: str) -> list[tuple[Any, ...]]:
    """A query's rows; none while its table isn't there."""
    try:
        with demo.lake() as lake:
            return lake.execute(sql).fetchall()
    except (LakeError, duckdb.CatalogException):
        return []


def flags(demo: RunningDemo) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Quality and reasons of the newest reading that each channel has in the table."""
    newest = rows(demo, "SELECT channel, max_by((quality, reasons), time) FROM readings GROUP BY channel")
    return {channel: (quality, tuple(reasons)) for channel, (quality, reasons) in newest}


def closed(demo: RunningDemo) -> dict[str, float]:
    """What each channel's closed intervals add up to: the sums of an accumulated one, the means of others."""
    done = "SELECT channel, sum(coalesce(sum, avg)) FROM statistics WHERE version > 0 AND count > 0"
    return dict(rows(demo, f"{done} GROUP BY channel"))


@pytest.mark.system
@pytest.mark.spark
@pytest.mark.timeout(700)
def test_a_station_from_its_instruments_to_tables_and_page_then_unplugged(tmp_path: Path, full: bool) -> None:
    if not full:
        pytest.skip("only with --full: test_doctor_unplugged.py reads the same station's instruments")
    plugs = {sensor: tmp_path / f"{sensor}.off" for sensor in UNPLUGGED}
    faults = [{"sensor": name, "kind": off(name), "while_file": str(file)} for name, file in plugs.items()]
    config = tmp_path / "station.toml"
    config.write_text(station_text({**BOARD, "faults": faults}))
    with running_demo(tmp_path, "-c", str(config), *OPTIONS) as demo:
        good = dict.fromkeys(CHANNELS, (1, ()))
        eventually(lambda: flags(demo), 300, until=lambda found: found == good, poll_s=1)
        sums = eventually(
            lambda: closed(demo),
            120,
            until=lambda found: found.keys() == CHANNELS.keys() and found["rain.precipitation"] > 0,
            poll_s=1,
        )
        assert min(sums.values()) > 0
        page = demo.described()["gateway"]["status"]
        check_page(page)
        for plug in plugs.values():
            plug.touch()
        found = {sensor: (each.quality, each.reasons) for sensor, each in UNPLUGGED.items()}
        wanted = {channel: found[channel.partition(".")[0]] for channel in CHANNELS}
        eventually(lambda: flags(demo), 120, until=lambda found: found == wanted, poll_s=1)
        config.write_text(f'{config.read_text()}\n[status]\nlisten = "{page.split("/")[2]}"\n')
        check_doctor(json.loads(fieldgate("doctor", "-c", config, "--json").stdout))
        for plug in plugs.values():
            plug.unlink()
        eventually(lambda: flags(demo), 120, until=lambda found: found == good, poll_s=1)
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(180) == 130
    check_tables(demo)


def check_page(address: str) -> None:
    """Each channel is in what the status page shows, with a value in its unit."""
    with urllib.request.urlopen(address) as answer:  # noqa: S310
        status = json.load(answer)
    assert {name: channel["unit"] for name, channel in status["channels"].items()} == CHANNELS
    assert all(channel["value"] is not None for channel in status["channels"].values())


def check_doctor(answer: Mapping[str, Any]) -> None:
    """Each sensor is found as its plug is."""
    findings = [each for each in answer["findings"] if each["area"] == "sensor"]
    assert len(findings) == len(UNPLUGGED)
    for sensor, expected in UNPLUGGED.items():
        (finding,) = [each for each in findings if each["what"].startswith(f"{sensor}: ")]
        assert finding["severity"] == expected.state
        assert expected.words in finding["what"]


def check_tables(demo: RunningDemo) -> None:
    """What readings and closed intervals have, as anyone reads it: by ``fieldgate query``."""
    sql = """
        SELECT r.channel, any_value(r.unit) AS unit, sum(r.value) AS added, any_value(s.sum) AS sum,
            any_value(s.min) AS min
        FROM readings r JOIN statistics s ON r.channel = s.channel
            AND r.time >= s.interval_start AND r.time < s.interval_start + INTERVAL 1 MINUTE
        WHERE s.version > 0 AND s.count > 0 AND r.quality <= 2
        GROUP BY r.channel, s.interval_start"""
    done = fieldgate("query", "--lake", str(demo.workdir / "lake"), "--json", sql)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert {each["channel"]: each["unit"] for each in found} == CHANNELS
    for each in found:
        quantity = each["channel"].partition(".")[2]
        assert (each["min"] is None) == (quantity == "wind_direction")
        if quantity in ("precipitation", "energy"):
            assert each["sum"] == pytest.approx(each["added"], abs=1e-9)
        else:
            assert each["sum"] is None
