"""A report of a recorded mast: every sum equal to the same made by pandas, Weibull to windkit's fit.

The recording is three months of ten minutes beside the repository, in ../shared/data; where it isn't, nothing
is tested here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pandas as pd
import pytest

from cloud.dashboard.report import figures
from cloud.dashboard.report.figures import HELD, Month, MonthView
from cloud.dashboard.report.page import read_report
from cloud.lake.numbers import distribution, diurnal, shear, turbulence
from cloud.lake.reader import LakeReader
from spark_jobs.platform import schemas
from tests.support.fleet_lake import reader_of, write
from tests.support.servers import shared_data

FILE: Final = shared_data("mast_10min_3months.csv.gz")
pytestmark = pytest.mark.skipif(FILE is None, reason="no shared data: mast_10min_3months.csv.gz")

CUPS: Final = {
    f"Spd{height}m{side}": (f"cup-{height}m-{side.lower()}.wind_speed", float(height))
    for height in (80, 60, 40)
    for side in "NS"
}
VANES: Final = {f"Dir{height}mS": (f"vane-{height}m.wind_direction", float(height)) for height in (78, 58)}
OTHERS: Final = {
    "T2m": ("thermometer.temperature", 1.0), "RH2m": ("hygrometer.humidity", 1.0),
    "P2m": ("barometer.pressure", 0.1), "PrcpTot": ("gauge.precipitation", 1.0),
}  # fmt: skip
TOP: Final = "cup-80m-n.wind_speed"
NOW_MS: Final = int(datetime(2016, 9, 1, tzinfo=UTC).timestamp() * 1000)
# Of windkit 2.2.0, fit_weibull_wasp_m1_m3 of the mean and the mean cube, atol 1e-12.
WINDKIT: Final = {
    ("2016-02", "cup-80m-n.wind_speed"): (10.017453145375866, 1.8173483895462041),
    ("2016-02", "cup-60m-n.wind_speed"): (9.363174631509569, 1.7674597077783079),
    ("2016-02", "cup-40m-s.wind_speed"): (9.00422021693706, 1.6960233844569956),
    ("2016-07", "cup-80m-n.wind_speed"): (7.833529867237337, 2.7259263822039936),
    ("2016-07", "cup-60m-n.wind_speed"): (7.407072267437416, 2.612132523704565),
    ("2016-07", "cup-40m-s.wind_speed"): (7.21272255256514, 2.5437715571029895),
}


@pytest.fixture(scope="module")
def data() -> pd.DataFrame:
    """The file, with a day in March that nothing was measured on."""
    assert FILE is not None
    found = pd.read_csv(FILE, encoding="utf-8-sig", parse_dates=["Timestamp"], index_col="Timestamp")
    return found.loc[times_of(found).strftime("%Y-%m-%d") != "2016-03-10"]


def times_of(data: pd.DataFrame) -> pd.DatetimeIndex:
    """When its intervals begin."""
    return pd.DatetimeIndex(data.index)


@pytest.fixture(scope="module")
def reader(data: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> LakeReader:
    """A lake of the file, written as the jobs would have."""
    lake = tmp_path_factory.mktemp("real") / "lake"
    starts = data.index.to_numpy()
    n = len(data)
    shared = {
        "gateway": ["real"] * n, "interval_s": [600] * n, "interval_start": starts,
        "date": starts.astype("datetime64[D]"), "count": [600] * n, "expected": np.full(n, 600.0),
        "recovery": np.ones(n), "n_good": [600] * n, "n_suspect": [0] * n, "n_fail": [0] * n,
        "n_missing": [0] * n, "version": [1] * n,
    }  # fmt: skip
    for column, (channel, _) in (CUPS | VANES).items():
        is_cup = column in CUPS
        more = {"max": data[f"{column}Max"].to_numpy(float), "min": np.zeros(n)} if is_cup else {}
        quantity, unit = ("wind_speed", "m/s") if is_cup else ("wind_direction", "deg")
        write(lake, schemas.STATISTICS, shared | more | {
            "channel": [channel] * n, "quantity": [quantity] * n, "unit": [unit] * n,
            "avg": data[column].to_numpy(float), "sd": data[f"{column}Std"].to_numpy(float),
        })  # fmt: skip
    for column, (channel, factor) in OTHERS.items():
        values = data[column].to_numpy(float) * factor
        quantity = channel.partition(".")[2]
        unit = {"temperature": "Cel", "humidity": "%RH", "pressure": "kPa", "precipitation": "mm"}[quantity]
        rows = {"channel": [channel] * n, "quantity": [quantity] * n, "unit": [unit] * n, "avg": values,
                "min": values, "max": values}  # fmt: skip
        if quantity == "precipitation":
            rows["sum"] = values
        write(lake, schemas.STATISTICS, shared | rows)
    names = [channel for channel, _ in CUPS.values()]
    intensity = [data[f"{each}Std"] / data[each].where(data[each] > 3) for each in CUPS]
    maps = {
        "turbulence_intensity": dict(zip(names, intensity, strict=True)),
        "pair_difference": {TOP: data.Spd80mN - data.Spd80mS},
    }
    write(lake, schemas.MAST, {
        **{name: shared[name] for name in ("gateway", "interval_s", "interval_start", "date", "version")},
        **{name: _maps(columns) for name, columns in maps.items()},
        "air_density": _density(data).to_numpy(float),
    })  # fmt: skip
    heights = dict((CUPS | VANES).values())
    channels = [*heights, *(channel for channel, _ in OTHERS.values())]
    m = len(channels)
    begin = [datetime(2015, 1, 1, tzinfo=UTC)] * m
    write(lake, schemas.CHANNELS, {
        "gateway": ["real"] * m, "channel": channels, "cal": [f"{at:08x}" for at in range(m)],
        "sensor": [each.partition(".")[0] for each in channels], "valid_from": begin, "in_force": [True] * m,
        "quantity": [each.partition(".")[2] for each in channels],
        "height_m": [heights.get(each, 2.0) for each in channels],
        "pair": ["cup-80m-s" if each == TOP else None for each in channels],
    })  # fmt: skip
    return reader_of(lake, columns=HELD)


def _maps(columns: dict[str, pd.Series]) -> Any:
    import pyarrow as pa

    lists = {name: column.tolist() for name, column in columns.items()}
    n = len(next(iter(lists.values())))
    rows = [[(name, each[at]) for name, each in lists.items() if each[at] == each[at]] for at in range(n)]
    return pa.array(rows, pa.map_(pa.string(), pa.float64()))


def _density(data: pd.DataFrame) -> pd.Series:
    kelvin, pascal = data.T2m + 273.15, data.P2m * 100
    steam = data.RH2m / 100 * 0.0000205 * np.exp(0.0631846 * kelvin)
    density: pd.Series = (pascal / 287.05 - steam * (1 / 287.05 - 1 / 461.5)) / kelvin
    return density


@pytest.fixture(scope="module", params=["2016-02", "2016-03", "2016-07"])
def month(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def view(reader: LakeReader, month: str) -> MonthView:
    return read_report(reader, "real", Month.read(month), now_ms=NOW_MS).view


@pytest.fixture(scope="module")
def here(data: pd.DataFrame, month: str) -> pd.DataFrame:
    return data.loc[times_of(data).strftime("%Y-%m") == month]


def test_recovery_and_coverage(view: MonthView, here: pd.DataFrame, month: str) -> None:
    due = {"2016-02": 29, "2016-03": 31, "2016-07": 31}[month] * 144
    assert view.due == due
    for row in figures.recovery(view).dicts():
        assert row["valid"] == len(here)
        assert row["by_intervals"] == pytest.approx(len(here) / due, abs=1e-12)
        assert row["by_samples"] == pytest.approx(len(here) / due, abs=1e-12)
        assert row["without_row"] == due - len(here)
    by_day = {row["day"]: row["recovery"] for row in figures.coverage(view).dicts() if row["channel"] == TOP}
    expected = here.groupby(times_of(here).day).size() / 144
    assert by_day == {day: pytest.approx(expected.get(day, 0.0)) for day in range(1, due // 144 + 1)}
    found = [(row["channel"], row["intervals"]) for row in figures.gaps(view).dicts()]
    assert found == ([("", 144)] if month == "2016-03" else [])


def test_means_and_extremes(view: MonthView, here: pd.DataFrame) -> None:
    rows = {row["channel"]: row for row in figures.means(view).dicts()}
    for column, (channel, _) in CUPS.items():
        row, values = rows[channel], here[column]
        assert row["mean"] == pytest.approx(values.mean(), rel=1e-12)
        assert row["sd"] == pytest.approx(values.std(), rel=1e-10)
        assert row["highest"] == here[f"{column}Max"].max()
        assert row["intervals"] == len(here)
    for column, (channel, factor) in OTHERS.items():
        assert rows[channel]["mean"] == pytest.approx(here[column].mean() * factor, rel=1e-12)
    assert rows["gauge.precipitation"]["sum"] == pytest.approx(here.PrcpTot.sum(), rel=1e-12)
    for column, (channel, _) in VANES.items():
        angles = np.radians(here[column])
        expected = np.degrees(np.arctan2(np.sin(angles).mean(), np.cos(angles).mean())) % 360
        assert rows[channel]["mean"] == pytest.approx(expected, abs=1e-9)
    assert figures.density(view)["mean"] == pytest.approx(_density(here).mean(), rel=1e-12)


def test_wind_and_weibull(view: MonthView, here: pd.DataFrame, month: str) -> None:
    rows = {row["channel"]: row for row in figures.wind(view).dicts()}
    for column, (channel, height) in CUPS.items():
        row = rows[channel]
        assert row["height_m"] == height
        values = here[column]
        expected = (here[f"{column}Std"] / values)[values > 3].mean()
        assert row["turbulence"] == pytest.approx(expected, rel=1e-12)
        if (month, channel) in WINDKIT:
            fitted = (row["weibull_a_mps"], row["weibull_k"])
            assert fitted == pytest.approx(WINDKIT[month, channel], abs=1e-6)


def test_distribution_and_sectors(view: MonthView, here: pd.DataFrame) -> None:
    rows = distribution(view.view).dicts()
    counts = np.floor(here.Spd80mN).value_counts()
    assert {row["from_mps"]: row["intervals"] for row in rows if row["intervals"]} == counts.to_dict()
    sector = ((here.Dir78mS + 15) % 360 // 30 * 30).rename("sector")
    expected = here.groupby(sector).Spd80mN.agg(["size", "mean"])
    found = {row["sector"]: (row["intervals"], row["mean"]) for row in figures.sectors(view).dicts()}
    assert found == {at: (row["size"], pytest.approx(row["mean"])) for at, row in expected.iterrows()}


def test_day_shear_turbulence_and_pairs(view: MonthView, here: pd.DataFrame) -> None:
    channels, hours = figures.by_hour(view)
    assert [each.name for each in channels[:3]] == [f"cup-{height}m-n.wind_speed" for height in (80, 60, 40)]
    expected = here.groupby(times_of(here).hour)[["Spd80mN", "Spd60mN", "Spd40mN", "T2m"]].mean().to_numpy()
    np.testing.assert_allclose(np.array([row[:4] for row in hours], float), expected, rtol=1e-12)
    assert len(diurnal(view.view).rows) == 24
    primaries = here[["Spd40mN", "Spd60mN", "Spd80mN"]]
    means = primaries[primaries.min(axis=1) > 3].mean()
    found = shear(view.view).dicts()
    assert [row["mean_speed"] for row in found] == pytest.approx(list(means), rel=1e-12)
    exponent = np.polyfit(np.log([40.0, 60.0, 80.0]), np.log(means), 1)[0]
    assert figures.profile_exponent(view) == pytest.approx(exponent, rel=1e-9)
    bins = np.floor(here.Spd80mN + 0.5)[here.Spd80mN > 3]
    intensity = (here.Spd80mNStd / here.Spd80mN)[here.Spd80mN > 3].groupby(bins)
    wanted = intensity.agg(["mean", "size"]).assign(p90=intensity.quantile(0.9))
    wanted = wanted[wanted["size"] >= 3]
    rows = turbulence(view.view).dicts()
    assert [row["speed_mps"] for row in rows] == list(wanted.index)
    assert [row["mean"] for row in rows] == pytest.approx(list(wanted["mean"]), rel=1e-12)
    assert [row["p90"] for row in rows] == pytest.approx(list(wanted.p90), rel=1e-12)
    (pair,) = figures.pairs(view).dicts()
    difference = here.Spd80mN - here.Spd80mS
    assert (pair["primary"], pair["twin"]) == (TOP, "cup-80m-s.wind_speed")
    assert pair["mean"] == pytest.approx(difference.mean(), rel=1e-9)
    assert pair["sd"] == pytest.approx(difference.std(), rel=1e-9)
