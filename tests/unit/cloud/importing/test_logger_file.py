"""Files line by line: CSV and TOA5, what is a row and what is wrong with the others."""

from __future__ import annotations

import gzip
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from cloud.importing import logger_file
from cloud.importing.lines import FileError
from cloud.importing.logger_file import Rows, read_rows
from cloud.importing.mapping import load_mapping
from cloud.importing.values import problem
from cloud.toml_problems import ConfigError
from tests.support.examples import examples
from tests.support.logger_files import HEADER, MAPPING, SAMPLES, file_in, lines, mapping_in

NOW_US = int(datetime(2026, 11, 26, tzinfo=UTC).timestamp()) * 1_000_000
FIRST_US = int(datetime(2016, 2, 1, tzinfo=UTC).timestamp()) * 1_000_000


def read(path: Path, mapping: str = MAPPING) -> Rows:
    return read_rows(path, load_mapping(mapping_in(path.parent, mapping)), problem, NOW_US)


def test_times_are_starts_in_utc(tmp_path: Path) -> None:
    rows = read(file_in(tmp_path, lines(3)))
    assert rows.times_us.tolist() == [FIRST_US + at * 600_000_000 for at in range(3)]
    assert rows.figures[0, "avg"].tolist() == [36, 37, 38]
    assert not rows.bad


def test_toa5_has_four_header_lines(tmp_path: Path) -> None:
    text = MAPPING.replace('"csv"', '"toa5"').replace('time = "Time"\n', "")
    header = (
        '"TOA5","mast","CR1000","123","CR1000.Std.27","CPU:mast.CR1","4711","Table10"\n'
        '"TIMESTAMP","RECORD","V","Vsd","Vmax","T"\n"TS","RN","km/h","km/h","km/h","Deg C"\n'
        '"","","Avg","Std","Max","Avg"'
    )
    data = ['"2016-02-01 01:10:00",0,36,3.6,54,"NAN"', '"2016-02-01 01:20:00",1,"INF",3.6,54,5']
    rows = read(file_in(tmp_path, data, "toa5.dat", header), text)
    assert rows.times_us.tolist() == [FIRST_US, FIRST_US + 600_000_000]
    assert str(rows.figures[1, "avg"].tolist()) == "[nan, 5.0]"
    assert [(bad.number, bad.reason) for bad in rows.bad] == [(6, "NOT_A_NUMBER")]
    with pytest.raises(FileError, match="begins with 'Time', not with TOA5"):
        read(file_in(tmp_path, lines(1)), text)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("yesterday,36,3.6,54,5", "BAD_TIME"),
        ("1999-02-01 01:10:00,36,3.6,54,5", "TIME_TOO_OLD"),
        ("2026-12-24 01:10:00,36,3.6,54,5", "TIME_IN_FUTURE"),
        ("9999-12-31 23:59:59,36,3.6,54,5", "TIME_IN_FUTURE"),
        ("0001-01-01 00:00:00,36,3.6,54,5", "TIME_TOO_OLD"),
        ("2016-02-02 01:11:00,36,3.6,54,5", "OFF_INTERVAL"),
        ("2016-02-02 01:10:00,36,x,54", "WRONG_COLUMNS"),
        ("2016-02-02 01:10:00,36,3.6,54,5,6", "WRONG_COLUMNS"),
        ("2016-02-02 01:10:00,x,3.6,54,5", "NOT_A_NUMBER"),
        ("2016-02-02 01:10:00,1_0,3.6,54,5", "NOT_A_NUMBER"),
        ("2016-02-02 01:10:00,inf,3.6,54,5", "NOT_A_NUMBER"),
        ("2016-02-02 01:10:00,٣,3.6,54,5", "NOT_A_NUMBER"),
        ('2016-02-02 01:10:00,"36,3.6,54,5', "NOT_CSV"),
        ("2016-02-01 01:10:00,99,3.6,54,5", "DUPLICATE_TIME"),
        ("2016-02-02 01:10:00," + "9" * 70_000 + ",3.6,54,5", "TOO_LARGE"),
    ],
)
def test_a_bad_line_is_kept_with_its_reason(tmp_path: Path, line: str, reason: str) -> None:
    rows = read(file_in(tmp_path, [*lines(2), line, *lines(2, 10)]))
    (bad,) = rows.bad
    has_time = reason in ("WRONG_COLUMNS", "NOT_A_NUMBER", "NOT_CSV", "TOO_LARGE")
    assert (bad.number, bad.reason, len(rows.times_us)) == (4, reason, 4 + has_time)
    assert bad.payload == line.encode()[: 1 << 16]
    assert bad.payload_bytes == len(line.encode()) + (2 if reason == "TOO_LARGE" else 0)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("2016-02-02 01:10:00,999,3.6,54,5", "OUT_OF_RANGE"),
        ("2016-02-02 01:10:00,36,-3.6,54,5", "INCONSISTENT"),
        ("2016-02-02 01:10:00,36,3.6,54,-300", "OUT_OF_RANGE"),
    ],
)
def test_a_line_with_figures_that_cant_be_is_a_row_too(tmp_path: Path, line: str, reason: str) -> None:
    rows = read(file_in(tmp_path, [*lines(2), line]))
    assert [(bad.number, bad.reason) for bad in rows.bad] == [(4, reason)]
    assert len(rows.times_us) == 3


def test_the_same_line_twice_is_one_row(tmp_path: Path) -> None:
    rows = read(file_in(tmp_path, [*lines(3), *lines(3, 1)]))
    assert (len(rows.times_us), rows.repeated, rows.bad) == (4, 2, [])


def test_missing_codes_are_no_values_however_they_are_written(tmp_path: Path) -> None:
    text = MAPPING.replace("[file]", '[file]\nmissing = ["", "-999", "n/a"]')
    rows = read(file_in(tmp_path, ["2016-02-01 01:10:00,-999.0,, n/a ,5"]), text)
    assert all(str(rows.figures[0, name][0]) == "nan" for name in ("avg", "sd", "max"))


def test_decimal_commas_semicolons_and_two_columns_of_time(tmp_path: Path) -> None:
    text = (
        MAPPING.replace('time = "Time"', 'time = ["Datum", "Zeit"]\ntime_format = "%d.%m.%Y %H:%M"')
        .replace("[file]", '[file]\ndelimiter = ";"\ndecimal = ","\nencoding = "latin-1"\nskip_lines = 2')
    )  # fmt: skip
    path = tmp_path / "logger.csv"
    path.write_bytes(
        "Mühle\n\nDatum;Zeit;V;Vsd;Vmax;T\n01.02.2016;01:10;36,5;3,6;54;-0,5\n".encode("latin-1")
    )
    rows = read(path, text)
    assert (rows.times_us[0], rows.figures[0, "avg"][0], rows.figures[1, "avg"][0]) == (FIRST_US, 36.5, -0.5)


def test_a_column_that_isnt_there_is_named_with_the_mappings_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        read(file_in(tmp_path, lines(1), header="Time,V,VSd,Vmax,T"))
    wanted = 'mapping.toml:16: channel[1].sd: "Vsd" is no column of logger.csv (did you mean "VSd"?)'
    assert str(error.value).endswith(wanted)


def test_another_files_mapping_imports_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"logger.csv:2: OFF_INTERVAL: .*nothing was imported"):
        read(file_in(tmp_path, ["2016-02-01 01:11:00,1,1,1,1"] * 3))
    with pytest.raises(FileError, match="can't be read"):
        read(tmp_path / "absent.csv")
    (tmp_path / "torn.csv.gz").write_bytes(gzip.compress(b"Time,V,Vsd,Vmax,T\n" * 100)[:-9])
    with pytest.raises(FileError, match="can't be read"):
        read(tmp_path / "torn.csv.gz")
    with pytest.raises(FileError, match="ends before its header does"):
        read(empty(tmp_path))


def empty(folder: Path) -> Path:
    path = folder / "empty.csv"
    path.touch()
    return path


@given(st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([each.encode() for each in lines(4)]),
                          st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))),
                max_size=8))  # fmt: skip
@settings(
    deadline=None, max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_a_file_holds_is_a_row_or_a_bad_line(tmp_path: Path, content: list[bytes]) -> None:
    path = tmp_path / "any.csv"
    path.write_bytes(b"\n".join([HEADER.encode(), lines(1, 50)[0].encode(), *content]))
    rows = read(path)
    whole = b"\n".join(content).split(b"\n")
    assert len(rows.times_us) + rows.repeated + rows.lost == rows.lines
    assert len(rows.bad) == rows.reasons.total() >= rows.lost
    assert rows.lines == 1 + sum(bool(line.strip()) for line in whole)


@given(st.lists(st.integers(0, 3000), max_size=20))
@settings(
    deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_samples_of_one_period_are_one(tmp_path: Path, offsets_ms: list[int]) -> None:
    at = [f"2016-02-01 00:00:{ms // 1000:02d}.{ms % 1000:03d},7" for ms in offsets_ms]
    rows = read(file_in(tmp_path, ["2016-02-01 00:01:00,7", *at], header="Time,V"), SAMPLES)
    assert len(rows.times_us) == 1 + len({ms // 1000 for ms in offsets_ms})


def packed(tmp_path: Path, name: str, line: bytes, times: int) -> Path:
    path = tmp_path / name
    with gzip.open(path, "wb", 6) as file:
        file.write(f"{HEADER}\n".encode())
        for _ in range(times):
            file.write(line)
    return path


@pytest.mark.parametrize("line", [b"x" * 65_000 + b"\n", b"x" * 1_000_000])
def test_a_small_file_that_unpacks_to_a_large_one_takes_little(
    tmp_path: Path, line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Under the eyes of tracemalloc a line takes long.
    monkeypatch.setattr(logger_file, "_MOST_BAD_BYTES", 8 << 20)
    path = packed(tmp_path, "bomb.csv.gz", line, 50_000_000 // len(line))
    assert path.stat().st_size < 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match=r"unpacks to over 200 times|lines, over 8 MiB"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()
