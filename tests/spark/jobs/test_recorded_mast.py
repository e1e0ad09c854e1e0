"""A recorded mast from its file to the pages: import, the job `mast`, the served CSV files, beside pandas."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud.local.process import free_port
from spark_jobs.jobs.mast import MastJob
from spark_jobs.platform.settings import Settings
from tests.spark.running import run_to_end
from tests.support.fleet_lake import reader_of
from tests.support.recorded_views import MAST, Comparison, import_recording
from tests.support.servers import eventually, shared_data

BEGIN, LAST_DAYS = "2016-02-01", "2016-07-27"


@contextmanager
def served(lake: str, log: Path) -> Iterator[str]:
    """The pages' address."""
    address = f"127.0.0.1:{free_port()}"
    # NiceGUI takes itself for a test of its own where it finds pytest's variable.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = (sys.executable, "-m", "gateway.cli", "dashboard", "--lake", lake, "--listen", address)
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=env)
        try:
            eventually(log.read_text, 60, until=lambda text: f"http://{address}/" in text)
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(20)


def test_three_months_of_an_imported_mast_are_what_pandas_has(
    spark: SparkSession, settings: Settings, tmp_path: Path, full: bool
) -> None:
    if not full:
        pytest.skip(
            "only with --full: tests/unit/cloud/dashboard/test_recorded.py has five days, without Spark"
        )
    path = shared_data("mast_10min_3months.csv.gz")
    if path is None:
        pytest.skip("no shared data: mast_10min_3months.csv.gz")
    recording = import_recording(path, tmp_path)
    settings = replace(settings, lake=str(tmp_path / "lake"), interval_s=600)
    run_to_end(settings, MastJob(spark, settings))
    reader = reader_of(Path(settings.lake))
    with served(settings.lake, tmp_path / "dashboard.log") as url:

        def ask(chart: str, query: Mapping[str, str]) -> str:
            address = f"{url}/csv/mast/{MAST}/{chart}?{urllib.parse.urlencode(query)}"
            with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - http
                return str(answer.read().decode())

        compared = Comparison(recording, ask, reader)
        for begin in (BEGIN, LAST_DAYS):
            compared.all_of_it(begin)
        compared.fleet()
    print(compared)  # noqa: T201 - shown with -s, and where it fails
    assert sum(compared.values.values()) > 3_000_000
