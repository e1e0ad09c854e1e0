"""What ``fieldgate query`` prints, over a lake that delta-rs wrote."""

from __future__ import annotations

import io
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
    ("sql", "message"), [("FROM _own", "_own"), ("FROM nothing", "nothing"), ("SELEC 1", "SELEC")]
)
def test_errors_are_one_line(lake: Path, capsys: pytest.CaptureFixture[str], sql: str, message: str) -> None:
    assert run([sql, "--lake", str(lake)]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert message in printed
    assert printed.count("\n") == 1


def test_no_lake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["SELECT 1", "--lake", str(tmp_path / "none")]) == 1
    message = capsys.readouterr().err
    assert "no such directory; name it with --lake" in message


def test_a_missing_table_is_answered_with_lake_tables_and_the_job_that_fills_it(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["SELECT * FROM mast JOIN alerts ON true", "--lake", str(lake)]) == 1
    assert capsys.readouterr().err == (
        f"error: no table alerts in the lake {lake}: it has mast; `fieldgate jobs run alerts` fills alerts\n"
    )
    assert run(["FROM alert", "--lake", str(lake)]) == 1
    assert capsys.readouterr().err == f"error: no table alert in the lake {lake}: it has mast\n"


class Terminal(io.StringIO):
    """Standard output as a terminal."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, width: int, *argv: str) -> list[str]:
    """The lines that a terminal so wide is given."""
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdout", terminal)
    assert run(argv) == 0
    return terminal.getvalue().splitlines()


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    rows = [
        {
            "gateway": "mast-07",
            "channel": f"cup-{minute}.wind_speed",
            "quantity": "wind_speed" if minute else "speed",
            "interval_start": datetime(2026, 5, 28, 12, minute, tzinfo=UTC),
            "interval_s": 600,
            "avg": 7.123456789012345 + minute,
            "extra": "x" * 90 + str(minute),
            **{f"column_{number}": minute + number for number in range(20)},
        }
        for minute in (0, 10)
    ]
    write_deltalake(tmp_path / "statistics", pa.Table.from_pylist(rows))
    return tmp_path


@pytest.mark.parametrize("width", [20, 40, 80, 120, 200])
def test_a_table_is_never_wider_than_the_terminal_and_lists_what_it_left_out(
    wide: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    lines = shown(monkeypatch, width, "FROM statistics ORDER BY interval_start", "--lake", str(wide))
    table = [line for line in lines if line and line[0] in "┏┃┡│└"]
    assert len(table) == 6
    # A single column that is wider still is all there is.
    assert max(map(len, table)) <= max(width, 24)
    assert "…" not in "".join(lines)
    assert "In every row: gateway mast-07, interval_s 600" in lines
    (left,) = (line for line in lines if line.startswith("Left out: "))
    named = {*left.removeprefix("Left out: ").split(", "), *table[1].strip("┃ ").replace("┃", " ").split()}
    assert named == {
        "channel",
        "quantity",
        "interval_start",
        "avg",
        "extra",
        *(f"column_{number}" for number in range(20)),
    }


def test_eighty_characters_show_when_and_how_much(wide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 80, "FROM statistics ORDER BY interval_start", "--lake", str(wide))
    assert lines[3].startswith("│ cup-0.wind_speed  │ 2026-05-28T12:00:00Z │ 7.12346 │")
    assert "Left out: quantity, extra, " in lines[-2]


def test_what_fits_is_shown_as_it_is(wide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "SELECT gateway, avg FROM statistics ORDER BY avg"
    lines = shown(monkeypatch, 80, sql, "--lake", str(wide))
    assert lines[3] == "│ mast-07 │  7.123456789012345 │"
    assert len(lines) == 6


def test_all_shows_every_column_and_digit(
    wide: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = ["FROM statistics ORDER BY interval_start", "--lake", str(wide)]
    lines = shown(monkeypatch, 40, *sql, "--all")
    assert "7.123456789012345" in lines[3]
    assert "column_19" in lines[1]
    assert "x" * 90 in lines[3]
    assert "Left out" not in lines[-1]
    monkeypatch.undo()
    # A pipe or a file has no edge.
    assert run(sql) == 0
    assert capsys.readouterr().out.splitlines() == lines
