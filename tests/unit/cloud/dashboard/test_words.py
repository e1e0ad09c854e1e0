"""What cards say in words: why one is empty and what fills it, and of a chart its main figures."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deltalake import DeltaTable

from cloud.dashboard import fleet_page, lists
from cloud.dashboard.fleet import FleetReader
from cloud.dashboard.live import LiveReader
from cloud.dashboard.views import (
    NO_ROWS,
    Request,
    draw,
    draw_series,
    of_series,
    of_sites,
    open_view,
    why_no_numbers,
)
from cloud.errors import CloudError
from cloud.lake.mast import details
from cloud.lake.numbers import CHARTS, MEASURED_BY, View, series, summary
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


def needs(view: View) -> dict[str, str]:
    """Of each number that isn't there what it needs."""
    (found,) = summary(view).dicts()
    why = why_no_numbers(view, found)
    assert set(why) == {name for name, value in found.items() if value is None}
    return why


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
    assert needs(alone) == {
        "ti": "needs table mast: fieldgate jobs run mast",
        "alpha": "needs cups at two heights: height_m",
        "density": "needs a channel of temperature and pressure",
        "insolation": "needs a pyranometer: a channel of irradiance",
    }


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
    assert set(needs(silent)) == {"mean", "gust", "highest", "ti", "alpha", "density", "insolation"}
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
    shown = fleet_page.summary(fleet)
    assert {name for name, value in shown.items() if value == "–"} == set(fleet_page.NEEDS)
    with pytest.raises(CloudError, match=r"No statistics of gone in .* The lake has mast-01, mast-02\."):
        open_view(reader_of(whole), Request("gone"))


def test_every_table_has_words_for_no_rows(whole: Path) -> None:
    cards = {name for page in lists.PAGES.values() for name in page}
    assert set(lists.NO_ROWS) == cards
    # Imports are shown where there are some.
    assert set(details(reader_of(whole), "mast-01")) - {"Live"} == set(NO_ROWS)
    assert MEASURED_BY.keys() == {"wind_speed", "wind_direction", "irradiance", "precipitation"}
    assert all(driver_type(driver) for driver in MEASURED_BY.values())


def said_of(view: View, name: str) -> str:
    drawn = draw(view, name)
    assert isinstance(drawn, dict)
    # What a picture has above it is two lines still.
    assert drawn["title"]["subtext"].count("\n") == 1
    return str(drawn["aria"]["label"]["description"])


def rows_of(view: View, name: str) -> list[dict[str, Any]]:
    return CHARTS[name](view).dicts()


def expected_figures(view: View) -> Iterator[tuple[str, str]]:
    """Charts with a part of what is said of each, by another way from the rows."""
    rose = rows_of(view, "wind-rose")
    shares = {
        at: sum(row["share"] for row in rose if row["sector"] == at) for at in {row["sector"] for row in rose}
    }
    most = max(shares, key=lambda at: shares[at])
    yield "wind-rose", f"({most:g}°) with {100 * shares[most]:.1f} %"
    row = rows_of(view, "distribution")[0]
    (found,) = summary(view).dicts()
    fitted = f"Weibull A {row['weibull_a_mps']:.2f} m/s, k {row['weibull_k']:.2f}"
    yield "distribution", f"Mean {found['mean']:.2f} m/s; {fitted}"
    profile = rows_of(view, "shear")
    yield "shear", f"Exponent α {found['alpha']:.3f}, mean of {profile[0]['intervals']:,} intervals; 50 m "
    bins = {row["speed_mps"]: row for row in rows_of(view, "turbulence")}
    nearest = min(bins, key=lambda at: abs(at - 15))
    intensity = (
        f"mean {100 * bins[nearest]['mean']:.1f} %, 90th percentile {100 * bins[nearest]['p90']:.1f} %"
    )
    yield "turbulence", intensity
    pairs = np.array([row[1:] for row in CHARTS["pair"](view).rows], float)
    together = float(np.corrcoef(pairs.T)[0, 1])
    yield (
        "pair",
        f"{np.mean(pairs[:, 0] - pairs[:, 1]):+.3f} m/s off its twin on average, correlation {together:.4f}",
    )
    ratios = [row["relative"] for row in rows_of(view, "shadow") if row["relative"] is not None]
    yield "shadow", f"Ratio from {min(ratios):.3f} at"
    yield "irradiance", f"highest interval {max(CHARTS['irradiance'](view).column('value')):,.0f} W/m²"
    days = CHARTS["insolation"](view).column("insolation_wh_m2")
    yield "insolation", f"{sum(days) / 1000:.1f} kWh/m² in {len(days)} days"
    recovered = CHARTS["recovery"](view).column("recovery")
    yield "recovery", f"{100 * np.mean(recovered):.1f} % on average of 12 channels; least "
    means = CHARTS["diurnal"](view).column("mean")
    yield "diurnal", f"Lowest mean {float(f'{min(means):.3g}'):g} m/s at "


def test_what_is_said_of_a_chart_is_what_it_shows(view: View) -> None:
    wanted = dict(expected_figures(view))
    assert set(wanted) == set(CHARTS) - {"rain"}
    for name, part in wanted.items():
        assert part in said_of(view, name), name


def test_what_is_said_of_a_channel_over_time(view: View) -> None:
    span = view.span
    made = series(view, CUP, span.begin_ms, span.end_ms)
    values = np.array([np.nan if each is None else each for each in made.column("value")])
    lows, highs = (
        np.nanmin([np.nan if each is None else each for each in made.column("low")]),
        np.nanmax([np.nan if each is None else each for each in made.column("high")]),
    )
    three = [float(f"{each:.3g}") for each in (np.nanmean(values), lows, highs)]
    gaps = int(np.isnan(values).sum())
    said = of_series(made, view.channel)
    assert said.startswith("Mean {:g} m/s, from {:g} m/s to {:g} m/s".format(*three))
    assert ("points have no value" in said) == bool(gaps)
    vane = view_of_channel(view, "vane-48m.wind_direction")
    turning = series(vane, vane.channel.name, span.begin_ms, span.end_ms)
    angles = np.radians([each for each in turning.column("value") if each is not None])
    mean = math.degrees(math.atan2(np.sin(angles).mean(), np.cos(angles).mean())) % 360
    assert of_series(turning, vane.channel).startswith(f"Mean {float(f'{mean:.3g}'):g} deg")
    assert of_sites([{"state": "online"}, {"state": "offline"}, {"state": "online"}]) == "2 online, 1 offline"


def view_of_channel(view: View, channel: str) -> View:
    return open_view(view.reader, Request("mast-01", channel))
