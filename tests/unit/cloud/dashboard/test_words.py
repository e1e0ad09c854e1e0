"""What cards say in words: why one is empty and what fills it, and of a chart what it shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cloud.dashboard import fleet_page, lists
from cloud.dashboard.fleet import FleetReader
from cloud.dashboard.live import LiveReader
from cloud.dashboard.views import NO_ROWS, Request, draw, draw_series, open_view
from cloud.errors import CloudError
from cloud.lake.mast import details
from cloud.lake.numbers import CHARTS, MEASURED_BY, View, series
from drivers.registry import driver_type
from tests.support.fleet_lake import reader_of

CUP = "cup-50m-a.wind_speed"
REMEDY = re.compile(r"fieldgate (jobs run|import)|gateway\.toml|Choose another time")


def view_of(lake: Path) -> View:
    return open_view(reader_of(lake), Request("mast-01"))


@pytest.fixture(scope="module")
def view(whole: Path) -> View:
    return view_of(whole)


def words(view: View) -> dict[str, str]:
    """Of each chart that isn't drawn why."""
    made = {name: draw(view, name) for name in CHARTS}
    return {name: each for name, each in made.items() if isinstance(each, str)}


def test_a_mast_with_a_single_cup_and_no_vane(lake: Path) -> None:
    DeltaTable(str(lake / "statistics")).delete(f"channel <> '{CUP}'")
    shutil.rmtree(lake / "mast")
    alone = view_of(lake)
    said = words(alone)
    assert set(said) == set(CHARTS) - {"distribution", "diurnal", "recovery"}
    assert 'no channel of wind_direction: a [[sensor]] with driver = "wind-vane"' in said["wind-rose"]
    assert said["shear"].startswith(f"Shear needs cups at two heights or more; this mast has {CUP} at 50 m.")
    assert "height_m" in said["shear"]
    assert said["turbulence"] == "The lake has no table mast yet; fieldgate jobs run mast fills it."
    assert "no channel of irradiance" in said["insolation"]
    assert all(REMEDY.search(each) for each in said.values()), said


def test_a_time_in_which_nothing_was_measured_and_a_table_mast_that_is_behind(lake: Path) -> None:
    DeltaTable(str(lake / "mast")).delete("true")
    behind = view_of(lake)
    for name in ("turbulence", "insolation"):
        assert "fieldgate jobs run mast" in str(draw(behind, name))
    DeltaTable(str(lake / "statistics")).update(
        updates={"avg": "NULL", "count": "0", "recovery": "0.0", "gust": "NULL", "max": "NULL", "min": "NULL"}
    )
    silent = view_of(lake)
    said = words(silent)
    assert set(said) == set(CHARTS) - {"recovery"}
    assert (
        f"None of 144 intervals of {CUP} in this time has a value: 144 have no reading"
        in said["distribution"]
    )
    span = silent.span
    over_time = draw_series(silent, series(silent, CUP, span.begin_ms, span.end_ms), {})
    assert isinstance(over_time, str)
    assert over_time == said["distribution"]
    assert all(REMEDY.search(each) for each in said.values()), said
    DeltaTable(str(lake / "statistics")).update(updates={"version": "0"})
    still_open = view_of(lake)
    assert "144 are not closed yet" in str(draw(still_open, "distribution"))
    assert "fieldgate jobs run statistics" in str(draw(still_open, "recovery"))


def test_an_empty_lake_names_what_fills_it(whole: Path, tmp_path: Path) -> None:
    reader = reader_of(tmp_path)
    with pytest.raises(CloudError, match="no table statistics yet; fieldgate jobs run statistics"):
        open_view(reader, Request("mast-01"))
    fleet = FleetReader(reader, LiveReader(None, ())).read()
    assert ["fieldgate jobs run" in each for each in fleet.missing] == [True] * 4
    dashes = [name for name, value in fleet_page.summary(fleet).items() if value == "–"]
    assert dashes == ["recovery, 24 h", "open alerts", "readings lost", "statistics up to, UTC"]
    with pytest.raises(CloudError, match=r"No statistics of gone in .* The lake has mast-01, mast-02\."):
        open_view(reader_of(whole), Request("gone"))


def test_every_table_has_words_for_no_rows(whole: Path) -> None:
    cards = {name for page in lists.PAGES.values() for name in page}
    assert set(lists.NO_ROWS) == cards
    # Imports are shown where there are some.
    assert set(details(reader_of(whole), "mast-01")) - {"Live"} == set(NO_ROWS)
    assert MEASURED_BY.keys() == {"wind_speed", "wind_direction", "irradiance", "precipitation"}
    assert all(driver_type(driver) for driver in MEASURED_BY.values())


def test_a_chart_has_its_title_its_channels_and_its_time(view: View) -> None:
    for name in set(CHARTS) - {"rain"}:
        drawn = draw(view, name)
        assert isinstance(drawn, dict)
        # A picture has two lines below its title; what a screen reader says begins with all three.
        subject, extent = drawn["title"]["subtext"].split("\n")
        words = f"{drawn['title']['text']}. {subject}. {extent}."
        assert drawn["aria"]["label"]["description"].startswith(words)
        assert words.startswith("mast-01: ")
