"""``jobs size``: the estimate follows the fleet, by a count or by what the lake has."""

from __future__ import annotations

from datetime import date

import pytest
from pyspark.sql import SparkSession

from spark_jobs.jobs import size
from spark_jobs.platform.errors import SettingsError
from spark_jobs.platform.schemas import READINGS
from spark_jobs.platform.settings import Settings, parse_command
from spark_jobs.sinks.delta import ensure_table, write


def test_a_larger_fleet_needs_more_and_a_slower_one_less(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*argv: str) -> dict[str, str]:
        size.main(*parse_command("size", argv))
        lines = capsys.readouterr().out.splitlines()
        return {line[:18].strip(): line[18:].strip() for line in lines[:-1]}

    few, many = printed("--masts", "10"), printed("--masts", "1000")
    assert few["fleet"] == "10 masts, 120 channels, 120 readings a second"
    cores = [float(each["all jobs, live"].split()[0]) for each in (few, many)]
    disk = [float(each["lake, 30 days"].split()[0].replace(",", "")) for each in (few, many)]
    assert (cores[0] < cores[1], round(disk[1] / disk[0], -1)) == (True, 100)
    assert printed("--masts", "1000", "--every", "1m")["fleet"].endswith(
        "12,000 channels, 200 readings a second"
    )
    assert printed("--masts", "10", "--channels", "20")["fleet"].startswith("10 masts, 200 channels")


def test_a_lake_says_what_its_fleet_is(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Running:
        """The tests' session, which doesn't end."""

        def __init__(self, settings: Settings, app: str) -> None: ...
        def __enter__(self) -> SparkSession:
            return spark

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(size, "running_session", Running)
    with pytest.raises(SettingsError, match="is no table: name another --lake, or give --masts"):
        size._of_lake(settings)
    place = ensure_table(spark, settings, READINGS)
    with pytest.raises(SettingsError, match="has no reading: "):
        size._of_lake(settings)
    days = [(date(2026, 11, 1), 1), (date(2026, 11, 2), 86_400), (date(2026, 11, 3), 7)]
    for day, count in days:
        rows = spark.range(count).selectExpr(
            "concat('mast-', id % 3) as gateway", "concat('cup-', id % 2, '.wind_speed') as channel",
            f"date '{day}' as date", "'r1' as run", "id as seq",
        )  # fmt: skip
        write(rows, place)
        if day.day == 1:
            with pytest.raises(SettingsError, match="has no reading of the day before 2026-11-01: "):
                size._of_lake(settings)
    fleet = size._of_lake(settings)
    assert (fleet.masts, fleet.channels, fleet.rate) == (3, 6, 1.0)
    assert 0 < fleet.reading_bytes < 50


def test_misuse_is_named() -> None:
    with pytest.raises(SettingsError, match="--masts, --channels and --every must be above 0"):
        size.main(*parse_command("size", ["--masts", "0"]))
