"""From a sensor to a table: a recorded mast through pulses, brokers and Spark, against the file itself."""

from __future__ import annotations

import math
import re
import shutil
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.integration import nrg_oracle
from tests.integration.demo_runs import RunningDemo, running_demo
from tests.support.nrg_csv import write_nrg_csv
from tests.support.servers import shared_data

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.timeout(1000)]

PROJECT = Path(__file__).resolve().parents[2]
REAL_FILE = "mast_1s_20min.csv"


def nrg_config(directory: Path, source: str, seconds: int) -> Path:
    """The documented replay config; beside it the real file, or ``seconds`` of the simulated mast."""
    config = directory / "replay-nrg.toml"
    shutil.copy(PROJECT / "docs" / "examples" / "replay-nrg.toml", config)
    file = directory / "mast_1s.csv"
    if source == "generated":
        if shared_data(REAL_FILE) is not None:
            pytest.skip("the real file is there, and holds the same and more")
        start = datetime(2024, 1, 11, 9, 0, tzinfo=UTC)
        write_nrg_csv(file, start, seconds, seed=40, calms=((70, 92), (200, 24)))
    else:
        real = shared_data(source)
        if real is None:
            pytest.skip(f"no shared data: {source}")
        shutil.copy(real, file)
    return config


def check_counts(result: dict[str, Any], seconds: int) -> None:
    """One row for each reading of a file of so many seconds."""
    sampled = {
        channel: math.ceil(seconds / column.period_s) for channel, column in nrg_oracle.COLUMNS.items()
    }
    assert result["channels"] == {
        channel: {"sampled": count, "table_rows": count} for channel, count in sampled.items()
    }
    total = sum(sampled.values())
    assert (result["sampled"], result["table_rows"]) == (total, total)
    assert (result["unaccounted"], result["duplicates"], result["outbox_records"]) == (0, 0, 0)
    assert (result["quarantined"], result["dead_letters"]) == (0, 0)
    assert result["kafka_records"] >= total
    assert result["missing"] == []


def check_statistics(demo: RunningDemo, file: Path) -> None:
    """The statistics table against the file."""
    with demo.lake() as lake:
        table = lake.execute("SELECT * FROM statistics WHERE interval_s = 60").df()
    assert set(table["channel"]) == set(nrg_oracle.COLUMNS)
    for channel, values in nrg_oracle.samples(file).items():
        column = nrg_oracle.COLUMNS[channel]
        expected = nrg_oracle.statistics(values, "1min")
        found = table[table["channel"] == channel].set_index("interval_start").sort_index()
        assert list(pd.DatetimeIndex(found.index).tz_convert("UTC")) == list(expected.index), channel
        assert list(found["count"]) == list(expected["count"]), channel
        for figure in ("avg", "min", "max", "sd"):
            # An error of at most half a step in each value moves the deviation by n/(n−1) of that at most.
            limit = column.tolerance * (math.sqrt(60 / 59) if figure == "sd" else 1.0) + 1e-9
            assert_close(found[figure], expected[figure], limit, f"{figure} of {channel}")
        if column.period_s == 1:
            assert_close(found["gust"], expected["gust"], column.tolerance + 1e-9, f"gust of {channel}")
        else:
            assert found["gust"].isna().all()


def assert_close(found: pd.Series[float], expected: pd.Series[float], limit: float, what: str) -> None:
    worst = max(abs(a - b) for a, b in zip(found, expected, strict=True))
    assert worst <= limit, f"{what} is off by {worst}"


@pytest.mark.parametrize(
    ("source", "seconds", "speed", "outage_s"), [("generated", 300, 20, 5), (REAL_FILE, 1200, 40, 15)]
)
def test_an_outage_of_all_but_the_gateway_loses_nothing(
    tmp_path: Path, source: str, seconds: int, speed: int, outage_s: int, full: bool
) -> None:
    """Kafka stops, Mosquitto and the jobs are killed, all in the midst of sampling."""
    if source == REAL_FILE and not full:
        pytest.skip("minutes of a recorded mast: only with --full")
    config = nrg_config(tmp_path, source, seconds)
    arguments = ("-c", str(config), "--set", f"board.speed={speed}")
    jobs = () if full else ("--jobs", "ingest,statistics")
    with running_demo(tmp_path, *arguments, *jobs) as demo:
        with demo.outage(outage_s, kafka=signal.SIGTERM, mosquitto=signal.SIGKILL, jobs=signal.SIGKILL):
            result = demo.result(800)
        assert demo.described_last()["state"] == "stopped"
        check_counts(result, seconds)
        check_statistics(demo, tmp_path / "mast_1s.csv")
        assert re.search(r"outbox [1-9]", demo.errors()), "the outage was over before anything was stored"
