"""The numbers of the views beside pandas, from the same tables read as they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cloud.dashboard.fleet import FleetReader
from cloud.dashboard.lists import link_of_row, read_lists
from cloud.dashboard.live import LiveReader
from cloud.dashboard.views import Request, open_view
from cloud.lake.events import happenings
from cloud.lake.mast import FOREVER_MS, details
from cloud.lake.numbers import CHARTS, View, summary
from cloud.lake.reader import Frame, LakeReader
from spark_jobs.platform import schemas
from tests.support.fleet_lake import reader_of, write, write_fleet

END = datetime(2026, 11, 21, tzinfo=UTC)
MAST = "mast-03"
CUP, TWIN, SUN = "cup-50m-a.wind_speed", "cup-50m-b.wind_speed", "pyranometer.irradiance"
VANE = "vane-48m.wind_direction"
OFFSET = pd.Timedelta(minutes=345)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pandas") / "lake"
    write_fleet(root, 3, 4, end=END, seed=11)
    write_anomalies(root)
    write_rejects_and_runs(root)
    return root


PAYLOADS = [b'{"value": %d}', b"\xff\x00%d", b"<img src=x onerror=alert(%d)>"]


def write_rejects_and_runs(root: Path) -> None:
    """Rejects of two reasons, one as numbers only; runs, the first of which has dropped something."""
    n = 21
    write(root, schemas.QUARANTINE, {
        "reason": ["NOT_JSON" if at % 3 else "FORGED" for at in range(n)] + ["OVERFLOW"],
        "gateway": [f"mast-0{1 + at % 2}" for at in range(n)] + [MAST], "source": ["ingest"] * (n + 1),
        "payload": [PAYLOADS[at % 3] % at for at in range(n)] + [None],
        "payload_bytes": [len(PAYLOADS[at % 3] % at) for at in range(n)] + [None],
        "kafka_time": [END - timedelta(minutes=7 * at % 31) for at in range(n + 1)],
        "overflow": [None] * n + [1000],
    })  # fmt: skip
    counts = pa.map_(pa.string(), pa.int64())
    reset = {"run": "ba9876543210", "end": "reset", "lost_at_most_s": 12.5}
    write(root, schemas.RUNS, {
        "gateway": [MAST] * 3, "run": ["0123456789ab", "0123456789ac", "0123456789ad"],
        "started": [END + timedelta(hours=each) for each in (1, 3, 4)], "boot": ["b1", "b1", "b2"],
        "reported_at": [END + timedelta(hours=each) for each in (2, 4, 5)], "state": ["running"] * 3,
        "last_seq": pa.array([[(CUP, 700), (VANE, 34)], [(CUP, 1)], [(CUP, 2)]], counts),
        "dropped_records": pa.array([[("FULL", 40), ("TOO_OLD", 2)], [], []], counts),
        "drops_unknown": [True, False, False], "in_flight": [5] * 3, "outbox_records": [60] * 3,
        "updated_at": [END] * 3, "unfinished": [[reset], [reset], []],
    })  # fmt: skip


def write_anomalies(root: Path) -> None:
    """Half of them above their threshold; the last ones are of a lake without a model, by rules alone."""
    chance = np.random.default_rng(5)
    n = 60
    starts = [END - timedelta(minutes=10 * (1 + at // 3)) for at in range(n)]
    shares = [[{"channel": VANE, "share": 0.62}, {"channel": CUP, "share": 0.25}] for _ in range(n)]
    write(root, schemas.ANOMALIES, {
        "gateway": [f"mast-0{1 + at % 3}" for at in range(n)], "interval_s": [600] * n,
        "interval_start": starts, "date": [each.date() for each in starts],
        "score": np.where(np.arange(n) < 50, chance.random(n) * 2, np.nan), "threshold": [1.0] * n,
        "channels": [each if at < 50 else [] for at, each in enumerate(shares)],
        "rules": [[] if at < 50 else [f"STUCK:{CUP}"] for at in range(n)], "version": [1] * n,
    })  # fmt: skip


@pytest.fixture(scope="module")
def reader(lake: Path) -> LakeReader:
    return reader_of(lake)


@pytest.fixture(scope="module")
def view(reader: LakeReader) -> View:
    return open_view(reader, Request(MAST, begin="2026-11-17"))


def table(lake: Path, name: str) -> pd.DataFrame:
    found: pd.DataFrame = DeltaTable(str(lake / name)).to_pyarrow_table().to_pandas()
    return found


@pytest.fixture(scope="module")
def rows(lake: Path) -> pd.DataFrame:
    return table(lake, "statistics")


@pytest.fixture(scope="module")
def wide(rows: pd.DataFrame) -> pd.DataFrame:
    """The mast's means by time and channel; of intervals with half of their samples."""
    valid = rows[(rows.gateway == MAST) & (rows.recovery >= 0.5)]
    return valid.pivot_table(index="interval_start", columns="channel", values="avg")


@pytest.fixture(scope="module")
def of_mast(lake: Path) -> pd.DataFrame:
    found = table(lake, "mast")
    return found[found.gateway == MAST].set_index("interval_start").sort_index()


def times(frame: pd.DataFrame, ahead: pd.Timedelta = OFFSET) -> pd.DatetimeIndex:
    """When the rows begin, by the site's clock."""
    return pd.DatetimeIndex(frame.index) + ahead


def by(frame: Frame, *keys: str) -> pd.DataFrame:
    found = pd.DataFrame(frame.dicts())
    return found.set_index(list(keys)).sort_index()


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), rtol=1e-9, atol=1e-12)


def test_the_rose_and_the_day(view: View, wide: pd.DataFrame) -> None:
    both = wide[[CUP, VANE]].dropna()
    sector = ((both[VANE] + 11.25) % 360 // 22.5 * 22.5).rename("sector")
    speeds = (both[CUP] // 3 * 3).clip(upper=15).rename("from_mps")
    expected = both[CUP].groupby([sector, speeds]).agg(["size", "mean"])
    made = by(CHARTS["wind-rose"](view), "sector", "from_mps")
    assert list(made.index) == list(expected.index)
    close(made.intervals, expected["size"])
    close(made.share, expected["size"] / len(both))
    close(made.mean_speed, expected["mean"])
    cup = wide[[CUP]].dropna()
    hours = cup[CUP].groupby([times(cup).strftime("%Y-%m"), times(cup).hour])
    expected = pd.concat([hours.mean(), hours.quantile(0.1), hours.quantile(0.9), hours.size()], axis=1)
    close(by(CHARTS["diurnal"](view), "month", "hour")[["mean", "p10", "p90", "intervals"]], expected)


def test_twins_by_time_and_by_direction(view: View, wide: pd.DataFrame) -> None:
    both = wide[[CUP, TWIN]].dropna()
    made = by(CHARTS["pair"](view), "time")
    close(made.index, [each.timestamp() * 1000 for each in pd.DatetimeIndex(both.index)])
    close(made, both)
    turning = wide[[CUP, TWIN, VANE]].dropna()
    turning = turning[turning[[CUP, TWIN]].min(axis=1) > 3]
    ratio = (turning[CUP] / turning[TWIN]).groupby((turning[VANE] + 5) % 360 // 10 * 10).agg(["mean", "size"])
    shadow = by(CHARTS["shadow"](view), "sector")
    assert list(shadow.index) == [10.0 * at for at in range(36)]
    close(shadow.ratio.dropna(), ratio["mean"])
    judged = ratio[ratio["size"] >= 10]["mean"]
    close(shadow.relative.dropna(), judged / judged.median())


def test_sun_and_shear(view: View, wide: pd.DataFrame, of_mast: pd.DataFrame) -> None:
    sun = wide[[SUN]].dropna()
    expected = sun[SUN].groupby(times(sun).hour + times(sun).minute / 60).agg(["mean", "max"])
    made = by(CHARTS["irradiance"](view), "day", "hour").reset_index()
    at_each = made.groupby("hour")[["mean", "highest"]].first()
    close(at_each.index, expected.index)
    close(at_each, expected)
    close(made.value, sun[SUN])
    assert list(made.day) == list(times(sun).strftime("%Y-%m-%d"))
    days = of_mast.insolation.groupby(times(of_mast).strftime("%Y-%m-%d"))
    insolation = by(CHARTS["insolation"](view), "day")
    assert list(insolation.index) == list(days.groups)
    close(insolation, days.agg(["sum", "count"]))
    shear = by(CHARTS["shear"](view), "height_m")
    cups = [f"cup-{height}m-a.wind_speed" for height in (20, 30, 50)]
    together = wide[cups].dropna()
    close(shear.mean_speed, together[together.min(axis=1) > 3].mean())
    close(shear.shear_alpha, [of_mast.shear_alpha.mean()] * 3)
    close(shear.intervals, [of_mast.shear_alpha.count()] * 3)


def test_the_tiles(view: View, rows: pd.DataFrame, wide: pd.DataFrame, of_mast: pd.DataFrame) -> None:
    here = rows[rows.gateway == MAST]
    cup = here[here.channel == CUP]
    intensity = [dict(each)[CUP] for each in of_mast.turbulence_intensity if CUP in dict(each)]
    (found,) = summary(view).dicts()
    expected = {
        "mean": wide[CUP].mean(), "gust": cup.gust.max(), "highest": cup["max"].max(),
        "recovery": here.recovery.mean(), "ti": np.mean(intensity), "alpha": of_mast.shear_alpha.mean(),
        "density": of_mast.air_density.mean(), "insolation": of_mast.insolation.sum(),
    }  # fmt: skip
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_fleet_and_the_pipeline(reader: LakeReader, lake: Path, rows: pd.DataFrame) -> None:
    fleet = pd.DataFrame(FleetReader(reader, LiveReader(None, ())).read().masts).set_index("gateway")
    close(fleet.month, rows.groupby("gateway").recovery.mean())
    last = rows[rows.interval_start > rows.interval_start.max() - pd.Timedelta(hours=24)]
    close(fleet.day, last.groupby("gateway").recovery.mean())
    presence, alerts = table(lake, "presence"), table(lake, "alerts")
    sums = presence.groupby("gateway")[["pending", "lost"]].sum()
    close(fleet[["waiting", "lost"]], sums)
    is_open = alerts[alerts.cleared_at.isna()]
    close(fleet.alerts, is_open.groupby("gateway").size().reindex(fleet.index, fill_value=0))
    top = presence[(presence.channel == TWIN) & (presence.state == "online")].set_index("gateway").last_value
    close(fleet.wind, top.reindex(fleet.index))
    found = {**read_lists(reader, "Pipeline"), **read_lists(reader, "Alerts")}
    frames = {name: each for name, each in found.items() if isinstance(each, Frame)}
    assert set(frames) == set(found)
    fresh = by(frames["Freshness"], "gateway")
    seen = presence.groupby("gateway")[["last_seen", "last_time"]].max()
    way_s = (seen.last_seen - seen.last_time).dt.total_seconds()
    close(fresh.way_s, way_s)
    close(fresh[["pending", "lost"]], sums)
    (statistics,) = frames["Statistics"].dicts()
    newest = rows.interval_start.max().timestamp() * 1000
    assert (statistics["newest_interval_at"], statistics["open"], statistics["corrected"]) == (newest, 0, 0)
    assert len(frames["Open alerts"].rows) == len(is_open)
    assert len(frames["Runs"].rows) == len(table(lake, "runs"))


def test_alerts_and_anomalies_lead_to_the_charts_about_them(reader: LakeReader, lake: Path) -> None:
    found = read_lists(reader, "Alerts")
    alerts, anomalies = found["Open alerts"], found["Anomalies above their threshold"]
    assert isinstance(alerts, Frame)
    assert isinstance(anomalies, Frame)
    (alert,) = alerts.dicts()
    raised = table(lake, "alerts").set_index("gateway").raised_at[MAST].tz_convert("UTC")
    hours = (raised + pd.Timedelta(hours=each) for each in (-3, 3))
    begin, end = (each.strftime("%Y-%m-%dT%H%%3A%M") for each in hours)
    assert link_of_row({**alert, "channel": CUP}) == f"/mast/{MAST}?channel={CUP}&from={begin}&to={end}"
    assert link_of_row({**alert, "channel": None}) == f"/mast/{MAST}?from={begin}&to={end}"
    asked = Request(MAST, CUP, *(each.replace("%3A", ":") for each in (begin, end)))
    span = open_view(reader, asked).span
    assert span.begin_ms < alert["raised_at"] < span.end_ms
    rows = table(lake, "anomalies")
    rows = rows[(rows.score > rows.threshold) | (rows.rules.str.len() > 0)]
    assert 20 < len(rows) < 50
    expected = rows.groupby("gateway").score.agg(["size", "sum"])
    close(by(anomalies, "gateway").groupby("gateway").score.agg(["size", "sum"]), expected)
    of_mast = details(reader, MAST)["Anomalies"]
    assert isinstance(of_mast, Frame)
    assert of_mast.rows == [row[1:] for row in anomalies.rows if row[0] == MAST]
    said = {(row["channel"], row["deviating"], row["rules"]) for row in of_mast.dicts()}
    assert said == {(VANE, f"{VANE} 62 %, {CUP} 25 %", ""), (CUP, "", f"STUCK:{CUP}")}
    assert of_mast.column("interval_start_at") == sorted(of_mast.column("interval_start_at"), reverse=True)


def frames_of(reader: LakeReader, title: str) -> dict[str, Frame]:
    return {name: each for name, each in read_lists(reader, title).items() if isinstance(each, Frame)}


def test_what_became_of_all_readings(reader: LakeReader, lake: Path) -> None:
    found = frames_of(reader, "Pipeline")
    runs, presence = table(lake, "runs"), table(lake, "presence")
    runs["sampled"] = [sum(count for _, count in each) for each in runs.last_seq]
    made = by(found["What became of all readings"], "gateway")
    missing = presence.groupby("gateway")[["pending", "announced", "lost"]].sum()
    close(made.sampled, runs.groupby("gateway").sampled.sum())
    close(made[["waiting", "dropped", "lost"]], missing)
    close(made.drop(columns="sampled").sum(axis=1), made.sampled)
    of_runs = by(found["Runs"], "gateway", "run")
    close(of_runs.sampled, runs.set_index(["gateway", "run"]).sort_index().sampled)
    (newest,) = (each for each in found["Runs"].dicts() if each["run"] == "0123456789ab")
    assert (newest["sampled"], newest["dropped"], newest["drops_unknown"]) == (734, 42, True)
    assert of_runs.dropped.sum() == 42


def test_rejects_by_reason_and_their_newest_payloads(reader: LakeReader, lake: Path) -> None:
    found = frames_of(reader, "Pipeline")
    rows = table(lake, "quarantine")
    counts = rows.overflow.fillna(1).groupby(rows.reason).sum()
    by_reason = by(found["Quarantine by reason"], "reason")
    close(by_reason.records, counts)
    times = rows.groupby("reason").kafka_time.agg(["min", "max"])
    for column, name in (("min", "oldest_at"), ("max", "newest_at")):
        close(by_reason[name], [each.timestamp() * 1000 for each in times[column]])
    stored = rows[rows.overflow.isna()].sort_values(["reason", "kafka_time"], ascending=[True, False])
    newest = stored.groupby("reason").head(5)
    shown = found["Quarantined payloads"]
    assert shown.column("reason") == list(newest.reason)
    assert shown.column("gateway") == list(newest.gateway)
    texts = [f"0x{each.hex().upper()}" if each[0] == 0xFF else each.decode() for each in newest.payload]
    assert shown.column("payload") == texts
    assert any(each.startswith("0x") for each in texts)


def test_a_users_pages_have_their_masts_alone(lake: Path) -> None:
    reader = reader_of(lake, gateways=["mast-01"])
    for title in ("Alerts", "Pipeline"):
        for name, frame in frames_of(reader, title).items():
            if "gateway" in frame.columns:
                assert set(frame.column("gateway")) <= {"mast-01"}, name
    (rejected,) = {row["gateways"] for row in frames_of(reader, "Pipeline")["Quarantine by reason"].dicts()}
    assert rejected == 1
    assert "mast-03" not in str([details(reader, "mast-03"), read_lists(reader, "Pipeline")])


def test_events_are_the_runs_starts_ends_drops_and_breaks_the_newest_first(
    reader: LakeReader, lake: Path
) -> None:
    events = happenings(reader, MAST, 0, FOREVER_MS)
    assert events.missing == ["The lake has no table events yet; fieldgate jobs run ingest fills it."]
    assert events.is_whole
    shown = [(each.at_ms, each.kind, each.text) for each in events.found]
    began = (END + timedelta(hours=1)).timestamp() * 1000
    told, run = began + 3_600_000, "0123456789ab"
    assert shown[:7] == [
        (told + 7_200_000, "started", "run 0123456789ad: the machine had booted"),
        (told + 3_600_000, "started", "run 0123456789ac: the machine had not stopped"),
        (told, "dropped", f"run {run}: 2 records until then: TOO_OLD"),
        (told, "dropped", f"run {run}: 40 records until then: FULL"),
        (told, "drops unknown", f"run {run}: perhaps more than is known"),
        (began, "found to have been reset", "run ba9876543210: lost at most 12.5 s"),
        (began, "started", f"run {run}"),
    ]
    rows = table(lake, "runs")
    rows = rows[(rows.gateway == MAST) & ~rows.run.str.startswith("0123456789a")]
    expected = [(at, "started", f"run {each}") for at, each in zip(rows.started, rows.run, strict=True)]
    ended = rows[rows.ended.notna()]
    expected += zip(ended.ended, ended.state, "run " + ended.run, strict=True)
    expected.sort(reverse=True)
    assert [(at, kind, text.partition(":")[0]) for at, kind, text in shown[7:]] == [
        (at.timestamp() * 1000, event, each) for at, event, each in expected
    ]
