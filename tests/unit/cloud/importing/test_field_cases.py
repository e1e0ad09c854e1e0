"""Files as the field sends them: each kind that once gave wrong numbers or none, by the command."""

from __future__ import annotations

import gzip
import math
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from cloud.importing import logger_file
from tests.support.logger_files import asked, file_in, imported
from tests.unit.cloud.importing.test_logger_file import read

FILE: Final = """
[file]
gateway = "mast"
format = "csv"
time = "Time"
interval = "10m"
scan = "1s"
stamps = "start"
utc_offset = "+00:00"
"""
CUP: Final = '\n[[channel]]\nsensor = "cup"\nquantity = "wind_speed"\navg = "V"\nheight_m = 80.0\n'
VANE: Final = '\n[[channel]]\nsensor = "vane"\nquantity = "wind_direction"\navg = "D"\n'
AIR: Final = '\n[[channel]]\nsensor = "air"\nquantity = "temperature"\navg = "T"\n'
FIRST: Final = datetime(2024, 3, 1, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)


def made(folder: Path, values: list[str], header: str = "Time,V,T", name: str = "made.csv") -> Path:
    """A file of ten minutes from the first of March on, of so many values in each line."""
    rows = [f"{FIRST + timedelta(minutes=10 * at):%Y-%m-%d %H:%M},{each}" for at, each in enumerate(values)]
    return file_in(folder, rows, name, header)


def averages(folder: Path, channel: str) -> list[Any]:
    """A channel's means in order of time."""
    rows = asked(folder, f"SELECT avg FROM statistics WHERE channel = '{channel}' ORDER BY interval_start")  # noqa: S608
    return [row[0] for row in rows]


@pytest.mark.parametrize(("offset", "of"), [(-30.0, range(360)), (250.0, range(-180, 180))])
def test_directions_are_whole_circles_before_their_range_is_tested(
    tmp_path: Path, offset: float, of: range
) -> None:
    path = made(tmp_path, [f"8,{degrees}" for degrees in of], "Time,V,D")
    imported(tmp_path, path, mapping=f"{FILE}{CUP}{VANE}offset = {offset}\n")
    assert averages(tmp_path, "vane.wind_direction") == [(degrees + offset) % 360 for degrees in of]
    rose = asked(
        tmp_path,
        "SELECT sector, intervals FROM wind_rose('cup.wind_speed', 'vane.wind_direction') ORDER BY 1",
    )
    # A uniform direction is in each of twelve sectors equally often.
    assert rose == [(30.0 * sector, 30) for sector in range(12)]


@pytest.mark.parametrize("mark", [-999, 32767, 600])
def test_an_error_value_is_no_direction_whatever_the_offset(tmp_path: Path, mark: float) -> None:
    path = made(tmp_path, ["8,359.5", f"8,{mark}"], "Time,V,D")
    imported(tmp_path, path, mapping=f"{FILE}{CUP}{VANE}offset = 40.0\n")
    assert averages(tmp_path, "vane.wind_direction") == [pytest.approx(39.5), None]


def test_single_directions_are_within_the_circle_too(tmp_path: Path) -> None:
    text = FILE.replace('interval = "10m"\nscan = "1s"', 'interval = "1s"') + f"{VANE}offset = 12.0\n"
    path = file_in(tmp_path, [f"2024-03-01 00:00:0{at},{value}" for at, value in enumerate((355, -5, 0))],
                   header="Time,D")  # fmt: skip
    imported(tmp_path, path, mapping=text)
    assert asked(tmp_path, "SELECT value, quality FROM readings ORDER BY time") == [
        (7.0, 2),
        (7.0, 2),
        (12.0, 2),
    ]


def quarantined(folder: Path) -> list[Any]:
    """Reason and sentence of each line in quarantine."""
    return asked(folder, "SELECT reason, decode(headers[1].value) FROM quarantine ORDER BY source")


@pytest.mark.parametrize(
    ("cells", "v", "t", "reason"),
    [
        ("7,INF", 7.0, None, "NOT_A_NUMBER"),
        ('7,"1,017"', 7.0, None, "NOT_A_NUMBER"),
        ("7", 7.0, None, None),
        ("", None, None, None),
        ("7,", 7.0, None, None),
        ("7,5,,", 7.0, 5.0, None),
        ("7,5,3", None, None, "WRONG_COLUMNS"),
        ("7,5\ufffd", 7.0, None, "NOT_A_NUMBER"),
        ("7\ufffd5", None, None, "WRONG_COLUMNS"),
        ('7,"5', 7.0, None, "NOT_CSV"),
        ('"7"1,5', None, None, "NOT_CSV"),
        ("x," + "5" * 70_000, None, None, "TOO_LARGE"),
    ],
)
def test_each_channel_stands_for_itself(
    tmp_path: Path, cells: str, v: float | None, t: float | None, reason: str | None
) -> None:
    path = made(tmp_path, [cells, "7,5", "7,5", cells])
    path.write_bytes(path.read_bytes().replace("\ufffd".encode(), b"\xff"))
    rows = read(path, FILE + CUP + AIR)
    for at, value, other in ((0, v, 7.0), (1, t, 5.0)):
        lost = math.nan if value is None else value
        expected = pytest.approx([lost, other, other, lost], nan_ok=True, abs=0)
        assert rows.figures[at, "avg"].tolist() == expected
    # At the file's beginning and end too: what is lost counts against recovery.
    assert len(rows.times_us) == 4
    assert [bad.reason for bad in rows.bad] == ([] if reason is None else [reason] * 2)


def test_a_line_cut_off_at_the_files_end_has_no_last_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made(tmp_path, ["7.41,5.5"] * 3)
    path.write_bytes(path.read_bytes().rstrip().removesuffix(b"41,5.5"))
    imported(tmp_path, path, mapping=FILE + CUP + AIR)
    assert averages(tmp_path, "cup.wind_speed") == [7.41, 7.41, None]
    assert quarantined(tmp_path) == [("WRONG_COLUMNS", "ends within V: 2 fields, the header has 3")]


def test_rows_that_end_early_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(tmp_path, made(tmp_path, ["7,5", *["7"] * 400, "7,5"]), mapping=FILE + CUP + AIR)
    assert "400 lines that end before their last columns" in capsys.readouterr().out
    assert averages(tmp_path, "cup.wind_speed") == [7.0] * 402


def test_a_good_line_after_a_bad_one_of_its_time_counts(tmp_path: Path) -> None:
    path = made(tmp_path, ["7,5"] * 2)
    path.write_text(path.read_text().replace("00:10,7,5", "00:10,x,5\n2024-03-01 00:10,8,5"))
    imported(tmp_path, path, mapping=FILE + CUP + AIR)
    assert averages(tmp_path, "cup.wind_speed") == [7.0, 8.0]


def test_one_dead_sensor_leaves_the_others_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(tmp_path, made(tmp_path, [f"{at % 9},-7999" for at in range(144)]), mapping=FILE + CUP + AIR)
    assert averages(tmp_path, "cup.wind_speed") == [at % 9 for at in range(144)]
    assert averages(tmp_path, "air.temperature") == [None] * 144
    out = capsys.readouterr().out
    assert "air.temperature avg is -7999 Cel, not -90 to 60 (T: -7999) in 144 lines" in out
    assert "if it stands for no value, add it to missing" in out


def test_another_files_mapping_is_still_refused_by_its_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made(tmp_path, [f"{900 + at},{400 + at}" for at in range(144)])
    imported(tmp_path, path, mapping=FILE + CUP + AIR, code=1)
    assert "nothing was imported" in (said := capsys.readouterr().err)
    assert "(V: 900)" in said


def test_more_bad_cells_than_are_kept_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logger_file, "_MOST_BAD_BYTES", 20_000)
    imported(tmp_path, made(tmp_path, ["7,-7999"] * 300), mapping=FILE + CUP + AIR)
    assert averages(tmp_path, "cup.wind_speed") == [7.0] * 300
    kept = len(quarantined(tmp_path))
    assert 0 < kept < 100
    assert f"300 bad lines (OUT_OF_RANGE 300), the first {kept} in quarantine" in capsys.readouterr().out


def test_hours_as_numbers_give_the_days_energy(tmp_path: Path) -> None:
    day = [0, 0, 0, 0, 0, 0, 20, 110, 260, 410, 540, 630, 670, 650, 560, 430, 280, 120, 25, 0, 0, 0, 0, 0]
    rows = [f"2024,{60 + of},{100 * (hour + 1)},{watts}" for of in range(3) for hour, watts in enumerate(day)]
    text = (
        FILE.replace('"10m"', '"1h"').replace('"start"', '"end"')
        .replace('time = "Time"', 'time = ["Year", "DOY", "HHMM"]\ntime_format = "%Y %j %H%M"')
    )  # fmt: skip
    text += '[[channel]]\nsensor = "pyra"\nquantity = "irradiance"\navg = "GHI"\n'
    imported(tmp_path, file_in(tmp_path, rows, header="Year,DOY,HHMM,GHI"), mapping=text)
    sums = asked(tmp_path, "SELECT date, sum(avg), count(*) FROM statistics GROUP BY 1 ORDER BY 1")
    # 100 is one o'clock, 2400 the day's end: 4,705 Wh/m2 a day by hand.
    assert [(row[1], row[2]) for row in sums] == [(4705.0, 24)] * 3


TOA5: Final = """"TOA5","SITE","CR1000X","1","Std.03.02","CPU:a.CR1X","1","Ten"
"TIMESTAMP","RECORD",{names}
"TS","RN",{units}
"","",{kinds}"""


def toa5(names: str, units: str = "m/s,m/s") -> str:
    """Four lines of header."""
    return TOA5.format(
        **{key: '"' + text.replace(",", '","') + '"'
           for key, text in (("names", names), ("units", units), ("kinds", "Avg,Avg"))}
    )  # fmt: skip


CUPS: Final = CUP.replace('"cup"', '"high"') + CUP.replace('"cup"', '"low"').replace('"V"', '"W"')
SWAPPED: Final = ["9,7"] * 3, ["7,9"] * 3


@pytest.mark.parametrize("is_toa5", [False, True])
def test_a_repeated_header_moves_the_columns(tmp_path: Path, is_toa5: bool) -> None:
    before = made(tmp_path, SWAPPED[0]).read_text().splitlines()[1:]
    after = made(tmp_path, ["", "", "", *SWAPPED[1]]).read_text().splitlines()[4:]
    text = FILE + CUPS
    headers = ["Time,V,W", "Time,W,V"]
    if is_toa5:
        text = text.replace('"csv"', '"toa5"').replace('time = "Time"\n', "")
        headers = [toa5("V,W"), toa5("W,V")]
        before, after = (['"{}",1,{}'.format(*row.split(",", 1)) for row in each] for each in (before, after))
    imported(tmp_path, file_in(tmp_path, [*before, headers[1], *after, headers[0], *before[:1]],
                               header=headers[0]), mapping=text)  # fmt: skip
    assert averages(tmp_path, "high.wind_speed") == [9.0] * 6
    assert averages(tmp_path, "low.wind_speed") == [7.0] * 6
    assert asked(tmp_path, "SELECT count(*) FROM imports") == [(2,)]
    assert not (tmp_path / "lake/quarantine").exists()


def test_a_column_that_is_gone_has_nothing_from_there_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = made(tmp_path, ["9,7"] * 4).read_text().splitlines()[1:]
    rows[2:] = ["Time,X,W", *rows[2:]]
    imported(tmp_path, file_in(tmp_path, rows, header="Time,V,W"), mapping=FILE + CUPS)
    assert averages(tmp_path, "high.wind_speed") == [9.0, 9.0, None, None]
    assert averages(tmp_path, "low.wind_speed") == [7.0] * 4
    assert quarantined(tmp_path) == [("WRONG_COLUMNS", "a header without V: nothing of it from here on")]


@pytest.mark.parametrize(
    ("header", "wanted"), [("When,W,V", "a header without Time"), ("Time,V,V,W", "a header with V twice")]
)
def test_a_header_that_cant_be_followed_ends_the_import(
    tmp_path: Path, header: str, wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = made(tmp_path, ["9,7"] * 4).read_text().splitlines()[1:]
    rows[2:] = [header, *rows[2:]]
    imported(tmp_path, file_in(tmp_path, rows, header="Time,V,W"), mapping=FILE + CUPS, code=1)
    assert f"logger.csv:4: is {wanted}" in capsys.readouterr().err
    assert not (tmp_path / "lake").exists()


def test_a_file_may_end_within_a_header(tmp_path: Path) -> None:
    text = (FILE + CUPS).replace('"csv"', '"toa5"').replace('time = "Time"\n', "")
    rows = ["2024-03-01 00:00:00,1,9,7", *toa5("V,W").split("\n")[:2]]
    imported(tmp_path, file_in(tmp_path, rows, header=toa5("V,W")), mapping=text)
    assert averages(tmp_path, "high.wind_speed") == [9.0]


def test_another_unit_in_a_later_header_ends_the_import(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (FILE + CUPS).replace('"csv"', '"toa5"').replace('time = "Time"\n', "")
    rows = ["2024-03-01 00:00:00,1,9,7", toa5("V,W", "mph,m/s"), "2024-03-01 00:10:00,1,20,7"]
    imported(tmp_path, file_in(tmp_path, rows, header=toa5("V,W")), mapping=text, code=1)
    assert "is a header with V in mph, not in m/s as before" in capsys.readouterr().err


@pytest.mark.parametrize(("count", "sd"), [(600, 0.0), (2, 0.5), (1, 0.0), (1, 0.5), (0, 0.0)])
def test_one_sample_has_no_deviation_and_no_turbulence(tmp_path: Path, count: int, sd: float) -> None:
    path = made(tmp_path, [f"8,{sd},{count}"], "Time,V,Vsd,n")
    imported(tmp_path, path, mapping=f'{FILE}{CUP}sd = "Vsd"\ncount = "n"\n')
    wanted = (8.0 if count else None, sd if count > 1 else None)
    assert asked(tmp_path, "SELECT avg, sd FROM statistics") == [wanted]


def test_a_logger_that_samples_once_an_interval_has_no_deviation(tmp_path: Path) -> None:
    text = FILE.replace('scan = "1s"', 'scan = "10m"') + CUP + 'sd = "Vsd"\n'
    imported(tmp_path, made(tmp_path, ["8,0"], "Time,V,Vsd"), mapping=text)
    assert asked(tmp_path, "SELECT sd, count, cube_mean FROM statistics") == [(None, 1, 512.0)]


SITE: Final = '\n[site]\nlatitude = 46.9\nlongitude = 109.8\nutc_offset = "-07:00"\n'
WRONG: Final = FILE + SITE + CUPS.replace("80.0", "100.0", 1)
RIGHT: Final = (
    FILE
    + SITE.replace("109.8", "-109.8")
    + CUPS.replace('"V"', '"V"\nunit = "mph"', 1).replace("80.0", "90.0", 1)
)
RECORDS: Final = (
    "SELECT channel, height_m, valid_from, valid_to, len(periods) FROM channels "
    "WHERE channel = 'high.wind_speed' ORDER BY valid_from"
)


def test_an_import_that_leaves_the_rows_leaves_their_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made(tmp_path, ["9,7"] * 36, "Time,V,W")
    imported(tmp_path, path, mapping=WRONG)
    before = asked(tmp_path, RECORDS)
    imported(tmp_path, path, mapping=RIGHT)
    said = capsys.readouterr().out
    assert "36 imported before with other values, which stay (--replace" in said
    assert "another site is known from then on, which stays (--replace)" in said
    assert asked(tmp_path, RECORDS) == before == [("high.wind_speed", 100.0, FIRST, FIRST + 6 * HOUR, 1)]
    # What is new of a longer file has the new record from there on.
    imported(tmp_path, made(tmp_path, ["9,7"] * 42, "Time,V,W", "more.csv"), mapping=RIGHT)
    assert asked(tmp_path, RECORDS) == [
        *before, ("high.wind_speed", 90.0, FIRST + 6 * HOUR, FIRST + 7 * HOUR, 1)
    ]  # fmt: skip


def test_a_corrected_mapping_replaces_what_was_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made(tmp_path, ["9,7"] * 36, "Time,V,W")
    imported(tmp_path, path, mapping=WRONG)
    for _ in range(2):
        imported(tmp_path, path, mapping=RIGHT, more=["--replace"])
        assert asked(tmp_path, RECORDS) == [("high.wind_speed", 90.0, FIRST, FIRST + 6 * HOUR, 1)]
        assert averages(tmp_path, "high.wind_speed") == [pytest.approx(9 * 0.44704)] * 36
        assert asked(tmp_path, "SELECT longitude FROM sites") == [(-109.8,)]
        assert asked(tmp_path, "SELECT count(*), count(DISTINCT mapping_sha256) FROM imports") == [(2, 1)]
    assert "36 in place of those imported before" in capsys.readouterr().out


def test_a_part_that_is_replaced_has_its_own_record(tmp_path: Path) -> None:
    imported(tmp_path, made(tmp_path, ["9,7"] * 36, "Time,V,W"), mapping=WRONG)
    part = made(tmp_path, ["9,7"] * 24, "Time,V,W", "part.csv")
    rows = part.read_text().splitlines()
    part.write_text("\n".join([rows[0], *rows[13:]]))
    imported(tmp_path, part, mapping=RIGHT, more=["--replace"])
    hours = [(FIRST, FIRST + 6 * HOUR, 2), (FIRST + 2 * HOUR, FIRST + 4 * HOUR, 1)]
    assert [row[2:] for row in asked(tmp_path, RECORDS)] == hours
    mph = pytest.approx(9 * 0.44704)
    assert averages(tmp_path, "high.wind_speed") == [9.0] * 12 + [mph] * 12 + [9.0] * 12


def test_readings_off_the_grid_that_get_another_name_leave_nothing_behind(tmp_path: Path) -> None:
    text = FILE.replace('interval = "10m"\nscan = "1s"', 'interval = "2s"') + CUP
    begin = FIRST + timedelta(seconds=1.7)
    rows = [f"{begin + timedelta(seconds=2 * at):%Y-%m-%d %H:%M:%S.%f},7" for at in range(10)]
    path = file_in(tmp_path, rows, header="Time,V")
    marked = 'SELECT channel, begin, "end", rows FROM imports'
    imported(tmp_path, path, mapping=text)
    assert asked(tmp_path, marked) == [("cup.wind_speed", begin, begin + timedelta(seconds=20), 10)]
    imported(tmp_path, path, mapping=text.replace('"cup"', '"cap"'), more=["--replace"])
    assert asked(tmp_path, marked) == [("cap.wind_speed", begin, begin + timedelta(seconds=20), 10)]
    for table in ("readings", "channels"):
        assert asked(tmp_path, f"SELECT DISTINCT channel FROM {table}") == [("cap.wind_speed",)]  # noqa: S608


def test_another_clock_and_another_name_leave_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made(tmp_path, ["9,7"] * 12, "Time,V,W")
    imported(tmp_path, path, mapping=FILE + CUPS)
    text = (FILE + CUPS.replace('"high"', '"top"')).replace("+00:00", "-01:00")
    imported(tmp_path, path, mapping=text, more=["--replace"])
    # Six of low and all twelve of high were of the first mapping alone.
    assert "18 of this file by another mapping taken back" in capsys.readouterr().out
    spans = "SELECT channel, min(interval_start), count(*) FROM statistics GROUP BY 1 ORDER BY 1"
    wanted = [("low.wind_speed", FIRST + HOUR, 12), ("top.wind_speed", FIRST + HOUR, 12)]
    assert asked(tmp_path, spans) == wanted
    assert asked(tmp_path, "SELECT channel, valid_from FROM channels ORDER BY 1") == [
        row[:2] for row in wanted
    ]
    assert (
        asked(tmp_path, 'SELECT channel, min(begin), sum("rows") FROM imports GROUP BY 1 ORDER BY 1')
        == wanted
    )


def test_a_mark_that_was_forgotten_is_replaced_by_nothing(tmp_path: Path) -> None:
    path = made(tmp_path, ["9,7", "99.9,7", "9,7"], "Time,V,W")
    imported(tmp_path, path, mapping=FILE + CUPS)
    marked = (FILE + CUPS).replace("[file]", '[file]\nmissing = ["99.9"]')
    imported(tmp_path, path, mapping=marked, more=["--replace"])
    assert averages(tmp_path, "high.wind_speed") == [9.0, None, 9.0]


def test_samples_are_replaced_too(tmp_path: Path) -> None:
    samples = FILE.replace('interval = "10m"\nscan = "1s"', 'interval = "1s"')
    path = file_in(tmp_path, [f"2024-03-01 00:00:0{at},{at}" for at in range(9)], header="Time,V")
    imported(tmp_path, path, mapping=samples + CUP)
    text = samples.replace("+00:00", "-01:00") + CUP + 'unit = "mph"\n'
    imported(tmp_path, path, mapping=text, more=["--replace"])
    assert asked(tmp_path, "SELECT min(time), count(*), max(value) FROM readings") == [
        (FIRST + HOUR, 9, pytest.approx(8 * 0.44704))
    ]


def test_which_way_a_pyranometer_faces_is_in_its_record(tmp_path: Path) -> None:
    sun = '\n[[channel]]\nsensor = "{}"\nquantity = "irradiance"\navg = "{}"\n'
    text = (
        FILE + sun.format("level", "V") + sun.format("module", "T") + "tilt_deg = 40\nazimuth_deg = 180.0\n"
    )
    imported(tmp_path, made(tmp_path, ["600,800"]), mapping=text)
    assert asked(tmp_path, "SELECT sensor, extra FROM channels ORDER BY 1") == [
        ("level", '{"imported":"csv"}'),
        ("module", '{"imported":"csv","tilt_deg":40.0,"azimuth_deg":180.0}'),
    ]


@pytest.mark.parametrize("kind", ["mac", "utf-16", "utf-16-be", "zip", "mac.gz", "blanks"])
def test_however_a_file_is_written_it_is_read(tmp_path: Path, kind: str) -> None:
    path, text = made(tmp_path, ["7,5", "8,6"]), FILE + CUP + AIR
    content = path.read_bytes()
    if kind.startswith("mac"):
        content = content.replace(b"\r\n", b"\r")
    if kind.startswith("utf-16"):
        content = ("\ufeff" + content.decode()).encode("utf-16-be" if kind == "utf-16-be" else "utf-16-le")
    if kind == "blanks":
        content = content.replace(b",", b"   ").replace(b"Time ", b" Day Time ")
        text = text.replace('time = "Time"', 'time = ["Day", "Time"]\ndelimiter = " "')
    if kind == "mac.gz":
        path, content = tmp_path / "made.csv.gz", gzip.compress(content)
    path.write_bytes(content)
    if kind == "zip":
        path = tmp_path / "made.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("made.csv", content)
    imported(tmp_path, path, mapping=text)
    assert averages(tmp_path, "cup.wind_speed") == [7.0, 8.0]
    assert averages(tmp_path, "air.temperature") == [5.0, 6.0]


def test_an_archive_of_several_files_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        for name in ("one.csv", "two.csv"):
            archive.writestr(name, "Time,V\n")
    imported(tmp_path, tmp_path / "two.zip", mapping=FILE + CUP, code=1)
    assert "two.zip: has 2 files: unpack it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stamps", "times"),
    [
        ("start", ["2024-03-01 00:00:00", "2024-03-01 00:10:00"]),
        ("within", ["2024-03-01 00:05:00", "2024-03-01 00:15:00"]),
        ("within", ["2024-03-01 00:09:59", "2024-03-01 00:19:59"]),
        ("within", ["2024-03-01 00:04", "2024-03-01 00:14:59.999"]),
        ("end", ["2024-03-01 00:10:00", "2024-03-01 00:20:00"]),
        (
            "start",
            ["2024-03-01T00:00:00.0/2024-03-01T00:10:00.0", "2024-03-01T00:10:00.0/2024-03-01T00:20:00.0"],
        ),
        (
            "end",
            ["2024-03-01T00:00:00.0/2024-03-01T00:10:00.0", "2024-03-01T00:10:00.0/2024-03-01T00:20:00.0"],
        ),
    ],
)
def test_stamps_are_wherever_the_logger_puts_them(tmp_path: Path, stamps: str, times: list[str]) -> None:
    text = FILE.replace('"start"', f'"{stamps}"') + CUP
    rows = read(file_in(tmp_path, [f"{each},7" for each in times], header="Time,V"), text)
    begin_us = int(FIRST.timestamp()) * 1_000_000
    assert rows.times_us.tolist() == [begin_us, begin_us + 600_000_000]


@pytest.mark.parametrize(("header", "skip"), [(None, 0), ("Time,WS,WS", 1)])
def test_columns_of_a_file_without_names_or_with_one_twice_are_named_by_the_mapping(
    tmp_path: Path, header: str | None, skip: int
) -> None:
    rows = made(tmp_path, ["9,7", "9,7"], "Time,V,W").read_text().splitlines()[1:]
    path = tmp_path / "bare.csv"
    path.write_text("\n".join([*([header] if header else []), *rows, ""]))
    names = f'[file]\nnames = ["Time", "V", "W"]\nskip_lines = {skip}\n'
    imported(tmp_path, path, mapping=(FILE + CUPS).replace("[file]", names))
    assert averages(tmp_path, "high.wind_speed") == [9.0, 9.0]
    assert averages(tmp_path, "low.wind_speed") == [7.0, 7.0]


def test_another_files_empty_cells_replace_nothing(tmp_path: Path) -> None:
    files = [
        made(tmp_path, ["9,7"] * 6, "Time,V,W", "a.csv"),
        made(tmp_path, ["", "", "8,7"], "Time,V,W", "b.csv"),
    ]
    imported(tmp_path, *files, mapping=FILE + CUPS, more=["--replace"])
    assert averages(tmp_path, "high.wind_speed") == [9.0, 9.0, 8.0, 9.0, 9.0, 9.0]


@pytest.mark.parametrize("count", ["9e18", "9.3e18", "1e23"])
def test_a_count_that_no_logger_has_is_that_lines_fault(tmp_path: Path, count: str) -> None:
    path = made(tmp_path, ["8,600", f"8,{count}", "8,600"], "Time,V,N")
    imported(tmp_path, path, mapping=f'{FILE}{CUP}count = "N"\n')
    assert averages(tmp_path, "cup.wind_speed") == [8.0, None, 8.0]
    assert asked(tmp_path, "SELECT sum(n_fail) FROM statistics") == [(600,)]


def test_a_files_name_may_be_no_text(tmp_path: Path) -> None:
    named = made(tmp_path, ["8,5"])
    path = named.rename(named.with_name("f\udcff.csv"))
    imported(tmp_path, path, mapping=FILE + CUP)
    assert asked(tmp_path, "SELECT DISTINCT file FROM imports") == [("f\ufffd.csv",)]


@pytest.mark.parametrize(("offset", "ahead"), [("-03:30", -210), ("+00:00", 0), ("+12:45", 765)])
@pytest.mark.parametrize("stamps", ["start", "within", "end"])
def test_hours_begin_where_the_loggers_clock_has_them(
    tmp_path: Path, offset: str, ahead: int, stamps: str
) -> None:
    """A clock ahead by a part of an hour has hours that no hour of UTC is."""
    after = {"start": 0, "within": 30, "end": 60}[stamps]
    times = [FIRST + timedelta(hours=at, minutes=after) for at in (0, 1, 3)]
    text = FILE.replace('"10m"', '"1h"').replace('"start"', f'"{stamps}"').replace("+00:00", offset) + CUP
    imported(tmp_path, file_in(tmp_path, [f"{each:%Y-%m-%d %H:%M},7" for each in times], header="Time,V"),
             mapping=text)  # fmt: skip
    begin = FIRST - timedelta(minutes=ahead)
    rows = asked(tmp_path, "SELECT interval_start, interval_s, count, date FROM statistics ORDER BY 1")
    assert rows == [
        (start := begin + at * HOUR, 3600, 3600 * (at != 2), start.date()) for at in range(4)
    ]  # fmt: skip
    assert asked(tmp_path, 'SELECT min(begin), max("end") FROM imports') == [(begin, begin + 4 * HOUR)]
    assert asked(tmp_path, "SELECT valid_from, valid_to FROM channels") == [(begin, begin + 4 * HOUR)]


def test_hours_off_the_clocks_own_are_still_refused(tmp_path: Path) -> None:
    text = FILE.replace('"10m"', '"1h"').replace("+00:00", "+05:30") + CUP
    rows = ["2024-03-01 00:00,7", "2024-03-01 01:30,7", "2024-03-01 02:00,7"]
    imported(tmp_path, file_in(tmp_path, rows, header="Time,V"), mapping=text)
    assert quarantined(tmp_path) == [
        ("OFF_INTERVAL", "2024-03-01 01:30 is no beginning or end of an interval of 3600 s")
    ]


def test_what_another_clock_gave_is_not_there_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An hour that overlaps one that is there is no new one."""
    text = FILE.replace('"10m"', '"1h"') + CUP
    rows = [f"2024-03-01 {at:02}:00,{at}" for at in range(6)]
    path = file_in(tmp_path, rows, header="Time,V")
    imported(tmp_path, path, mapping=text)
    imported(tmp_path, path, mapping=text.replace("+00:00", "-00:30"))
    assert "6 imported before with other values, which stay (--replace" in capsys.readouterr().out
    assert averages(tmp_path, "cup.wind_speed") == [float(at) for at in range(6)]
    imported(tmp_path, path, mapping=text.replace("+00:00", "-00:30"), more=["--replace"])
    assert asked(tmp_path, "SELECT min(interval_start), count(*) FROM statistics") == [(FIRST + HOUR / 2, 6)]


@pytest.mark.parametrize(
    ("cell", "more", "wanted"),
    [
        ('"1,017.0"', "", 1017.0),
        ('"-1,017.25"', "", -1017.25),
        ('"1,234,567.5"', "", 1234567.5),
        ('"1,017"', "", None),
        ('"1,017"', 'thousands = ","', 1017.0),
        ('"1,234,567"', 'thousands = ","', 1234567.0),
        ('"10,17"', 'thousands = ","', None),
        ('"1,0170"', 'thousands = ","', None),
        ('"1,01.7"', "", None),
        ('"1017,5.0"', "", None),
        ('"0,017.0"', "", None),
        ('"1.017,0"', 'decimal = ","\ndelimiter = ";"', 1017.0),
        ('"1.017"', 'decimal = ","\ndelimiter = ";"', None),
        ('"1.017"', 'decimal = ","\ndelimiter = ";"\nthousands = "."', 1017.0),
        ("1'017.5", "", 1017.5),
        ("1 017.5", "", 1017.5),
        ("1\u00a0017", 'thousands = " "', 1017.0),
    ],
)
def test_thousands_are_told_from_decimals(tmp_path: Path, cell: str, more: str, wanted: float | None) -> None:
    text = FILE.replace("[file]", f"[file]\n{more}")
    text += '[[channel]]\nsensor = "x"\nquantity = "other"\nunit = "x"\navg = "V"\n'
    mark = ";" if "delimiter" in more else ","
    rows = [f"2024-03-01 00:{10 * at:02}{mark}{each}" for at, each in enumerate((cell, "7"))]
    found = read(file_in(tmp_path, rows, header=f"Time{mark}V"), text).figures[0, "avg"]
    assert found.tolist() == pytest.approx([math.nan if wanted is None else wanted, 7.0], nan_ok=True, abs=0)


def test_a_repeated_header_of_toaci1_moves_the_columns(tmp_path: Path) -> None:
    header = '"TOACI1","CR1000","TenMin"\n"TMSTAMP","RECNBR",{}'
    rows = ['"2024-03-01 00:00:00",1,9,7', *header.format('"W","V"').split("\n")]
    rows += ['"2024-03-01 00:10:00",2,7,9', '"2024-03-01 00:20:00",3,7,"NAN"']
    text = (FILE + CUPS).replace('"csv"', '"toa5"').replace('time = "Time"\n', "")
    imported(tmp_path, file_in(tmp_path, rows, header=header.format('"V","W"')), mapping=text)
    assert averages(tmp_path, "high.wind_speed") == [9.0, 9.0, None]
    assert averages(tmp_path, "low.wind_speed") == [7.0] * 3
    assert not (tmp_path / "lake/quarantine").exists()


def test_lines_before_the_header_need_no_count(tmp_path: Path) -> None:
    """The header is the first line that has the time's column; what a logger writes before is passed over."""
    rows = [*made(tmp_path, ["9,7"] * 2, "Time,V,W").read_text().splitlines()]
    before = ["Logger 12", "Time Zone: UTC", "", "a,b,c,d,e", "K\u00fcche"]
    path = tmp_path / "long.csv"
    path.write_bytes("\n".join([*before, *rows, ""]).encode("latin-1"))
    imported(tmp_path, path, mapping=FILE + CUPS)
    assert averages(tmp_path, "high.wind_speed") == [9.0, 9.0]
