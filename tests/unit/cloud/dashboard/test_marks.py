"""Marks from the pages: who may, what charts are then made of, and that nothing is deleted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deltalake import DeltaTable

from cloud.config import DashboardUser
from cloud.dashboard.audience import Audience
from cloud.dashboard.charts import VALUE, marked, series as drawn_series
from cloud.dashboard.marks import MarkBook, of_channel
from cloud.dashboard.views import Request, draw, open_view
from cloud.errors import CloudError
from cloud.lake.cleaning import marks
from cloud.lake.mast import DAY_MS
from cloud.lake.numbers import series, summary
from cloud.lake.reader import LakeReader
from tests.support.fleet_lake import write_fleet

CUP, TWIN = "cup-50m-a.wind_speed", "cup-50m-b.wind_speed"
PERIOD = {"sensor": CUP, "start": "2026-11-19T06:05", "stop": "2026-11-19T18:00", "reason": "iced"}


@pytest.fixture
def lakes(tmp_path: Path) -> dict[str, tuple[str, None]]:
    write_fleet(tmp_path / "lake", 2, 2, end=datetime(2026, 11, 21, tzinfo=UTC))
    return {"lake": (str(tmp_path / "lake"), None)}


def reader_of(lakes: Any, *masts: str) -> LakeReader:
    made = LakeReader(lakes, masts or ("*",))
    made.look()
    return made


def rows_of(lakes: Any) -> Any:
    rows = DeltaTable(f"{lakes['lake'][0]}/statistics").to_pandas()
    return rows[rows.gateway == "mast-01"].sort_values("interval_start")


def test_a_marked_period_is_shaded_and_left_out_of_what_is_clean(lakes: Any) -> None:
    reader = reader_of(lakes)
    book = MarkBook(reader, "olga")
    assert book.of("mast-01") == []
    book.mark("mast-01", PERIOD)
    assert book.mark("mast-01", PERIOD) == []
    reader.look()
    (mark,) = book.of("mast-01")
    times = datetime(2026, 11, 19, 6, 5, tzinfo=UTC), datetime(2026, 11, 19, 18, tzinfo=UTC)
    begin, end = (int(at.timestamp() * 1000) for at in times)
    assert (mark["begin_at"], mark["end_at"], mark["reason"], mark["author"]) == (begin, end, "iced", "olga")

    whole, clean = (open_view(reader, Request("mast-01", CUP, is_clean=each)) for each in (False, True))
    rows = rows_of(lakes)
    starts = rows.interval_start.astype("int64") // 1000
    outside = ~((rows.channel == CUP) & (starts + 600_000 > begin) & (starts < end))
    mean = summary(clean).dicts()[0]["mean"]
    assert mean == pytest.approx(rows[outside & (rows.channel == CUP)].avg.mean(), rel=1e-12)
    assert summary(whole).dicts()[0]["mean"] == pytest.approx(rows[rows.channel == CUP].avg.mean(), rel=1e-12)
    made = series(clean, CUP, clean.span.begin_ms, clean.span.end_ms)
    gap = [row["time"] for row in made.dicts() if row["value"] is None]
    assert gap == [at for at in made.column("time") if at + 600_000 > begin and at < end]
    assert len(gap) == 72

    # Of `mast` what is made of the marked channel: its turbulence and the shear, not its twin's.
    counts = "SELECT count(shear_alpha), count(air_density), count(turbulence_intensity[?]) FROM mast"
    (all_,), (twins,) = (each.held.read(counts, [TWIN]).rows for each in (whole, clean))
    assert twins == (all_[0] - 72, all_[1], all_[2])
    left = "SELECT epoch_ms(interval_start) FROM mast WHERE turbulence_intensity[?] IS NOT NULL"
    assert not set(gap) & {at for (at,) in clean.held.read(left, [CUP]).rows}
    assert set(gap) & {at for (at,) in whole.held.read(left, [CUP]).rows}
    assert isinstance(draw(clean, "wind-rose"), dict)

    bands = marked(of_channel(book.of("mast-01"), CUP), clean.span.end_ms)
    options = drawn_series(made, CUP, "m/s", begin, end, is_direction=False, bands=bands)
    assert options["series"][VALUE]["markArea"]["data"] == [
        [{"name": "iced", "xAxis": begin}, {"xAxis": end}]
    ]
    assert of_channel(book.of("mast-01"), TWIN) == []


def test_of_a_sensor_of_the_whole_mast_and_without_an_end() -> None:
    given = [
        {"channel": channel, "begin_at": 1, "end_at": None, "reason": "r" * 40}
        for channel in ("*", "cup-50m-a", "cup-50m", CUP)
    ]
    found = of_channel(given, CUP)
    assert [each["channel"] for each in found] == ["*", "cup-50m-a", CUP]
    assert marked(found, 99)["data"][0] == [{"name": "r" * 23 + "…", "xAxis": 1}, {"xAxis": 99}]


def test_a_mark_is_taken_back_with_a_reason_and_stays_in_the_log(lakes: Any) -> None:
    reader = reader_of(lakes)
    book = MarkBook(reader, "olga")
    (mark,) = book.mark("mast-01", PERIOD | {"sensor": "all", "stop": ""})
    reader.look()
    with pytest.raises(CloudError, match="A reason is noted"):
        book.withdraw("mast-01", mark.id, " ")
    with pytest.raises(CloudError, match="mast-02 has no such mark"):
        book.withdraw("mast-02", mark.id, "wrong")
    book.withdraw("mast-01", mark.id, "wrong")
    reader.look()
    assert book.of("mast-01") == []
    assert np.isfinite(summary(open_view(reader, Request("mast-01", is_clean=True))).dicts()[0]["mean"])
    log = DeltaTable(f"{lakes['lake'][0]}/cleaning").to_pandas()
    assert sorted(log.withdrawn) == [False, True]


def test_who_does_not_have_the_mast_or_the_right_marks_nothing(lakes: Any) -> None:
    password = f"scrypt:{'A' * 22}:{'A' * 43}"
    users = {
        "olga": DashboardUser(password=password, marks=True),
        "anna": DashboardUser(password=password, marks=True, gateways=["*-02"]),
        "ida": DashboardUser(password=password),
    }
    audience = Audience(lakes, users)
    audience.look()
    (mark,) = audience.marks("olga").mark("mast-01", PERIOD)
    audience.look()
    for user in ("anna", "ida"):
        with pytest.raises(CloudError, match="You may not mark mast-01"):
            audience.marks(user).mark("mast-01", PERIOD | {"reason": "mine"})
        with pytest.raises(CloudError, match="You may not mark mast-01"):
            audience.marks(user).withdraw("mast-01", mark.id, "mine")
    assert audience.marks("anna").of("mast-01") == []
    with pytest.raises(CloudError, match="mast-02 has no such mark"):
        audience.marks("anna").withdraw("mast-02", mark.id, "another mast's")
    assert [(each.author, each.reason) for each in marks(lakes)] == [("olga", "iced")]
    audience.marks("anna").mark("mast-02", PERIOD)
    assert len(marks(lakes)) == 2


def test_the_days_of_a_clean_view_without_a_log_are_all(lakes: Any) -> None:
    view = open_view(reader_of(lakes), Request("mast-01", is_clean=True))
    made = series(view, CUP, view.span.begin_ms, view.span.end_ms)
    assert len(made.rows) == 2 * DAY_MS // 600_000
    assert None not in made.column("value")
