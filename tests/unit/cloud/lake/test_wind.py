"""Wind by direction: the macros of a lake against the same written out in numpy, and worked cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, strategies as st

from cloud.lake.tables import open_lake, open_lakes
from tests.support.commands import query as run

T0: Final = datetime(2026, 5, 28, tzinfo=UTC)
STEP: Final = timedelta(minutes=10)
A, B, VANE = "cup-a.wind_speed", "cup-b.wind_speed", "vane.wind_direction"
Floats = np.ndarray[Any, np.dtype[np.float64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


def rows(gateway: str, number: int, /, **more: Any) -> list[dict[str, Any]]:
    """Statistics of interval ``number``; ``more`` has values by channel, and other columns."""
    channels = {"a": A, "b": B, "vane": VANE}
    shared = {"interval_s": 600, "version": 1, "recovery": 1.0}
    shared |= {name: value for name, value in more.items() if name not in channels}
    return [
        {"gateway": gateway, "channel": channel, "interval_start": T0 + number * STEP, "avg": more[name]}
        | shared
        for name, channel in channels.items()
        if name in more
    ]


def write(root: Path, found: Sequence[Mapping[str, Any]]) -> Path:
    schema = pa.schema(
        [
            *((name, pa.string()) for name in ("gateway", "channel")),
            *((name, pa.int32()) for name in ("interval_s", "version")),
            ("interval_start", pa.timestamp("us", tz="UTC")),
            *((name, pa.float64()) for name in ("avg", "recovery")),
        ]
    )
    table = pa.Table.from_pylist([dict(row) for row in found], schema=schema)
    write_deltalake(root / "statistics", table, mode="overwrite")
    return root


def answer(lake: Path, sql: str) -> list[dict[str, Any]]:
    table: Any = open_lake(lake).sql(sql).to_arrow_table()
    found: list[dict[str, Any]] = table.to_pylist()
    return found


@pytest.fixture(scope="module")
def month() -> Mapping[str, Floats]:
    """Two cups, one of them behind the tower in southerly winds, and a vane; a tenth of each is missing."""
    rng = np.random.default_rng(17)
    count = 4_000
    direction = np.where(rng.random(count) < 0.3, rng.uniform(-25, 25, count), rng.uniform(0, 360, count))
    direction = np.where(rng.random(count) < 0.05, np.floor(direction / 5) * 5, direction) % 360.0
    a = rng.weibull(2.0, count) * 8
    b = a * rng.normal(1.01, 0.01, count)
    a = np.where(np.abs(direction - 180.0) < 20.0, 0.8 * a, a)
    holes = (np.where(rng.random(count) < 0.1, np.nan, column) for column in (a, b, direction))
    return dict(zip(("a", "b", "vane"), holes, strict=True))


@pytest.fixture(scope="module")
def lake(month: Mapping[str, Floats], tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = []
    for number in range(len(month["a"])):
        given = {name: float(column[number]) for name, column in month.items()}
        # What is missing has a row without a value, or none at all.
        there = {name: None if np.isnan(value) else value for name, value in given.items()}
        if number % 2 == 0:
            there = {name: value for name, value in there.items() if value is not None}
        found += rows("mast-07", number, **there)
    # None of these counts: an open interval, another length, hardly any samples; another mast is apart.
    found += rows("mast-07", 5_000, a=50.0, b=50.0, vane=90.0, version=0)
    found += rows("mast-07", 5_001, a=50.0, b=50.0, vane=90.0, recovery=0.49)
    found += rows("mast-07", 0, a=50.0, b=50.0, vane=90.0, interval_s=60)
    found += rows("mast-08", 0, a=50.0, b=50.0, vane=90.0)
    return write(tmp_path_factory.mktemp("wind") / "lake", found)


def in_sector(direction: Floats, centre: float, sectors: int) -> Bools:
    """Which directions lie in a sector, by the angle between unit vectors; no direction lies in none."""
    between = np.angle(np.exp(1j * np.radians(direction - centre)), deg=True)
    half = 180.0 / sectors
    # What lies on an edge but for rounding belongs to the sector clockwise of it.
    return np.asarray((between > -half - 1e-9) & (between < half - 1e-9))


@pytest.mark.parametrize("sectors", [12, 16, 36, 7])
def test_a_wind_rose_equals_numpy(lake: Path, month: Mapping[str, Floats], sectors: int) -> None:
    found = answer(lake, f"FROM wind_rose('{A}', '{VANE}', {sectors}) WHERE gateway = 'mast-07'")
    tens = [row for row in found if row["interval_s"] == 600]
    assert [row["sector"] for row in tens] == pytest.approx([at * 360 / sectors for at in range(sectors)])
    valid = ~np.isnan(month["a"] + month["vane"])
    for row in tens:
        inside = valid & in_sector(month["vane"], row["sector"], sectors)
        assert row["intervals"] == inside.sum() > 0
        assert row["mean_speed"] == pytest.approx(month["a"][inside].mean(), rel=1e-12)
        assert row["share"] == pytest.approx(inside.sum() / valid.sum(), rel=1e-12)
    assert sum(row["share"] for row in tens) == pytest.approx(1.0)
    # The one with hardly any samples; without a single row an interval isn't there at all.
    unseen = np.isnan(month["a"]) & np.isnan(month["vane"]) & (np.arange(len(valid)) % 2 == 0)
    assert {row["left_out"] for row in tens} == {(~valid).sum() - unseen.sum() + 1}
    minutes = [row["intervals"] for row in found if row["interval_s"] == 60]
    assert (sum(minutes), len(minutes)) == (1, sectors)


def test_a_frequency_table_equals_numpy(lake: Path, month: Mapping[str, Floats]) -> None:
    sql = f"FROM frequency_table('{A}', '{VANE}', 8, bin_mps := 0.5) WHERE gateway = 'mast-07'"
    found = [row for row in answer(lake, sql) if row["interval_s"] == 600]
    valid = ~np.isnan(month["a"] + month["vane"])
    bins = np.digitize(month["a"], np.arange(-0.25, 60, 0.5)) - 1
    for row in found:
        inside = valid & in_sector(month["vane"], row["sector"], 8) & (bins * 0.5 == row["speed_bin"])
        assert row["intervals"] == inside.sum()
        assert row["share"] == pytest.approx(inside.sum() / valid.sum(), rel=1e-12)
    assert sum(row["intervals"] for row in found) == valid.sum()


def test_a_towers_shadow_equals_numpy(lake: Path, month: Mapping[str, Floats]) -> None:
    found = answer(lake, f"FROM tower_shadow('{A}', '{B}', '{VANE}') WHERE gateway = 'mast-07'")
    found = [row for row in found if row["interval_s"] == 600]
    a, b = month["a"], month["b"]
    valid = ~np.isnan(a + b + month["vane"])
    counts = valid & (np.fmin(a, b) > 3.0)
    ratios = []
    for row in found:
        inside = counts & in_sector(month["vane"], row["sector"], 36)
        ratios.append((a[inside] / b[inside]).mean())
        assert row["intervals"] == inside.sum()
        assert row["ratio"] == pytest.approx(ratios[-1], rel=1e-12)
        assert row["ratio_sd"] == pytest.approx((a[inside] / b[inside]).std(ddof=1), rel=1e-9)
        assert row["calm"] == valid.sum() - counts.sum()
    assert [row["relative"] for row in found] == pytest.approx(ratios / np.median(ratios), rel=1e-12)
    # In a shadow of 160 to 200 degrees the outermost sectors lie by half: 5 to 10 % below.
    assert {row["sector"]: row["shadowed"] for row in found if row["shadowed"]} == dict.fromkeys(
        (160.0, 170.0, 180.0, 190.0, 200.0), A
    )
    assert {row["undisturbed"] for row in found if row["shadowed"] is None} == {A}
    assert {row["undisturbed"] for row in found if row["shadowed"]} == {B}
    # The other way round the same cup is behind the tower.
    other_way = answer(lake, f"FROM tower_shadow('{B}', '{A}', '{VANE}') WHERE shadowed IS NOT NULL")
    assert {row["shadowed"] for row in other_way} == {A}


def test_few_intervals_are_not_judged(tmp_path: Path) -> None:
    found = []
    for number, direction in enumerate([10.0] * 10 + [100.0] * 10 + [190.0] * 10 + [280.0] * 9):
        behind = 0.5 if direction in (190.0, 280.0) else 1.0
        found += rows("mast-07", number, a=8.0 * behind, b=8.0, vane=direction)
    found += rows("mast-07", 99, a=3.0, b=8.0, vane=10.0) + rows("mast-07", 100, a=8.0, vane=10.0)
    shadow = answer(write(tmp_path, found), f"FROM tower_shadow('{A}', '{B}', '{VANE}', 4)")
    assert [(row["sector"], row["intervals"], row["shadowed"], row["undisturbed"]) for row in shadow] == [
        (0.0, 10, None, A), (90.0, 10, None, A), (180.0, 10, A, B), (270.0, 9, None, None),
    ]  # fmt: skip
    assert {(row["calm"], row["left_out"]) for row in shadow} == {(1, 1)}


def test_a_corrected_and_a_late_interval_correct_the_answer(tmp_path: Path) -> None:
    def rose(found: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
        answered = answer(write(tmp_path, found), f"FROM wind_rose('{A}', '{VANE}')")
        return [(row["intervals"], row["mean_speed"], row["left_out"]) for row in answered[:2]]

    first = rows("mast-07", 0, a=6.0, vane=359.0)
    assert rose(first + rows("mast-07", 1, a=None, vane=1.0)) == [(1, 6.0, 1), (0, None, 1)]
    corrected = first + rows("mast-07", 1, a=8.0, vane=1.0, version=2)
    assert rose(corrected + rows("mast-07", 2, a=5.0, vane=15.0)) == [(2, 7.0, 0), (1, 5.0, 0)]


def test_since_is_included_and_until_is_not(lake: Path) -> None:
    times = "since := '2026-05-29', until := TIMESTAMPTZ '2026-05-30 00:00Z'"
    found = [row["interval_start"] for row in answer(lake, f"FROM by_sector('{A}', '{VANE}', {times})")]
    assert (min(found), max(found)) == (T0 + timedelta(days=1), T0 + timedelta(days=2) - STEP)


def test_masts_of_two_lakes_are_apart_though_they_have_one_name(tmp_path: Path) -> None:
    lakes = {
        name: (str(write(tmp_path / name, rows("mast-07", 0, a=speed, vane=90.0))), None)
        for name, speed in (("eu", 5.0), ("us", 9.0))
    }
    found = open_lakes(lakes).sql(f"FROM wind_rose('{A}', '{VANE}', 1)").fetchall()
    assert [(row[0], row[-2]) for row in found] == [("eu", 5.0), ("us", 9.0)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "FROM wind_rose('cup.wind_speed', '{VANE}')",
            "no channel cup.wind_speed in statistics, which has cup-a.",
        ),
        ("FROM by_sector('{A}', '{VANE}', twin := 'b')", "no channel b in statistics, which has cup-a."),
        ("FROM wind_rose('{A}', '{VANE}', 0)", "sectors is their number, from 1 to 360"),
        *(
            (
                f"FROM frequency_table('{{A}}', '{{VANE}}', bin_mps := {width})",
                "bin_mps is the width of the bins in m/s, above 0",
            )
            for width in ("0", "-1.0", "NULL", "'nan'::FLOAT", "'inf'::FLOAT")
        ),
        ("FROM tower_shadow('{A}', '{VANE}')", "tower_shadow(cup, other, vane, sectors := 36"),
    ],
)
def test_an_error_names_what_is_wrong(
    lake: Path, sql: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([sql.format(A=A, VANE=VANE), "--lake", str(lake)]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("fieldgate: ")
    assert message in printed


@pytest.fixture(scope="module")
def connection(lake: Path) -> duckdb.DuckDBPyConnection:
    return open_lake(lake)


@given(
    st.floats(0, 360) | st.sampled_from([14.999999999999998, 345.0, 359.99999999999994, 360.0]),
    st.integers(1, 360),
)
def test_every_direction_lies_in_one_sector(
    connection: duckdb.DuckDBPyConnection, degrees: float, sectors: int
) -> None:
    ((centre,),) = connection.execute("SELECT sector(?, ?)", [degrees, sectors]).fetchall()
    index = centre * sectors / 360.0
    assert index == pytest.approx(round(index), abs=1e-9)
    assert 0 <= round(index) < sectors
    between = abs(np.angle(np.exp(1j * np.radians(degrees - centre)), deg=True))
    assert between <= 180.0 / sectors + 1e-9


@given(st.floats(0, 360), st.floats(0, 360))
def test_the_shortest_angle_turns_one_direction_into_the_other(
    connection: duckdb.DuckDBPyConnection, one: float, other: float
) -> None:
    ((angle,),) = connection.execute("SELECT shortest_angle(?, ?)", [one, other]).fetchall()
    wanted = np.angle(np.exp(1j * np.radians(other - one)), deg=True)
    assert -180.0 <= angle < 180.0
    assert abs(abs(angle - wanted) - 180.0) == pytest.approx(180.0, abs=1e-9)
