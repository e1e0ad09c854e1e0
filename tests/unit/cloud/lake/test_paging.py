"""Pages of a real lake's tables: each row once whatever is written meanwhile, and bounded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cloud.lake.cleaning import Mark, add
from cloud.lake.paging import SOURCES, Cursor, Pages, Query, Refused, TooSlow
from cloud.lake.tables import LakeError, Lakes
from spark_jobs.platform import schemas
from tests.support.fleet_lake import reader_of, write, write_fleet

END = datetime(2026, 11, 21, 12, tzinfo=UTC)


def write_readings(lake: Path, gateway: str, begin: datetime, n: int, first_seq: int = 1) -> None:
    times = np.datetime64(begin.replace(tzinfo=None), "us") + np.arange(n) * np.timedelta64(1, "s")
    for channel in ("cup.wind_speed", "vane.wind_direction"):
        write(lake, schemas.READINGS, {
            "gateway": [gateway] * n, "channel": [channel] * n, "run": ["9f3c21ab04de"] * n,
            "seq": list(range(first_seq, first_seq + n)), "time": times, "value": np.arange(n) / 4,
            "quality": [1] * n, "reasons": [["SPIKE"]] * n, "date": times.astype("datetime64[D]"),
        })  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("paging") / "lake"
    write_fleet(lake, 2, 2, end=END)
    write_readings(lake, "mast-01", datetime(2026, 11, 20, 23, 50, tzinfo=UTC), 1200)
    return lake


@pytest.fixture
def lake(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "lake"))


def first(lake: Path, *tables: str) -> Cursor:
    seen = reader_of(lake).seen
    return Cursor({f"lake/{name}": seen[f"lake/{name}"] for name in tables})


def pages_of(lake: Path, seconds: float = 20.0) -> Pages:
    return Pages({"lake": (str(lake), None)}, seconds)


def query(name: str, **given: Any) -> Query:
    return Query(SOURCES[name], ("*",), {"mast": "mast-01", **given})


def rows(
    pages: Pages | Path, asked: Query, at: Cursor | None, limit: int, file: Path
) -> Iterator[pd.DataFrame]:
    """The pages; of a lake's path each is read by a reader of its own, which has nothing open."""
    while at is not None:
        reader = pages_of(pages) if isinstance(pages, Path) else pages
        count, at = reader.write(asked, at, limit, "parquet", file)
        frame = pd.read_parquet(file)
        assert len(frame) == count
        yield frame


@pytest.mark.parametrize("limit", [61, 500, 2400])
def test_each_reading_comes_once_in_order_while_others_are_written(
    lake: Path, tmp_path: Path, limit: int
) -> None:
    at, found = first(lake, "readings"), list[pd.DataFrame]()
    limited = {"end": datetime(2026, 11, 20, 23, 52, tzinfo=UTC)} if limit == 61 else {}
    for page in rows(lake, query("readings", **limited), at, limit, tmp_path / "page"):
        found.append(page)
        # Late ones, before and after what was read.
        write_readings(lake, "mast-01", datetime(2026, 11, 20, 23, 49, tzinfo=UTC), 3, 10_000 * len(found))
        write_readings(lake, "mast-01", datetime(2026, 11, 21, 0, 20, tzinfo=UTC), 3, 20_000 * len(found))
    every = pd.concat(found)
    assert len(every) == (240 if limited else 2400)
    assert not every.duplicated(["channel", "run", "seq"]).any()
    assert every.sort_values(["time", "channel"], kind="stable").equals(every)
    fresh = first(lake, "readings")
    assert sum(map(len, rows(lake, query("readings"), fresh, 2000, tmp_path / "page"))) > 2400


def test_a_time_is_half_open_and_channels_and_columns_are_chosen(lake: Path, tmp_path: Path) -> None:
    begin = datetime(2026, 11, 20, 23, 59, 58, tzinfo=UTC)
    asked = query("readings", channel=["cup.wind_speed"], begin=begin, end=begin + timedelta(seconds=4))
    (page,) = rows(pages_of(lake), replace(asked, columns=("seq", "value")), first(lake, "readings"), 9,
                   tmp_path / "page")  # fmt: skip
    assert page.to_dict("list") == {"seq": [599, 600, 601, 602], "value": [149.5, 149.75, 150.0, 150.25]}
    others = replace(asked, gateways=("mast-02", "x*"))
    assert pages_of(lake).write(others, first(lake, "readings"), 9, "csv", tmp_path / "page") == (0, None)


def test_all_sources_are_read_in_every_form(lake: Path, tmp_path: Path) -> None:
    pages, file = pages_of(lake), tmp_path / "page"
    for name in ("channels", "statistics", "mast", "quality", "readings"):
        asked, at = query(name), first(lake, SOURCES[name].table)
        count, _ = pages.write(asked, at, 50, "json", file)
        from_json = json.loads(file.read_text())
        assert len(from_json) == count > 0, name
        assert pages.write(asked, at, 50, "csv", file)[0] == len(pd.read_csv(file)) == count
        assert pages.write(asked, at, 50, "arrow", file)[0] == count
        arrow = pa.ipc.open_file(file).read_all()
        assert pages.write(asked, at, 50, "parquet", file)[0] == count
        assert pa.parquet.read_table(file).num_rows == arrow.num_rows == count
        assert list(from_json[0]) == arrow.column_names
    begins = [each["periods"][0]["begin"] for each in json.loads(_written(pages, lake, "channels", file))]
    assert set(begins) == {"2025-10-17T12:00:00Z"}
    assert pages.write(query("alerts"), first(lake, "alerts"), 5, "json", file) == (0, None)
    assert json.loads(file.read_text()) == []


def _written(pages: Pages, lake: Path, name: str, file: Path) -> str:
    pages.write(query(name), first(lake, SOURCES[name].table), 50, "json", file)
    return file.read_text()


def test_quality_is_by_channel_and_day(lake: Path, tmp_path: Path) -> None:
    pages, at = pages_of(lake), first(lake, "statistics")
    found = pd.concat(rows(pages, query("quality"), at, 5, tmp_path / "page"))
    assert len(found) == 36
    statistics = DeltaTable(str(lake / "statistics")).to_pandas().query("gateway == 'mast-01'")
    expected = statistics.groupby(["date", "channel"])[["count", "expected", "n_suspect"]].sum().reset_index()
    assert found["count"].astype(int).tolist() == expected["count"].tolist()
    assert found["n_suspect"].astype(int).tolist() == expected["n_suspect"].tolist()
    assert np.allclose(found["recovery"], expected["count"] / expected["expected"])


def test_statistics_side_by_side_leave_out_what_does_not_count(lake: Path, tmp_path: Path) -> None:
    table = DeltaTable(str(lake / "statistics"))
    name = "cup-50m-a.wind_speed"
    table.update(updates={"version": "0"}, predicate=f"gateway = 'mast-01' AND channel = '{name}' AND "
                 "interval_start = '2026-11-20T00:00:00Z'")  # fmt: skip
    pages, at = pages_of(lake), first(lake, "statistics")
    asked = replace(query("statistics", interval=600), columns=("avg", "max"))
    pages.write(pages.wide(asked, at), at, 1000, "csv", tmp_path / "page")
    found = pd.read_csv(tmp_path / "page", index_col=0, parse_dates=True)
    assert (found.shape, found.index.name) == ((288, 24), "Timestamp")
    assert isinstance(found.index, pd.DatetimeIndex)
    rows_there = table.to_pandas().query(f"gateway == 'mast-01' and channel == '{name}'")
    by_time = rows_there.set_index(rows_there["interval_start"].dt.tz_localize(None)).sort_index()["avg"]
    same = found[f"{name}_avg"]
    assert np.isnan(same.pop(pd.Timestamp("2026-11-20")))
    assert np.allclose(same, by_time.drop(pd.Timestamp("2026-11-20")))
    pages.write(pages.wide(replace(asked, columns=("count",)), at), at, 1000, "csv", tmp_path / "page")
    assert pd.read_csv(tmp_path / "page", index_col=0)[f"{name}_count"].notna().all()
    with pytest.raises(Refused, match="no column average"):
        pages.wide(replace(asked, columns=("average",)), at)
    table.update(updates={"channel": f"'{name.title()}'"}, predicate="channel = 'cup-50m-b.wind_speed'")
    with pytest.raises(Refused, match="letters' case alone"):
        pages.wide(replace(asked, columns=("avg",)), first(lake, "statistics"))


def test_side_by_side_without_ten_minutes_are_the_shortest_intervals(lake: Path, tmp_path: Path) -> None:
    pages, asked = pages_of(lake), replace(query("statistics"), columns=("avg",))

    def times() -> int:
        at = first(lake, "statistics")
        pages.write(pages.wide(asked, at), at, 1000, "csv", tmp_path / "page")
        return len(pd.read_csv(tmp_path / "page"))

    table = DeltaTable(str(lake / "statistics"))
    mine, early = "gateway = 'mast-01'", "interval_start < '2026-11-20T00:00:00Z'"
    table.update(updates={"interval_s": "60"}, predicate=f"{mine} AND {early}")
    assert times() == 288 - 72
    table.update(updates={"interval_s": "3600"}, predicate=f"{mine} AND interval_s = 600")
    assert times() == 72


def test_marked_times_are_left_out_as_they_were_at_the_first_page(lake: Path, tmp_path: Path) -> None:
    here: Lakes = {"lake": (str(lake), None)}

    def mark(hour: int) -> None:
        begin = datetime(2026, 11, 20, hour, tzinfo=UTC)
        add(here, [Mark("mast-01", "*", begin, begin + timedelta(hours=1), "iced", "anna", END)])

    mark(1)
    asked, at = replace(query("statistics"), is_clean=True), first(lake, "statistics", "cleaning")
    pages = pages_of(lake)
    found = []
    for page in rows(pages, asked, at, 1000, tmp_path / "page"):
        found.append(page)
        mark(20)
    assert len(pd.concat(found)) == 12 * (288 - 6)
    later = first(lake, "statistics", "cleaning")
    assert sum(map(len, rows(pages, asked, later, 5000, tmp_path / "page"))) == 12 * (288 - 12)


def test_numbers_that_are_none_are_null_and_formulas_are_text(lake: Path, tmp_path: Path) -> None:
    write(lake, schemas.READINGS, {
        "gateway": ["mast-03"] * 2, "channel": ["=cmd()", "b"], "run": ["r"] * 2, "seq": [1, 2],
        "time": np.array(["2026-11-21T00:00", "2026-11-21T00:00:01"], "datetime64[us]"),
        "value": pa.array([float("inf"), float("nan")]),
        "date": np.array(["2026-11-21"] * 2, "datetime64[D]"),
    })  # fmt: skip
    asked = replace(query("readings", mast="mast-03"), columns=("channel", "value", "time"))
    at = first(lake, "readings")
    pages_of(lake).write(asked, at, 5, "json", tmp_path / "page")
    assert json.loads((tmp_path / "page").read_text()) == [
        {"channel": "=cmd()", "value": None, "time": "2026-11-21T00:00:00.000000Z"},
        {"channel": "b", "value": None, "time": "2026-11-21T00:00:01.000000Z"},
    ]
    pages_of(lake).write(asked, at, 5, "csv", tmp_path / "page")
    assert (tmp_path / "page").read_text().splitlines()[1].startswith("'=cmd(),inf,2026")


def test_several_lakes_are_one_table(lake: Path, tmp_path: Path) -> None:
    lakes: Lakes = {"eu": (str(lake), None), "us": (str(shutil.copytree(lake, tmp_path / "us")), None)}
    seen = reader_of(lake).seen["lake/readings"]
    at = Cursor({"eu/readings": seen, "us/readings": seen})
    every = pd.concat(rows(Pages(lakes, 20.0), query("readings"), at, 777, tmp_path / "page"))
    assert len(every) == 4800
    assert not every.duplicated(["lake", "channel", "run", "seq"]).any()
    seen = reader_of(lake).seen["lake/statistics"]
    at = Cursor({"eu/statistics": seen, "us/statistics": seen})
    quality = pd.concat(rows(Pages(lakes, 20.0), query("quality"), at, 5, tmp_path / "page"))
    (alone,) = rows(lake, query("quality"), first(lake, "statistics"), 50, tmp_path / "page")
    for _, found in quality.groupby("lake"):
        assert found.drop(columns="lake").reset_index(drop=True).equals(alone)
    assert quality["lake"].value_counts().to_dict() == {"eu": 36, "us": 36}
    with pytest.raises(Refused, match="in the lakes eu, us"):
        Pages(lakes, 20.0).wide(replace(query("statistics"), columns=("avg",)), at)
    DeltaTable(str(tmp_path / "us" / "statistics")).delete("gateway = 'mast-01'")
    at = Cursor({"eu/statistics": seen, "us/statistics": seen + 1})
    only = Pages(lakes, 20.0)
    wide = only.wide(replace(query("statistics"), columns=("avg",)), at)
    assert only.write(wide, at, 1000, "csv", tmp_path / "page")[0] == 288


def test_a_page_is_bounded_in_time_and_memory_and_the_next_one_is_made(lake: Path, tmp_path: Path) -> None:
    at, hurried = first(lake, "readings"), pages_of(lake, 0.3)
    slow = replace(query("readings"), source=replace(
        SOURCES["readings"], rows="SELECT r.* FROM {view} AS r, range(1000000000) WHERE {where}"
    ))  # fmt: skip
    with pytest.raises(TooSlow, match=r"more than 0\.3 s"):
        hurried.write(slow, at, 10, "csv", tmp_path / "page")
    long = "SELECT * REPLACE (repeat(channel, 100000) AS extra) FROM {view} WHERE {where}"
    large = replace(query("readings"), source=replace(SOURCES["readings"], rows=long))
    with pytest.raises(Refused, match="more than 256MB"):
        pages_of(lake).write(large, at, 100_000, "csv", tmp_path / "page")
    assert hurried.write(query("readings"), at, 10, "csv", tmp_path / "page")[0] == 10


def test_a_version_that_is_gone_and_a_key_of_another_query_are_errors(lake: Path, tmp_path: Path) -> None:
    pages, at = pages_of(lake), first(lake, "statistics")
    _, following = pages.write(query("statistics"), at, 10, "csv", tmp_path / "page")
    assert following is not None
    for wrong in (("x",), ("x", "y", "z", "w"), (1, 2, 3, 4, 5), (10**30, "a", "b", 600)):
        with pytest.raises(Refused, match="none of this query"):
            pages.write(query("statistics"), following._replace(after=wrong), 10, "csv", tmp_path / "page")
    table = DeltaTable(str(lake / "statistics"))
    table.optimize.compact()
    table.update(updates={"avg": "avg + 1"})
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(LakeError, match="is gone"):
        pages_of(lake).write(query("statistics"), following, 10, "csv", tmp_path / "page")


def test_a_day_of_readings_need_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_readings(tmp_path / "lake", "mast-01", datetime(2026, 11, 20, tzinfo=UTC), 80_000)
    at = first(tmp_path / "lake", "readings")
    monkeypatch.setattr("cloud.lake.paging._MEMORY", "32MB")
    pages = pages_of(tmp_path / "lake")
    count, following = pages.write(query("readings"), at, 6000, "parquet", tmp_path / "page")
    assert (count, following) == (6000, at._replace(after=(
        1_795_132_800_000_000 + 2999 * 1_000_000, "mast-01", "vane.wind_direction", "9f3c21ab04de", 3000
    )))  # fmt: skip
    uncut = replace(SOURCES["readings"], columns=tuple(schemas.READINGS.schema.names))
    with pytest.raises(Refused, match="more than 32MB"):
        pages.write(replace(query("readings"), source=uncut), at, 6000, "parquet", tmp_path / "page")


def test_statistics_by_the_minute_need_not_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 150_000
    times = np.datetime64("2026-11-20T00:00", "us") + np.arange(n) // 60 * np.timedelta64(60, "s")
    write(tmp_path / "lake", schemas.STATISTICS, {
        "gateway": ["mast-01"] * n, "channel": [f"cup-{at % 60}.wind_speed" for at in range(n)],
        "interval_s": [60] * n, "interval_start": times, "avg": np.arange(n) / 4,
        "quantity": [f"{at:0100}" for at in range(n)], "date": times.astype("datetime64[D]"),
    })  # fmt: skip
    monkeypatch.setattr("cloud.lake.paging._MEMORY", "32MB")
    at, pages = first(tmp_path / "lake", "statistics"), pages_of(tmp_path / "lake")
    count, following = pages.write(query("statistics"), at, 6000, "parquet", tmp_path / "page")
    assert count == 6000
    assert following is not None
    assert following.after[0] == 1_795_132_800_000_000 + 99 * 60_000_000
    assert pd.read_parquet(tmp_path / "page")["interval_start"].nunique() == 100
