"""The cleaning log: marks come and go, nothing is deleted, and views leave out what is marked."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from deltalake import DeltaTable

from cloud.lake.cleaning import Mark, add, marks, read_csv, withdraw
from cloud.lake.tables import LakeError, Lakes, open_lake
from spark_jobs.platform import schemas
from tests.support.commands import cleaning as run, query
from tests.support.fleet_lake import write
from tests.support.logger_files import MAPPING, file_in, imported, lines

T0: Final = datetime(2026, 5, 28, tzinfo=UTC)
CUP, TWIN, OTHER = "cup-a.wind_speed", "cup-b.wind_speed", "dht.temperature"
MARK: Final = Mark(
    "mast-07", "cup-a", T0 + timedelta(minutes=15), T0 + timedelta(minutes=30), "iced", "Ada", T0
)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two masts with six intervals and readings of three channels each."""
    for gateway in ("mast-07", "mast-08"):
        for channel in (CUP, TWIN, OTHER):
            times = [T0 + timedelta(minutes=10 * at) for at in range(6)]
            shared = {"gateway": [gateway] * 6, "channel": [channel] * 6, "date": [T0.date()] * 6}
            write(tmp_path, schemas.STATISTICS, shared | {
                "interval_s": [600] * 6, "interval_start": times, "version": [1] * 6,
            })  # fmt: skip
            write(tmp_path, schemas.READINGS, shared | {"time": times, "quality": [1] * 6})
    return tmp_path


def lakes_of(lake: Path) -> Lakes:
    return {"lake": (str(lake), None)}


def left(lake: Path, view: str) -> dict[tuple[str, str], list[int]]:
    """Minutes after T0 that the view has, by mast and channel, of those that lack some."""
    time = "time" if view.startswith("readings") else "interval_start"
    with open_lake(lake, tables=[view]) as connection:
        rows = connection.sql(
            f"SELECT gateway, channel, list(epoch_ms({time}) // 60000 ORDER BY {time}) "  # noqa: S608
            f"FROM {view} GROUP BY ALL"
        ).fetchall()
    start = int(T0.timestamp()) // 60
    found = {(gateway, channel): [each - start for each in times] for gateway, channel, times in rows}
    return {key: times for key, times in found.items() if times != [0, 10, 20, 30, 40, 50]}


def test_views_leave_out_what_is_marked_and_tables_keep_it(lake: Path) -> None:
    assert left(lake, "statistics_clean") == {}
    add(lakes_of(lake), [MARK])
    # 15 to 30 minutes: the intervals from 10 and 20 on have a part of it, of the readings the one at 20.
    assert left(lake, "statistics_clean") == {("mast-07", CUP): [0, 30, 40, 50]}
    assert left(lake, "readings_clean") == {("mast-07", CUP): [0, 10, 30, 40, 50]}
    assert left(lake, "statistics") == left(lake, "readings") == {}
    add(lakes_of(lake), [replace(MARK, channel="*", begin=T0 + timedelta(minutes=40), end=None)])
    assert left(lake, "readings_clean") == {
        ("mast-07", CUP): [0, 10, 30],
        ("mast-07", TWIN): [0, 10, 20, 30],
        ("mast-07", OTHER): [0, 10, 20, 30],
    }


def test_a_mark_is_there_once_and_its_withdrawal_is_noted(lake: Path) -> None:
    lakes = lakes_of(lake)
    assert add(lakes, [MARK, MARK]) == [MARK]
    assert add(lakes, [replace(MARK, reason="again")]) == []
    assert marks(lakes) == [MARK]
    # Noted by a clock that is behind.
    gone = withdraw(lakes, MARK.id, "it was rime on the lens", "Grace", T0 - timedelta(days=1))
    assert gone.noted_at == T0
    assert marks(lakes) == []
    assert left(lake, "statistics_clean") == {}
    table = DeltaTable(str(lake / "cleaning"))
    assert table.version() == 1
    assert [row["withdrawn"] for row in sorted(table.to_pyarrow_table().to_pylist(), key=str)] == [
        False,
        True,
    ]
    with pytest.raises(LakeError, match=r"no mark .* is in force"):
        withdraw(lakes, MARK.id, "again", "Grace", T0)
    later = replace(MARK, noted_at=T0 + timedelta(days=1))
    assert add(lakes, [later]) == [later]
    assert marks(lakes) == [later]


def test_marks_of_several_at_once_are_all_there(lake: Path) -> None:
    add(lakes_of(lake), [MARK])
    given = [replace(MARK, begin=T0 + timedelta(minutes=at), end=None) for at in range(8)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda mark: add(lakes_of(lake), [mark]), given))
    assert len(marks(lakes_of(lake))) == 9


def test_a_file_is_read_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "Sensor,Start,Stop,Reason\nAll,2026-05-28 00:10,2026-05-28 00:20,installation\n"
        "cup-a,2026-05-28T06:00+05:45,,iced\n"
    )
    first, second = read_csv(path, "mast-07", "Ada", T0).values()
    assert (first.channel, first.end, first.author) == ("*", T0 + timedelta(minutes=20), "Ada")
    assert (second.begin, second.end) == (T0 + timedelta(minutes=15), None)
    for line, words in (
        ("cup-a,soon,,iced", ":2: 'soon' is no time such as"),
        ("cup-a,2026-05-28,2026-05-28,iced", ":2: stop 2026-05-28 isn't after start"),
        ("cup-a,2026-05-28,,", ":2: no reason; the columns are sensor, start, stop, reason, who"),
    ):
        path.write_text(f"Sensor,Start,Stop,Reason\n{line}\n")
        with pytest.raises(LakeError, match=words):
            read_csv(path, "mast-07", "Ada", T0)


def test_the_command(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--lake", str(lake)]
    period = ["--start", "2026-05-28T00:15", "--stop", "2026-05-28T00:30"]
    sensor = ["--mast", "mast-07", "--sensor", "cup-a"]
    assert run(["add", *place, *sensor, *period, "--reason", "iced", "--who", "Ada"]) == 0
    mark = capsys.readouterr().out.split()[0]
    assert mark == MARK.id
    assert run(["list", *place, "--csv"]) == 0
    listed = capsys.readouterr().out
    assert "cup-a,2026-05-28T00:15:00.000Z,2026-05-28T00:30:00.000Z,iced,Ada,mast-07" in listed
    (tmp_path / "log.csv").write_text(listed)
    assert run(["import", *place, "--mast", "mast-07", str(tmp_path / "log.csv")]) == 0
    assert capsys.readouterr().out == "1 were marked already\n"
    assert query([*place, "--json", "SELECT count(*) AS n FROM STATISTICS_CLEAN"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 34}]
    assert run(["withdraw", *place, mark, "--reason", "it wasn't"]) == 0
    assert capsys.readouterr().out == f"{mark} is withdrawn\n"
    assert run(["withdraw", *place, mark, "--reason", "it wasn't"]) == 1
    assert f"no mark {mark} is in force" in capsys.readouterr().err


def test_a_lake_that_is_not_there_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    period = ["--mast", "m", "--sensor", "s", "--start", "2026-05-28", "--reason", "iced"]
    assert run(["add", "--lake", str(tmp_path / "none"), *period]) == 1
    assert "no such directory" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_brightwinds_file_names_sensors_by_their_beginning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    renamed = MAPPING.replace('"V"', '"Spd80mN"').replace('"T"', '"T2m"')
    imported(tmp_path, file_in(tmp_path, lines(6), header="Time,Spd80mN,Vsd,Vmax,T2m"), mapping=renamed)
    log = tmp_path / "cleaning.csv"
    log.write_text(
        "Sensor,Start,Stop,Reason\n"
        "All,2016-02-01 00:00,2016-02-01 00:10,Installation\n"
        "Spd,2016-02-01 00:30,2016-02-01 00:50,Icing\n"
        "Dir,2016-02-01 00:30,2016-02-01 00:50,Icing\n"
    )
    place = ["import", "--lake", str(tmp_path / "lake"), "--mast", "old-07"]
    assert run([*place, str(log)]) == 0
    clean = {channel: times for (_, channel), times in minutes(tmp_path / "lake").items()}
    assert clean == {"cup.wind_speed": [10, 20, 50], "air.temperature": [10, 20, 30, 40, 50]}
    assert f"warning: {log}:4: old-07 has no sensor Dir" in capsys.readouterr().err


def minutes(lake: Path) -> dict[tuple[str, str], list[int]]:
    """Minutes after the hour that the clean view has."""
    with open_lake(lake, tables=["statistics_clean"]) as connection:
        rows = connection.sql(
            "SELECT gateway, channel, list(minute(interval_start) ORDER BY interval_start) "
            "FROM statistics_clean GROUP BY ALL"
        ).fetchall()
    return {(gateway, channel): times for gateway, channel, times in rows}


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        (
            ["add", "--mast", "mast-07", "--sensor", "cup-typo"],
            "mast-07 has no sensor cup-typo (did you mean cup-",
        ),
        (["add", "--mast", "mast-07", "--sensor", "cup"], "mast-07 has no sensor cup"),
        (["add", "--mast", "mast-70", "--sensor", "all"], "there is no mast mast-70 (did you mean mast-0"),
        (["add", "--mast", "mast-07", "--sensor", "CUP-A"], "(did you mean cup-a?)"),
        (["list", "--mast", "mast-7"], "there is no mast mast-7 (did you mean mast-0"),
        (["import", "--mast", "mast-07"], ":2: mast-07 has no sensor Dir; there are *, cup-a, "),
        (["import", "--mast", "mast-70"], "there is no mast mast-70"),
    ],
)
def test_names_nobody_has_are_refused_with_the_nearest(
    lake: Path, action: list[str], wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--start", "2026-05-28", "--reason", "iced"] if action[0] == "add" else []
    if action[0] == "import":
        (lake / "log.csv").write_text("sensor,start,stop,reason\nDir,2026-05-28,,iced\n")
        more = [str(lake / "log.csv")]
    assert run([*action, *more, "--lake", str(lake)]) == 1
    assert wanted in capsys.readouterr().err
    assert not (lake / "cleaning").exists()


@pytest.mark.parametrize(
    ("start", "stop", "is_warned"),
    [
        ("2025-05-28T06:20", "2025-05-28T10:30", True),
        ("2027-05-28", None, True),
        (f"{T0 + timedelta(minutes=10):%Y-%m-%dT%H:%M}", None, False),
        ("2020-01-01", None, False),
        (f"{T0 + timedelta(hours=9):%Y-%m-%dT%H:%M}", None, False),
    ],
)
def test_a_period_in_which_a_mast_has_nothing_is_warned_of(
    lake: Path, start: str, stop: str | None, is_warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--stop", stop] if stop is not None else []
    period = ["--start", start, *more, "--reason", "iced", "--lake", str(lake)]
    assert run(["add", "--mast", "mast-07", "--sensor", "all", *period]) == 0
    wanted = f"mast-07 has statistics of {T0:%Y-%m-%d} to {T0:%Y-%m-%d} alone"
    assert (wanted in capsys.readouterr().err) == is_warned
