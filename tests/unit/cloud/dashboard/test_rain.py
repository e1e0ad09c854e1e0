"""Rain by the site's hours and days: equal to pandas' sums over the same rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cloud.dashboard.views import Request, draw, open_view
from cloud.lake.numbers import rain, series
from cloud.lake.reader import Frame, LakeReader
from spark_jobs.platform import schemas
from tests.support.fleet_lake import reader_of, write

OFFSET = pd.Timedelta(minutes=345)
GAUGE = "rain.precipitation"


@pytest.fixture(scope="module")
def rows() -> Any:
    """Nine days of ten minutes: three hours and a third without rows, a day of rows without a value."""
    chance = np.random.default_rng(3)
    starts: Any = pd.date_range("2026-11-10", periods=9 * 144, freq="10min", unit="us")
    made: Any = pd.DataFrame({"start": starts, "sum": 0.2 * chance.poisson(0.3, len(starts))})
    made.loc[(starts >= "2026-11-12T18:15") & (starts < "2026-11-13T18:15"), "sum"] = np.nan
    return made[(starts < "2026-11-17T02:20") | (starts >= "2026-11-17T05:40")].reset_index(drop=True)


@pytest.fixture(scope="module")
def reader(rows: Any, tmp_path_factory: pytest.TempPathFactory) -> LakeReader:
    root = tmp_path_factory.mktemp("rain") / "lake"
    n, starts = len(rows), rows["start"].to_numpy()
    write(root, schemas.STATISTICS, {
        "gateway": ["gauge-01"] * n, "channel": [GAUGE] * n, "quantity": ["precipitation"] * n,
        "unit": ["mm"] * n, "interval_s": [600] * n, "interval_start": starts,
        "date": starts.astype("datetime64[D]"), "sum": rows["sum"].to_numpy(), "version": [1] * n,
    })  # fmt: skip
    write(root, schemas.SITES, {
        "gateway": ["gauge-01"], "valid_from": [datetime(2026, 1, 1, tzinfo=UTC)], "utc_offset_min": [345],
    })  # fmt: skip
    return reader_of(root)


def by_pandas(rows: Any, begin: str, end: str, every: str) -> Any:
    due = pd.DataFrame({"start": pd.date_range(begin, end, freq="10min", inclusive="left", unit="us")})
    local: Any = due.merge(rows, on="start", how="left")
    local["local"] = (local["start"] + OFFSET).dt.floor(every)
    return local.groupby("local")["sum"].agg(
        sum_mm=lambda values: values.sum(min_count=1), intervals="count", due="size"
    )


def same(made: Frame, expected: Any) -> None:
    assert made.column("local") == list(expected.index.strftime("%Y-%m-%d %H:%M"))
    assert pd.to_datetime(made.column("time"), unit="ms").equals(pd.DatetimeIndex(expected.index - OFFSET))
    sums = np.array(made.column("sum_mm"), dtype=float)
    np.testing.assert_allclose(sums, expected["sum_mm"].to_numpy(), rtol=1e-12)
    assert made.column("intervals") == expected["intervals"].tolist()
    assert made.column("due") == expected["due"].tolist()


def test_by_the_sites_day(reader: LakeReader, rows: Any) -> None:
    view = open_view(reader, Request("gauge-01", begin="2026-11-10"))
    made = rain(view)
    same(made, by_pandas(rows, "2026-11-10", "2026-11-19", "D"))
    assert made.column("sum_mm").count(None) == 1
    drawn = draw(view, "rain")
    assert isinstance(drawn, dict)
    bars = drawn["series"][0]["data"]
    assert [bar["value"] is None for bar in bars] == [value is None for value in made.column("sum_mm")]
    # Half a day at each end has no more due; the day with intervals that are missing is paler.
    pale = [bar["itemStyle"]["opacity"] < 1 for bar in bars]
    assert pale == [
        each < due for each, due in zip(made.column("intervals"), made.column("due"), strict=True)
    ]
    assert sum(pale) == 2


def test_by_the_hour_in_a_week_and_less(reader: LakeReader, rows: Any) -> None:
    made = rain(open_view(reader, Request("gauge-01", begin="2026-11-16T12:00", end="2026-11-18T12:00")))
    same(made, by_pandas(rows, "2026-11-16T12:00", "2026-11-18T12:00", "h"))
    # Of three hours no interval has a row; of the fourth some have.
    assert made.column("sum_mm").count(None) == 3
    nothing = open_view(reader, Request("gauge-01", begin="2026-11-12T18:15", end="2026-11-13T18:15"))
    said = str(draw(nothing, "rain"))
    assert said.startswith(f"None of 144 intervals of {GAUGE} in this time has a value: ")


def test_hours_of_a_clock_ahead_by_half_an_hour_are_shown_where_they_are(tmp_path: Path) -> None:
    begin = datetime(2026, 11, 10, 18, 30, tzinfo=UTC)
    starts = [begin + timedelta(hours=at) for at in range(26) if at != 3]
    n = len(starts)
    write(tmp_path / "lake", schemas.STATISTICS, {
        "gateway": ["gauge-01"] * n, "channel": [GAUGE] * n, "quantity": ["precipitation"] * n,
        "unit": ["mm"] * n, "interval_s": [3600] * n, "interval_start": starts,
        "date": [each.date() for each in starts], "sum": [1.0] * n, "version": [1] * n,
        "count": [1] * n, "expected": [1.0] * n, "n_good": [1] * n,
    })  # fmt: skip
    write(tmp_path / "lake", schemas.SITES, {
        "gateway": ["gauge-01"], "valid_from": [datetime(2026, 1, 1, tzinfo=UTC)], "utc_offset_min": [330],
    })  # fmt: skip
    view = open_view(reader_of(tmp_path / "lake"), Request("gauge-01", GAUGE))
    shown = rain(view)
    assert shown.column("local")[:5] == [f"2026-11-11 0{hour}:00" for hour in range(5)]
    assert shown.column("sum_mm")[:5] == [1.0, 1.0, 1.0, None, 1.0]
    first_ms = int(begin.timestamp() * 1000)
    over_time = series(view, GAUGE, first_ms, first_ms + 5 * 3_600_000, 100)
    assert over_time.column("time") == [first_ms + at * 3_600_000 for at in range(5)]
    assert over_time.column("value") == [1.0, 1.0, 1.0, None, 1.0]
