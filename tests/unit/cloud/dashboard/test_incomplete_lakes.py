"""Lakes that lack something, or change while they are read: each view says what is missing and goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from cloud.dashboard.fleet import FleetReader
from cloud.dashboard.lists import PAGES, read_lists
from cloud.dashboard.live import LiveReader
from cloud.dashboard.views.drawn import draw
from cloud.dashboard.views.request import Request, open_view
from cloud.errors import CloudError
from cloud.masts.mast import details
from cloud.masts.numbers import CHARTS, summary
from cloud.masts.reading import Frame, LakeReader
from spark_jobs import schemas
from tests.support.fleet_lake import reader_of, write

NOTHING_LIVE = LiveReader(None, ())
BROKEN_LOG = '{"commitInfo":'


def words_of(reader: LakeReader) -> dict[str, str]:
    """What alerts and pipeline say in the place of tables, by card."""
    found = {name: each for title in PAGES for name, each in read_lists(reader, title).items()}
    return {name: each for name, each in found.items() if isinstance(each, str)}


def test_lists_of_a_lake_without_some_tables_and_without_any(lake: Path, tmp_path: Path) -> None:
    assert words_of(reader_of(lake)) == {
        "Anomalies above their threshold": "The lake has no table anomalies yet; fieldgate jobs run anomaly "
        "fills it.",
        "Quarantine by reason": "The lake has no table quarantine yet; fieldgate jobs run ingest fills it.",
        "Quarantined payloads": "The lake has no table quarantine yet; fieldgate jobs run ingest fills it.",
    }
    (tmp_path / "empty").mkdir()
    empty = words_of(reader_of(tmp_path / "empty"))
    assert list(empty) == [name for cards in PAGES.values() for name in cards]
    assert all("The lake has no table" in each for each in empty.values())


def broken_log(table: Path) -> None:
    for each in (table / "_delta_log").iterdir():
        each.unlink()
    (table / "_delta_log" / f"{0:020d}.json").write_text(BROKEN_LOG)


def without_files(table: Path) -> None:
    for each in table.rglob("*.parquet"):
        each.unlink()


@pytest.mark.parametrize("spoil", [broken_log, without_files])
@pytest.mark.parametrize("table", ["statistics", "mast", "presence"])
def test_a_table_that_is_half_written(lake: Path, table: str, spoil: Callable[[Path], None]) -> None:
    spoil(lake / table)
    reader = reader_of(lake)
    fleet = FleetReader(reader, NOTHING_LIVE).read()
    assert [mast["gateway"] for mast in fleet.masts] == ["mast-01", "mast-02"]
    assert [table in each for each in fleet.missing] == [True] * (table != "mast")
    tables = read_lists(reader, "Pipeline")["Tables"]
    assert isinstance(tables, Frame)
    said = {each["table"]: each["missing"] for each in tables.dicts() if each["missing"]}
    assert set(said) == {"anomalies", table}
    assert f"table {table} " in said[table]
    about: set[str] = {
        "statistics": {"Statistics"},
        "presence": {"Freshness", "What became of all readings"},
        "mast": set[str](),
    }[table]
    assert about == {name for name, each in words_of(reader).items() if f"table {table} " in each}
    if table == "statistics":
        with pytest.raises(CloudError, match="table statistics"):
            open_view(reader, Request("mast-01"))
        return
    view = open_view(reader, Request("mast-01"))
    assert isinstance(draw(view, "wind-rose"), dict)
    assert isinstance(details(reader, "mast-01")["Live"], str) == (table == "presence")
    if table == "mast":
        assert "mast" in str(draw(view, "turbulence"))
        assert summary(view).dicts()[0]["alpha"] is None
    assert summary(view).dicts()[0]["mean"] > 0


OLDER = {
    "mast": ("shear_alpha", "insolation"), "alerts": ("historical",), "presence": ("pending", "lost"),
    "channels": ("in_force", "periods"), "sites": ("owner",), "runs": ("in_flight",),
    "statistics": ("sum", "rate", "gust"),
}  # fmt: skip


def test_what_became_of_readings_where_counts_are_null(lake: Path) -> None:
    shutil.rmtree(lake / "presence")
    write(lake, schemas.PRESENCE, {"gateway": ["mast-01", "no-runs"], "lost": [None, 3]})
    made = read_lists(reader_of(lake), "Pipeline")["What became of all readings"]
    assert isinstance(made, Frame)
    left = {row["gateway"]: (row["stored_or_quarantined"], row["lost"]) for row in made.dicts()}
    assert left == {"no-runs": (None, 3), "mast-01": (None, None)}


def test_tables_of_an_older_version(lake: Path) -> None:
    for table, lacks in OLDER.items():
        rows = DeltaTable(str(lake / table)).to_pyarrow_table().drop_columns(list(lacks))
        shutil.rmtree(lake / table)
        write_deltalake(str(lake / table), rows)
    reader = reader_of(lake)
    fleet = FleetReader(reader, NOTHING_LIVE).read()
    assert [mast["gateway"] for mast in fleet.masts] == ["mast-01", "mast-02"]
    view = open_view(reader, Request("mast-01"))
    # What stands alone is null ...
    found = summary(view).dicts()[0]
    assert (found["alpha"], found["insolation"], found["gust"]) == (None, None, None)
    assert found["ti"] > 0
    drawn = {name for name in CHARTS if isinstance(draw(view, name), dict)}
    assert drawn == set(CHARTS) - {"rain", "insolation"}
    # ... and what a card can't be made without is named.
    below = {name: each for name, each in details(reader, "mast-01").items() if isinstance(each, str)}
    said = " ".join([*fleet.missing, *words_of(reader).values(), *below.values()])
    assert set(below) == {"Calibration in force", "Anomalies", "Losses"}
    assert below["Anomalies"].startswith("The lake has no table anomalies yet")
    for table, column in (("alerts", "historical"), ("presence", "pending"), ("channels", "in_force")):
        assert f"table {table} can't be read: " in said
        assert column in said


def test_a_table_that_is_compacted_between_two_looks(lake: Path) -> None:
    reader = reader_of(lake)
    fleet, asked = FleetReader(reader, NOTHING_LIVE), Request("mast-01", begin="2026-11-20")
    before = fleet.read().masts, summary(open_view(reader, asked)).rows
    for name in ("statistics", "mast"):
        table = DeltaTable(str(lake / name))
        rows = table.to_pyarrow_table()
        write_deltalake(str(lake / name), rows, mode="overwrite", partition_by=["date"])
        # What the log named before is gone; the pages look at versions each two seconds only.
        table = DeltaTable(str(lake / name))
        table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    other = Request("mast-01", begin="2026-11-20T12:00")
    assert summary(open_view(reader, other)).dicts()[0]["mean"] > 0
    reader.look()
    assert (fleet.read().masts, summary(open_view(reader, asked)).rows) == before
