"""Presets: of each format a made file of its shape is imported, by the command, without a mapping."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from cloud.importing.mapping import described
from gateway.cli import parser_of
from tests.support.commands import import_files as run
from tests.support.known_loggers import FILES
from tests.support.logger_files import asked, imported

FIRST: Final = datetime(2024, 3, 1, tzinfo=UTC)


def by_preset(folder: Path, name: str, *options: str) -> int:
    """Imports its file; the exit status."""
    path = folder / "logger.txt"
    path.write_bytes(FILES[name].text.encode(FILES[name].encoding))
    more = ["--preset", name, "--mast", "mast", "--lake", str(folder / "lake"), *options]
    return run([*more, str(path)])


def means(folder: Path) -> dict[str, list[Any]]:
    sql = "SELECT channel, list(avg ORDER BY interval_start) FROM statistics GROUP BY 1"
    return dict(asked(folder, sql))


def test_each_preset_has_a_file() -> None:
    assert sorted(FILES) == list(described())
    shown = " ".join(parser_of("import").format_help().split())
    assert all(f"{name}: {what}" in shown for name, what in described().items())


@pytest.mark.parametrize("name", FILES)
def test_a_preset_imports_a_file_of_its_shape(tmp_path: Path, name: str) -> None:
    file = FILES[name]
    assert by_preset(tmp_path, name, *file.options) == 0
    assert means(tmp_path) == {channel: pytest.approx(values) for channel, values in file.means.items()}
    starts = asked(tmp_path, "SELECT DISTINCT interval_start, interval_s FROM statistics ORDER BY 1")
    assert starts == [(FIRST + timedelta(seconds=at * file.length_s), file.length_s) for at in range(2)]


def test_what_a_preset_lacks_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert by_preset(tmp_path, "zx") == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "preset_files/zx.toml:2: file.stamps: is required" in said


def test_the_heights_of_a_lidar_are_in_its_records(tmp_path: Path) -> None:
    assert by_preset(tmp_path, "windcube") == 0
    rows = asked(tmp_path, "SELECT channel, height_m FROM channels WHERE quantity = 'wind_speed' ORDER BY 2")
    assert rows == [("lidar-40m.wind_speed", 40.0), ("lidar-120m.wind_speed", 120.0)]


def test_heights_may_change_from_file_to_file(tmp_path: Path) -> None:
    assert by_preset(tmp_path, "windcube") == 0
    text = FILES["windcube"].text.replace("120m ", "140m ").replace("2024/03/01", "2024/03/02")
    path = tmp_path / "next.sta"
    path.write_bytes(text.encode("latin-1"))
    options = ["--preset", "windcube", "--mast", "mast", "--lake", str(tmp_path / "lake")]
    assert run([*options, str(tmp_path / "logger.txt"), str(path)]) == 0
    assert {channel for channel in means(tmp_path) if "speed" in channel} == {
        f"lidar-{height}m.wind_speed" for height in (40, 120, 140)
    }


def test_a_mapping_may_begin_from_a_preset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_preset(tmp_path, "symphoniepro")
    text = '[file]\npreset = "symphoniepro"\ngateway = "mast"\nutc_offset = "-05:00"\nscan = "2s"\n'
    imported(tmp_path, tmp_path / "logger.txt", mapping=text)
    assert len(means(tmp_path)) == 5
    assert asked(tmp_path, "SELECT DISTINCT expected FROM statistics") == [(300.0,)]
    own = '[[channel]]\nsensor = "top"\nquantity = "wind_speed"\navg = "Ch2_Anem_85.00m_S_Avg_m/s"\n'
    imported(tmp_path, tmp_path / "logger.txt", mapping=text + own, more=["--replace"])
    assert means(tmp_path) == {"top.wind_speed": [7.1, 7.2]}
    capsys.readouterr()
    imported(tmp_path, tmp_path / "logger.txt", mapping=text.replace("pro", "por"), code=1)
    assert 'file.preset: is not a known preset (did you mean "symphoniepro"?)' in capsys.readouterr().err


def test_a_file_of_another_logger_has_none_of_the_channels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.txt"
    path.write_text("Timestamp\tV\n2024-03-01 00:00\t7\n")
    options = ["--preset", "logr", "--mast", "mast", "--stamps", "end", "--utc-offset=+00:00"]
    assert run([*options, "--lake", str(tmp_path / "lake"), str(path)]) == 1
    assert "has no [[channel]] of this file: nothing would be imported" in capsys.readouterr().err
