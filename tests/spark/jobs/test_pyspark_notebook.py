"""The notebook of plain PySpark: tables as they are, and windows of a live stream as Python makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from cloud.local.kafka_broker import LocalBroker
from cloud.wire.reading_records import encode_reading, reading_key
from spark_jobs.platform.schemas import CHANNELS, STATISTICS
from spark_jobs.platform.settings import Settings
from tests.spark.jobs.test_mast import stat
from tests.spark.records import START_US, append_rows, reading
from tests.support.notebooks import code_of


def test_its_figures_are_those_of_the_same_rows_and_readings(
    spark: SparkSession, kafka: LocalBroker, kafka_topic: Callable[..., str], settings: Settings
) -> None:
    cup = "cup.wind_speed"
    closed = [{**stat(cup, avg), "count": n, "max": avg + 1} for avg, n in ((6.0, 600), (9.0, 300))]
    append_rows(spark, settings, STATISTICS, [*closed, {**stat(cup, 99.0), "version": 0}])
    mounted = {"gateway": "mast-07", "channel": cup, "height_m": 50.0}
    append_rows(
        spark,
        settings,
        CHANNELS,
        [
            {**mounted, "cal": cal, "in_force": cal == "b", "height_m": h}
            for cal, h in (("a", 40.0), ("b", 50.0))
        ],
    )
    topic = kafka_topic("readings")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for seq in range(1, 200):
        for _ in range(1 + (seq % 10 == 0)):
            item = reading(seq, seq / 7, quality=3 if seq % 50 == 0 else 1)
            producer.produce(topic, encode_reading(item), reading_key(item.gateway, item.channel))
    producer.produce(topic, b"\0 no reading")
    assert producer.flush(60) == 0

    code = code_of("pyspark.ipynb")
    places = {'"lake"': f'"{settings.lake}"', "127.0.0.1:9092": kafka.bootstrap_servers}
    for given, ours in (places | {r"mqtt\.(?!raw$).+": topic}).items():
        assert code.count(given) == 1
        code = code.replace(given, ours)
    found: dict[str, Any] = {}
    exec(compile(code, "pyspark.ipynb", "exec"), found)  # noqa: S102 - the page's own lines
    (row,) = found["means"].to_dict("records")
    assert (row["channel"], row["height_m"], row["intervals"], row["mean"]) == (cup, 50.0, 2, 7.0)
    assert row["most"] == 10.0
    expected = []
    for minute in range(2):
        seqs = [seq for seq in range(60 * minute + 1, 60 * minute + 61) if seq % 50]
        start_s = START_US // 1_000_000 + 60 * minute
        expected.append((start_s, pytest.approx(sum(seqs) / 7 / len(seqs), rel=1e-12), len(seqs)))
    live = found["live"]
    starts = [round(each.timestamp()) for each in live.start.dt.tz_localize("UTC")]
    assert list(zip(starts, live["mean"], live.n, strict=True)) == expected
    assert not found["query"].isActive
