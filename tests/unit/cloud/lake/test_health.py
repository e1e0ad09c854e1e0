"""``fieldgate health`` over lakes with a known history, and a mast that was recorded."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pytest

from cloud.lake.health import read_trends
from spark_jobs.platform import schemas
from tests.bench.wear import judge, simulate
from tests.support.commands import called, health
from tests.support.fleet_lake import write
from tests.support.worn_lake import write_worn

RECORDED: Final = Path(__file__).parents[5] / "shared/data/mast_10min_3months.csv.gz"
BEGIN: Final = datetime(2025, 1, 1, tzinfo=UTC)


def test_a_cup_that_wears(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = date(2025, 7, 29)
    write_worn(tmp_path, at)
    assert health(["--lake", str(tmp_path), "--at", str(at), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    by = {(row["channel"], row["kind"]): row for row in rows}
    assert by.keys() == {
        ("cup-a.wind_speed", "twins"), ("cup-b.wind_speed", "twins"), ("pyranometer.irradiance", "soiling"),
        ("battery.voltage", "supply"), ("dht.temperature", "errors"), (None, "outbox"), (None, "disk"),
    }  # fmt: skip
    worn = by["cup-a.wind_speed", "twins"]
    assert rows[0] == worn
    assert -1.4 < worn["a_month"] < -0.6
    assert worn["a_month_low"] < worn["a_month"] < worn["a_month_high"] < 0
    assert worn["crosses_from"] <= worn["crosses"] <= worn["crosses_until"]
    assert worn["crosses"] < str(at + timedelta(days=60))
    assert worn["count"] > 1000
    assert worn["detail"].startswith("speed beside its twin -")
    assert [each for each in rows if each["crosses_until"]] == [worn]
    done = called("health", "--lake", tmp_path, "--at", str(at), "--mast", "mast-07")
    assert (done.returncode, done.stderr) == (0, "")
    assert worn["detail"] in done.stdout
    other = called("health", "--lake", tmp_path, "--mast", "mast-70")
    assert (other.returncode, other.stderr) == (
        1, "fieldgate: no mast mast-70 in the lake, which has mast-07; did you mean mast-07?\n",
    )  # fmt: skip
    assert called("health", "--lake", tmp_path, "--at", "soon").returncode == 2


def test_a_lake_that_lacks_tables(tmp_path: Path) -> None:
    write(tmp_path, schemas.HEALTH, {
        "gateway": ["m'7"] * 9, "time": [BEGIN + timedelta(days=at) for at in range(9)],
        "kafka_time": [BEGIN + timedelta(days=at) for at in range(9)],
        "date": [BEGIN.date() + timedelta(days=at) for at in range(9)],
        "outbox_bytes": [50 * at for at in range(9)], "outbox_max_bytes": [1000] * 9,
    })  # fmt: skip
    done = called("health", "--lake", tmp_path, "--at", "2025-01-10", "--mast", "m'7", "--csv")
    assert done.returncode == 0
    assert "m'7,,outbox,2025-01-10,42." in done.stdout
    assert "warning: no table statistics in the lake" in done.stderr


def test_a_sensor_that_fails_more_and_more_is_warned_of_in_time() -> None:
    lead, _ = judge(simulate(10_007, "errors"), every=14)
    assert lead is not None
    assert lead >= 14


@pytest.mark.skipif(not RECORDED.exists(), reason="needs the recorded mast")
def test_twins_of_a_recorded_mast(tmp_path: Path) -> None:
    """Six cups in three pairs; nothing is wrong with them, and wear that is put on one is found."""
    with gzip.open(RECORDED, "rt", encoding="utf-8-sig") as file:
        data = pd.read_csv(file, parse_dates=["Timestamp"])
    data = data[data.Timestamp < "2016-05-01"]
    times = data.Timestamp.to_numpy()
    names = {
        f"Spd{height}m{side}": f"cup-{height}m-{side.lower()}" for height in (80, 60, 40) for side in "NS"
    }
    vanes = {f"Dir{height}mS": f"vane-{height}m" for height in (78, 58, 38)}
    for lake, wear in ((tmp_path / "sound", 0.0), (tmp_path / "worn", 0.02)):
        for column, sensor in (names | vanes).items():
            quantity = "wind_speed" if column in names else "wind_direction"
            values: Any = data[column].to_numpy(float)
            if sensor == "cup-60m-n":
                values = values * (1 - wear * np.arange(len(values)) / 4320)
            write(lake, schemas.STATISTICS, {
                "gateway": ["m"] * len(times), "channel": [f"{sensor}.{quantity}"] * len(times),
                "quantity": [quantity] * len(times), "interval_s": [600] * len(times), "avg": values,
                "interval_start": times, "date": times.astype("datetime64[D]"), "version": [1] * len(times),
            })  # fmt: skip
            write(lake, schemas.CHANNELS, {
                "gateway": ["m"], "channel": [f"{sensor}.{quantity}"], "sensor": [sensor],
                "quantity": [quantity], "height_m": [float(column[3:5])],
                "pair": [sensor.replace("-n", "-s") if sensor.endswith("-n") else None],
            })  # fmt: skip
    until = pd.Timestamp(times[-1]).date()
    sound, worn = (
        {each.channel: each for each in read_trends({"l": (str(tmp_path / name), None)}, until)[0]}
        for name in ("sound", "worn")
    )
    assert len(sound) == 6
    assert all(each.days_left is None and abs(each.value) < 1 for each in sound.values())
    assert worn["cup-60m-n.wind_speed"].days_left is not None
    assert [name for name, each in worn.items() if each.days_left is not None] == ["cup-60m-n.wind_speed"]
