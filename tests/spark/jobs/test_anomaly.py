"""From changed statistics to scores: with and without a model, a model swapped, late data, restarts."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession, functions as F
from pyspark.sql.types import StringType, StructField, StructType

from spark_jobs.anomaly.model import ModelStore, Packed
from spark_jobs.anomaly.training import Choices, train
from spark_jobs.jobs.anomaly import AnomalyJob, CurrentModels
from spark_jobs.jobs.train import train_models
from spark_jobs.platform.errors import JobError
from spark_jobs.platform.files import Files
from spark_jobs.platform.schemas import STATISTICS
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table
from spark_jobs.transforms.anomaly import touched, windows
from tests.spark.records import rows_of
from tests.spark.running import run_to_end, started
from tests.support.anomaly_mast import CUPS, INTERVAL_S, START, dead_cup, statistics_table, weather

TRAINED_DAYS = 12
DAYS = 14
STEP = timedelta(seconds=INTERVAL_S)
DEATH = START + timedelta(days=13, hours=3)
LATE = START + timedelta(days=12, hours=5)
DEAD, ABSENT = CUPS[2], CUPS[1]
GATEWAY = "mast-07"


@pytest.fixture(scope="module")
def packed() -> Packed:
    """A model of the mast's first days."""
    mast = weather(DAYS, seed=1)
    rows = np.arange(len(mast.avg)) < TRAINED_DAYS * 144
    none = np.zeros(TRAINED_DAYS * 144, dtype=bool)
    made = train(GATEWAY, INTERVAL_S, mast.observations().rows(rows), mast.starts_s[rows], none, Choices())
    return Packed(GATEWAY, "v1", made.model.document(), made.network())


def append(spark: SparkSession, location: str, rows: pa.Table) -> None:
    spark.createDataFrame(rows).coalesce(1).write.format("delta").mode("append").save(location)


def moment_of(row: int) -> datetime:
    return START + row * STEP


def anomalies(settings: Settings) -> dict[datetime, dict[str, Any]]:
    return {row["interval_start"]: row for row in rows_of(settings, "anomalies")}


def logged(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if f"event={event} " in record.getMessage()]


def test_scores_follow_the_statistics_and_the_current_model(
    spark: SparkSession, settings: Settings, packed: Packed, caplog: pytest.LogCaptureFixture, full: bool
) -> None:
    caplog.set_level(logging.INFO, "fieldgate")
    settings = replace(settings, interval_s=INTERVAL_S, once=False)
    mast = weather(DAYS, seed=1)
    dead_cup(mast, DEAD, DEATH)
    late, trained_until = mast.at(LATE), TRAINED_DAYS * 144

    def rows(begin: int, end: int) -> pa.Table:
        """Without one cup's late interval, and without another's last day."""
        return statistics_table(
            mast,
            GATEWAY,
            lambda row, channel: (
                begin <= row < end
                and not (row == late and channel == CUPS[0])
                and not (channel == ABSENT and row >= mast.at(DEATH) + 72)
            ),
        )

    table = ensure_table(spark, settings, STATISTICS)
    append(spark, table, rows(0, trained_until))
    query = started(settings, AnomalyJob(spark, settings))
    try:
        # No model yet: the rules alone, logged once.
        query.processAllAvailable()
        found = anomalies(settings)
        assert sorted(found) == [moment_of(row) for row in range(trained_until)]
        assert {(row["score"], row["model_version"], row["version"]) for row in found.values()} == {
            (None, None, 1)
        }
        assert len(logged(caplog, "anomaly.no_model")) == 1

        store = ModelStore(Files(spark), settings.models)
        store.publish("v1", [packed], lambda: "# Card")
        # The next batch takes it up; the query runs on.
        append(spark, table, rows(trained_until, len(mast.avg)))
        query.processAllAvailable()
        assert query.isActive
        assert len(logged(caplog, "anomaly.no_model")) == 1
        found = anomalies(settings)
        assert len(found) == len(mast.avg)
        new = [row["model_version"] for at, row in found.items() if at >= moment_of(trained_until)]
        assert set(new) == {"v1"}
        assert {at for at, row in found.items() if row["score"] is None} == set(
            map(moment_of, range(trained_until))
        )

        # Found within two hours of its death, and named.
        alarms = [
            at for at, row in sorted(found.items()) if (row["score"] or 0.0) > (row["threshold"] or 1.0)
        ]
        assert DEATH <= min(at for at in alarms if at >= DEATH) <= DEATH + timedelta(hours=2)
        assert len([at for at in alarms if at < DEATH]) <= 3
        hour = found[DEATH + timedelta(hours=1)]
        assert hour["channels"][0]["channel"] == DEAD
        assert hour["rules"] == [f"dead:{DEAD}"]
        assert hour["missing"] == []

        # The cup that is absent from then on is named as missing; the dead one is still found.
        end = found[moment_of(len(mast.avg) - 1)]
        assert end["missing"] == [ABSENT]
        assert end["score"] > end["threshold"]
        assert end["channels"][0]["channel"] == DEAD

        # A late row corrects its interval and the two that follow it, and no other; by now another
        # model is current, and theirs.
        before = anomalies(settings)
        assert before[LATE]["missing"] == [CUPS[0]]
        second = "v1-copy"
        store.publish(second, [replace(store.load(GATEWAY, "v1"), version=second)], lambda: "# Copy")
        assert store.current() == {GATEWAY: second}
        append(
            spark,
            table,
            statistics_table(mast, GATEWAY, lambda row, channel: row == late and channel == CUPS[0]),
        )
        query.processAllAvailable()
        found = anomalies(settings)
        assert {at for at in found if found[at] != before[at]} == {LATE, LATE + STEP, LATE + 2 * STEP}
        assert (found[LATE]["missing"], found[LATE]["version"], found[LATE]["model_version"]) == (
            [],
            2,
            second,
        )
    finally:
        query.stop()

    # Lost checkpoints: all is scored again by the current model, and the second time nothing changes.
    once = replace(settings, once=True)
    kept = []
    for loss in ("lost", "again") if full else ("lost",):
        lost = replace(once, checkpoints=f"{settings.checkpoints}-{loss}")
        run_to_end(lost, AnomalyJob(spark, lost))
        kept.append(sorted(map(repr, rows_of(settings, "anomalies"))))
    assert kept[0] == kept[-1]
    assert {row["model_version"] for row in rows_of(settings, "anomalies")} == {second}


def among(channels: tuple[str, ...], row: int, channel: str) -> bool:
    return channel in channels


def test_a_gateway_too_young_for_a_model_gets_that_of_its_like(
    spark: SparkSession, settings: Settings, caplog: pytest.LogCaptureFixture, full: bool
) -> None:
    if not full:
        pytest.skip("only with --full: scores are by a model of its own")
    caplog.set_level(logging.INFO, "fieldgate")
    settings = replace(settings, interval_s=INTERVAL_S)
    table = ensure_table(spark, settings, STATISTICS)
    weeks = {GATEWAY: weather(8, seed=1), "mast-08": weather(2, seed=2), "mast-09": weather(2, seed=3)}
    for gateway, mast in weeks.items():
        few = gateway == "mast-09"
        append(
            spark, table, statistics_table(mast, gateway, partial(among, CUPS[:2] if few else mast.channels))
        )
    # The same channels in another unit are no like.
    knots = statistics_table(weather(2, seed=4), "mast-11")
    append(spark, table, knots.append_column("unit", pa.array(["kn"] * len(knots))))
    end = START + timedelta(days=8)
    version = train_models(spark, settings, (START, end), [], [], Choices(), "test")
    store = ModelStore(Files(spark), settings.models)
    assert store.current() == {GATEWAY: version, "mast-08": version}
    own, young = (json.loads(store.load(gateway, version).document) for gateway in (GATEWAY, "mast-08"))
    assert (own["gateway"], own["facts"]["gateways"], own["facts"]["days"]) == (GATEWAY, 1, 8)
    assert (young["gateway"], young["facts"]["gateways"], young["facts"]["days"]) == ("mast-08", 2, 10)
    assert "mast-09 has 288 clean intervals" in logged(caplog, "train.left_out")[0]
    assert "mast-11 has 288 clean intervals" in logged(caplog, "train.left_out")[1]
    card = (Path(settings.models) / version / "card.md").read_text()
    section = card.partition("## mast-08\n")[2].splitlines()
    assert {"- gateways: 2", "- intervals: 1440", "- days: 10"} <= set(section)
    with pytest.raises(JobError, match="mast-09 has 288 clean intervals of 600 s on 2 days"):
        train_models(spark, settings, (START, end), ["mast-09"], [], Choices(), "test")
    with pytest.raises(JobError, match="mast-10 has no closed intervals of 600 s"):
        train_models(spark, settings, (START, end), ["mast-10"], [], Choices(), "test")


def entry(
    minute: int, channel: str, *, interval_s: int = 60, version: int = 1, n_fail: int = 0
) -> dict[str, Any]:
    return {
        "gateway": GATEWAY,
        "channel": channel,
        "interval_s": interval_s,
        "interval_start": START + timedelta(minutes=minute),
        "avg": float(minute),
        "sd": None,
        "max": 9.0,
        "sum": None,
        "changes": None,
        "recovery": 1.0,
        "count": 30,
        "n_suspect": 10,
        "n_fail": n_fail,
        "version": version,
    }


def test_which_intervals_are_scored_and_what_they_look_back_on(spark: SparkSession) -> None:
    def frame(rows: list[dict[str, Any]]) -> DataFrame:
        kinds = {
            name: STATISTICS.schema[name].dataType for name in rows[0] if name in STATISTICS.schema.names
        }
        columns = [StructField(name, kinds.get(name, StringType())) for name in rows[0]]
        return spark.createDataFrame([Row(**row) for row in rows], StructType(columns))

    def minutes(rows: DataFrame) -> list[int]:
        found = rows.select(F.unix_seconds("interval_start").alias("at_s")).collect()
        return sorted((row.at_s - int(START.timestamp())) // 60 for row in found)

    changes = frame(
        [
            entry(10, "a.wind_speed") | {"_change_type": "update_postimage"},
            entry(10, "b.wind_speed") | {"_change_type": "insert"},
            entry(20, "a.wind_speed") | {"_change_type": "update_preimage"},
            entry(30, "a.wind_speed", version=0) | {"_change_type": "insert"},
            entry(40, "a.wind_speed", interval_s=600) | {"_change_type": "insert"},
        ]
    )
    assert minutes(touched(changes, 60)) == [10, 11, 12]

    statistics = frame(
        [
            entry(8, "a.wind_speed"),
            entry(9, "a.wind_speed", version=0),
            entry(10, "b.wind_speed", n_fail=20),
            entry(10, "a.wind_speed"),
            entry(11, "a.wind_speed", interval_s=600),
        ]
    )
    # A config's own too: by their rows alone.
    others = [
        entry(10, "v.heading") | {"max": None},
        entry(10, "p.flow") | {"sum": 300.0},
        entry(10, "p.running") | {"changes": 0},
    ]
    (row,) = windows(frame([*others, entry(10, "w.level")]), None, 60).collect()
    assert row.channel == ["p.flow", "p.running", "v.heading", "w.level"]
    assert [str(value) for value in row.avg] == ["nan", "nan", "nan", "10.0"]
    assert row.doubted == [0.25] * 4

    rows = windows(statistics, touched(changes, 60), 60)
    assert minutes(rows) == [10]
    (row,) = rows.collect()
    assert (row.lag, row.channel) == ([0, 0, 2], ["a.wind_speed", "b.wind_speed", "a.wind_speed"])
    assert (row.avg, row.max, row.doubted) == ([10.0, 10.0, 8.0], [9.0, 9.0, 9.0], [0.25, 0.5, 0.25])
    assert [str(value) for value in row.sd] == ["nan"] * 3
    assert minutes(windows(statistics, None, 60)) == [8, 10]


def test_models_that_cannot_be_used_are_refused_and_the_one_before_stays(
    spark: SparkSession, settings: Settings, packed: Packed, caplog: pytest.LogCaptureFixture
) -> None:
    settings = replace(settings, interval_s=INTERVAL_S)
    store = ModelStore(Files(spark), settings.models)
    assert store.current() == {}
    store.publish("v1", [packed, replace(packed, gateway="mast-08")], lambda: "# Card")
    assert (Path(settings.models) / "v1" / "card.md").read_text() == "# Card"
    assert sorted(path.name for path in Path(settings.models).iterdir() if path.suffix != ".crc") == [
        "current-000001.json", "v1",
    ]  # fmt: skip
    models = CurrentModels(spark, settings)
    assert models.of([GATEWAY]) == {GATEWAY: packed}

    # Of another gateway alone: the others keep theirs.
    damaged = replace(packed, version="v2", network=packed.network[:100])
    store.publish("v2", [damaged], lambda: "# Card")
    assert store.current() == {GATEWAY: "v2", "mast-08": "v1"}
    assert models.of([GATEWAY]) == {GATEWAY: packed}
    assert models.of([GATEWAY]) == {GATEWAY: packed}
    assert len(logged(caplog, "anomaly.model_refused")) == 1
    store.activate({GATEWAY: "v3"})
    assert models.of([GATEWAY]) == {GATEWAY: packed}
    assert "v3/mast-07.json is missing" in logged(caplog, "anomaly.model_refused")[1]
    # One that was cut short is passed over.
    (Path(settings.models) / "current-000004.json").write_text('{"mast-07": "v1"')
    assert store.current() == {GATEWAY: "v3", "mast-08": "v1"}
    assert "current-000004.json is no JSON object" in logged(caplog, "models.passed_over")[0]
    for pointer in Path(settings.models).glob("current-*"):
        pointer.write_text("{")
    assert models.of([GATEWAY]) == {GATEWAY: packed}
    assert "is no JSON object" in logged(caplog, "anomaly.models_unreadable")[0]

    # Trained for ten minutes, needed for one.
    (Path(settings.models) / "current-000005.json").write_text(json.dumps({GATEWAY: "v1"}))
    other = CurrentModels(spark, replace(settings, interval_s=60))
    assert other.of([GATEWAY]) == {}
    assert "is of 600-s intervals" in logged(caplog, "anomaly.model_refused")[-1]


def test_without_onnxruntime_the_rules_are_left(
    spark: SparkSession, settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(JobError, match=r"no table of statistics at .*run the jobs first"):
        train_models(spark, settings, (START, START + STEP), [], [], Choices(), "test")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    models = CurrentModels(spark, replace(settings, interval_s=INTERVAL_S))
    assert models.of([GATEWAY]) == {}
    assert "pip install 'fieldgate[anomaly]'" in logged(caplog, "anomaly.rules_only")[0]
    with pytest.raises(JobError, match=r"training needs onnxruntime: pip install 'fieldgate\[anomaly\]'"):
        train_models(spark, settings, (START, START + STEP), [], [], Choices(), "test")
