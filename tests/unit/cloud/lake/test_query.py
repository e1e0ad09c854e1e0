"""What ``fieldgate query`` prints, over a lake that delta-rs wrote."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cloud.lake.query import run


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    table = pa.table(
        {
            "gateway": ["mast-07", "mast-08"],
            "at": pa.array([datetime(2026, 5, 28, 12, tzinfo=UTC)] * 2, pa.timestamp("us", tz="UTC")),
            "date": pa.array([date(2026, 5, 28)] * 2),
            "payload": pa.array([b"7.2", b"\xff"]),
            "turbulence_intensity": pa.array(
                [[("cup-50m-a.wind_speed", 0.125)], None], pa.map_(pa.string(), pa.float64())
            ),
        }
    )
    write_deltalake(tmp_path / "mast", table)
    write_deltalake(tmp_path / "_own", table)
    return tmp_path


def test_json_has_objects_for_maps_and_text_for_bytes(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["FROM mast ORDER BY gateway", "--lake", str(lake), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "gateway": "mast-07",
            "at": "2026-05-28T12:00:00.000Z",
            "date": "2026-05-28",
            "payload": "7.2",
            "turbulence_intensity": {"cup-50m-a.wind_speed": 0.125},
        },
        {
            "gateway": "mast-08",
            "at": "2026-05-28T12:00:00.000Z",
            "date": "2026-05-28",
            "payload": "base64:/w==",
            "turbulence_intensity": None,
        },
    ]


def test_csv(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT gateway, turbulence_intensity FROM mast ORDER BY gateway"
    assert run([sql, "--lake", str(lake), "--csv"]) == 0
    assert capsys.readouterr().out == (
        'gateway,turbulence_intensity\nmast-07,"{""cup-50m-a.wind_speed"": 0.125}"\nmast-08,\n'
    )


@pytest.mark.parametrize(
    ("sql", "told"), [("FROM _own", "_own"), ("FROM nothing", "nothing"), ("SELEC 1", "SELEC")]
)
def test_errors_are_one_line(lake: Path, capsys: pytest.CaptureFixture[str], sql: str, told: str) -> None:
    assert run([sql, "--lake", str(lake)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert told in said
    assert said.count("\n") == 1


def test_no_lake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["SELECT 1", "--lake", str(tmp_path / "none")]) == 1
    assert "no such directory" in capsys.readouterr().err
