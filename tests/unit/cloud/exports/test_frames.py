"""``fieldgate.open``: its frames have what ``fieldgate export`` and ``fieldgate query`` give of a lake."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from cloud.exports import fieldgate
from cloud.lake.cleaning import Mark, add
from cloud.lake.object_store import for_delta_rs
from spark_jobs.platform import schemas
from tests.support.commands import export
from tests.support.fleet_lake import write, write_fleet
from tests.support.s3 import Moto

END: Final = datetime(2026, 5, 30, tzinfo=UTC)
CUP, VANE = "cup-50m-a.wind_speed", "vane-48m.wind_direction"
ICED: Final = datetime(2026, 5, 28, 3, tzinfo=UTC)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days of two masts; six intervals of one cup are marked, and one mast has readings and events."""
    root = tmp_path_factory.mktemp("frames") / "lake"
    write_fleet(root, 2, 3, end=END)
    times = [ICED - timedelta(seconds=2) + timedelta(seconds=at) for at in range(4)]
    write(root, schemas.READINGS, {
        "gateway": ["mast-01"] * 8, "channel": [CUP] * 4 + [VANE] * 4, "time": times * 2,
        "date": [ICED.date()] * 8, "value": np.arange(8.0), "quality": [1, 3, 1, 1] * 2,
        "clock": ["synced"] * 8,
    })  # fmt: skip
    write(root, schemas.EVENTS, {
        "gateway": ["mast-01"] * 2, "kind": ["upgraded", "site.moved"], "time": [ICED, END],
    })  # fmt: skip
    until = ICED + timedelta(hours=1)
    add({"": (str(root), None)}, [Mark("mast-01", "cup-50m-a", ICED, until, "iced", "A. Analyst", END)])
    return root


@pytest.fixture
def lake(place: Path) -> fieldgate.Lake:
    return fieldgate.open(place)


def test_masts_and_channels_are_listed(lake: fieldgate.Lake) -> None:
    masts = lake.masts().to_pandas().set_index("gateway")
    assert list(masts.index) == ["mast-01", "mast-02"]
    first = masts.iloc[0]
    assert (first["name"], first["utc_offset_min"], first["channels"]) == ("Ridge 1", 345, 12)
    assert first["last"] == END - timedelta(minutes=10)
    channels = lake.channels("mast-01").to_pandas().set_index("channel")
    assert len(channels) == 12
    cup = channels.T[CUP]
    assert (cup["height_m"], cup["slope"], cup["pair"]) == (50.0, 0.765, "cup-50m-b")
    assert lake.channels().table.num_rows == 24


@pytest.mark.parametrize(("options", "left_out"), [({}, 6), ({"cleaned": False, "valid": False}, 0)])
def test_the_wide_form_is_what_export_writes(
    lake: fieldgate.Lake, place: Path, tmp_path: Path, options: dict[str, Any], left_out: int
) -> None:
    words = ["--all", "--uncleaned"] if options else []
    path = tmp_path / "m.parquet"
    given = ["--lake", str(place), "--mast", "mast-01", "--from", "2026-05-28", "--format", "parquet"]
    assert export([*given, "-o", str(path), *words]) == 0
    wide = lake.statistics("mast-01", since="2026-05-28", wide=True, **options)
    assert wide.to_arrow().equals(pq.read_table(path), check_metadata=True)
    frame = wide.to_pandas()
    assert frame.index.name == "interval_start"
    assert frame[f"{CUP}_avg"].isna().sum() == left_out


def test_statistics_are_rows_by_time_and_channel(lake: fieldgate.Lake) -> None:
    one_day: dict[str, Any] = {"since": date(2026, 5, 28), "until": "2026-05-29T00:00"}
    rows = lake.statistics("mast-01", **one_day, channels=[CUP, "vane-*"]).to_pandas()
    assert rows.groupby("channel").size().to_dict() == {
        CUP: 138, VANE: 144, "vane-28m.wind_direction": 144,
    }  # fmt: skip
    assert rows.interval_start.is_monotonic_increasing
    assert str(rows.interval_start.dtype) == "datetime64[us, UTC]"
    wide = lake.statistics("mast-01", **one_day, channels=CUP, wide=True).to_pandas()
    own = rows[rows.channel == CUP].set_index("interval_start")
    pd.testing.assert_series_equal(wide[f"{CUP}_avg"].dropna(), own.avg, check_names=False, check_freq=False)
    assert list(wide.columns) == [f"{CUP}_{each}" for each in ("avg", "sd", "min", "max", "gust", "count")]
    every = lake.statistics("mast-01", **one_day, channels=CUP, cleaned=False)
    assert every.table.num_rows == 144


def test_readings_are_good_and_clean_ones(lake: fieldgate.Lake) -> None:
    rows = lake.readings("mast-01").to_pandas()
    assert list(zip(rows.channel, rows.value, strict=True)) == [
        (CUP, 0.0),
        (VANE, 4.0),
        (VANE, 6.0),
        (VANE, 7.0),
    ]
    assert lake.readings("mast-01", channels="vane-*", valid=False).to_pandas().value.tolist() == [4, 5, 6, 7]
    assert lake.readings("mast-01", cleaned=False, valid=False, since=ICED).table.num_rows == 4
    wide = lake.readings("mast-01", wide=True, valid=False).to_pandas()
    assert wide[VANE].tolist() == [4, 5, 6, 7]
    assert wide[CUP].tolist()[:2] == [0, 1]
    assert wide[CUP].isna().tolist() == [False, False, True, True]


def test_values_of_several_channels_are_columns(lake: fieldgate.Lake) -> None:
    mast = lake.mast("mast-01", since="2026-05-29").to_pandas()
    (row,) = lake.sql(
        f"SELECT shear_alpha, turbulence_intensity['{CUP}'] AS ti FROM mast "  # noqa: S608
        "WHERE gateway = 'mast-01' AND interval_start = '2026-05-29T12:00:00Z'"
    ).to_arrow().to_pylist()  # fmt: skip
    noon = mast.loc[pd.Timestamp("2026-05-29T12:00Z")]
    assert noon["shear_alpha"] == row["shear_alpha"]
    assert noon[f"{CUP}_turbulence_intensity"] == row["ti"]
    assert len(mast) == 144
    assert "inputs" not in mast


def test_a_lake_in_a_bucket_is_the_same(lake: fieldgate.Lake, place: Path, tmp_path: Path) -> None:
    with Moto(tmp_path) as store:
        uri = f"s3://{store.make_bucket()}/lake"
        for table in ("statistics", "channels"):
            rows = DeltaTable(place / table).to_pyarrow_table()
            write_deltalake(f"{uri}/{table}", rows, storage_options=for_delta_rs(store.options()))
        bucket = fieldgate.open(uri, cloud=store.config(tmp_path / "cloud.toml", uri))
        asked: dict[str, Any] = {"since": "2026-05-29", "cleaned": False, "wide": True}
        here, there = (each.statistics("mast-01", **asked).to_arrow() for each in (lake, bucket))
        assert there.equals(here, check_metadata=True)
        assert bucket.masts().to_pandas().gateway.tolist() == ["mast-01", "mast-02"]


def test_events_and_alerts_are_those_of_a_time(lake: fieldgate.Lake) -> None:
    assert lake.events("mast-01", until=END).to_pandas().kind.tolist() == ["upgraded"]
    assert lake.events(since=END).to_pandas().kind.tolist() == ["site.moved"]
    assert lake.alerts().table.num_rows == 0
    assert repr(lake.alerts()).startswith("0 rows of id, rule, ")


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (lambda lake: lake.statistics("mast-1"), "no mast mast-1 in the lake, which has mast-01, mast-02"),
        (lambda lake: lake.events("mast-1"), "did you mean mast-"),
        (lambda lake: lake.statistics("mast-01", channels="cup-9*"), "has no channel cup-9* then; it has"),
        (lambda lake: lake.statistics("mast-01", interval="1h"), "have intervals of 600s"),
        (lambda lake: lake.statistics("mast-01", since="soon"), "since 'soon' is no time such as"),
        (lambda lake: lake.alerts(since=END, until=END), "it isn't included, write the day after"),
        (lambda lake: lake.statistics("mast-01", since="2027-01-01"), "there are some from 2026-05-27 00:00"),
        (lambda lake: lake.sql("FROM nowhere"), "no table nowhere in the lake"),
        (lambda lake: lake.sql("SELECT avg FROM statistics WHERE"), "syntax error"),
        (lambda lake: fieldgate.open("./nowhere"), "no lake at ./nowhere: no such directory"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_said_with_what_is(
    lake: fieldgate.Lake, question: Callable[[fieldgate.Lake], object], words: str
) -> None:
    with pytest.raises(fieldgate.CloudError) as refused:
        question(lake)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_without_its_extra_it_names_the_remedy() -> None:
    blocked = "import sys; sys.modules['duckdb'] = None; import cloud.exports.fieldgate"
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=False)
    assert "needs the extra analyst" in done.stderr
    assert done.stderr.endswith("pip install 'fieldgate[analyst]'\n")
