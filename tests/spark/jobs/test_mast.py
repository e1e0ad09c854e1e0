"""``mast``: which records hold in an interval, and the job that follows statistics and records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_jobs.jobs.anomaly import AnomalyJob
from spark_jobs.jobs.maintain import parts
from spark_jobs.jobs.mast import MastJob
from spark_jobs.platform.intervals import changed_spans
from spark_jobs.platform.schemas import CHANNELS, STATISTICS, Table
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table
from spark_jobs.transforms.mast_values import air_density_kgm3, mounted_channels, power_law_exponent
from tests.spark.records import rows_of
from tests.spark.running import run_to_end, started
from tests.support.logger_files import MAPPING, asked, file_in, imported, lines

T0 = datetime(2026, 5, 28, 20, 20, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SINCE = datetime(2026, 1, 1, tzinfo=UTC)
COUNTED = dict.fromkeys(("n_good", "n_not_evaluated", "n_suspect", "n_fail", "n_missing"), 0)


def frame(spark: SparkSession, table: Table, rows: Iterable[dict[str, Any]]) -> DataFrame:
    """Rows of a table; what is not given is null."""
    names = table.schema.names
    return spark.createDataFrame(
        [tuple(row.get(name) for name in names) for row in rows], StructType(table.schema.fields)
    )


def stat(channel: str, avg: float | None, start: datetime = T0, **more: Any) -> dict[str, Any]:
    """A row of ``statistics``, closed."""
    wind = channel.endswith("wind_speed") and avg is not None
    return {
        "gateway": "mast-07", "channel": channel, "interval_s": 600, "interval_start": start,
        "quantity": channel.partition(".")[2], "unit": "x", "avg": avg, "version": 1, "recovery": 1.0,
        "sd": 0.1 * avg if wind and avg else None, "cube_mean": avg**3 if wind and avg else None,
        "count": 0 if avg is None else 600, "date": start.date(), **COUNTED, "n_good": 600, **more,
    }  # fmt: skip


def record(channel: str, height_m: float | None, *periods: Any, **more: Any) -> dict[str, Any]:
    """A row of ``channels``."""
    sensor, _, quantity = channel.partition(".")
    return {
        "gateway": "mast-07", "channel": channel, "cal": "5d1c0a7e", "periods": periods or ((SINCE, None),),
        "revision": 1, "sensor": sensor, "quantity": quantity, "height_m": height_m, **more,
    }  # fmt: skip


def test_no_value_of_the_mast_is_left_where_an_import_was_taken_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = Settings(("mast",), "nowhere:9092", str(tmp_path / "lake"), str(tmp_path / "at"), once=True)
    air = MAPPING[MAPPING.index('[[channel]]\nsensor = "air"') :]
    cup = MAPPING.removesuffix(air)
    fleet = [(cup.replace("old-07", "old-08"), "other.csv"), (cup + air, "logger.csv")]
    for mapping, name in fleet:
        imported(tmp_path, file_in(tmp_path, lines(12), name), mapping=mapping)
    run_to_end(settings, MastJob(spark, settings))
    there = "SELECT gateway, count(*), min(interval_start) FROM mast GROUP BY 1 ORDER BY 1"
    first = datetime(2016, 2, 1, tzinfo=UTC)
    assert asked(tmp_path, there) == [("old-07", 12, first), ("old-08", 12, first)]
    # The logger's clock was UTC: an hour later all along. Another one has its first two intervals, too.
    attic = cup.split("[[channel]]")[0] + air.replace('"air"', '"attic"')
    imported(tmp_path, file_in(tmp_path, lines(2), "attic.csv"), mapping=attic)
    moved = (cup + air).replace("+01:00", "+00:00")
    imported(tmp_path, tmp_path / "logger.csv", mapping=moved, more=["--replace"])
    for _ in range(2):
        run_to_end(settings, MastJob(spark, settings))
        assert asked(tmp_path, there) == [("old-07", 14, first), ("old-08", 12, first)]
    gap = f"SELECT count(*) FROM mast WHERE gateway = 'old-07' AND interval_start < '{first + 60 * MINUTE}'"  # noqa: S608
    assert asked(tmp_path, gap) == [(2,)]


def test_a_lake_of_other_intervals_is_named_with_the_option(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(("mast",), "nowhere:9092", str(tmp_path / "lake"), str(tmp_path / "at"), once=True)
    place = ensure_table(spark, settings, STATISTICS)
    rows = [stat("cup.wind_speed", 7.0, interval_s=length) for length in (300, 90)]
    frame(spark, STATISTICS, rows).write.format("delta").mode("append").save(place)
    for job in (MastJob, AnomalyJob):
        caplog.clear()
        run_to_end(settings, job(spark, settings))
        (hint,) = [each.getMessage() for each in caplog.records if ".no_intervals" in each.getMessage()]
        assert hint.endswith("the lake has none of 10m, but of 90s and 5m: name one by --interval")
    caplog.clear()
    run_to_end(replace(settings, interval_s=300), MastJob(spark, replace(settings, interval_s=300)))
    assert ".no_intervals" not in caplog.text


def test_the_record_in_force_most_of_the_interval_counts(spark: SparkSession) -> None:
    def cup(name: str, *records: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
        return f"{name}.wind_speed", [
            {**each, "channel": f"{name}.wind_speed", "cal": f"{at:08x}"} for at, each in enumerate(records)
        ]

    def at_height(height_m: float, begin: Any, end: Any, revision: int = 1) -> dict[str, Any]:
        return record("x.wind_speed", height_m, (begin, end), revision=revision)

    def minutes(count: float) -> datetime:
        return T0 + count * MINUTE

    cases = dict(
        [
            cup("plain", at_height(50.0, SINCE, None)),
            cup("swapped-early", at_height(50.0, SINCE, minutes(4)), at_height(49.0, minutes(4), None)),
            cup("swapped-late", at_height(50.0, SINCE, minutes(6)), at_height(49.0, minutes(6), None)),
            cup("in-the-middle", at_height(50.0, SINCE, minutes(5)), at_height(49.0, minutes(5), None)),
            # Put back: of two periods of one record the one that counts.
            cup("back", record("x.wind_speed", 50.0, (SINCE, minutes(2)), (minutes(3), None))),
            cup("no-clock", at_height(50.0, None, None), at_height(49.0, minutes(-60), None)),
            cup("newer", at_height(50.0, SINCE, None, 2), at_height(49.0, SINCE, None, 1)),
            cup(
                "written-last",
                at_height(50.0, minutes(-9), None) | {"updated_at": T0},
                at_height(49.0, SINCE, None) | {"updated_at": minutes(1)},
            ),
            cup("ended", at_height(50.0, SINCE, T0)),
            cup("not-yet", at_height(50.0, minutes(10), None)),
            cup("never"),
        ]
    )
    statistics = [stat(channel, 8.0) for channel in cases]
    records = [each for of_channel in cases.values() for each in of_channel]
    of_plain = next(each for each in records if each["channel"] == "plain.wind_speed")
    of_plain["extra"] = '{"imported":"csv","tilt_deg":35.5}'
    records.append(record("never.wind_speed", 99.0, gateway="mast-08"))
    records.append(record("twin.wind_speed", 10.0, pair="plain"))
    statistics += [
        stat("twin.wind_speed", 7.0),
        # What isn't looked at holds nothing up; what is open does.
        stat("gps.location", 1.0, version=0),
        stat("plain.wind_speed", 8.0, T0 + 10 * MINUTE),
        stat("twin.wind_speed", 8.0, T0 + 10 * MINUTE, version=0),
    ]
    (row,) = (
        mounted_channels(
            frame(spark, STATISTICS, statistics).repartition(3), frame(spark, CHANNELS, records), 600
        )
        .toArrow()
        .to_pylist()
    )
    assert (row["gateway"], row["interval_start"]) == ("mast-07", T0)
    found = {each["channel"].partition(".")[0]: each for each in row["channels"]}
    assert {name: each["height_m"] for name, each in found.items()} == {
        "plain": 50.0, "swapped-early": 49.0, "swapped-late": 50.0, "in-the-middle": 49.0, "back": 50.0,
        "no-clock": 49.0, "newer": 50.0, "written-last": 49.0, "ended": None, "not-yet": None,
        "never": None, "twin": 10.0,
    }  # fmt: skip
    assert {name: each["twin"] for name, each in found.items() if each["twin"]} == {
        "twin": "plain.wind_speed"
    }
    assert found["plain"] | {"height_m": 0, "twin": 0} == {
        "channel": "plain.wind_speed", "quantity": "wind_speed", "avg": 8.0, "sd": 0.8, "cube_mean": 512.0,
        "recovery": 1.0, "height_m": 0, "twin": 0, "tilt_deg": 35.5,
    }  # fmt: skip


BEFORE, AFTER = -1, 1
EVER = 1 << 62


def test_a_record_touches_only_where_it_is_another_now(spark: SparkSession) -> None:
    Span = tuple[int, int]  # noqa: N806 - a type
    cases: dict[str, tuple[list[tuple[int, int, list[Span]]], Span | None]] = {
        # Which of two heights, and the record's periods.
        "new": ([(AFTER, 1, [(10, EVER)])], (10, EVER)),
        "two-periods": ([(AFTER, 1, [(10, 20), (30, EVER)])], (10, EVER)),
        "unbounded": ([(AFTER, 1, [(-EVER, EVER)])], (-EVER, EVER)),
        # A revision with nothing new for it: a restart, what the sensor reports of itself.
        "same": ([(BEFORE, 1, [(10, EVER)]), (AFTER, 1, [(10, EVER)])], None),
        "ends": ([(AFTER, 1, [(10, 50)]), (BEFORE, 1, [(10, EVER)])], (50, EVER)),
        # Two commits at once, of which the second takes back the first.
        "back": (
            [
                (BEFORE, 1, [(10, EVER)]),
                (AFTER, 1, [(10, 50)]),
                (BEFORE, 1, [(10, 50)]),
                (AFTER, 1, [(10, 50), (60, EVER)]),
            ],
            (50, 60),
        ),
        "other-height": ([(BEFORE, 1, [(10, EVER)]), (AFTER, 2, [(10, EVER)])], (10, EVER)),
    }
    rows = [
        (name, sign, height, *span)
        for name, (states, _) in cases.items()
        for sign, height, spans in states
        for span in spans
    ]
    given = spark.createDataFrame(rows, "name string, sign int, height int, begin_us bigint, end_us bigint")
    found = changed_spans(given, ["name"], ["height"]).collect()
    wanted = {name: span for name, (_, span) in cases.items() if span is not None}
    assert {row.name: (row.begin_us, row.end_us) for row in found} == wanted


HIGH, DEEP = "vane-48m.wind_direction", "vane-20m.wind_direction"
A, B, LOW = "cup-a.wind_speed", "cup-b.wind_speed", "low.wind_speed"


def interval(start: datetime, a: float | None = 8.0) -> list[dict[str, Any]]:
    channels = {
        A: a,
        B: 7.5,
        LOW: 6.5,
        "dht.temperature": 15.0,
        "baro.pressure": 80.0,
        "sun.irradiance": 600.0,
        HIGH: 4.0,
        DEEP: 350.0,
    }
    return [stat(channel, avg, start) for channel, avg in channels.items()]


def test_the_job_follows_statistics_and_records(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    settings = replace(settings, interval_s=600, once=False, trigger_s=0.02)
    statistics = ensure_table(spark, settings, STATISTICS)
    channels = ensure_table(spark, settings, CHANNELS)

    def add(table: Table, location: str, rows: list[dict[str, Any]]) -> None:
        frame(spark, table, rows).write.format("delta").mode("append").save(location)

    first = interval(T0)
    first[0]["version"] = 0
    gap = [
        {**row, "avg": None, "sd": None, "cube_mean": None, "count": 0, "recovery": 0.0, **COUNTED}
        for row in interval(T0 - 60 * MINUTE)
    ]
    add(STATISTICS, statistics, first + interval(T0 + 10 * MINUTE) + gap + [stat(A, 9.0, interval_s=60)])
    job = MastJob(spark, settings)
    query = started(settings, job)

    def mast() -> dict[int, dict[str, Any]]:
        """By minute after T0."""
        query.processAllAvailable()
        return {
            (row["interval_start"] - T0) // MINUTE: row
            | {name: dict(row[name] or ()) for name in ("turbulence_intensity", "pair_difference", "inputs")}
            for row in rows_of(settings, "mast")
        }

    try:
        # One channel of the first interval is open; in another no reading came. No record: neither heights
        # nor pairs.
        rows = mast()
        assert sorted(rows) == [10]
        rho = air_density_kgm3(15.0, 80.0, 50.0)
        assert (rows[10]["version"], rows[10]["shear_alpha"], rows[10]["pair_difference"]) == (1, None, {})
        assert (rows[10]["air_density"], rows[10]["insolation"]) == (rho, 100.0)
        assert rows[10]["turbulence_intensity"] == pytest.approx({A: 0.1, B: 0.1, LOW: 0.1})

        # It closes, and the records come, one of them in force from the second interval on only.
        DeltaTable.forPath(spark, statistics).update("version = 0", {"version": "1"})
        later = (T0 + 10 * MINUTE, None)
        cups = [record(A, 50.0, pair="cup-b"), record(B, 50.0), record(LOW, 20.0, later)]
        add(CHANNELS, channels, [*cups, record(HIGH, 48.0), record(DEEP, 20.0)])
        rows = mast()
        assert {at: row["version"] for at, row in rows.items()} == {0: rows[0]["version"], 10: 2}
        assert [rows[at]["veer"] for at in (0, 10)] == [0.5, 0.5]
        assert [rows[at]["pair_difference"] for at in (0, 10)] == [{A: 0.5}] * 2
        alpha = power_law_exponent({50.0: 8.0, 20.0: 6.5})
        assert [rows[at]["shear_alpha"] for at in (0, 10)] == [None, alpha]
        assert rows[10]["inputs"]["shear_alpha.50m"] == A

        # A correction of one interval, and a revision of a record that changes nothing here.
        DeltaTable.forPath(spark, statistics).update(
            f"channel = '{A}' and interval_start = timestamp'{T0.isoformat()}'",
            {"avg": "null", "sd": "null", "cube_mean": "null", "version": "version + 1"},
        )
        DeltaTable.forPath(spark, channels).update(f"channel = '{A}'", {"revision": "revision + 1"})
        first_again = rows[0]["version"] + 1
        rows = mast()
        assert {at: row["version"] for at, row in rows.items()} == {0: first_again, 10: 2}
        assert (rows[0]["pair_difference"], set(rows[0]["turbulence_intensity"])) == ({}, {B, LOW})
        DeltaTable.forPath(spark, statistics).update(
            f"channel = '{DEEP}' and interval_start = timestamp'{T0.isoformat()}'",
            {"avg": "336.0", "version": "version + 1"},
        )
        assert [mast()[at]["veer"] for at in (0, 10)] == [1.0, 0.5]
    finally:
        query.stop()

    # A lost checkpoint computes all of it again, at once: it comes out the same, and nothing is written.
    before = rows_of(settings, "mast")
    go_on(spark, replace(settings, checkpoints=str(tmp_path / "lost")))
    assert sorted(map(repr, rows_of(settings, "mast"))) == sorted(map(repr, before))

    # What leaves with its day takes nothing with it.
    DeltaTable.forPath(spark, statistics).delete(f"date <= '{parts(spark, statistics)[-1].date}'")
    assert rows_of(settings, "statistics") == []
    go_on(spark, settings)
    assert sorted(map(repr, rows_of(settings, "mast"))) == sorted(map(repr, before))


def go_on(spark: SparkSession, settings: Settings) -> None:
    """The job from its checkpoint, until it is through."""
    once = replace(settings, once=True)
    run_to_end(once, MastJob(spark, once))
