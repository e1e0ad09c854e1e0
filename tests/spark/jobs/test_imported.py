"""Imported rows beside the jobs: `mast` computes with them, none computes them again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.jobs.mast import MastJob
from spark_jobs.jobs.statistics import StatisticsJob
from spark_jobs.platform.settings import Settings
from spark_jobs.transforms.mast_values import power_law_exponent
from tests.spark.records import START_US, append_readings, reading, rows_of
from tests.spark.running import run_to_end
from tests.support.commands import import_files as run

START = datetime.fromtimestamp(START_US / 1e6, UTC)
MINUTE = timedelta(minutes=1)
MAPPING = """
[file]
gateway = "mast-07"
format = "csv"
time = "t"
interval = "1m"
scan = "1s"
stamps = "start"
utc_offset = "+00:00"
[[channel]]
sensor = "cup"
quantity = "wind_speed"
avg = "v"
sd = "s"
height_m = 40.0
[[channel]]
sensor = "top"
quantity = "wind_speed"
avg = "w"
sd = "s"
height_m = 80.0
"""
SAMPLES = """
[file]
gateway = "old-08"
format = "csv"
time = "t"
interval = "1s"
stamps = "start"
utc_offset = "+00:00"
[[channel]]
sensor = "cup"
quantity = "wind_speed"
avg = "v"
"""


def imported(settings: Settings, folder: Path, mapping: str, lines: list[str]) -> None:
    (folder / "mapping.toml").write_text(mapping)
    (folder / "file.csv").write_text("\n".join(lines))
    options = ["--mapping", str(folder / "mapping.toml"), "--lake", settings.lake]
    assert run([*options, str(folder / "file.csv")]) == 0


def by_minute(settings: Settings, channel: str = "cup.wind_speed") -> dict[int, dict[str, Any]]:
    """Rows of a channel of mast-07 by minute from START on."""
    return {
        (row["interval_start"] - START) // MINUTE: row
        for row in rows_of(settings, "statistics")
        if (row["gateway"], row["channel"]) == ("mast-07", channel)
    }


def test_jobs_compute_with_imported_rows_and_leave_them(
    spark: SparkSession, settings: Settings, tmp_path: Path, full: bool
) -> None:
    if not full:
        pytest.skip("only with --full: tests/unit/cloud/importing has the tables, in both orders")
    # The tables are made by the import. The logger was there before the gateway, and in its gap.
    times = [START + MINUTE * at for at in range(-5, 15) if at not in (0, 1)]
    lines = ["t,v,w,s", *(f"{at:%Y-%m-%d %H:%M:%S},5.0,6.0,0.5" for at in times)]
    imported(settings, tmp_path, MAPPING, lines)
    seconds = (START + timedelta(seconds=at) for at in range(120))
    samples = [f"{at:%Y-%m-%d %H:%M:%S},{3 + at.second % 2}" for at in seconds]
    imported(settings, tmp_path, SAMPLES, ["t,v", *samples])
    before = by_minute(settings)
    assert sorted(before) == [*range(-5, 15)]

    # The gateway's own, before and after the gap; and two late ones of a minute that the logger has whole.
    append_readings(spark, settings, [reading(seq) for seq in (*range(1, 121), 305, 306, *range(901, 961))])
    run_to_end(settings, StatisticsJob(spark, settings))
    after = by_minute(settings)
    assert {at: after[at] for at in before if at not in (0, 1)} == {
        at: row for at, row in before.items() if at not in (0, 1)
    }
    assert [after[at]["n_not_evaluated"] for at in (0, 1, 15)] == [0, 0, 0]
    assert [after[at]["count"] > 0 for at in (0, 1, 15)] == [True] * 3
    assert set(by_minute(settings, "top.wind_speed")) == set(before)
    of_samples = [row for row in rows_of(settings, "statistics") if row["gateway"] == "old-08"]
    assert [(row["count"], row["avg"], row["n_not_evaluated"]) for row in of_samples] == [(60, 3.5, 60)] * 2

    run_to_end(settings, MastJob(spark, settings))
    values = {
        (row["interval_start"] - START) // MINUTE: row
        for row in rows_of(settings, "mast")
        if row["gateway"] == "mast-07"
    }
    assert set(values) == set(after)
    assert values[-3]["shear_alpha"] == power_law_exponent({40.0: 5.0, 80.0: 6.0})
    assert dict(values[-3]["turbulence_intensity"])["cup.wind_speed"] == 0.1
