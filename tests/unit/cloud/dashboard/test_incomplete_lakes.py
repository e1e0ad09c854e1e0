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
from cloud.dashboard.views import Request, draw, open_view
from cloud.errors import CloudError
from cloud.lake.mast import details
from cloud.lake.numbers import summary
from cloud.lake.reader import Frame, LakeReader
from spark_jobs.platform import schemas
from tests.support.commands import import_files as run
from tests.support.fleet_lake import reader_of, write
from tests.support.logger_files import MAPPING, file_in, lines, mapping_in

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
    shutil.copytree(lake / "statistics", tmp_path / "bare" / "statistics")
    bare = open_view(reader_of(tmp_path / "bare"), Request("mast-01"))
    assert bare.mast.missing[0].startswith("The lake has no table channels yet")
    assert isinstance(draw(bare, "pair"), str)
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


def test_what_became_of_readings_where_counts_are_null(lake: Path) -> None:
    shutil.rmtree(lake / "presence")
    write(lake, schemas.PRESENCE, {"gateway": ["mast-01", "no-runs"], "lost": [None, 3]})
    made = read_lists(reader_of(lake), "Pipeline")["What became of all readings"]
    assert isinstance(made, Frame)
    left = {row["gateway"]: (row["stored_or_quarantined"], row["lost"]) for row in made.dicts()}
    assert left == {"no-runs": (None, 3), "mast-01": (None, None)}


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


def test_a_mast_that_was_imported_is_in_the_fleet_however_old_it_is(tmp_path: Path) -> None:
    """It has no site, no presence, and its intervals ended years before another mast's."""
    for gateway, year in (("old-no-site", 2016), ("new-no-site", 2022)):
        mapping = mapping_in(tmp_path, MAPPING.replace("old-07", gateway))
        rows = [each.replace("2016-", f"{year}-") for each in lines(5)]
        file = file_in(tmp_path, rows, f"{gateway}.csv")
        assert run(["--mapping", str(mapping), "--lake", str(tmp_path / "lake"), str(file)]) == 0
    fleet = FleetReader(reader_of(tmp_path / "lake"), NOTHING_LIVE).read()
    assert [mast["gateway"] for mast in fleet.masts] == ["new-no-site", "old-no-site"]
