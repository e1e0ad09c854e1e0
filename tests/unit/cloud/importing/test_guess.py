"""A guessed mapping is one that the import takes; what the file doesn't say is marked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from cloud.importing.mapping import load_mapping
from tests.support.commands import import_files as run
from tests.support.known_loggers import FILES
from tests.support.logger_files import asked, imported, mapping_in

FIRST: Final = datetime(2024, 3, 1, tzinfo=UTC)
TOA5: Final = """"TOA5","ridge","CR1000","1234","CR1000.Std.31","CPU:mast.CR1","4321","TenMin"
"TIMESTAMP","RECORD","WS_80m_Avg","WS_80m_Std","WS_80m_Max","WindDir_78m","AirTC_Avg","RH","BP_mbar_Avg","Rain_mm_Tot","SlrW_Avg"
"TS","RN","meters/second","meters/second","meters/second","Deg","Deg C","%","mbar","mm","W/m^2"
"","","Avg","Std","Max","Smp","Avg","Smp","Avg","Tot","Avg"
"2024-03-01 00:10:00",1,7.1,0.7,9,241,5.5,60,950,0.2,100
"2024-03-01 00:20:00",2,7.2,0.7,9,"NAN",5.6,61,950,0,101
"""
PLAIN: Final = "Time,Spd80mN,Spd80mNStd,Dir78m,T2m,P2m,Other\n" + "".join(
    f"2024-03-01 00:{at}0:00,7.{at},0.7,24{at},5.{at},95{at}.0,{at}\n" for at in range(1, 4)
)
EUROPEAN: Final = "Datum;Zeit;Windgeschw [m/s];Windrichtung [°];Temperatur [°C]\r\n" + "".join(
    f"01.03.2024;00:{at}0;7,{at};24{at};-999\r\n" for at in range(1, 4)
)


def guessed(folder: Path, content: bytes, capsys: pytest.CaptureFixture[str], name: str = "ridge.txt") -> str:
    """What the command prints for a file."""
    path = folder / name
    path.write_bytes(content)
    assert run(["--guess", str(path)]) == 0
    return capsys.readouterr().out


def means(folder: Path) -> dict[str, list[Any]]:
    sql = "SELECT channel, list(avg ORDER BY interval_start) FROM statistics GROUP BY 1"
    return dict(asked(folder, sql))


@pytest.mark.parametrize("name", sorted(set(FILES) - {"surfrad"}))
def test_known_loggers_files_can_be_guessed(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = guessed(tmp_path, FILES[name].text.encode(FILES[name].encoding), capsys)
    # A day that may be a month is left to say.
    text = text.replace('# time_format = "%d/', 'time_format = "%d/')
    imported(tmp_path, tmp_path / "ridge.txt", mapping=text)
    found = {round(sum(filter(None, values)), 3) for values in means(tmp_path).values()}
    wanted = {key: sum(filter(None, values)) for key, values in FILES[name].means.items()}
    # By unit alone a direction isn't told from a tilt.
    wanted.pop("ch12.wind_direction", None)
    assert {round(value, 3) for value in wanted.values()} <= found
    starts = asked(tmp_path, "SELECT DISTINCT interval_s FROM statistics")
    assert starts == [(FILES[name].length_s,)]


def test_toa5_is_guessed_by_its_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = guessed(tmp_path, TOA5.encode(), capsys)
    imported(tmp_path, tmp_path / "ridge.txt", mapping=text)
    assert means(tmp_path) == {
        "WS-80m.wind_speed": [7.1, 7.2], "WindDir-78m.wind_direction": [241, None],
        "AirTC.temperature": [5.5, 5.6], "RH.humidity": [60, 61], "BP-mbar.pressure": [95, 95],
        "Rain-mm.precipitation": [pytest.approx(0.2 / 600), 0], "SlrW.irradiance": [100, 101],
    }  # fmt: skip
    rows = asked(tmp_path, "SELECT sd, max FROM statistics WHERE channel = 'WS-80m.wind_speed' LIMIT 1")
    assert rows == [(0.7, 9.0)]
    assert asked(tmp_path, "SELECT min(interval_start) FROM statistics") == [(FIRST,)]
    assert asked(tmp_path, "SELECT height_m FROM channels WHERE quantity = 'wind_speed'") == [(80.0,)]
    assert 'gateway = "ridge"  # ???' in text
    assert 'utc_offset = "+00:00"  # ???' in text


def test_a_plain_csv_is_guessed_by_names_and_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = guessed(tmp_path, PLAIN.encode(), capsys)
    imported(tmp_path, tmp_path / "ridge.txt", mapping=text)
    assert means(tmp_path) == {
        "Spd80mN.wind_speed": [7.1, 7.2, 7.3], "Dir78m.wind_direction": [241, 242, 243],
        "T2m.temperature": [5.1, 5.2, 5.3], "P2m.pressure": pytest.approx([95.1, 95.2, 95.3]),
    }  # fmt: skip
    # No unit stands there: it is the one by which the values can be.
    assert 'unit = "hPa"  # ???' in text
    assert '# Not guessed: "Other"' in text


def test_decimal_commas_and_missing_values_are_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = guessed(tmp_path, EUROPEAN.encode("latin-1"), capsys)
    imported(tmp_path, tmp_path / "ridge.txt", mapping=text)
    assert means(tmp_path)["Windgeschw.wind_speed"] == [7.1, 7.2, 7.3]
    mapping = load_mapping(mapping_in(tmp_path, text))
    assert (mapping.file.decimal, mapping.file.delimiter, mapping.file.encoding) == (",", ";", "latin-1")
    assert (mapping.file.time, mapping.file.time_format) == (["Datum", "Zeit"], "%d.%m.%Y %H:%M")
    assert mapping.file.missing == ["", "-999"]


def test_a_day_that_may_be_a_month_is_left_to_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [FIRST + timedelta(hours=at) for at in range(30)]
    for count, wanted in ((20, '# time_format = "%d/%m/%Y %H:%M"  # ??? or ["%m/%d/%Y %H:%M"]'),
                          (30, 'time_format = "%m/%d/%Y %H:%M"')):  # fmt: skip
        content = "Time,Speed\n" + "".join(f"{each:%m/%d/%Y %H:%M},7\n" for each in rows[:count])
        assert wanted in guessed(tmp_path, content.encode(), capsys).splitlines()


@pytest.mark.parametrize(("second", "wanted"), [("00", "start"), ("59", "within")])
def test_stamps_within_an_interval_are_seen(
    tmp_path: Path, second: str, wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"2024-03-01 00:{at}{0 if second == '00' else 9}:{second},7\n" for at in range(4))
    text = guessed(tmp_path, f"Time,Speed\n{rows}".encode(), capsys)
    assert f'stamps = "{wanted}"  # ??? start, within or end' in text
    imported(tmp_path, tmp_path / "ridge.txt", mapping=text)
    assert asked(tmp_path, "SELECT min(interval_start), count(*) FROM statistics") == [(FIRST, 4)]


def test_a_name_that_is_there_twice_gets_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = PLAIN.replace("Spd80mNStd", "Spd80mN")
    text = guessed(tmp_path, content.encode(), capsys)
    imported(tmp_path, tmp_path / "ridge.txt", mapping=text)
    assert '"Spd80mN 2", "Spd80mN 3"' in text
    assert [7.1, 7.2, 7.3] in means(tmp_path).values()


def test_seconds_are_single_readings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = "Time,Speed,SpeedMax\n" + "".join(f"2024-03-01 00:00:0{at},{at},9\n" for at in range(9))
    imported(tmp_path, tmp_path / "ridge.txt", mapping=guessed(tmp_path, content.encode(), capsys))
    assert asked(tmp_path, "SELECT sum(value) FROM readings") == [(36.0,)]


@pytest.mark.parametrize("content", [b"", b"no table\n", b"a,b\n1,2\n", b"\xff\xfe\x00", bytes(range(256))])
def test_what_is_no_table_is_said(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    assert run(["--guess", str(path)]) == 1
    assert "x.csv: has no lines with a time in a known form" in capsys.readouterr().err
