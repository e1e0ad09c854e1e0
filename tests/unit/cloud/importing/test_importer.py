"""Files into a lake: values, marks, what stays, what importing again does. Real tables, by delta-rs."""

from __future__ import annotations

import json
import re
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from pyspark.sql.pandas.types import to_arrow_schema

from cloud.importing import tables
from cloud.wire import lake_tables
from cloud.wire.lake_tables import LakeTable
from spark_jobs.platform import schemas
from tests.support.commands import import_files as run
from tests.support.fleet_lake import write
from tests.support.logger_files import MAPPING, SAMPLES, asked, file_in, imported, lines, mapping_in

FIRST: Final = datetime(2016, 2, 1, tzinfo=UTC)
TABLES: Final = [table for table in vars(lake_tables).values() if isinstance(table, LakeTable)]


def versions(folder: Path) -> dict[str, int]:
    return {place.name: DeltaTable(place).version() for place in (folder / "lake").iterdir()}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_arrows_types_are_those_of_the_jobs(table: LakeTable) -> None:
    (of_jobs,) = (each for each in vars(schemas).values()
                  if isinstance(each, schemas.Table) and each.name == table.name)  # fmt: skip
    theirs, ours = (
        [field.to_json() for field in Schema.from_arrow(schema).fields]
        for schema in (to_arrow_schema(of_jobs.schema), tables.schema_of(table))
    )
    assert ours == theirs


def test_a_file_becomes_statistics_channels_and_what_was_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(tmp_path, file_in(tmp_path, lines(5)))
    assert capsys.readouterr().out == (
        "logger.csv: 5 lines, 2016-02-01 00:00:00 to 2016-02-01 00:50:00 UTC; "
        "10 new rows in statistics of old-07\n"
    )
    cup = asked(
        tmp_path,
        "SELECT interval_start, avg, sd, max, cube_mean, count, expected, recovery, period_ms, "
        "n_not_evaluated, quality, version, date, unit FROM statistics "
        "WHERE channel = 'cup.wind_speed' ORDER BY ALL",
    )
    v, sd = 38 / 3.6, 1.0
    assert cup[2] == (
        FIRST + timedelta(minutes=20), pytest.approx(v), pytest.approx(sd), pytest.approx(56 / 3.6),
        pytest.approx(v**3 + 3 * v * sd**2 * 599 / 600), 600, 600.0, 1.0, 1000, 600, 2, 1,
        FIRST.date(), "m/s",
    )  # fmt: skip
    records = asked(
        tmp_path,
        "SELECT channel, driver, valid_from, valid_to, in_force, height_m, slope, raw_unit, settings['avg'], "
        "cal LIKE 'import-%' FROM channels ORDER BY channel",
    )
    end = FIRST + timedelta(minutes=50)
    assert records == [
        ("air.temperature", "import", FIRST, end, False, None, 1.0, "Cel", '"T"', True),
        ("cup.wind_speed", "import", FIRST, end, False, 40.0, pytest.approx(1 / 3.6), "km/h", '"V"', True),
    ]
    marks = 'SELECT channel, "into", interval_s, begin, "end", "rows", file FROM imports ORDER BY channel'
    assert asked(tmp_path, marks) == [
        (channel, "statistics", 600, FIRST, end, 5, "logger.csv")
        for channel in ("air.temperature", "cup.wind_speed")
    ]


def test_importing_again_changes_nothing_and_an_overlap_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file_in(tmp_path, [*lines(5), "no,line,at,all,of"])
    imported(tmp_path, path)
    before = versions(tmp_path)
    imported(tmp_path, path)
    assert versions(tmp_path) == before
    capsys.readouterr()

    imported(tmp_path, file_in(tmp_path, [*lines(3, 2), lines(1, 3)[0].replace(",5.0", ",6.0")], "later.csv"))
    said = capsys.readouterr().out
    assert "later.csv: 4 lines" in said
    assert (
        "0 new rows in statistics of old-07; 6 imported before; 1 line in quarantine (DUPLICATE_TIME 1)"
        in said
    )
    imported(tmp_path, file_in(tmp_path, [each.replace(",5.0", ",6.0") for each in lines(3, 4)], "other.csv"))
    assert "4 new rows" in (said := capsys.readouterr().out)
    assert "1 imported before; 1 imported before with other values, which stay" in said
    assert asked(tmp_path, "SELECT count(*), count(DISTINCT (channel, interval_start)) FROM statistics") == [
        (14, 14)
    ]
    assert asked(tmp_path, "SELECT count(*), min(valid_from) FROM channels") == [(2, FIRST)]
    assert asked(tmp_path, "SELECT count(*) FROM statistics WHERE avg = 6.0") == [(2,)]


def test_bad_lines_are_in_quarantine_once(tmp_path: Path) -> None:
    bad = ["never,36,3.6,54,5", "2016-02-01 02:10:00,999,3.6,54,5"]
    path = file_in(tmp_path, [*lines(5), *bad])
    imported(tmp_path, path)
    imported(tmp_path, path)
    found = asked(
        tmp_path,
        "SELECT reason, payload, payload_bytes, gateway, source[:18], headers[1].value "
        "FROM quarantine ORDER BY reason",
    )
    assert found == [
        ("BAD_TIME", bad[0].encode(), 17, "old-07", "import logger.csv:",
         b"'never' is no time such as 2016-02-01 00:10:00"),
        ("OUT_OF_RANGE", bad[1].encode(), 32, "old-07", "import logger.csv:",
         b"cup.wind_speed avg is 277.5 m/s, not 0 to 115 (V: 999)"),
    ]  # fmt: skip
    failed = "SELECT avg, max, count, n_fail, quality, recovery FROM statistics WHERE n_fail > 0"
    assert asked(tmp_path, failed) == [(None, None, 0, 600, 4, 0.0)]


def test_what_the_logger_has_nothing_of_counts_against_recovery(tmp_path: Path) -> None:
    rows = [*lines(2), *lines(1, 4), lines(1, 5)[0].replace(",5.0", ",NAN")]
    imported(tmp_path, file_in(tmp_path, rows))
    recovery = (
        "SELECT channel, avg(recovery), count(*), list(quality ORDER BY interval_start) FROM statistics "
        "GROUP BY 1 ORDER BY 1"
    )
    assert asked(tmp_path, recovery) == [
        ("air.temperature", 0.5, 6, [2, 2, 9, 9, 2, 9]),
        ("cup.wind_speed", pytest.approx(4 / 6), 6, [2, 2, 9, 9, 2, 2]),
    ]
    # The next file is that of the days between.
    imported(tmp_path, file_in(tmp_path, lines(2, 2), "between.csv"))
    assert asked(tmp_path, recovery)[0] == ("air.temperature", pytest.approx(5 / 6), 6, [2, 2, 2, 2, 2, 9])
    assert asked(tmp_path, "SELECT max(version), count(*) FILTER (version = 2) FROM statistics") == [(2, 4)]
    # And one of weeks later says what is missing until then.
    imported(tmp_path, file_in(tmp_path, lines(1, 1000), "later.csv"))
    assert asked(
        tmp_path, "SELECT count(*), max(interval_start) FROM statistics WHERE channel = 'cup.wind_speed'"
    ) == [(1001, FIRST + timedelta(minutes=10_000))]


def test_measured_rows_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def row(at: int, **values: Any) -> dict[str, Any]:
        start = pa.scalar(FIRST + timedelta(minutes=10 * at), tables.TIMES)
        return {
            "gateway": ["old-07"], "channel": ["cup.wind_speed"], "interval_s": [600],
            "interval_start": [start],
            "n_good": [600], "version": [1], "date": [FIRST.date()], "avg": [1.5], "count": [600],
        } | {name: [value] for name, value in values.items()}  # fmt: skip

    flags = dict.fromkeys(("n_not_evaluated", "n_suspect", "n_fail", "n_missing"), 0)
    write(tmp_path / "lake", schemas.STATISTICS, row(1, **flags))
    write(tmp_path / "lake", schemas.STATISTICS, row(2, **flags | {"n_good": 0, "count": 0}, avg=None))
    imported(tmp_path, file_in(tmp_path, lines(4)))
    assert "7 new rows in statistics of old-07; 1 measured, which stay" in capsys.readouterr().out
    cup = "SELECT avg, version FROM statistics WHERE channel = 'cup.wind_speed' ORDER BY interval_start"
    assert asked(tmp_path, cup) == [
        (pytest.approx(10.0), 1), (1.5, 1), (pytest.approx(38 / 3.6), 2), (pytest.approx(39 / 3.6), 1),
    ]  # fmt: skip
    spans = """SELECT begin, "end" FROM imports WHERE channel = 'cup.wind_speed' ORDER BY begin"""
    found = asked(tmp_path, spans)
    assert [tuple((each - FIRST) // timedelta(minutes=10) for each in span) for span in found] == [
        (0, 1),
        (2, 4),
    ]


def test_samples_become_readings_each_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = [f"{FIRST + timedelta(seconds=second):%Y-%m-%d %H:%M:%S},{second}" for second in range(90)]
    path = file_in(tmp_path, at[:60], header="Time,V")
    imported(tmp_path, path, mapping=SAMPLES)
    imported(tmp_path, file_in(tmp_path, at[50:], "more.csv", "Time,V"), mapping=SAMPLES)
    assert "30 new rows in readings of old-07; 10 imported before" in capsys.readouterr().out
    rows = (
        "SELECT count(*), max(seq) - min(seq), min(run), max(run), min(quality), bool_and(replayed), "
        "any_value(cal[:7]) FROM readings"
    )
    assert asked(tmp_path, rows) == [(90, 89, "import-1000", "import-1000", 2, True, "import-")]
    assert asked(tmp_path, "SELECT time, value FROM readings ORDER BY time LIMIT 1 OFFSET 61") == [
        (FIRST + timedelta(seconds=61), 61.0)
    ]
    # A sample that is measured isn't imported.
    measured = {"gateway": ["old-07"], "channel": ["cup.wind_speed"], "run": ["5d"], "seq": [1],
                "time": [FIRST + timedelta(seconds=95.4)], "value": [2.0],
                "date": [FIRST.date()]}  # fmt: skip
    write(tmp_path / "lake", schemas.READINGS, measured)
    late = [f"{FIRST + timedelta(seconds=second):%Y-%m-%d %H:%M:%S},{second}" for second in range(93, 98)]
    imported(tmp_path, file_in(tmp_path, late, "late.csv", "Time,V"), mapping=SAMPLES)
    assert "4 new rows in readings of old-07; 1 measured, which stay" in capsys.readouterr().out


def test_directions_sums_and_states_are_of_their_kind(tmp_path: Path) -> None:
    text = """
[file]
gateway = "old-07"
format = "csv"
time = "Time"
interval = "10m"
scan = "1m"
stamps = "start"
utc_offset = "+00:00"
missing = ["NAN"]
[[channel]]
sensor = "vane"
quantity = "wind_direction"
avg = "D"
sd = "Dsd"
offset = 10.0
[[channel]]
sensor = "rain"
quantity = "precipitation"
sum = "P"
count = "n"
unit = "in"
[[channel]]
sensor = "door"
quantity = "state"
avg = "S"
"""
    path = file_in(tmp_path, ["2016-02-01 00:00:00,350,4.5,0.5,8,0.25"], header="Time,D,Dsd,P,n,S")
    imported(tmp_path, path, mapping=text)
    rows = asked(
        tmp_path,
        "SELECT quantity, avg, sum, rate, sd, count, recovery, max, changes FROM statistics ORDER BY 1",
    )
    assert rows == [
        ("precipitation", pytest.approx(12.7 / 8), pytest.approx(12.7), pytest.approx(95.25), None, 8, 0.8,
         None, None),
        ("state", 0.25, None, None, None, 10, 1.0, None, None),
        ("wind_direction", 0.0, None, None, 4.5, 10, 1.0, None, None),
    ]  # fmt: skip


def test_the_site_is_known_from_its_first_row_on(tmp_path: Path) -> None:
    site = "\n[site]\nlatitude = 27.7\nlongitude = 85.3\nutc_offset = '+05:45'\nname = 'Old ridge'\n"
    sites = "SELECT valid_from, latitude, utc_offset_min, name, extra FROM sites ORDER BY 1"
    old = (FIRST, 27.7, 345, "Old ridge", '{"imported":"csv"}')
    imported(tmp_path, file_in(tmp_path, lines(5)), mapping=MAPPING + site)
    imported(tmp_path, file_in(tmp_path, lines(5, 100), "later.csv"), mapping=MAPPING + site)
    assert asked(tmp_path, sites) == [old]
    moved = MAPPING + site.replace("27.7", "27.9")
    imported(tmp_path, file_in(tmp_path, lines(5, 200), "moved.csv"), mapping=moved)
    assert [row[1] for row in asked(tmp_path, sites)] == [27.7, 27.9]


def test_a_table_without_a_column_is_refused_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = schemas.STATISTICS.without("sum", "rate")
    write_deltalake(tmp_path / "lake/statistics", to_arrow_schema(other).empty_table(), partition_by=["date"])
    imported(tmp_path, file_in(tmp_path, lines(2)), code=1)
    assert "lacks sum, rate: another version of fieldgate made it. Move" in capsys.readouterr().err


def test_imports_at_once_make_each_row_once(tmp_path: Path) -> None:
    path, done = file_in(tmp_path, lines(200)), []
    mapping_in(tmp_path)
    imported(tmp_path, file_in(tmp_path, lines(1), "first.csv"))

    def work() -> None:
        done.append(
            run(["--mapping", str(tmp_path / "mapping.toml"), "--lake", str(tmp_path / "lake"), str(path)])
        )

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [0, 0, 0]
    assert asked(tmp_path, "SELECT count(*), count(DISTINCT (channel, interval_start)) FROM statistics") == [
        (400, 400)
    ]
    assert asked(tmp_path, "SELECT count(*) FROM channels") == [(2,)]


def test_what_a_crash_cuts_short_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_in(tmp_path, [*lines(5), "never,1,1,1,1"])
    merge, left = tables.LakeTables.merge, ["statistics", "imports", "sites", "channels", "quarantine"]

    def cut(self: Any, table: LakeTable, *given: Any, **more: Any) -> None:
        if left and table.name == left[-1]:
            left.pop()
            raise tables.WriteError("cut")
        merge(self, table, *given, **more)

    monkeypatch.setattr(tables.LakeTables, "merge", cut)
    site = "\n[site]\nlatitude = 1.0\nlongitude = 1.0\n"
    for _ in range(5):
        imported(tmp_path, path, mapping=MAPPING + site, code=1)
    imported(tmp_path, path, mapping=MAPPING + site)
    counts = "SELECT (SELECT count(*) FROM {}) AS n"
    assert [asked(tmp_path, counts.format(table))[0][0] for table in
            ("quarantine", "channels", "sites", "imports", "statistics")] == [1, 2, 1, 2, 10]  # fmt: skip


def test_check_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--mapping", str(mapping_in(tmp_path)), "--lake", str(tmp_path / "lake"), "--check"]
    assert run([*options, str(file_in(tmp_path, [*lines(5), "never,1,1,1,1"]))]) == 0
    assert not (tmp_path / "lake").exists()
    assert capsys.readouterr().out.splitlines() == [
        "logger.csv: 5 rows from 2016-02-01 00:00:00 to 2016-02-01 00:50:00 UTC",
        "  cup.wind_speed (m/s): 5 values, 10 to 11.11, mean 10.56",
        "  air.temperature (Cel): 5 values, 5 to 5, mean 5",
        "  line 7: BAD_TIME: 'never' is no time such as 2016-02-01 00:10:00",
    ]


def test_json_and_another_mast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--mapping", str(mapping_in(tmp_path)), "--lake", str(tmp_path / "lake"), "--json"]
    assert run([*options, "--mast", "mast-09", str(file_in(tmp_path, lines(2)))]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["new"], found["into"], found["bad_lines"]) == (4, "statistics", {})
    assert asked(tmp_path, "SELECT DISTINCT gateway FROM statistics") == [("mast-09",)]


def test_the_pages_example_is_imported_as_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[4] / "docs/import.md").read_text()
    content, mapping, checked, said, *_ = re.findall(r"^```(?:csv|toml|text)\n(.*?)^```$", page, re.M | re.S)
    (tmp_path / "old.csv").write_text(content)
    (tmp_path / "old.toml").write_text(mapping)
    mapping_file, lake, csv = (str(tmp_path / name) for name in ("old.toml", "lake", "old.csv"))
    options = ["--mapping", mapping_file, "--lake", lake, csv]
    assert run([*options, "--check"]) == 0
    assert capsys.readouterr().out == checked
    assert run(options) == 0
    assert capsys.readouterr().out == said
    marked = re.search(r"^```sql\n(.*?)^```$", page, re.M | re.S)
    assert marked is not None
    assert len(asked(tmp_path, marked[1])) == 10
