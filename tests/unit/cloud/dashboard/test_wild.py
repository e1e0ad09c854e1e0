"""Statistics of what can't be, as loggers' files may bring them: pages and reports keep their size."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from cloud.dashboard.report.figures import Period
from cloud.dashboard.report.page import read_report, write_page
from cloud.dashboard.server import mast_csv
from cloud.dashboard.views import Request, draw, open_view
from cloud.lake.numbers import CHARTS
from spark_jobs.platform import schemas
from tests.support.fleet_lake import reader_of, write

NOW_MS = int(datetime(2026, 11, 21, tzinfo=UTC).timestamp() * 1000)
AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
CUP = "cup-50m-a.wind_speed"
LARGEST = 2 << 20


def spoil(lake: Path, table: str, wild: float, *columns: str) -> None:
    """Puts the number in each of the columns at one time of all masts and channels."""
    rows = DeltaTable(str(lake / table)).to_pyarrow_table()
    here = np.array([each == AT for each in rows["interval_start"].to_pylist()])
    assert here.any()
    for name in columns:
        values = pa.array(np.where(here, wild, rows[name].to_numpy()), from_pandas=True)
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
    write_deltalake(str(lake / table), rows, mode="overwrite")


@pytest.mark.parametrize("wild", [5e6, -1e300])
def test_one_interval_of_what_cannot_be_is_nowhere(lake: Path, wild: float) -> None:
    spoil(lake, "statistics", wild, "avg", "min", "max", "sd", "gust", "cube_mean")
    spoil(lake, "mast", wild, "shear_alpha", "air_density", "insolation")
    reader, request = reader_of(lake), Request("mast-01", channel=CUP)
    view = open_view(reader, request)
    for name in ("series", *CHARTS):
        answer = mast_csv(reader, request, name)
        assert answer.status_code in (200, 404), name
        assert len(answer.body) < LARGEST, name
        assert b"e+" not in answer.body, name
    assert max(len(str(draw(view, name))) for name in CHARTS) < LARGEST
    bins = CHARTS["distribution"](view).dicts()
    assert sum(row["intervals"] for row in bins) == 143
    assert len(bins) < 60
    report = read_report(reader_of(lake), "mast-01", Period.read("2026-11"), now_ms=NOW_MS)
    page = write_page(report, now_ms=NOW_MS, version="1")
    assert len(page) < LARGEST
    assert "can't be read" not in page


def write_sums(lake: Path, starts: list[datetime], interval_s: int = 600) -> None:
    """Adds rows of a mast that has a rain gauge alone."""
    n = len(starts)
    write(lake, schemas.STATISTICS, {
        "gateway": ["gauge-01"] * n, "channel": ["rain.precipitation"] * n, "quantity": ["precipitation"] * n,
        "unit": ["mm"] * n, "interval_s": [interval_s] * n, "interval_start": starts,
        "date": [each.date() for each in starts], "sum": [0.2] * n, "count": [600] * n,
        "expected": [600.0] * n, "recovery": np.ones(n), "version": [1] * n,
    })  # fmt: skip


def test_an_interval_decades_before_the_others_makes_no_page_or_file_longer(tmp_path: Path) -> None:
    write_sums(tmp_path, [datetime(2000, 1, 1, tzinfo=UTC)])
    write_sums(tmp_path, [AT + timedelta(minutes=10 * at) for at in range(3 * 144) if at % 144 != 5])
    reader, request = reader_of(tmp_path), Request("gauge-01", begin="2000-01-01")
    for name, longest in (("series", 1 + 1 + 3 * 144), ("rain", 1 + 1 + 4)):
        lines = bytes(mast_csv(reader, request, name).body).splitlines()
        assert len(lines) == longest, name
    view = open_view(reader, request)
    for name in CHARTS:
        assert len(mast_csv(reader, request, name).body) < 2000, name
        assert len(str(draw(view, name))) < 2000, name
    # In a time without a row there is nothing to fill either.
    nothing = Request("gauge-01", begin="2005-01-01", end="2006-01-01")
    assert len(bytes(mast_csv(reader, nothing, "series").body).splitlines()) == 1


def test_a_file_of_a_page_has_a_bound_and_says_how_to_get_the_rest(tmp_path: Path) -> None:
    write_sums(tmp_path, [AT + timedelta(seconds=4000 * at) for at in range(80)], interval_s=1)
    answer = mast_csv(reader_of(tmp_path), Request("gauge-01", begin="2026-11-20"), "series")
    assert answer.status_code == 404
    assert bytes(answer.body).decode() == (
        "The time has 316,001 intervals, more than the 300,000 of a page's file: choose a shorter one by "
        "from= and to=, or let fieldgate export write them.\n"
    )


MADE_UP = 3000


@pytest.fixture
def crowded(lake: Path) -> Path:
    """The lake with thousands of channels more: whoever may publish for a mast can name them."""
    rows = DeltaTable(str(lake / "statistics")).to_pyarrow_table()
    some = rows.filter(
        pc.and_(pc.equal(rows["channel"], "dht.temperature"), pc.equal(rows["gateway"], "mast-01"))
    ).slice(0, 3)
    at = some.schema.get_field_index("channel")
    more = pa.concat_tables(
        some.set_column(at, some.schema.field(at), pa.array([f"a-{n:04d}.temperature"] * 3))
        for n in range(MADE_UP)
    )
    write_deltalake(str(lake / "statistics"), more.cast(rows.schema), mode="append")
    return lake


def test_of_thousands_of_channels_those_with_records_and_most_rows_are_shown(crowded: Path) -> None:
    reader = reader_of(crowded)
    view = open_view(reader, Request("mast-01", channel="a-2999.temperature"))
    names = {each.name for each in view.mast.channels}
    assert len(names) == 200
    assert {CUP, "a-2999.temperature", "baro.pressure"} <= names
    assert view.channel.name == "a-2999.temperature"
    assert any("2,812 of its 3,012 channels are left out" in each for each in view.mast.missing)
    assert max(len(str(draw(view, name))) for name in CHARTS) < 100_000
    other = mast_csv(reader, Request("mast-01", channel="a-2998.temperature"), "series")
    assert len(re.findall(rb"Z,[0-9]", other.body)) == 3
    report = read_report(reader_of(crowded), "mast-01", Period.read("2026-11"), now_ms=NOW_MS)
    page = write_page(report, now_ms=NOW_MS, version="1")
    assert len(page) < LARGEST
    assert "2,812 of its 3,012 channels are left out" in page
    assert CUP in page
