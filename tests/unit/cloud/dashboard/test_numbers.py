"""The numbers of the charts that test_pandas.py has not, and what is asked for in an address."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from deltalake import DeltaTable

from cloud.dashboard import charts
from cloud.dashboard.fleet import FleetReader
from cloud.dashboard.live import LiveReader
from cloud.dashboard.server import mast_csv
from cloud.dashboard.views import Request, draw, draw_series, open_view
from cloud.errors import CloudError
from cloud.lake.mast import DAY_MS
from cloud.lake.numbers import CHARTS, View, series, subject, summary, weibull
from cloud.lake.reader import LakeReader
from spark_jobs.platform import schemas
from tests.support.fleet_lake import reader_of, write, write_fleet

END = datetime(2026, 11, 21, tzinfo=UTC)
NOTHING_LIVE = LiveReader(None, ())
CUP, VANE = "cup-50m-a.wind_speed", "vane-48m.wind_direction"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three masts, the third with an outage."""
    root = tmp_path_factory.mktemp("fleet") / "lake"
    write_fleet(root, 3, 8, end=END)
    return root


@pytest.fixture(scope="module")
def reader(lake: Path) -> LakeReader:
    return reader_of(lake)


@pytest.fixture(scope="module")
def view(reader: LakeReader) -> View:
    return open_view(reader, Request("mast-03", begin="2026-11-13"))


def column(lake: Path, channel: str, name: str = "avg") -> Any:
    """One channel's intervals in the order of time, NaN where there is no value."""
    rows = DeltaTable(str(lake / "statistics")).to_pandas()
    rows = rows[(rows.gateway == "mast-03") & (rows.channel == channel)].sort_values("interval_start")
    return rows[name].to_numpy(dtype=float)


def test_a_day_is_asked_for_to_its_end_and_a_time_to_itself(reader: LakeReader) -> None:
    day = (END - timedelta(days=2)).date()
    begin_ms = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)
    for end, hours in ((f"{day}", 24), (f"{day}T12:00", 12)):
        span = open_view(reader, Request("mast-01", begin=f"{day}", end=end)).span
        assert (span.begin_ms, span.end_ms) == (begin_ms, begin_ms + hours * 3_600_000)
    with pytest.raises(CloudError, match="Nothing from"):
        open_view(reader, Request("mast-01", begin=f"{day}T12:00", end=f"{day}T12:00"))


def test_any_time_may_be_asked_for(reader: LakeReader) -> None:
    whole = open_view(reader, Request("mast-01")).mast
    for begin in ("1970-01-01", "0001-01-01T00:00+10:00"):
        assert open_view(reader, Request("mast-01", begin=begin)).span.begin_ms == whole.begin_ms
    with pytest.raises(CloudError, match="Nothing from"):
        open_view(reader, Request("mast-01", begin="9999-12-31T23:00-10:00"))


def test_a_series_is_the_mean_and_the_extremes_of_each_bucket(lake: Path, view: View) -> None:
    span = view.span
    made = series(view, CUP, span.begin_ms, span.end_ms, points=100)
    means, counts = column(lake, CUP), column(lake, CUP, "count")
    step = 12
    assert made.column("time")[1] - made.column("time")[0] == step * 600_000
    for at in (0, 3, 50):
        here = slice(at * step, (at + 1) * step)
        assert made.column("value")[at] == pytest.approx(np.average(means[here], weights=counts[here]))
        assert made.column("low")[at] == pytest.approx(column(lake, CUP, "min")[here].min())
        assert made.column("high")[at] == pytest.approx(column(lake, CUP, "max")[here].max())


def test_a_gap_is_a_gap_and_a_zoom_shows_each_interval(lake: Path, view: View) -> None:
    span = view.span
    begin = span.begin_ms + 4 * DAY_MS
    made = series(view, CUP, begin, begin + DAY_MS)
    expected = column(lake, CUP)[4 * 144 : 5 * 144]
    assert len(made.rows) == 144
    assert [value is None for value in made.column("value")] == list(np.isnan(expected))
    assert 10 < np.isnan(expected).sum() < 144
    drawn = charts.series(
        made, CUP, "m/s", begin, begin + DAY_MS, is_direction=False, bands=charts.marked([], 0)
    )
    mean = drawn["series"][2]
    assert mean["connectNulls"] is False
    assert [point[1] is None for point in mean["data"]] == list(np.isnan(expected))


def test_directions_are_averaged_as_vectors(view: View) -> None:
    span = view.span
    held = view.held.read(
        "SELECT avg FROM statistics WHERE channel = ? ORDER BY interval_start LIMIT 1000", [VANE]
    )
    vane = open_view_channel(view, VANE)
    made = series(vane, VANE, span.begin_ms, span.end_ms, points=50)
    angles = np.radians([value for (value,) in held.rows[:24]])
    expected = math.degrees(math.atan2(np.sin(angles).mean(), np.cos(angles).mean())) % 360
    assert made.column("value")[0] == pytest.approx(expected, abs=0.5)  # weighted by samples


@pytest.mark.parametrize(
    ("kind", "figure", "value"),
    [("direction", "avg", 0.0), ("accumulated", "sum", 360.0), ("linear", "avg", 180.0)],
)
def test_a_quantity_of_ones_own_is_put_together_by_its_kind(
    tmp_path: Path, kind: str, figure: str, value: float
) -> None:
    name, n = "buoy.wave", 288
    write(tmp_path, schemas.STATISTICS, {
        "gateway": ["sea-01"] * n, "channel": [name] * n, "quantity": ["wave"] * n, "unit": ["x"] * n,
        "interval_s": [600] * n, "date": [(END + timedelta(minutes=10 * at)).date() for at in range(n)],
        "interval_start": [END + timedelta(minutes=10 * at) for at in range(n)],
        figure: [359.0, 1.0] * (n // 2), "count": [600] * n, "expected": [600.0] * n,
        "recovery": np.ones(n), "version": [1] * n,
    })  # fmt: skip
    write(tmp_path, schemas.CHANNELS, {
        "gateway": ["sea-01"], "channel": [name], "sensor": ["buoy"], "quantity": ["wave"], "kind": [kind],
        "valid_from": [END],
    })  # fmt: skip
    view = open_view(reader_of(tmp_path), Request("sea-01", name))
    made = series(view, name, view.span.begin_ms, view.span.end_ms, points=n // 2)
    assert [(each + 180) % 360 for each in made.column("value")] == pytest.approx(
        [(value + 180) % 360] * (n // 2)
    )
    drawn = draw_series(view, made, {})
    assert isinstance(drawn, dict)
    assert (drawn["yAxis"][0].get("max") == 360) == (kind == "direction")
    if kind != "accumulated":
        means = CHARTS["diurnal"](view).column("mean")
        assert [(each + 180) % 360 for each in means] == pytest.approx([(value + 180) % 360] * 24)
        by_day = draw(view, "diurnal")
        assert isinstance(by_day, dict)
        assert by_day["series"][-1]["showSymbol"] == (kind == "direction")


def open_view_channel(view: View, channel: str) -> View:
    return replace(view, channel=next(each for each in view.mast.channels if each.name == channel))


@pytest.mark.parametrize("k", [0.9, 1.6, 2.0, 2.4, 5.0])
def test_weibull_by_the_first_and_third_moment(k: float) -> None:
    mean, cube = 8.0 * math.gamma(1 + 1 / k), 8.0**3 * math.gamma(1 + 3 / k)
    assert weibull(mean, cube) == pytest.approx((8.0, k), rel=1e-9)


@pytest.mark.parametrize(
    ("mean", "cube", "fitted"),
    [
        (8.904381944444445, 1493.857758903507, (10.017453145375866, 1.8173483895462041)),
        (6.968534274193549, 503.17658547054907, (7.833529867237337, 2.7259263822039936)),
    ],
)
def test_weibull_is_windkits(mean: float, cube: float, fitted: tuple[float, float]) -> None:
    """By windkit 2.2.0, fit_weibull_wasp_m1_m3, of two months of a recorded mast at 80 m."""
    assert weibull(mean, cube) == pytest.approx(fitted, abs=1e-6)


@pytest.mark.parametrize(
    ("mean", "cube"), [(None, None), (5.0, 125.0), (0.1, -0.02), (-0.1, 0.02)],
    ids=["nothing", "a constant", "a mean cube below 0", "a mean below 0"],
)  # fmt: skip
def test_weibull_of_what_has_no_distribution_is_none(mean: float | None, cube: float | None) -> None:
    assert weibull(mean, cube) is None


def test_distribution_turbulence_and_recovery(lake: Path, view: View) -> None:
    means = column(lake, CUP)
    made = CHARTS["distribution"](view)
    valid = means[~np.isnan(means)]
    assert sum(made.column("intervals")) == len(valid)
    assert made.dicts()[5]["share"] == pytest.approx(np.mean((valid >= 5) & (valid < 6)))
    sd = column(lake, CUP, "sd")
    turbulence = {row["speed_mps"]: row for row in CHARTS["turbulence"](view).dicts()}
    here = (np.floor(means + 0.5) == 6) & (means > 3)
    assert turbulence[6.0]["mean"] == pytest.approx((sd / means)[here].mean())
    recovery = [row["recovery"] for row in CHARTS["recovery"](view).dicts() if row["channel"] == CUP]
    expected = column(lake, CUP, "recovery").reshape(8, 144).mean(axis=1)
    assert recovery == pytest.approx(list(expected))


def test_what_goes_with_the_channel_chosen(reader: LakeReader, view: View) -> None:
    low = open_view(reader, Request("mast-03", "cup-20m-a.wind_speed"))
    assert subject(low, "shadow") == "cup-20m-a.wind_speed, cup-20m-b.wind_speed, vane-28m.wind_direction"
    other = open_view_channel(view, "pyranometer.irradiance")
    assert subject(other, "wind-rose") == f"{CUP}, {VANE}, 16 sectors"


def test_the_fleet(reader: LakeReader) -> None:
    fleet = FleetReader(reader, NOTHING_LIVE).read()
    assert fleet.missing == []
    assert [mast["state"] for mast in fleet.masts] == ["online", "online", "offline"]
    assert fleet.counts() == {"online": 2, "silent": 0, "offline": 1, "unknown": 0}


def test_a_late_correction_is_in_the_next_answer(lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake, tmp_path / "lake")
    reader = reader_of(tmp_path / "lake")
    asked = Request("mast-01", begin="2026-11-20")
    before = summary(open_view(reader, asked)).dicts()[0]["mean"]
    version = reader.version("statistics")
    DeltaTable(str(tmp_path / "lake" / "statistics")).update(
        updates={"avg": "avg + 1.0"}, predicate="gateway = 'mast-01'"
    )
    reader.look()
    assert reader.version("statistics") == version + 1
    assert summary(open_view(reader, asked)).dicts()[0]["mean"] == pytest.approx(before + 1.0)


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (Request("mast-01", begin="soon"), "'soon' is no time such as 2026-11-23"),
        (Request("mast-01", begin="2027-01-01"), "Nothing from 2027-01-01 00:00 to 2026-11-21 00:00"),
        (Request("'; DROP TABLE x"), "No statistics of '; DROP TABLE x in the lake"),
        (
            Request("mast-01", "cup-60m.wind_speed"),
            "mast-01 has no statistics of a channel cup-60m.wind_speed; it has baro.pressure, cup-20m-a.",
        ),
    ],
)
def test_an_address_that_asks_for_nothing(reader: LakeReader, asked: Request, problem: str) -> None:
    with pytest.raises(CloudError, match=problem.partition("(")[0]):
        open_view(reader, asked)


def test_a_file_is_named_by_its_channels(reader: LakeReader) -> None:
    for channel, chart, named in (
        (None, "series", f"mast-01-series-{CUP}"),
        ("baro.pressure", "diurnal", "mast-01-diurnal-baro.pressure"),
        ("baro.pressure", "wind-rose", f"mast-01-wind-rose-{CUP}-{VANE}"),
        ("baro.pressure", "recovery", "mast-01-recovery"),
    ):
        answer = mast_csv(reader, Request("mast-01", channel, "2026-11-20"), chart)
        name = f'attachment; filename="{named}_2026-11-20_2026-11-21.csv"'
        assert answer.headers["Content-Disposition"] == name
    for chart in ("series", "wind-rose"):
        assert mast_csv(reader, Request("mast-01", "cup-60m.wind_speed"), chart).status_code == 404
    assert mast_csv(reader, Request("mast-01", ""), "series").status_code == 200


def test_a_hostile_channel_is_a_text_to_sql(view: View) -> None:
    made = series(view, "x' OR '1'='1", view.span.begin_ms, view.span.end_ms)
    assert set(made.column("value")) == {None}
    with pytest.raises(duckdb.Error):
        view.held.read("SELECT no_such_column FROM statistics")
