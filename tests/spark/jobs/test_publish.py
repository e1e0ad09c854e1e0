"""``publish``: each closed row is in Kafka as the table has it, corrections and deletions too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from cloud.config import KafkaConfig
from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.wire.reading_records import DEAD_LETTER_TOPIC
from spark_jobs.jobs.publish import TABLES, PublishJob
from spark_jobs.platform.schemas import ALERTS, EVENTS, MAST, PRESENCE, STATISTICS
from spark_jobs.platform.settings import TOPIC_PATTERN, Settings
from tests.spark.jobs.test_mast import T0, stat
from tests.spark.programs import CHANNELS, Flow, jobs_program
from tests.spark.published import in_postgres, in_table, in_topic, key_of, topic_records
from tests.spark.records import START_US, append_rows, reading
from tests.spark.running import run_to_end
from tests.support.postgres import running_postgres
from tests.support.servers import eventually, unique_name

AT = datetime(2026, 5, 28, 21, 3, 7, 123456, tzinfo=UTC)
CUP, VANE = "cup.wind_speed", "vane.wind_direction"


@pytest.fixture
def place(kafka: LocalBroker, settings: Settings) -> Iterator[Settings]:
    """A fleet of the test's own on the shared broker, with its topics."""
    prefix = f"{unique_name('north')}."
    provision_topics(kafka.bootstrap_servers, partitions=2, replication=1, prefix=prefix)
    given = KafkaConfig.model_validate({"bootstrap_servers": kafka.bootstrap_servers, "prefix": prefix})
    yield replace(settings, bootstrap_servers=kafka.bootstrap_servers, kafka=given)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([name for name in admin.list_topics(timeout=20).topics if name.startswith(prefix)])


def closed(channel: str, avg: float | None, start: datetime = T0, **more: Any) -> dict[str, Any]:
    return {**stat(channel, avg, start), "updated_at": AT, **more}


def fill(spark: SparkSession, settings: Settings) -> None:
    """Rows of every table: numbers that need all digits, what is null, nested and open."""
    later = T0 + timedelta(minutes=10)
    statistics = [closed(CUP, 0.1 + 0.2), closed(CUP, None, later), closed(VANE, 359.99999999999994)]
    append_rows(spark, settings, STATISTICS, [*statistics, closed(VANE, 3.0, later, version=0)])
    mast = {"gateway": "mast-07", "interval_s": 600, "interval_start": T0, "version": 1, "updated_at": AT}
    maps = {"turbulence_intensity": {CUP: 1 / 3, "é\"'\\": 5e-324}, "inputs": {"density": "baro.pressure"}}
    append_rows(spark, settings, MAST, [{**mast, **maps, "shear_alpha": -0.0, "date": T0.date()}])
    seen = {"gateway": "mast-07", "last_seen": AT, "state": "online", "lost": 2**62}
    append_rows(spark, settings, PRESENCE, [{**seen, "channel": name} for name in (CUP, VANE)])
    announced = [{"run": "r1", "seq": 4, "time": AT}, {"run": "r2", "seq": None, "time": AT}]
    event = {
        "gateway": "mast-07",
        "id": "5d1c",
        "time": AT,
        "kind": "site-moved",
        "fields": '{"n":"\\u00e9"}',
    }
    append_rows(spark, settings, EVENTS, [{**event, "announced": announced, "date": AT.date()}])
    alert = {"id": "a1", "rule": "icing", "gateway": "mast-07", "raised_at": AT, "historical": False}
    append_rows(spark, settings, ALERTS, [{**alert, "value": 1e300, "updated_at": AT}])


def assert_published(settings: Settings) -> None:
    for table in TABLES:
        assert in_topic(settings, table) == in_table(settings, table)


def test_topics_hold_what_the_tables_do(spark: SparkSession, place: Settings) -> None:
    fill(spark, place)
    run_to_end(place, PublishJob(spark, place))
    assert_published(place)
    rows = in_topic(place, STATISTICS)
    assert len(rows) == 3
    first = rows[key_of(STATISTICS, {**closed(CUP, 0.0), "interval_start": "2026-05-28T20:20:00.000000Z"})]
    assert (first["avg"], first["updated_at"]) == (0.30000000000000004, "2026-05-28T21:03:07.123456Z")
    assert list(first) == STATISTICS.schema.names

    # A correction twice before it is read, an interval that closes, one taken back, an untouched rest.
    table = DeltaTable.forPath(spark, place.table(STATISTICS.name))
    of_cup = f"channel = '{CUP}' and avg is not null"
    for avg in ("8.5", "8.25"):
        table.update(of_cup, {"avg": avg, "version": "version + 1"})
    table.update("version = 0", {"version": "1"})
    table.delete("avg is null")
    before = len(topic_records(place, STATISTICS))
    run_to_end(place, PublishJob(spark, place))
    assert_published(place)
    new = topic_records(place, STATISTICS)
    assert len(new) - before == 3
    assert [value for _, value in new].count(None) == 1
    corrected = next(row for row in in_topic(place, STATISTICS).values() if row["channel"] == CUP)
    assert (corrected["avg"], corrected["version"]) == (8.25, 3)

    # Kafka's producer would refuse it, and the batch with it.
    long = {"gateway": "mast-07", "id": "long", "time": AT, "kind": "said", "date": AT.date()}
    append_rows(spark, place, EVENTS, [{**long, "fields": json.dumps({"text": "и" * 180_000})}])
    run_to_end(place, PublishJob(spark, place))
    assert len(topic_records(place, STATISTICS)) == len(new)
    events = {row["id"]: row["fields"] for row in in_topic(place, EVENTS).values()}
    assert events == {"5d1c": {"n": "é"}, "long": {}}


@pytest.mark.timeout(900)
def test_topics_and_postgresql_equal_the_lake_after_a_late_hour_and_a_kill(
    place: Settings, tmp_path: Path, full: bool
) -> None:
    if not full:
        pytest.skip("minutes, by five jobs twice: only with --full")
    late_and_killed(place, tmp_path)
    for table in TABLES:
        assert in_topic(place, table) == in_table(place, table)
    versions = [row["version"] for row in in_table(place, STATISTICS).values()]
    assert max(versions) > 1, "nothing was corrected"
    # Skipped where there is none.
    with running_postgres() as postgres:
        for table in TABLES:
            found = topic_records(place, table)
            postgres.take(table.name, found)
            # As after a reset of Connect's offsets: no older row takes a newer one's place.
            postgres.take(table.name, found[: len(found) // 2])
            assert in_postgres(postgres, table) == in_table(place, table)


def late_and_killed(place: Settings, tmp_path: Path) -> None:
    """The jobs as installed are killed while they publish; then an hour comes late and the rest is read."""
    config = tmp_path / "cloud.toml"
    servers = f'bootstrap_servers = "{place.bootstrap_servers}"'
    config.write_text(f'[kafka]\n{servers}\nprefix = "{place.prefix}"\n')
    jobs = ("ingest", "statistics", "mast", "presence", "publish")
    given = replace(place, jobs=jobs, topic_pattern=TOPIC_PATTERN, dead_letter_topic=DEAD_LETTER_TOPIC)
    with Flow(place.bootstrap_servers, f"{place.prefix}mqtt.wind_speed") as flow:
        with jobs_program(given, tmp_path / "killed.log", "--cloud", str(config)) as program:
            program.awaits("event=query.start query=publish")
            eventually(lambda: topic_records(place, STATISTICS), 300)
            program.kill()
        for second in range(0, 3600, 5):
            at_us = START_US + second * 1_000_000 + 500_000
            flow.send(reading(second // 5 + 1, 25.0, channel=CHANNELS[0], run="late", at_us=at_us))
    with jobs_program(given, tmp_path / "rest.log", "--cloud", str(config), "--once") as program:
        assert program.ends(600) == 0, program.log
