"""The report of made-up masts: its numbers, in the site's time, and what it says is missing."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pytest
from deltalake import DeltaTable

from cloud.dashboard.report import figures
from cloud.dashboard.report.figures import Period, intervals_in
from cloud.dashboard.report.markup import number, percent
from cloud.dashboard.report.page import SECTIONS, Report, read_report, write_page
from cloud.errors import CloudError
from cloud.lake.cleaning import Mark, add
from spark_jobs.platform import schemas
from tests.support.commands import report as run
from tests.support.fleet_lake import reader_of, write, write_fleet

END: Final = datetime(2026, 11, 21, tzinfo=UTC)
NOW_MS: Final = int(END.timestamp() * 1000)
LATER_MS: Final = NOW_MS + 30 * 86_400_000
CUP: Final = "cup-50m-a.wind_speed"
TWIN: Final = "cup-50m-b.wind_speed"
VANE: Final = "vane-48m.wind_direction"
NOVEMBER: Final = Period.read("2026-11")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three masts from October 28th on, the third with an outage; and flagged readings of its."""
    root = tmp_path_factory.mktemp("fleet") / "lake"
    write_fleet(root, 3, 24, end=END)
    begin = datetime(2026, 11, 3, 22, 0, tzinfo=UTC)
    times = [begin + timedelta(seconds=60 * at) for at in range(60)]
    flags = [["STUCK_VALUE"]] * 30 + [[]] * 20 + [["NOISY", "STUCK_VALUE"]] * 10
    write(root, schemas.READINGS, {
        "gateway": ["mast-03"] * 60, "channel": [CUP] * 60, "time": times,
        "date": [each.date() for each in times],
        "value": np.full(60, 4.0), "quality": [3] * 30 + [1] * 20 + [4] * 10, "reasons": flags,
    })  # fmt: skip
    return root


def report_of(lake: Path, mast: str = "mast-03", period: Period = NOVEMBER, now_ms: int = NOW_MS) -> Report:
    reader = reader_of(lake)
    return read_report(reader, mast, period, now_ms=now_ms)


def page_of(lake: Path, mast: str = "mast-03", period: Period = NOVEMBER, now_ms: int = NOW_MS) -> str:
    return write_page(report_of(lake, mast, period, now_ms), now_ms=now_ms, version="1")


def missing_of(page: str) -> list[str]:
    return re.findall(r'<p class="missing">(.*?)</p>', page)


@pytest.fixture(scope="module")
def report(lake: Path) -> Report:
    return report_of(lake)


def rows_of(lake: Path, channel: str, month: str = "2026-11") -> Any:
    """The channel's intervals of the site's November or of a month ('' for all), by the site's time."""
    rows = DeltaTable(str(lake / "statistics")).to_pandas()
    rows = rows[(rows.gateway == "mast-03") & (rows.channel == channel)].sort_values("interval_start")
    rows["local"] = rows.interval_start.dt.tz_localize(None) + timedelta(minutes=345)
    return rows[rows.local.dt.strftime("%Y-%m").str.startswith(month)]


def test_a_month_is_one_of_the_sites_time() -> None:
    month = replace(NOVEMBER, offset_min=345)
    assert month.begin_ms == datetime(2026, 10, 31, 18, 15, tzinfo=UTC).timestamp() * 1000
    assert month.local(month.begin_ms) == "2026-11-01 00:00"
    assert (month.days, month.title, month.offset) == (30, "November 2026", "UTC+05:45")
    december = replace(Period.read("2026-12"), offset_min=-90)
    assert december.local(december.end_ms) == "2027-01-01 00:00"
    assert december.offset == "UTC-01:30"
    # 18:20 UTC is the first of ten minutes that begins in it.
    assert intervals_in(month.begin_ms, month.end_ms, 600) == 30 * 144
    assert intervals_in(month.begin_ms, month.begin_ms + 300_000, 600) == 0
    assert intervals_in(month.begin_ms, month.begin_ms + 300_001, 600) == 1
    for text in ("2026-13", "2026-1", "soon", "0000-01", "2026-02-30", "2026-W54", "2026-W1", "2026-11-1"):
        with pytest.raises(
            CloudError, match="is no day, week or month such as 2026-11-30, 2026-W48 or 2026-11"
        ):
            Period.read(text)


def test_days_and_weeks() -> None:
    week, day = Period.read("2026-W53"), Period.read("2026-11-30")
    assert (str(week), week.title, week.unit, week.days) == ("2026-W53", "week 53 of 2026", "week", 7)
    assert (week.local(week.begin_ms), week.local(week.end_ms)) == ("2026-12-28 00:00", "2027-01-04 00:00")
    assert (str(day), day.title, day.unit, day.days) == ("2026-11-30", "30 November 2026", "day", 1)
    assert (day.local(day.begin_ms), day.local(day.end_ms)) == ("2026-11-30 00:00", "2026-12-01 00:00")


@pytest.mark.parametrize(
    ("text", "first", "days"), [("2026-11-04", "2026-11-04", 1), ("2026-W44", "2026-10-26", 7)]
)
def test_a_day_and_a_week_as_pandas_finds_them(lake: Path, text: str, first: str, days: int) -> None:
    """The week reaches from one month into the next; the lake begins within it."""
    asked = report_of(lake, period=Period.read(text), now_ms=LATER_MS)
    rows = rows_of(lake, CUP, "")
    begin = datetime.fromisoformat(first)
    rows = rows[(rows.local >= begin) & (rows.local < begin + timedelta(days=days))]
    assert asked.view.due == 144 * days
    found = {row["channel"]: row for row in figures.recovery(asked.view).dicts()}[CUP]
    valid = rows[rows.avg.notna() & (rows.recovery >= 0.5)]
    assert 0 < len(valid) <= 144 * days
    assert found["valid"] == len(valid)
    assert found["by_samples"] == pytest.approx(rows.recovery.sum() / (144 * days), rel=1e-12)
    mean = next(row for row in figures.means(asked.view).dicts() if row["channel"] == CUP)
    assert mean["mean"] == pytest.approx(valid.avg.mean(), rel=1e-12)
    assert mean["sd"] == pytest.approx(valid.avg.std(), rel=1e-12)
    by_day = {
        row["day"]: row["recovery"] for row in figures.coverage(asked.view).dicts() if row["channel"] == CUP
    }
    sums = rows.groupby((rows.local.dt.normalize() - begin).dt.days + 1).recovery.sum() / 144
    assert by_day == pytest.approx({each: sums.get(each, 0.0) for each in range(1, days + 1)}, rel=1e-12)
    page = write_page(asked, now_ms=LATER_MS, version="1")
    assert f"{asked.period.title}</h1>" in page
    assert len(re.findall("<svg", page)) >= 7
    assert re.findall("<h2>(.*?)</h2>", page) == list(SECTIONS)


def test_recovery_by_intervals_and_by_samples(lake: Path, report: Report) -> None:
    view, rows = report.view, rows_of(lake, CUP)
    assert view.due == len(rows) == 20 * 144 + 34
    found = {row["channel"]: row for row in figures.recovery(view, ["gone.temperature"]).dicts()}
    valid = rows.avg.notna() & (rows.recovery >= 0.5)
    assert 0 < (~valid).sum() < 300
    assert found[CUP]["by_intervals"] == valid.mean()
    assert found[CUP]["by_samples"] == pytest.approx(rows.recovery.mean(), rel=1e-12)
    assert (found[CUP]["suspect"], found[CUP]["missing"]) == (rows.n_suspect.sum(), rows.n_missing.sum())
    assert found["gone.temperature"]["by_samples"] == 0
    assert found["gone.temperature"]["without_row"] == view.due


def test_a_month_that_is_over_counts_what_has_no_row(lake: Path) -> None:
    whole = report_of(lake, now_ms=LATER_MS)
    found = {row["channel"]: row for row in figures.recovery(whole.view).dicts()}
    rows = rows_of(lake, CUP)
    assert whole.view.due == 30 * 144
    assert found[CUP]["without_row"] == 30 * 144 - len(rows)
    assert found[CUP]["by_samples"] == pytest.approx(rows.recovery.sum() / (30 * 144), rel=1e-12)
    valid = rows.avg.notna() & (rows.recovery >= 0.5)
    assert found[CUP]["by_intervals"] == valid.sum() / (30 * 144)
    longest = figures.gaps(whole.view).dicts()[0]
    assert (longest["channel"], longest["intervals"]) == ("", 30 * 144 - len(rows))
    days = {
        row["day"]: row["recovery"] for row in figures.coverage(whole.view).dicts() if row["channel"] == CUP
    }
    assert days[30] == 0
    assert days[21] == pytest.approx(rows[rows.local.dt.day == 21].recovery.sum() / 144)


def test_gust_power_and_gaps(lake: Path, report: Report) -> None:
    rows = rows_of(lake, CUP)
    top = next(row for row in figures.wind(report.view).dicts() if row["channel"] == CUP)
    gust = rows.loc[rows.gust.idxmax()]
    assert (top["gust"], top["gust_at"]) == (gust.gust, gust.gust_time.timestamp() * 1000)
    assert top["power_density"] == pytest.approx((0.5 * 0.99 * rows.cube_mean).mean(), rel=1e-12)
    means = {row["channel"]: row for row in figures.means(report.view).dicts()}
    highest = rows.loc[rows["max"].idxmax()]
    assert means[CUP]["highest_at"] == highest.max_time.timestamp() * 1000
    (gap,) = figures.gaps(report.view).dicts()
    absent = rows[rows["count"] == 0]
    assert gap["channel"] == ""
    assert gap["begin_at"] == absent.interval_start.min().timestamp() * 1000
    assert gap["intervals"] == len(absent)


def valid_means(lake: Path) -> pd.DataFrame:
    """Means of valid intervals by local time and channel."""
    channels = (CUP, TWIN, VANE, "cup-30m-a.wind_speed", "cup-20m-a.wind_speed")
    rows = pd.concat([rows_of(lake, each) for each in channels])
    wide: pd.DataFrame = rows[rows.recovery >= 0.5].pivot(index="local", columns="channel", values="avg")
    return wide


def test_means_and_spreads(lake: Path, report: Report) -> None:
    wide, found = valid_means(lake), {row["channel"]: row for row in figures.means(report.view).dicts()}
    assert found[CUP]["mean"] == pytest.approx(wide[CUP].mean(), rel=1e-12)
    assert found[CUP]["sd"] == pytest.approx(wide[CUP].std(), rel=1e-9)
    assert found[CUP]["intervals"] == wide[CUP].count()
    vane = rows_of(lake, VANE)
    vane = vane[vane.recovery >= 0.5]
    # The mean vector, each interval by its samples.
    vector = np.average(np.exp(1j * np.radians(vane.avg)), weights=vane["count"])
    expected = np.angle(vector, deg=True) % 360
    assert found[VANE]["mean"] == pytest.approx(expected, abs=1e-9)
    assert figures.density(report.view)["mean"] == pytest.approx(0.99, rel=1e-12)


def test_sectors_hours_profile_and_pairs(lake: Path, report: Report) -> None:
    view, wide = report.view, valid_means(lake)
    both = wide[[CUP, VANE]].dropna()
    expected = both[CUP].groupby((both[VANE] + 15) % 360 // 30 * 30).agg(["size", "mean"])
    found = {row["sector"]: (row["intervals"], row["mean"]) for row in figures.sectors(view).dicts()}
    assert found == {at: (row["size"], pytest.approx(row["mean"])) for at, row in expected.iterrows()}
    channels, hours = figures.by_hour(view)
    cups = [f"cup-{height}m-a.wind_speed" for height in (50, 30, 20)]
    assert [each.name for each in channels[:3]] == cups
    means = wide[cups].groupby(pd.DatetimeIndex(wide.index).hour).mean().to_numpy()
    np.testing.assert_allclose(np.array([row[:3] for row in hours], float), means, rtol=1e-12)
    together = wide[cups].dropna()
    speeds = together[together.min(axis=1) > 3].mean()
    exponent = np.polyfit(np.log([50.0, 30.0, 20.0]), np.log(speeds), 1)[0]
    assert figures.profile_exponent(view) == pytest.approx(exponent, rel=1e-9)
    pair = next(row for row in figures.pairs(view).dicts() if row["primary"] == CUP)
    difference = (wide[CUP] - wide[TWIN]).dropna()
    assert (pair["twin"], pair["intervals"]) == (TWIN, len(difference))
    assert pair["mean"] == pytest.approx(difference.mean(), rel=1e-9)
    assert pair["sd"] == pytest.approx(difference.std(), rel=1e-9)


def test_flagged_periods_by_reason(lake: Path, report: Report) -> None:
    found = figures.flagged(report.reader, "mast-03", report.period, 600).dicts()
    local = report.period.local
    assert [(row["reason"], local(row["begin_at"]), local(row["end_at"]), row["readings"], row["worst"])
            for row in found] == [
        ("STUCK_VALUE", "2026-11-04 03:45", "2026-11-04 04:15", 30, 3),
        ("NOISY", "2026-11-04 04:35", "2026-11-04 04:45", 10, 4),
        ("STUCK_VALUE", "2026-11-04 04:35", "2026-11-04 04:45", 10, 4),
    ]  # fmt: skip


def test_calibrations_in_force_are_those_of_the_month(lake: Path, tmp_path: Path) -> None:
    begins = [datetime(2026, at, 10, tzinfo=UTC) for at in (9, 11, 12)]
    ends = [*begins[1:], None]
    write(tmp_path, schemas.CHANNELS, {
        "gateway": ["mast-03"] * 3, "channel": [CUP] * 3, "cal": ["a", "b", "c"], "valid_from": begins,
        "valid_to": ends,
        "periods": [[{"begin": begin, "end": end}] for begin, end in zip(begins, ends, strict=True)],
    })  # fmt: skip
    reader = reader_of(tmp_path)
    found = figures.calibrations(reader, "mast-03", NOVEMBER)
    change = int(begins[1].timestamp() * 1000)
    assert [(row["cal"], row["periods"]) for row in found] == [
        ("a", [(None, change)]),
        ("b", [(change, None)]),
    ]


def test_the_cleaning_log_and_means_without_what_it_marks(lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake, tmp_path / "lake")
    when = datetime(2026, 11, 3, 22, tzinfo=UTC)
    mark = Mark("mast-03", "cup-50m-a", when, when + timedelta(hours=5), "iced", "Ada", END)
    add({"lake": (str(tmp_path / "lake"), None)}, [mark, replace(mark, gateway="mast-01")])
    report = report_of(tmp_path / "lake")
    (found,) = figures.cleaning(report.reader, report.view).dicts()
    assert (found["channel"], found["reason"], found["intervals"]) == ("cup-50m-a", "iced", 30)
    (means,) = figures.means_without_marks(report.view).dicts()
    rows = rows_of(lake, CUP)
    rows = rows[rows.recovery >= 0.5]
    marked = (rows.interval_start >= when) & (rows.interval_start < when + timedelta(hours=5))
    assert means["with_marked"] == pytest.approx(rows.avg.mean(), rel=1e-12)
    assert means["without"] == pytest.approx(rows[~marked].avg.mean(), rel=1e-12)
    page = write_page(report, now_ms=NOW_MS, version="1")
    assert "<td>cup-50m-a</td><td>2026-11-04 03:45</td><td>2026-11-04 08:45</td><td>iced</td>" in page


def test_the_page_has_every_section_and_its_numbers(lake: Path) -> None:
    page = page_of(lake)
    assert re.findall("<h2>(.*?)</h2>", page) == list(SECTIONS)
    assert missing_of(page) == ["The month isn't over: this is until 2026-11-21 05:45."]
    mean = rows_of(lake, CUP).avg.mean()
    assert f"<b>{mean:.2f} m/s</b>" in page
    assert "UTC+05:45, the site&#x27;s" in page or "UTC+05:45, the site's" in page
    assert "Plateau 1, November 2026" in page
    assert "NRG 40H" in page
    assert "http" not in page.replace("http-equiv", "")
    assert page == page_of(lake)


def test_a_lake_without_mast_or_records_says_so_and_goes_on(lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake / "statistics", tmp_path / "statistics")
    (tmp_path / "alerts" / "_delta_log").mkdir(parents=True)
    (tmp_path / "alerts" / "_delta_log" / f"{0:020d}.json").write_text('{"commitInfo":')
    page = page_of(tmp_path)
    found = missing_of(page)
    assert "The table sites has no site of this mast: times are UTC." in found
    for table in ("channels", "sites", "mast", "readings", "runs"):
        assert any(f"The lake has no table {table} yet" in each for each in found), table
    assert any("table alerts can't be read" in each for each in found)
    assert len(re.findall("<svg", page)) >= 7
    assert re.findall("<h2>(.*?)</h2>", page) == list(SECTIONS)


def test_a_month_without_data_and_a_mast_without(lake: Path) -> None:
    page = page_of(lake, period=Period.read("2025-01"))
    found = missing_of(page)
    assert found[0] == "The lake has no statistics of this mast in this period."
    assert "Plateau 1, January 2025" in page
    assert re.findall("<h2>(.*?)</h2>", page) == list(SECTIONS)
    with pytest.raises(
        CloudError, match=r"no mast mast-3 in the lake, which has mast-01, .*did you mean mast-03"
    ):
        report_of(lake, "mast-3")
    with pytest.raises(CloudError, match="no mast '; DROP TABLE x in the lake"):
        report_of(lake, "'; DROP TABLE x")


def test_a_hostile_name_is_a_text(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    write(tmp_path, schemas.SITES, {
        "gateway": [hostile], "valid_from": [END], "name": [hostile], "utc_offset_min": [60],
    })  # fmt: skip
    page = page_of(tmp_path, hostile)
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_the_command(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--lake", str(lake), "--mast", "mast-01", "--month", "2026-11"]
    assert run([*asked, "-o", str(tmp_path / "r.html")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'r.html'}\n"
    assert "November 2026" in (tmp_path / "r.html").read_text()
    for wrong, words in (
        (["-o", str(tmp_path / "r.doc")], "the file's name ends in .html or .pdf"),
        (["-o", str(tmp_path / "no" / "r.html")], "No such file or directory"),
        (["--interval", "61", "-o", str(tmp_path / "r.html")], "have intervals of 600 seconds"),
        (["--lake", str(tmp_path / "none")], "no lake at"),
        (["--month", "2026-11-30"], "--month 2026-11-30 is no month"),
    ):
        assert run([*asked, *wrong]) == 1
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["r.html"]


def test_numbers_in_words() -> None:
    numbers = [number(each, 2) for each in (None, float("nan"), -0.001, 1234.567)]
    assert numbers == ["–", "–", "0.00", "1,234.57"]
    assert [percent(each) for each in (None, 1.0, 0.99999, 0.5)] == ["–", "100.0", "99.9", "50.0"]
