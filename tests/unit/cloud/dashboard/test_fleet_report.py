"""The page of a fleet's month: its figures beside pandas', of a lake's tables read as they are."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pytest
from deltalake import DeltaTable

from cloud.dashboard.report.figures import Period
from cloud.dashboard.report.fleet import FleetReport, MastLine, read_fleet, write_fleet_page
from cloud.dashboard.report.page import read_report
from cloud.lake.acknowledgements import acknowledge
from cloud.lake.cleaning import Mark, add
from cloud.lake.documents import file_documents
from spark_jobs.platform import schemas
from tests.support.commands import report as run
from tests.support.fleet_lake import reader_of, write, write_fleet

END: Final = datetime(2026, 11, 21, tzinfo=UTC)
DAY: Final = timedelta(days=1)
NOW_MS: Final = int(END.timestamp() * 1000)
LATER_MS: Final = NOW_MS + 30 * 86_400_000
NOVEMBER: Final = Period.read("2026-11")
OFFSETS: Final = {"mast-01": 345, "mast-02": -180, "mast-03": 345, "mast-04": 345}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four masts, the third with an outage, the second elsewhere; what was done, and what comes."""
    root = tmp_path_factory.mktemp("fleet") / "lake"
    write_fleet(root, 4, 24, end=END)
    DeltaTable(str(root / "sites")).update(
        updates={"utc_offset_min": "-180"}, predicate="gateway = 'mast-02'"
    )
    # A channel that is dead since long.
    DeltaTable(str(root / "statistics")).delete("gateway = 'mast-04' AND channel = 'dht.humidity'")
    channels = DeltaTable(str(root / "channels"))
    channels.update(
        updates={"expires": "DATE '2026-12-24'"}, predicate="gateway = 'mast-01' AND pair IS NOT NULL"
    )
    events = [
        ("reloaded", "mast-01", datetime(2026, 10, 31, 18, 15, tzinfo=UTC), {}),
        ("reloaded", "mast-01", datetime(2026, 10, 31, 18, 14, tzinfo=UTC), {}),
        ("reloaded", "mast-02", datetime(2026, 11, 1, 2, 59, tzinfo=UTC), {}),
        ("sensor-swapped", "mast-02", datetime(2026, 11, 4, 9, tzinfo=UTC), {"sensor": "cup-50m-a"}),
        ("commissioned", "mast-02", datetime(2026, 11, 4, 10, tzinfo=UTC), {"signed_by": "<b>Ada"}),
        ("under-voltage", "mast-02", datetime(2026, 11, 4, 11, tzinfo=UTC), {}),
    ]
    write(root, schemas.EVENTS, {
        "kind": [kind for kind, *_ in events], "gateway": [mast for _, mast, *_ in events],
        "id": [str(at) for at in range(len(events))], "time": [at for *_, at, _ in events],
        "fields": [json.dumps(fields) for *_, fields in events], "date": [END.date()] * len(events),
    })  # fmt: skip
    trends = [("mast-01", 40, 60), ("mast-01", 91, 99), ("mast-03", 50, None), ("mast-04", 10, 20)]
    write(root, schemas.TRENDS, {
        "gateway": [mast for mast, *_ in trends], "channel": ["cup-50m-a.wind_speed"] * 3 + [None],
        "kind": ["twins"] * 3 + ["disk"],
        "detail": [f"at its limit after {days} days" for _, days, _ in trends],
        "crosses": [END.date() + days * DAY for _, days, _ in trends],
        "crosses_until": [days and END.date() + days * DAY for *_, days in trends], "date": [END.date()] * 4,
    })  # fmt: skip
    return root


def of_fleet(lake: Path, now_ms: int = LATER_MS, period: Period = NOVEMBER) -> FleetReport:
    return read_fleet(reader_of(lake), period, now_ms=now_ms)


def by_mast(report: FleetReport) -> dict[str, MastLine]:
    return {each.gateway: each for each in report.lines}


def rows_of(lake: Path, table: str) -> Any:
    return DeltaTable(str(lake / table)).to_pandas()


def test_recovery_is_pandas_and_that_of_each_masts_own_report(lake: Path) -> None:
    report, rows = of_fleet(lake), rows_of(lake, "statistics")
    lines, channels = by_mast(report), rows_of(lake, "channels")
    assert set(lines) == set(OFFSETS)
    for mast, offset_min in OFFSETS.items():
        own = rows[rows.gateway == mast]
        local = own.interval_start.dt.tz_localize(None) + timedelta(minutes=offset_min)
        own = own[local.dt.strftime("%Y-%m") == "2026-11"]
        names = sorted(channels[channels.gateway == mast].channel)
        valid = (
            own[own.avg.notna() & (own.recovery >= 0.5)]
            .groupby("channel")
            .size()
            .reindex(names, fill_value=0)
        )
        samples = own.groupby("channel").recovery.sum().reindex(names, fill_value=0.0)
        assert lines[mast].recovery == pytest.approx(
            ((valid / 4320).mean(), (samples / 4320).mean()), rel=1e-12
        )
        assert {name: each[0] for name, each in lines[mast].shares.items()} == (valid / 4320).to_dict()
        page = read_report(reader_of(lake), mast, NOVEMBER, now_ms=LATER_MS)
        shares = {row["channel"]: (row["by_intervals"], row["by_samples"]) for row in page.recovery}
        assert sorted(lines[mast].shares) == sorted(shares)
        assert pd.DataFrame(lines[mast].shares)[names].to_numpy() == pytest.approx(
            pd.DataFrame(shares)[names].to_numpy(), rel=1e-12
        )
    assert lines["mast-04"].shares["dht.humidity"] == (0.0, 0.0)
    means = [each.recovery for each in lines.values() if each.recovery is not None]
    assert report.recovery == pytest.approx(tuple(pd.DataFrame(means).mean()), rel=1e-12)


def test_the_worst_is_first(lake: Path) -> None:
    report = of_fleet(lake)
    whole = [round(100 * line.recovery[0]) for line in report.lines if line.recovery is not None]
    assert whole == sorted(whole)
    # The one with the outage, then the one with the dead channel.
    assert [line.gateway for line in report.lines][:2] == ["mast-03", "mast-04"]


def test_a_month_that_isnt_over_is_until_the_newest_interval_of_the_fleet(lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake, tmp_path / "lake")
    # One that is silent for long is none that has all that was due.
    silent = "gateway = 'mast-01' AND interval_start >= '2026-11-03T00:00:00Z'"
    DeltaTable(str(tmp_path / "lake" / "statistics")).delete(silent)
    report = of_fleet(tmp_path / "lake", NOW_MS)
    lines = by_mast(report)
    assert lines["mast-01"].recovery is not None
    assert lines["mast-01"].recovery[0] == pytest.approx((2 * 144 + 34) / (20 * 144 + 34), abs=0.01)
    assert lines["mast-02"].recovery is not None
    assert lines["mast-02"].recovery[0] > 0.95
    assert report.lines[0].gateway == "mast-01"
    assert "The month isn't over: this is until 2026-11-21 00:00 UTC." in report.missing


def test_a_dismantled_mast_is_left_out_and_named(lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake, tmp_path / "lake")
    # One that hasn't sent yet isn't dismantled.
    DeltaTable(str(tmp_path / "lake" / "statistics")).delete("gateway = 'mast-04'")
    january_ms = NOW_MS + 70 * 86_400_000
    report = of_fleet(tmp_path / "lake", january_ms, Period.read("2026-12-20"))
    assert {mast: line.recovery for mast, line in by_mast(report).items()} == dict.fromkeys(
        OFFSETS, (0.0, 0.0)
    )
    report = of_fleet(tmp_path / "lake", january_ms, Period.read("2026-12-24"))
    assert by_mast(report).keys() == {"mast-04"}
    assert "Left out, without statistics for 30 days and more: mast-01, mast-02, mast-03." in report.missing


def test_alerts_stood_for_so_long_and_were_seen(lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake, tmp_path / "lake")
    found = rows_of(lake, "alerts").set_index("gateway")
    write(tmp_path / "lake", schemas.ALERTS, {
        "id": ["before", "across", "after"], "gateway": ["mast-01"] * 3, "rule": ["hot"] * 3,
        "raised_at": [datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 10, 30, tzinfo=UTC),
                      datetime(2026, 11, 30, 18, 15, tzinfo=UTC)],
        "cleared_at": [datetime(2026, 10, 31, 18, 14, tzinfo=UTC),
                       datetime(2026, 11, 1, 0, 15, tzinfo=UTC), None],
        "historical": [False] * 3,
    })  # fmt: skip
    acknowledge(reader_of(tmp_path / "lake"), "Olga", [found.loc["mast-03"].id], note="on the way")
    lines = by_mast(of_fleet(tmp_path / "lake"))
    (across,) = lines["mast-01"].alerts
    assert (across["id"], across["hours"], across["stands"], across["seen"]) == ("across", 6.0, False, False)
    end = datetime(2026, 11, 30, 18, 15, tzinfo=UTC)
    for mast in ("mast-03", "mast-04"):
        (alert,), row = lines[mast].alerts, found.loc[mast]
        until = end if pd.isna(row.cleared_at) else row.cleared_at
        assert alert["hours"] == pytest.approx((until - row.raised_at).total_seconds() / 3600)
        assert alert["stands"] == pd.isna(row.cleared_at)
        assert alert["seen"] == (mast == "mast-03")
        assert lines[mast].hours == alert["hours"]
    assert lines["mast-02"].alerts == ()


def test_what_was_done_is_of_the_masts_own_month(lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake, tmp_path / "lake")
    at = datetime(2026, 11, 5, 8, tzinfo=UTC)
    marks = [Mark("mast-03", f"cup-{height}m-a", at, None, "iced", "Ada", at) for height in (50, 30)]
    add({"lake": (str(tmp_path / "lake"), None)}, marks)
    file_documents(reader_of(tmp_path / "lake"), "mast-03", {"a/visit.pdf": b"%PDF-1.7"}, "Ada", at + DAY)
    begins = [datetime(2026, 11, 10, 12, tzinfo=UTC)] * 2
    write(tmp_path / "lake", schemas.CHANNELS, {
        "gateway": ["mast-03"] * 2, "channel": ["b.wind_speed", "a.wind_speed"], "cal": ["n", "m"],
        "valid_from": begins, "periods": [[{"begin": each, "end": None}] for each in begins],
    })  # fmt: skip
    report = of_fleet(tmp_path / "lake")
    work = {line.gateway: [row["what"] for row in line.work] for line in report.lines}
    assert work == {
        "mast-01": ["config reloaded"], "mast-04": [],
        "mast-02": ["sensor swapped: cup-50m-a", "commissioned by <b>Ada"],
        "mast-03": ["2 periods marked by Ada: iced", "PDF filed by Ada: visit.pdf",
                    "new calibration: a.wind_speed, b.wind_speed"],
    }  # fmt: skip
    page = write_fleet_page(report, now_ms=LATER_MS, version="1")
    assert "<td>mast-02</td><td>2026-11-04 07:00</td><td>commissioned by &lt;b&gt;Ada</td>" in page
    assert page.count("<td>mast-03</td><td>2026-11-05 13:45</td>") == 1


def test_what_comes_next(lake: Path) -> None:
    lines = by_mast(of_fleet(lake, NOW_MS))
    (expiring,) = lines["mast-01"].expiring
    assert (str(expiring["expires"]), len(expiring["channels"])) == ("2026-12-24", 3)
    assert lines["mast-02"].expiring == ()
    # Neither what is later than 90 days nor what may never come.
    found = {mast: [row["detail"] for row in line.wear] for mast, line in lines.items()}
    assert found == {
        "mast-01": ["at its limit after 40 days"], "mast-02": [], "mast-03": [],
        "mast-04": ["at its limit after 10 days"],
    }  # fmt: skip
    page = write_fleet_page(of_fleet(lake, NOW_MS), now_ms=NOW_MS, version="1")
    trends = page.partition("Trends that")[2].partition("<h2>")[0]
    assert re.findall("<td>(mast-..)</td>", trends) == ["mast-04", "mast-01"]
    # In a month whose end no day of upkeep is near nothing of them is known.
    late = of_fleet(lake, LATER_MS + 40 * 86_400_000, Period.read("2026-12"))
    assert "The table trends has nothing of the week before 2027-01-01." in late.missing


def test_tables_that_a_lake_lacks_are_named_and_the_page_is_there(lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake / "statistics", tmp_path / "statistics")
    report = of_fleet(tmp_path)
    assert {line.gateway: line.period.offset_min for line in report.lines} == dict.fromkeys(OFFSETS, 0)
    for table in ("sites", "channels", "alerts", "trends"):
        assert any(f"The lake has no table {table} yet" in each for each in report.missing), table
    assert "Fleet, November 2026" in write_fleet_page(report, now_ms=LATER_MS, version="1")
    before = of_fleet(lake, period=Period.read("2020-01"))
    assert [line.gateway for line in before.lines if line.shares] == []


def test_of_a_part_of_the_fleet_and_by_the_command(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = read_fleet(reader_of(lake, gateways=["*-02"]), NOVEMBER, now_ms=LATER_MS)
    assert [line.gateway for line in mine.lines] == ["mast-02"]
    out = tmp_path / "f.html"
    assert run(["--lake", str(lake), "--month", "2026-11", "-o", str(out)]) == 0
    assert (capsys.readouterr().out, "http" in out.read_text().replace("http-equiv", "")) == (
        f"{out}\n",
        False,
    )
    assert run(["--lake", str(lake), "--week", "2026-W46", "--interval", "600"]) == 1
    assert "--interval is of a mast's report" in capsys.readouterr().err
