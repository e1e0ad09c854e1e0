"""Tables and checkpoints that an older version left behind, taken up by the jobs as they are now."""

from __future__ import annotations

import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud.local.kafka_broker import LocalBroker
from spark_jobs.settings import Settings
from tests.spark.programs import assert_tables_hold
from tests.spark.recorded_lake import (
    ALL,
    ARCHIVE,
    CHANNELS,
    FIRST,
    create_topics,
    readings,
    send,
    settings_of,
    take,
)
from tests.spark.records import START_US, contents, rows_of

S = 1_000_000


def test_the_jobs_go_on_in_an_older_versions_lake(
    spark: SparkSession, settings: Settings, kafka: LocalBroker, tmp_path: Path, full: bool
) -> None:
    if not full:
        pytest.skip("only with --full: all queries, several times")
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(tmp_path, filter="data")
    settings = settings_of(settings, kafka, tmp_path)
    (raised,) = rows_of(settings, "alerts")
    assert raised["cleared_at"] is None

    create_topics(kafka)
    # As Kafka had them then, at the same offsets; then all again, and more.
    send(kafka, FIRST, "running")
    send(kafka, ALL, "stopped")
    take(spark, settings, finish=True)

    assert_tables_hold(settings, {item.identity: item for item in readings(ALL)})
    (cleared,) = rows_of(settings, "alerts")
    assert (cleared["id"], cleared["raised_at"]) == (raised["id"], raised["raised_at"])
    assert round(cleared["cleared_at"].timestamp() * 1e6) == START_US + 200 * S
    (run,) = rows_of(settings, "runs")
    assert (run["state"], dict(run["last_seq"])) == ("stopped", dict.fromkeys(CHANNELS, ALL[-1]))
    presence = {row["channel"]: (row["pending"], row["lost"]) for row in rows_of(settings, "presence")}
    assert presence == dict.fromkeys(CHANNELS, (0, 0))
    assert Counter(row["channel"] for row in rows_of(settings, "channels")) == dict.fromkeys(CHANNELS[:2], 1)
    assert len(rows_of(settings, "messages")) == len(rows_of(settings, "quarantine")) == 2

    # What the jobs make of the same records without the old tables.
    fresh = replace(settings, lake=f"{settings.lake}-fresh", checkpoints=f"{settings.checkpoints}-fresh")
    take(spark, fresh, finish=True)
    for table in ("statistics", "mast", "anomalies"):
        assert contents(settings, table) == contents(fresh, table)
