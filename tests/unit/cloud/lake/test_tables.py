"""Local tables as DuckDB sees them, over what delta-rs wrote."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cloud.lake.tables import LakeError, LazyLakes, open_lake

DAY = date(2026, 5, 28)
NOON = datetime(2026, 5, 28, 12, tzinfo=UTC)


def write(table: Path, **columns: Any) -> None:
    """A commit of one row; columns may be more than the table has."""
    folder = ["date"] if "date" in columns else None
    rows = pa.Table.from_pylist([columns], schema=pa.schema([(name, TYPES[name]) for name in columns]))
    write_deltalake(table, rows, mode="append", partition_by=folder, schema_mode="merge")


TYPES = {
    "gateway": pa.string(),
    "time": pa.timestamp("us", "UTC"),
    "value": pa.float64(),
    "extra": pa.map_(pa.string(), pa.int64()),
    "ends": pa.list_(pa.struct([("run", pa.string()), ("at", pa.timestamp("us", "UTC"))])),
    "payload": pa.binary(),
    "date": pa.date32(),
}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two days in a folder whose name has to be escaped; the second day's file has more columns."""
    root = tmp_path / "a lake's"
    write(root / "readings", gateway="mast-07", time=NOON, date=DAY)
    more = {"extra": [("a", 1)], "ends": [{"run": "x", "at": NOON}], "payload": b"\xff", "value": 7.5}
    write(root / "readings", gateway="mast-08", time=NOON, date=DAY + timedelta(days=1), **more)
    write(root / "readings", gateway="mast-09", time=NOON, date=None)
    return root


def test_files_of_several_versions_are_one_table_with_the_columns_of_the_log(lake: Path) -> None:
    with open_lake(lake, tables=["readings"]) as connection:
        answer = connection.sql("FROM readings ORDER BY gateway").to_arrow_table()
    assert answer.column_names == ["gateway", "time", "date", "extra", "ends", "payload", "value"]
    nothing = {"extra": None, "ends": None, "payload": None, "value": None}
    more = {"extra": [("a", 1)], "ends": [{"run": "x", "at": NOON}], "payload": b"\xff", "value": 7.5}
    assert answer.to_pylist() == [
        {"gateway": "mast-07", "time": NOON, "date": DAY} | nothing,
        {"gateway": "mast-08", "time": NOON, "date": DAY + timedelta(days=1)} | more,
        {"gateway": "mast-09", "time": NOON, "date": None} | nothing,
    ]


def test_a_condition_on_the_date_leaves_files_out(lake: Path) -> None:
    with open_lake(lake) as connection:
        (plan,) = connection.sql("EXPLAIN SELECT value FROM readings WHERE date = '2026-05-29'").fetchall()
    assert "Scanning Files: 1/3" in plan[1]


def test_only_wanted_tables_are_opened(lake: Path) -> None:
    write(lake / "mast", gateway="mast-07")
    (lake / "mast/_delta_log/00000000000000000000.json").write_text("{")
    opened = LazyLakes({"here": (str(lake), None)})
    with opened.connection:
        answer = opened.sql("CREATE TEMP TABLE mine AS FROM READINGS; SELECT count(*) FROM mine")
        assert answer is not None
        assert answer.fetchall() == [(3,)]
        with pytest.raises(LakeError, match="lake here: table mast can't be read"):
            opened.sql("SHOW TABLES")
    with pytest.raises(
        LakeError, match=r"no table runs in the lake .*: it has mast, readings; `fieldgate jobs"
    ):
        open_lake(lake, tables=["runs"])


def test_all_tables_are_listed(lake: Path) -> None:
    opened = LazyLakes({"here": (str(lake), None)})
    with opened.connection:
        answer = opened.sql("SHOW TABLES")
        assert answer is not None
        assert answer.fetchall() == [("readings",)]


def test_a_table_without_rows_is_empty(lake: Path) -> None:
    DeltaTable(lake / "readings").delete()
    with open_lake(lake) as connection:
        assert connection.sql("SELECT gateway, date FROM readings").fetchall() == []


@pytest.mark.parametrize("feature", ["deletionVectors", "columnMapping"])
def test_what_cannot_be_read_right_is_refused(lake: Path, feature: str) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature]}
    commit = json.dumps({"protocol": protocol | {"writerFeatures": [feature]}})
    (lake / "readings/_delta_log/00000000000000000003.json").write_text(commit)
    with pytest.raises(LakeError, match=f"table readings can't be read: .*{feature}"):
        open_lake(lake)


def test_a_table_whose_version_is_wanted_is_not_left_out(lake: Path) -> None:
    wanted = {"here/readings": 0, "here/cleaning": 3}
    with pytest.raises(LakeError, match="table here/cleaning isn't there any more; ask again"):
        LazyLakes({"here": (str(lake), None)}, wanted)


def test_a_table_as_it_was(lake: Path) -> None:
    write(lake / "mast", gateway="mast-07")

    def gateways(as_of: datetime | int) -> list[str]:
        opened = LazyLakes({"here": (str(lake), None)}, as_of)
        with opened.connection:
            answer = opened.sql("SELECT gateway FROM readings ORDER BY 1")
            assert answer is not None
            return [gateway for (gateway,) in answer.fetchall()]

    commit = lake / "readings/_delta_log/00000000000000000000.json"
    first = datetime.fromtimestamp(commit.stat().st_mtime, UTC)
    assert gateways(0) == ["mast-07"]
    assert gateways(first) == ["mast-07"]
    assert gateways(datetime.now(UTC)) == ["mast-07", "mast-08", "mast-09"]
    with pytest.raises(LakeError, match="table readings has no version as old as 2020-01-01"):
        gateways(datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(LakeError, match="table readings can't be read"):
        gateways(12)
    opened = LazyLakes({"here": (str(lake), None)}, 0)
    with opened.connection, pytest.raises(LakeError, match="--as-of 0 is one table's version"):
        opened.sql("FROM readings JOIN mast USING (gateway)")
