"""A mast's files: what is in them, what is left out, and that other programs read the same numbers again."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from cloud.exports.files import Column, CsvFile, Export, Toa5File
from cloud.importing.logger_file import read_rows
from cloud.importing.mapping import load_mapping
from cloud.lake.cleaning import Mark, add
from cloud.lake.mast import Channel, Mast
from cloud.lake.tables import open_lake
from cloud.whole_files import whole_files
from cloud.wire.bounds import MAX_NUMBER
from spark_jobs.platform import schemas
from tests.support.commands import export as run, import_files
from tests.support.fleet_lake import write

T0: Final = datetime(2026, 5, 28, tzinfo=UTC)
CUP, VANE, RAIN, DOOR = "cup-a.wind_speed", "vane.wind_direction", "rain.precipitation", "door.state"
CHANNELS: Final = {
    CUP: ("m/s", "linear"), VANE: ("deg", "direction"), RAIN: ("mm", "accumulated"), DOOR: ("1", "state"),
}  # fmt: skip
N: Final = 12
UNCOVERED, ABSENT, MISSED, MARKED, OPEN = 3, 5, 7, 8, 11
COLUMNS: Final = [
    f"{CUP}_avg", f"{CUP}_sd", f"{CUP}_min", f"{CUP}_max", f"{CUP}_gust", f"{CUP}_count", f"{DOOR}_avg",
    f"{DOOR}_count", f"{RAIN}_sum", f"{RAIN}_count", f"{VANE}_avg", f"{VANE}_sd", f"{VANE}_count",
]  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hours of mast-07: each way in which an interval may have no value is there once."""
    root = tmp_path_factory.mktemp("export") / "lake"
    kept = [at for at in range(N) if at != ABSENT]
    value = np.array([np.nan if at == MISSED else 5 + at / 7 for at in kept])
    count = [0 if at == MISSED else 240 if at == UNCOVERED else 600 - at for at in kept]
    nothing = np.full(len(kept), np.nan)
    for name, (unit, kind) in CHANNELS.items():
        linear = kind == "linear"
        write(root, schemas.STATISTICS, {
            "gateway": ["mast-07"] * len(kept), "channel": [name] * len(kept),
            "quantity": [name.partition(".")[2]] * len(kept), "unit": [unit] * len(kept),
            "interval_s": [600] * len(kept), "date": [T0.date()] * len(kept),
            "interval_start": [T0 + timedelta(minutes=10 * at) for at in kept],
            "avg": value / 20 if kind == "state" else value,
            "sd": value / 10 if kind in ("linear", "direction") else nothing,
            "min": value - 1 if linear else nothing, "max": value * 2 if linear else nothing,
            "gust": value * 1.5 if linear else nothing,
            "sum": value * 3 if kind == "accumulated" else nothing,
            "count": count, "expected": [600.0] * len(kept), "recovery": np.array(count) / 600,
            "version": [0 if at == OPEN else 1 for at in kept], "quality": [1] * len(kept),
        })  # fmt: skip
    write(root, schemas.SITES, {
        "gateway": ["mast-07"], "valid_from": [T0 - timedelta(days=9)], "name": ["Ridge"],
        "owner": ["Example Wind"], "latitude": [27.7], "longitude": [85.5], "utc_offset_min": [330],
    })  # fmt: skip
    swapped = T0 + timedelta(minutes=50)
    # The first cup's clock wasn't set when it went, and so with the gauge; the vane's when it came.
    spans = [(T0 - timedelta(days=3), None), (swapped, None), (None, None), (T0, None)]
    write(root, schemas.CHANNELS, {
        "gateway": ["mast-07"] * 4, "channel": [CUP, CUP, VANE, RAIN], "cal": [at * 8 for at in "abcd"],
        "sensor": ["cup-a", "cup-a", "vane", "rain"], "unit": ["m/s", "m/s", "deg", "mm"],
        "quantity": ["wind_speed", "wind_speed", "wind_direction", "precipitation"],
        "kind": ["linear", "linear", "direction", "accumulated"], "in_force": [False, True, True, False],
        "valid_from": [begin for begin, _ in spans],
        "periods": [[{"begin": begin, "end": end}] for begin, end in spans],
        "slope": np.array([0.765, 0.7598, np.nan, 0.2]), "offset": np.array([0.35, 0.371, np.nan, 0]),
        "model": ["NRG 40H", "NRG 40H", None, None], "serial": ["1", "2", None, None],
        "lab": ["Tunnel", "Tunnel", None, None], "certificate": ["A-1", "A-2", None, None],
        "calibrated": [T0.date(), None, None, None], "height_m": np.array([50.0, 50.0, 48.0, 2.0]),
        "boom_deg": np.array([315.0, 315.0, np.nan, np.nan]),
    })  # fmt: skip
    times = [T0 + timedelta(seconds=at / 2) for at in range(6)]
    write(root, schemas.READINGS, {
        "gateway": ["mast-07"] * 12, "channel": [CUP] * 6 + [VANE] * 6, "time": times * 2,
        "date": [T0.date()] * 12, "value": np.arange(12.0), "quality": [1, 2, 3, 4, 1, 1] * 2,
        "clock": (["synced"] * 5 + ["unsynced"]) * 2,
    })  # fmt: skip
    begin = T0 + timedelta(minutes=10 * MARKED + 9)
    add({"": (str(root), None)}, [
        Mark("mast-07", "cup-a", begin, begin + timedelta(seconds=1), "iced", "Ada", T0)
    ])  # fmt: skip
    return root


def asked_for(lake: Path, output: Path, form: str, *options: str, mast: str = "mast-07") -> list[str]:
    """The command's words."""
    return ["--lake", str(lake), "--mast", mast, "--format", form, "-o", str(output), *options]


def exported(lake: Path, output: Path, form: str, *options: str, mast: str = "mast-07") -> Path:
    """Runs the command; the file."""
    assert run(asked_for(lake, output, form, *options, mast=mast)) == 0
    return output


def table_of(path: Path, time: str = "interval_start (UTC+00:00)") -> pd.DataFrame:
    return pd.read_csv(path, index_col=time, parse_dates=[time], float_precision="round_trip")


def empty_in(table: pd.DataFrame, column: str) -> list[int]:
    return [at for at, there in enumerate(table[column].isna()) if there]


def test_csv_has_each_interval_and_leaves_out_what_is_not_valid(lake: Path, tmp_path: Path) -> None:
    table = table_of(exported(lake, tmp_path / "m.csv", "csv"))
    assert list(table.columns) == COLUMNS
    starts = pd.date_range("2026-05-28", periods=N, freq="10min")
    assert list(table.index) == list(starts)
    for column in ("avg", "sd", "min", "max", "gust"):
        assert empty_in(table, f"{CUP}_{column}") == [UNCOVERED, ABSENT, MISSED, MARKED, OPEN]
    assert empty_in(table, f"{VANE}_avg") == [UNCOVERED, ABSENT, MISSED, OPEN]
    # How many samples there were is no judgement.
    assert empty_in(table, f"{CUP}_count") == [ABSENT, MARKED]
    assert table[f"{CUP}_avg"].iloc[1] == 5 + 1 / 7
    assert table[f"{CUP}_max"].iloc[1] == (5 + 1 / 7) * 2
    assert table[f"{RAIN}_sum"].iloc[2] == (5 + 2 / 7) * 3


def test_all_and_uncleaned_have_the_rest(lake: Path, tmp_path: Path) -> None:
    every = table_of(exported(lake, tmp_path / "a.csv", "csv", "--all"))
    assert empty_in(every, f"{CUP}_avg") == [ABSENT, MISSED, MARKED]
    uncleaned = table_of(exported(lake, tmp_path / "u.csv", "csv", "--uncleaned"))
    assert empty_in(uncleaned, f"{CUP}_avg") == [UNCOVERED, ABSENT, MISSED, OPEN]


def test_units_are_in_a_second_file(lake: Path, tmp_path: Path) -> None:
    exported(lake, tmp_path / "m.csv", "csv")
    with (tmp_path / "m.columns.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["column"] for row in rows] == ["interval_start (UTC+00:00)", *COLUMNS]
    assert [row["unit"] for row in rows[1:7]] == [*["m/s"] * 5, ""]
    assert (rows[1]["channel"], rows[1]["statistic"], rows[1]["height_m"]) == (CUP, "avg", "50.0")
    assert all(row["meaning"] for row in rows)


def test_local_time_is_the_sites_and_so_are_times_that_are_asked_for(lake: Path, tmp_path: Path) -> None:
    asked = ["--local-time", "--from", "2026-05-28T05:45", "--to", "2026-05-28T00:40Z"]
    table = table_of(exported(lake, tmp_path / "m.csv", "csv", *asked), "interval_start (UTC+05:30)")
    assert [f"{at:%H:%M}" for at in table.index] == ["05:50", "06:00"]
    assert list(table[f"{CUP}_avg"].iloc[:1]) == [5 + 2 / 7]


def test_parquet_has_types_and_units(lake: Path, tmp_path: Path) -> None:
    table = pq.read_table(exported(lake, tmp_path / "m.parquet", "parquet", "--local-time"))
    assert table.schema.names == ["interval_start", *COLUMNS]
    assert table.schema.field(0).type == pa.timestamp("us", tz="+05:30")
    field = table.schema.field(f"{CUP}_sd")
    assert (field.type, field.metadata[b"unit"], field.metadata[b"statistic"]) == (
        pa.float64(),
        b"m/s",
        b"sd",
    )
    assert table.schema.field(f"{CUP}_count").type == pa.int64()
    assert table.schema.metadata[b"mast"] == b"mast-07"
    assert table.column(0)[0].as_py() == T0
    same = table_of(exported(lake, tmp_path / "m.csv", "csv"))
    assert np.array_equal(table.to_pandas()[COLUMNS].to_numpy(float), same.to_numpy(float), equal_nan=True)


def mapping_for(columns: Path, gateway: str) -> str:
    """The mapping of ``fieldgate import`` for an exported TOA5, by the columns of the CSV."""
    text = f"""
[file]
gateway = "{gateway}"
format = "toa5"
interval = "10m"
scan = "1s"
stamps = "end"
utc_offset = "+00:00"
"""
    with columns.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["channel"]]
    for channel in dict.fromkeys(row["channel"] for row in rows):
        own = [row for row in rows if row["channel"] == channel]
        sensor, _, quantity = channel.partition(".")
        text += f'\n[[channel]]\nsensor = "{sensor}"\nquantity = "{quantity}"\n'
        text += "".join(f'{row["statistic"]} = "{row["column"]}"\n' for row in own)
    return text


def read_back(folder: Path, toa5: Path, mast: str) -> Path:
    """The lake that a TOA5 makes."""
    mapping = folder / "mapping.toml"
    mapping.write_text(mapping_for(toa5.with_suffix(".columns.csv"), mast))
    assert import_files(["--mapping", str(mapping), "--lake", str(folder / "back"), str(toa5)]) == 0
    return folder / "back"


def statistics(lake: Path, mast: str) -> pd.DataFrame:
    with open_lake(lake, tables=["statistics_clean"]) as connection:
        return connection.execute(
            "SELECT channel, interval_start, avg, sd, min, max, gust, sum, count FROM statistics_clean "
            "WHERE gateway = ? AND version > 0 AND recovery >= 0.5 ORDER BY ALL",
            [mast],
        ).df()


def test_toa5_is_imported_again_as_the_same_statistics(lake: Path, tmp_path: Path) -> None:
    exported(lake, tmp_path, "toa5,csv")
    lines = (tmp_path / "mast-07.dat").read_bytes().split(b"\r\n")
    assert lines[0].startswith(b'"TOA5","mast-07","fieldgate","",')
    assert lines[0].endswith(b'"UTC+00:00 end of interval","","statistics_600s"')
    assert lines[2].startswith(b'"TS","RN","m/s",')
    assert lines[3].startswith(b'"","","Avg","Std","Min","Max","Max","Smp","Avg"')
    assert lines[4].startswith(b'"2026-05-28 00:10:00",0,5.0,0.5,4.0,10.0,7.5,600,')
    back = read_back(tmp_path, tmp_path / "mast-07.dat", "mast-07")
    before, after = statistics(lake, "mast-07"), statistics(back, "mast-07")
    # Of what is added up and of states an import keeps no other figures.
    lost = before["channel"].isin([RAIN])
    before.loc[lost, "avg"], after.loc[after["channel"] == RAIN, "avg"] = np.nan, np.nan
    assert len(before) == 4 * (N - 4) - 1
    pd.testing.assert_frame_equal(before, after, check_exact=True, check_dtype=False)


def document_of(lake: Path, folder: Path, *options: str) -> tuple[dict[str, Any], dict[str, Any]]:
    whole = json.loads(exported(lake, folder / "m.json", "iea43", *options).read_text())
    (location,) = whole["measurement_location"]
    return whole, {point["name"]: point for point in location["measurement_point"]}


def test_iea43_has_what_the_lake_knows_and_names_what_it_lacks(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, points = document_of(lake, tmp_path)
    assert (whole["organisation"], whole["version"]) == ("Example Wind", "1.2.0-2023.01")
    location = whole["measurement_location"][0]
    assert (location["name"], location["latitude_ddeg"], location["longitude_ddeg"]) == (
        "mast-07",
        27.7,
        85.5,
    )
    cup = points[CUP]
    assert (cup["measurement_type_id"], cup["height_m"]) == ("wind_speed", 50.0)
    first, second = cup["sensor"]
    assert (first["model"], first["serial_number"], first["sensor_type_id"]) == ("NRG 40H", "1", "anemometer")
    assert (first["date_from"], first["date_to"]) == ("2026-05-25T00:00:00", "2026-05-28T00:50:00")
    assert (second["serial_number"], second["date_to"]) == ("2", None)
    (calibration,) = second["calibration"]
    assert (calibration["slope"], calibration["offset"], calibration["calibration_id"]) == (
        0.7598,
        0.371,
        "A-2",
    )
    assert first["calibration"][0]["date_of_calibration"] == "2026-05-28"
    # The boom stayed when the cup was changed.
    (boom,) = cup["mounting_arrangement"]
    assert (boom["boom_orientation_deg"], boom["date_from"]) == (315.0, "2026-05-25T00:00:00")
    configs = cup["logger_measurement_config"]
    assert [each["slope"] for each in configs] == [0.765, 0.7598]
    assert [each["column_name"] for each in configs[0]["column_name"]] == COLUMNS[:6]
    assert points.keys() == {CUP}
    said = capsys.readouterr().err
    assert f"{VANE}: calibration cccccccc is left out: its date_from is unknown" in said
    assert f"{RAIN}: calibration dddddddd is left out: its date_to is unknown" in said
    assert f"{DOOR} is left out: no record of it has both dates" in said
    # Only what was in force then.
    _, points = document_of(lake, tmp_path, "--to", "2026-05-28T00:30", "--force")
    assert [each["serial_number"] for each in points[CUP]["sensor"]] == ["1"]


REQUIRED: Final = {
    "": {"author", "organisation", "date", "version", "measurement_location"},
    "measurement_location": {
        "name", "latitude_ddeg", "longitude_ddeg", "measurement_station_type_id", "measurement_point",
    },
    "measurement_point": {"name", "measurement_type_id", "height_m", "logger_measurement_config"},
    "logger_measurement_config": {"date_from", "date_to", "column_name"},
    "column_name": {"column_name", "statistic_type_id"},
    "sensor": {"date_from", "date_to"}, "mounting_arrangement": {"date_from", "date_to"},
}  # fmt: skip
"""What the data model 1.2 requires of each object."""


def test_iea43_has_all_that_the_data_model_requires(lake: Path, tmp_path: Path) -> None:
    def check(name: str, value: Any) -> int:
        if isinstance(value, list):
            return sum(check(name, each) for each in value)
        if not isinstance(value, dict):
            return 0
        assert REQUIRED.get(name, set()) <= value.keys()
        return 1 + sum(check(key, each) for key, each in value.items())

    whole, _ = document_of(lake, tmp_path)
    assert check("", whole) > 20


def test_iea43_without_a_site_says_all_that_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short(tmp_path / "lake", [T0])
    write(
        tmp_path / "lake", schemas.CHANNELS, {"gateway": ["mast-08"], "channel": [CUP], "cal": ["aaaaaaaa"]}
    )
    given = asked_for(tmp_path / "lake", tmp_path / "o", "iea43,csv", mast="mast-08")
    assert run(given) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert all(name in said for name in ("organisation", "latitude_ddeg", "longitude_ddeg", "[site]"))
    assert list((tmp_path / "o").iterdir()) == []
    assert run([*given, "--local-time"]) == 1
    assert "leave it out for UTC" in capsys.readouterr().err


def short(lake: Path, starts: list[datetime], mast: str = "mast-08", **more: Any) -> None:
    """A mast with a row of statistics at each time: one cup's, but for the columns in ``more``."""
    n = len(starts)
    write(lake, schemas.STATISTICS, {
        "gateway": [mast] * n, "channel": [CUP] * n, "quantity": ["wind_speed"] * n, "unit": ["m/s"] * n,
        "interval_s": [600] * n, "date": [each.date() for each in starts], "interval_start": starts,
        "avg": np.arange(1.0, n + 1), "count": [600] * n, "recovery": np.ones(n), "version": [1] * n, **more,
    })  # fmt: skip


def test_rows_of_a_long_time_are_there_once_and_in_order(tmp_path: Path) -> None:
    starts = [T0 + timedelta(days=at) for at in (0, 28, 29, 60)]
    short(tmp_path / "lake", starts)
    table = table_of(exported(tmp_path / "lake", tmp_path / "m.csv", "csv", mast="mast-08"))
    assert len(table) == 60 * 144 + 1
    assert list(table.index) == list(pd.date_range("2026-05-28", periods=len(table), freq="10min"))
    found = table[f"{CUP}_avg"].dropna()
    assert list(zip(pd.DatetimeIndex(found.index).tz_localize("UTC"), found, strict=True)) == list(
        zip(starts, range(1, 5), strict=True)
    )


def test_readings_have_a_row_for_each_time(lake: Path, tmp_path: Path) -> None:
    path = exported(lake, tmp_path / "m.csv", "csv", "--readings")
    table = table_of(path, "time (UTC+00:00)")
    assert list(table.columns) == [CUP, DOOR, RAIN, VANE]
    assert [at.second + at.microsecond / 1e6 for at in table.index] == [0, 0.5, 1, 1.5, 2]
    assert empty_in(table, CUP) == [2, 3]
    assert list(table[VANE].dropna()) == [6.0, 7.0, 10.0]
    table = table_of(exported(lake, tmp_path / "a.csv", "csv", "--readings", "--all"), "time (UTC+00:00)")
    assert list(table[CUP]) == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--mast", "mast-7"], "no mast mast-7 in the lake, which has mast-07; did you mean mast-07?"),
        (["--to", "2020-02-01"], "there are some from 2026-05-28 00:00 to 2026-05-28 02:00 UTC"),
        (["--interval", "1m"], "no intervals of 60s: the mast's statistics have intervals of 600s"),
        (["--from", "soon"], "--from 'soon' is no time such as"),
        (["--from", "2026-05-28", "--to", "2026-05-28"], "--to 2026-05-28 isn't after --from 2026-05-28"),
        (["--format", "iea43", "--readings"], "--readings: iea43 describes"),
        (["--format", "csv,toa5", "-o", __file__], "is a file: several formats need a directory"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_said_with_what_is(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert run(asked_for(lake, tmp_path / "m", "csv", *options)) == 1
    said = capsys.readouterr()
    assert said.err.startswith("fieldgate: ")
    assert words in said.err
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_format_is_wrong_usage(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(asked_for(lake, Path("x"), "csv,xls"))
    assert "'xls' is none of csv, toa5, parquet, iea43" in capsys.readouterr().err


def test_two_units_are_no_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    starts = [T0 + timedelta(minutes=10 * at) for at in range(6)]
    short(
        tmp_path / "lake", starts, "mast-09", channel=["soil.moisture"] * 6, quantity=["moisture"] * 6,
        unit=[None, "V", "V", "mV", "mV", "mV"], count=[0, *[600] * 5], recovery=[0.0, *[1.0] * 5],
        avg=np.array([np.nan, 1.0, 1.0, 1000.0, 1000.0, 1000.0]),
    )  # fmt: skip
    output = tmp_path / "m.csv"
    assert run(asked_for(tmp_path / "lake", output, "csv", mast="mast-09")) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "fieldgate: soil.moisture is in V from 2026-05-28 00:10, in mV from 2026-05-28 00:30 UTC"
    )
    assert not output.exists()
    exported(tmp_path / "lake", output, "csv", "--from", "2026-05-28T00:30", mast="mast-09")
    assert list(table_of(output)["soil.moisture_avg"]) == [1000.0] * 3
    exported(tmp_path / "lake", output, "csv", "--to", "2026-05-28T00:30", "--force", mast="mast-09")
    with (tmp_path / "m.columns.csv").open() as file:
        assert "soil.moisture_avg,V," in file.read()


@pytest.mark.parametrize("unit", ['=HYPERLINK("http://x")', "\t=1+1"])
def test_what_a_spreadsheet_would_take_for_a_formula_is_text(tmp_path: Path, unit: str) -> None:
    short(tmp_path / "lake", [T0], "mast-09", channel=["-x.moisture"], quantity=["moisture"], unit=[unit])
    exported(tmp_path / "lake", tmp_path / "m.csv", "csv", mast="mast-09")
    with (tmp_path / "m.columns.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["unit"] for row in rows} == {"UTC+00:00", f"'{unit}", ""}
    assert rows[1]["column"] == "'-x.moisture_avg"
    exported(tmp_path / "lake", tmp_path / "m.dat", "toa5", mast="mast-09")
    for path in (tmp_path / "m.csv", tmp_path / "m.dat", tmp_path / "m.columns.csv"):
        with path.open(newline="") as file:
            texts = [cell for row in csv.reader(file) for cell in row]
        assert "'-x.moisture_avg" in texts
        assert not [cell for cell in texts if cell[:1] in set("=+-@\t\r")]


def test_a_file_is_replaced_only_on_request_and_as_a_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, output = tmp_path / "lake", tmp_path / "m.csv"
    short(lake, [T0, T0 + timedelta(days=30)])
    output.write_text("mine")
    asked = asked_for(lake, output, "csv", mast="mast-08")
    assert run(asked) == 1
    assert "m.csv exists: --force replaces" in capsys.readouterr().err
    # The second month can't be read: nothing of the first stays.
    (broken,) = (lake / "statistics").glob("date=2026-06-27/*.parquet")
    whole = broken.read_bytes()
    broken.write_bytes(whole[: len(whole) // 2] + bytes(len(whole) // 4) + whole[len(whole) * 3 // 4 :])
    if run([*asked, "--force"]) == 0:
        pytest.fail("a broken table was exported")
    assert output.read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"lake", "m.csv"}
    broken.write_bytes(whole)
    assert run([*asked, "--force"]) == 0
    assert output.read_text().startswith("interval_start (UTC+00:00),")


def test_two_that_write_one_file_at_the_same_time_are_each_whole(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    with whole_files([path], force=True) as first, whole_files([path], force=True) as second:
        first[path].write_text("all of the first one's")
        second[path].write_text("the second")
    assert path.read_text() == "all of the first one's"
    assert list(tmp_path.iterdir()) == [path]


VALUES: Final = st.lists(
    st.tuples(
        st.none() | st.floats(-MAX_NUMBER, MAX_NUMBER), st.none() | st.integers(0, 10**9)
    ),
    min_size=1, max_size=8,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(rows=VALUES, interval_s=st.sampled_from((600, 3600)))
def test_written_numbers_are_read_as_the_same(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float | None, int | None]], interval_s: int
) -> None:
    folder = tmp_path_factory.mktemp("written")
    channel = Channel(CUP, "wind_speed", "m/s")
    columns = (Column(channel, "avg"), Column(channel, "count"))
    begin_ms = int(T0.timestamp() * 1000)
    mast = Mast("mast-07", (channel,), (interval_s,), 0, 0, {})
    export = Export(mast, columns, interval_s, begin_ms, 0, ())
    times = [1000 * begin_ms + 1_000_000 * interval_s * at for at in range(len(rows))]
    values, counts = zip(*rows, strict=True)
    batch = pa.record_batch([
        pa.array(times, pa.int64()), pa.array(values, pa.float64()), pa.array(counts, pa.int64())
    ], names=["time_us", "a", "n"])  # fmt: skip
    for file in (CsvFile(folder / "m.csv", export), Toa5File(folder / "m.dat", export)):
        file.write(batch)
        file.close()
    wanted = np.array([[np.nan if each is None else float(each) for each in row] for row in rows])
    table = table_of(folder / "m.csv")
    assert np.array_equal(table.to_numpy(float), wanted, equal_nan=True)
    assert [int(at.timestamp() * 1e6) for at in pd.DatetimeIndex(table.index).tz_localize("UTC")] == times
    mapping = folder / "mapping.toml"
    mapping.write_text(f"""
[file]
gateway = "mast-07"
format = "toa5"
interval = "{interval_s}s"
scan = "1s"
stamps = "end"
utc_offset = "+00:00"

[[channel]]
sensor = "cup-a"
quantity = "wind_speed"
avg = "{CUP}_avg"
count = "{CUP}_count"
""")
    found = read_rows(folder / "m.dat", load_mapping(mapping), lambda *_: None, times[-1] + 10**13)
    assert found.bad == []
    assert list(found.times_us) == times
    assert np.array_equal(np.array(list(found.figures.values())).T, wanted, equal_nan=True)


STRAY: Final = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("form", "heading"), [("csv", 1), ("toa5", 4)])
def test_an_interval_decades_before_the_others_makes_no_rows_between(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, heading: int
) -> None:
    starts = [STRAY, *(T0 + timedelta(minutes=10 * at) for at in (0, 1, 4))]
    short(tmp_path / "lake", starts, "mast-09")
    path = exported(tmp_path / "lake", tmp_path / "m", form, mast="mast-09")
    assert len(path.read_text().splitlines()) == heading + 1 + 5
    assert (
        "6 rows, 2000-01-01 00:00:00 to 2026-05-28 00:50:00 UTC+00:00; one gap of more than 5,000 intervals "
        "has no rows: from 2000-01-01 00:10:00 to 2026-05-28 00:00:00\n"
    ) in capsys.readouterr().err


@pytest.mark.parametrize(("missing", "rows"), [(5000, 5002), (5001, 2)])
def test_a_gap_of_up_to_5000_intervals_has_a_row_for_each(tmp_path: Path, missing: int, rows: int) -> None:
    short(tmp_path / "lake", [T0, T0 + timedelta(minutes=10 * (missing + 1))], "mast-09")
    table = table_of(exported(tmp_path / "lake", tmp_path / "m.csv", "csv", mast="mast-09"))
    assert len(table) == rows
    assert table.iloc[:, 0].notna().sum() == 2


@pytest.mark.parametrize("options", [[], ["--readings"]])
def test_channels_that_differ_by_case_alone_keep_their_values(tmp_path: Path, options: list[str]) -> None:
    lake, names = tmp_path / "lake", ["A.wind_speed", "a.wind_speed"]
    short(lake, [T0] * 2, "mast-09", channel=names)
    write(lake, schemas.READINGS, {
        "gateway": ["mast-09"] * 2, "channel": names, "time": [T0] * 2, "date": [T0.date()] * 2,
        "value": np.array([1.0, 2.0]), "quality": [1] * 2, "clock": ["synced"] * 2,
    })  # fmt: skip
    path = exported(lake, tmp_path / "m.csv", "csv", *options, mast="mast-09")
    (row,) = csv.DictReader(path.read_text().splitlines())
    figure = "" if options else "_avg"
    assert [row[f"{name}{figure}"] for name in names] == ["1.0", "2.0"]
