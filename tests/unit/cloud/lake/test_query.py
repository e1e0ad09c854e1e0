"""What ``fieldgate query`` prints, over a lake that delta-rs wrote."""

from __future__ import annotations

import argparse
import io
import json
import readline
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from cloud.config import StoreConfig, load
from cloud.lake import query
from cloud.lake.query import add_lake, lakes_of, named_lakes
from gateway.cli import parser_of
from tests.support.commands import query as run


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


LAST_ROW_FAILS: Final = (
    "SET threads = 1; SELECT if(range = 299999, error('late'), range) AS n FROM range(300000)"
)


def test_answers_are_written_as_they_come(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pipe(io.StringIO):
        """A reader that has enough after the first rows."""

        def write(self, text: str) -> int:
            if self.tell() > 100_000:
                raise BrokenPipeError
            return super().write(text)

    for form in ("--csv", "--json"):
        pipe = Pipe()
        monkeypatch.setattr("sys.stdout", pipe)
        # The last row is an error: it isn't computed before the first ones are written.
        with pytest.raises(BrokenPipeError):
            query.run(parser_of("query").parse_args([LAST_ROW_FAILS, "--lake", str(lake), form]))
        assert pipe.getvalue().startswith(("n\n0\n1\n", '[{"n": 0}, {"n": 1}, '))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("FROM _own", "_own"),
        ("FROM nothing", "nothing"),
        ("SELEC 1", "SELEC"),
        (LAST_ROW_FAILS, "Invalid Input Error: late"),
        (".table", "no command .table: .tables, .schema TABLE, or SQL"),
        (".schema nothing", "no table nothing in the lake"),
        (
            "SELECT * FROM mast JOIN alerts ON true",
            "no table alerts in the lake {lake}: it has mast; `fieldgate jobs run alerts` fills alerts\n",
        ),
        ("FROM alert", "no table alert in the lake {lake}: it has mast\n"),
    ],
)
def test_errors_are_one_line(lake: Path, capsys: pytest.CaptureFixture[str], sql: str, message: str) -> None:
    assert run([sql, "--lake", str(lake), "--csv"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("fieldgate: ")
    assert message.format(lake=lake) in printed
    assert printed.count("\n") == 1


def test_parquet(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a mast's.parquet"
    assert run(["FROM mast ORDER BY gateway", "--lake", str(lake), "--parquet", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert pq.read_table(file).column("gateway").to_pylist() == ["mast-07", "mast-08"]


def test_tables_and_the_meaning_of_their_columns(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([".tables", "--lake", str(lake), "--csv"]) == 0
    assert capsys.readouterr().out == "table,filled_by\nmast,fieldgate jobs run mast\n"
    assert run([".schema mast", "--lake", str(lake), "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        "column,type,unit,meaning",
        "gateway,VARCHAR,,the gateway",
        "at,TIMESTAMP WITH TIME ZONE,,",
    ]


def test_files_that_are_gone(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = (lake / "mast").glob("*.parquet")
    file.unlink()
    assert run(["FROM mast", "--lake", str(lake)]) == 1
    message = capsys.readouterr().err
    assert f"table mast can't be read: {file} is gone: `jobs maintain` removed it" in message
    assert message.count("\n") == 1


def test_statements_are_read_from_a_pipe(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT gateway\nFROM mast ORDER BY 1;\n"))
    assert run(["--lake", str(lake), "--csv"]) == 0
    assert capsys.readouterr().out == "gateway\nmast-07\nmast-08\n"


def test_the_prompt_goes_on_after_an_error_and_keeps_its_history(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(["FROM nothing;", "SELECT gateway", "FROM mast ORDER BY 1;", ".tables"])

    def typed(prompt: str) -> str:
        line = next(lines, None)
        if line is None:
            raise EOFError
        readline.add_history(line)
        return line

    monkeypatch.setattr("builtins.input", typed)
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setenv("XDG_STATE_HOME", str(lake / "_state"))
    assert run(["--lake", str(lake), "--csv"]) == 0
    printed = capsys.readouterr()
    assert "gateway\nmast-07\nmast-08\n" in printed.out
    assert "mast,fieldgate jobs run mast" in printed.out
    assert printed.err.startswith("fieldgate: no table nothing in the lake")
    assert "FROM mast ORDER BY 1;" in (lake / "_state/fieldgate/query_history").read_text()


@pytest.mark.parametrize("moment", ["yesterday", "-1"])
def test_a_moment_that_is_none(lake: Path, capsys: pytest.CaptureFixture[str], moment: str) -> None:
    with pytest.raises(SystemExit):
        run(["FROM mast", "--lake", str(lake), f"--as-of={moment}"])
    assert "is neither a time, such as 2026-05-28T12:00:00Z, nor a version" in capsys.readouterr().err


@pytest.fixture
def regions(lake: Path) -> list[str]:
    """The lake, and another's of a newer version: wider numbers, a column more, in another order."""
    newer = pa.table(
        {
            "site": ["hill"],
            "gateway": ["mast-07"],
            "at": pa.array([datetime(2026, 5, 29, tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
            "date": pa.array([date(2026, 5, 29)]),
            "turbulence_intensity": pa.array([[("cup.wind_speed", 0.5)]], pa.map_(pa.string(), pa.float64())),
        }
    )
    us = lake / "us's"
    write_deltalake(us / "mast", newer)
    write_deltalake(us / "alerts", newer.select(["gateway"]))
    return ["--lake", f"eu={lake}", "--lake", str(us)]


def test_tables_of_several_lakes_are_one_by_the_names_of_columns(
    lake: Path, regions: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    sql = 'SELECT * EXCLUDE ("at", date) FROM mast ORDER BY "at", gateway'
    assert run([sql, *regions, "--json"]) == 0
    us = f"{lake}/us's"
    nothing = {"payload": None, "turbulence_intensity": None, "site": None}
    assert json.loads(capsys.readouterr().out) == [
        {"lake": "eu", "gateway": "mast-07"} | nothing
        | {"payload": "7.2", "turbulence_intensity": {"cup-50m-a.wind_speed": 0.125}},
        {"lake": "eu", "gateway": "mast-08"} | nothing | {"payload": "base64:/w=="},
        {"lake": us, "gateway": "mast-07"} | nothing
        | {"turbulence_intensity": {"cup.wind_speed": 0.5}, "site": "hill"},
    ]  # fmt: skip
    # A table that one of them lacks has the others' rows; one that none has is named with what they have.
    assert run(["FROM alerts", *regions, "--csv"]) == 0
    assert capsys.readouterr().out == f"lake,gateway\n{us},mast-07\n"
    assert run(["FROM runs", *regions]) == 1
    assert capsys.readouterr().err == (
        f"fieldgate: no table runs in the lakes eu, {us}: they have mast, alerts; "
        "`fieldgate jobs run ingest` fills runs\n"
    )


def test_of_several_lakes_the_one_that_cannot_be_opened_is_named(
    lake: Path, regions: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["FROM mast", *regions, "--lake", "asia=/nowhere/lake"]) == 1
    assert capsys.readouterr().err.startswith(
        "fieldgate: lake asia: no lake at /nowhere/lake: no such directory"
    )
    assert run(["FROM mast", *regions, "--lake", f"eu={lake}"]) == 1
    assert capsys.readouterr().err == (
        "fieldgate: two lakes are eu: give each a name of its own, --lake NAME=URI\n"
    )
    log = lake / "us's" / "alerts" / "_delta_log" / "00000000000000000000.json"
    log.write_text("{")
    assert run(["FROM alerts", *regions]) == 1
    assert capsys.readouterr().err.startswith(f"fieldgate: lake {lake}/us's: table alerts can't be read: ")
    # What a statement doesn't name isn't opened.
    assert run(["FROM mast", *regions]) == 0


def test_lakes_by_name_with_the_store_of_each(tmp_path: Path, lake: Path) -> None:
    file = tmp_path / "cloud.toml"
    file.write_text(
        """[lakes.eu]
path = "eu"
[lakes.us]
path = "s3a://us/lake"
[lakes.us.storage]
region = "us-east-1"
"""
    )
    config = load(file)
    eu, us = (str(tmp_path / "eu"), StoreConfig()), ("s3a://us/lake", StoreConfig(region="us-east-1"))
    assert lakes_of((), config) == {"eu": eu, "us": us}
    assert lakes_of(("us", "more=/srv/more"), config) == {"us": us, "more": ("/srv/more", StoreConfig())}
    file.write_text(f'[lake]\npath = "own"\n{file.read_text()}')
    assert list(lakes_of((), load(file))) == [str(tmp_path / "own")]
    options = argparse.ArgumentParser()
    add_lake(options)
    assert named_lakes(options.parse_args(["--lake", "us", "--cloud", str(file)])) == {"us": us}


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
    others = {"channel", "quantity", "interval_start", "avg", "extra"}
    assert named == others | {f"column_{number}" for number in range(20)}


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
