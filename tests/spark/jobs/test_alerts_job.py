"""Alerts end to end: Kafka in, Kafka and table out, and the state that outlives a kill."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer
from delta.exceptions import ConcurrentDeleteReadException
from pyspark.sql import SparkSession, functions as F

from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.wire.alert_records import AlertRecord
from cloud.wire.command_records import Command
from cloud.wire.reading_records import ALERTS_TOPIC, COMMANDS_TOPIC, Reading, encode_reading, reading_key
from spark_jobs.alerting.engine import PARTS
from spark_jobs.alerting.feeds import FEEDS
from spark_jobs.alerting.notifications import CROWD, MOST
from spark_jobs.alerting.rules import Recovery
from spark_jobs.jobs.alerts import AlertsJob, StateFiles, collect_samples
from spark_jobs.platform.errors import JobError, SettingsError
from spark_jobs.platform.schemas import ANOMALIES, CHANNELS, PRESENCE, STATISTICS
from spark_jobs.platform.settings import Settings, parse_run
from spark_jobs.sinks.delta import ensure_table
from tests.spark.records import encoded, kafka_frame, reading, rows_of
from tests.spark.running import run_to_end, started
from tests.support.mast import records
from tests.support.servers import unique_name

RULES = """
[[rule]]
name = "hot"
kind = "threshold"
quantity = "temperature"
above = 60.0
clear = 55.0
for = "2s"
message = "{channel} at {value:.0f}"
[rule.command]
action = "stop"
target = "heater"

[[rule]]
name = "recovers"
kind = "recovery"
below = 0.9
"""
S = 1_000_000


@pytest.fixture
def rules_file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    return path


@pytest.fixture
def gateway() -> str:
    """A gateway of the test's own: the topics of alerts and commands are everyone's."""
    return unique_name("mast")


@pytest.fixture
def topic(kafka: LocalBroker, kafka_topic: Callable[..., str]) -> str:
    provision_topics(kafka.bootstrap_servers)
    return kafka_topic("alerts-job")


def send(kafka: LocalBroker, topic: str, readings: list[Reading], *, replayed: bool = False) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all"})
    for item in readings:
        key = reading_key(item.gateway, item.channel)
        headers: list[tuple[str, str | bytes | None]] = [("replayed", b"1")] if replayed else []
        producer.produce(topic, encode_reading(item), key, headers=headers)
    assert producer.flush(30) == 0


def temperatures(gateway: str, start_us: int, values: list[float], first: int = 1) -> list[Reading]:
    return [
        reading(
            first + at,
            value,
            gateway=gateway,
            channel="box.temperature",
            at_us=start_us + (first + at - 1) * S,
        )
        for at, value in enumerate(values)
    ]


def produced(kafka: LocalBroker, topic: str, gateway: str) -> list[bytes]:
    """Values of a gateway's records in the order of their partition."""
    return [
        message.value() or b""
        for message in records(kafka.bootstrap_servers, [topic])
        if (message.key() or b"").decode().partition("/")[0] == gateway
    ]


def alerts(kafka: LocalBroker, gateway: str) -> list[AlertRecord]:
    return [msgspec.json.decode(value, type=AlertRecord) for value in produced(kafka, ALERTS_TOPIC, gateway)]


def rows(settings: Settings, gateway: str) -> list[tuple[Any, ...]]:
    names = ("id", "rule", "channel", "value", "historical", "command_id")
    found = [row for row in rows_of(settings, "alerts") if row["gateway"] == gateway]
    return sorted(
        (
            *(row[name] for name in names),
            round(row["raised_at"].timestamp() * 1e6),
            None if row["cleared_at"] is None else round(row["cleared_at"].timestamp() * 1e6),
        )
        for row in found
    )


def test_once_from_kafka_to_records_and_table_and_again_after_a_lost_checkpoint(
    spark: SparkSession, settings: Settings, kafka: LocalBroker, topic: str, gateway: str, rules_file: Path
) -> None:
    settings = replace(
        settings, bootstrap_servers=kafka.bootstrap_servers, topic_pattern=topic, rules=str(rules_file)
    )
    now_us = time.time_ns() // 1_000_000 * 1000
    start_us = now_us - 60 * S
    send(kafka, topic, temperatures(gateway, start_us, [50, 61, 62, 63, 57, 50, 70]))
    # An hour before, delivered after: history.
    outage = [50.0, 80.0, 80.0, 80.0, 80.0, 50.0]
    send(kafka, topic, temperatures(gateway, start_us - 3600 * S, outage), replayed=True)
    (hot,) = temperatures(gateway, now_us, [99.0])
    send(kafka, topic, [replace(hot, clock="unsynced", quality=3)])

    def run_once(settings: Settings) -> None:
        ensure_table(spark, settings, STATISTICS)
        job = AlertsJob(spark, settings)
        query = started(settings, job)
        query.awaitTermination()
        assert query.exception() is None
        # A closed interval that lost readings, since the job began.
        (
            spark.sql(
                f"select '{gateway}' gateway, 'box.temperature' channel, 60 interval_s, "
                f"timestamp_micros({start_us}) interval_start, 0.5D recovery, 1 version, current_date() date"
            )
            .write.format("delta")
            .mode("append")
            .save(settings.table("statistics"))
        )
        job.finish()

    run_once(settings)
    records = sorted(alerts(kafka, gateway), key=lambda record: record.rule)
    assert [(r.rule, r.state, r.historical, (r.raised_us - start_us) // S, r.value) for r in records] == [
        ("hot", "raised", False, 1, 63.0),
        ("hot", "cleared", False, 1, 50.0),
        ("hot", "raised", True, -3599, 80.0),
        ("hot", "cleared", True, -3599, 50.0),
        ("recovers", "raised", False, 0, 0.5),
    ]
    (command,) = [
        msgspec.json.decode(value, type=Command) for value in produced(kafka, COMMANDS_TOPIC, gateway)
    ]
    assert (command.id, command.action, command.target) == (records[0].command_id, "stop", "heater")
    table = rows(settings, gateway)
    new, old, low = records[0], records[2], records[4]
    assert table == sorted(
        [
            (new.id, "hot", "box.temperature", 63.0, False, command.id, start_us + S, start_us + 5 * S),
            (old.id, "hot", "box.temperature", 80.0, True, None, start_us - 3599 * S, start_us - 3595 * S),
            (low.id, "recovers", "box.temperature", 0.5, False, None, start_us, None),
        ]
    )

    # The checkpoint is lost, the state too: the same ids again, the table as it was.
    run_once(replace(settings, checkpoints=settings.checkpoints + "-lost"))
    assert {record.id for record in alerts(kafka, gateway)} == {record.id for record in records}
    assert {
        msgspec.json.decode(value, type=Command).id for value in produced(kafka, COMMANDS_TOPIC, gateway)
    } == {command.id}
    assert rows(settings, gateway) == table


def test_a_batch_that_runs_again_produces_the_same_bytes(
    spark: SparkSession, settings: Settings, kafka: LocalBroker, gateway: str, rules_file: Path
) -> None:
    provision_topics(kafka.bootstrap_servers)
    settings = replace(settings, bootstrap_servers=kafka.bootstrap_servers, rules=str(rules_file))
    start_us = time.time_ns() // 1_000_000 * 1000 - 10 * S
    values = encoded(temperatures(gateway, start_us, [50, 61, 62, 63]))
    batches = [
        kafka_frame(spark, values, kafka_us=start_us),
        kafka_frame(spark, values[:1], kafka_us=start_us),
    ]
    for number in (0, 0, 1, 1):
        # Each time a process of its own: killed before Spark counted the batch as done.
        AlertsJob(spark, settings).batch(batches[number], number)
    first, again = produced(kafka, ALERTS_TOPIC, gateway)
    assert first == again
    first, again = produced(kafka, COMMANDS_TOPIC, gateway)
    assert first == again
    job = AlertsJob(spark, settings)
    job.write_table()
    assert [row[1:5] for row in rows(settings, gateway)] == [("hot", "box.temperature", 63.0, False)]


BENEATH = """
[[rule]]
name = "hot"
version = "{version}"
kind = "threshold"
quantity = "temperature"
above = 60.0
[[rule]]
name = "twins"
kind = "pair"
difference = 0.5
window = "10s"
"""
ODD = '[[rule]]\nname = "odd"\nkind = "anomaly"\n'


def test_what_changes_beneath_a_running_job(
    spark: SparkSession,
    settings: Settings,
    kafka: LocalBroker,
    gateway: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twins come to be known by the table of channels, scores by theirs; rules change in a batch's midst."""
    provision_topics(kafka.bootstrap_servers)
    file = tmp_path / "rules.toml"
    file.write_text(BENEATH.format(version=1) + ODD)
    settings = replace(settings, bootstrap_servers=kafka.bootstrap_servers, rules=str(file))
    scores, channels = (ensure_table(spark, settings, table) for table in (ANOMALIES, CHANNELS))
    start_us = (time.time_ns() // 10_000_000_000 - 6) * 10 * S

    def twins(first: int, last: int, apart: float) -> list[Reading]:
        return [
            reading(at + 1, 8.0 + apart * (name == "a"), gateway=gateway, channel=f"{name}.wind_speed",
                    at_us=start_us + at * S)
            for at in range(first, last) for name in "ab"
        ]  # fmt: skip

    def batch(number: int, *readings: Reading) -> None:
        job.batch(kafka_frame(spark, encoded(readings), kafka_us=start_us), number)

    job = AlertsJob(spark, settings)
    batch(0, *twins(0, 1, 0.0), *temperatures(gateway, start_us, [61.0]))
    # One of the two names the other.
    spark.sql(f"select '{gateway}' gateway, 'b.wind_speed' channel, 'a' pair, true in_force").write.format(
        "delta"
    ).mode("append").save(channels)
    job._read_twins()
    batch(1, *twins(1, 21, 1.0))
    spark.sql(
        f"select '{gateway}' gateway, 60 interval_s, timestamp_micros({start_us}) interval_start, 2D score, "
        "1D threshold, 1 version, array(named_struct('channel', 'a.wind_speed', 'share', 1D)) channels, "
        "current_date() date"
    ).write.format("delta").mode("append").save(scores)
    job.finish()

    def published() -> set[tuple[Any, ...]]:
        """Rule, its version, whether live, seconds from the start to raised and to cleared."""

        def second(time_us: int | None) -> int | None:
            return None if time_us is None else (time_us - start_us) // S

        return {
            (r.rule, r.rule_version, not r.historical, second(r.raised_us), second(r.cleared_us))
            for r in alerts(kafka, gateway)
        }

    before = {("hot", "1", True, 0, None), ("twins", "1", True, 0, None), ("odd", "1", True, 0, None)}
    assert published() == before
    assert {record.channel for record in alerts(kafka, gateway) if record.rule == "twins"} == {"a.wind_speed"}

    def meanwhile(*arguments: Any) -> Any:
        """The records of the batch are here, and are not judged yet, when the rules are others."""
        samples = collect_samples(*arguments)
        file.write_text(BENEATH.format(version=2))
        job._reload_rules()
        return samples

    monkeypatch.setattr("spark_jobs.jobs.alerts.collect_samples", meanwhile)
    batch(2, *twins(21, 41, 0.0), *temperatures(gateway, start_us, [62.0], first=31))
    job.finish()
    assert published() == before | {
        # Those of rules that are gone end with their last reading.
        ("hot", "1", True, 0, 0),
        ("odd", "1", True, 0, 0),
        # The new version judges the whole batch, and what has not changed goes on.
        ("hot", "2", True, 30, None),
        ("twins", "1", True, 0, 30),
    }
    ended = [row for row in rows_of(settings, "alerts") if row["gateway"] == gateway and row["cleared_at"]]
    assert sorted(row["rule"] for row in ended) == ["hot", "odd", "twins"]


def test_the_default_rules_name_two_gateways_with_one_id(
    spark: SparkSession, settings: Settings, kafka: LocalBroker, gateway: str
) -> None:
    provision_topics(kafka.bootstrap_servers)
    settings = replace(settings, bootstrap_servers=kafka.bootstrap_servers)
    place = ensure_table(spark, settings, PRESENCE)
    job = AlertsJob(spark, settings)

    def judged(state: str) -> None:
        """Both channels of the mast change at once, as the job writes them; another mast is well."""
        of_all = [(gateway, "cup.wind_speed", state), (gateway, "dht.humidity", state)]
        of_all.append((f"{gateway}-other", "cup.wind_speed", "online"))
        rows = spark.createDataFrame(of_all, "gateway string, channel string, state string")
        rows.withColumn("updated_at", F.lit(datetime.now(UTC))).write.format("delta").mode("append").save(
            place
        )
        job.finish()

    judged("cloned")
    judged("cloned")
    (raised,) = alerts(kafka, gateway)
    assert (raised.rule, raised.severity, raised.channel, raised.cleared_us) == (
        "cloned",
        "critical",
        None,
        None,
    )
    assert raised.detail == f"{gateway}: two gateways with this id run at once: a cloned SD card?"
    assert not raised.historical
    judged("online")
    _, cleared = alerts(kafka, gateway)
    assert (cleared.id, cleared.raised_us) == (raised.id, raised.raised_us)
    assert cleared.cleared_us is not None
    assert alerts(kafka, f"{gateway}-other") == []


def test_a_state_that_was_cut_short_is_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "state"
    files = StateFiles(spark, str(place))
    assert files.load() is None
    last = 2 * PARTS + 8
    for number in range(1, last + 1):
        files.save({"number": number, "gateways": {f"mast-{number % PARTS}": number, "each": number}})
    assert sorted(path.name for path in place.iterdir()) == [
        f"{number:020d}" for number in range(9, last + 1)
    ]
    newest = place / f"{last:020d}"
    newest.write_bytes(newest.read_bytes()[:-3])
    again = StateFiles(spark, str(place))
    # Of each gateway what was stored last, however long ago.
    gateways = {f"mast-{number % PARTS}": number for number in range(last - PARTS, last)} | {"each": last - 1}
    assert again.load() == {"v": 2, "number": last - 1, "gateways": gateways}
    again.save({"number": last + 1, "gateways": {}})
    assert StateFiles(spark, place.as_uri()).load() == {"v": 2, "number": last + 1, "gateways": gateways}
    again.save({"v": 1})
    with pytest.raises(JobError, match="is of version 1, not 2: remove the directory"):
        StateFiles(spark, str(place)).load()


def test_each_state_file_has_a_part_of_the_fleet_and_what_changed(
    spark: SparkSession, settings: Settings, kafka: LocalBroker, gateway: str
) -> None:
    provision_topics(kafka.bootstrap_servers)
    settings = replace(settings, bootstrap_servers=kafka.bootstrap_servers)
    fleet = [f"{gateway}-{number}" for number in range(64)]
    start_us = time.time_ns() // 1_000_000 * 1000 - 10 * S
    everyone = [item for name in fleet for item in temperatures(name, start_us, [50])]
    job = AlertsJob(spark, settings)
    job.batch(kafka_frame(spark, encoded(everyone), kafka_us=start_us), 0)
    job.batch(kafka_frame(spark, encoded(temperatures(fleet[5], start_us, [51], 2)), kafka_us=start_us), 1)
    first, second = (state_of(path)["gateways"] for path in sorted(state_folder(settings).iterdir()))
    assert first.keys() == set(fleet)
    assert fleet[5] in second
    assert len(second) <= 1 + 64 // PARTS
    # Also when the files that had all of them are gone.
    for _ in range(2 * PARTS + 8):
        job._save()
    assert stored(AlertsJob(spark, settings)) == stored(job)


def stored(job: AlertsJob) -> Any:
    return msgspec.json.decode(msgspec.json.encode(job._engine.to_state()))


def two_of_each_shard(gateway: str) -> list[str]:
    names = [f"{gateway}-{number}" for number in range(64)]
    return [name for odd in (0, 1) for name in [n for n in names if zlib.crc32(n.encode()) % 2 == odd][:2]]


def test_shards_have_the_alerts_of_one_process_each_once(
    spark: SparkSession, settings: Settings, kafka: LocalBroker, topic: str, gateway: str, rules_file: Path
) -> None:
    rules_file.write_text(RULES.replace('"heater"', '"heater"\nper_hour = 3') + SILENT)
    settings = replace(
        settings, bootstrap_servers=kafka.bootstrap_servers, topic_pattern=topic, rules=str(rules_file)
    )
    fleet = two_of_each_shard(gateway)
    start_us = time.time_ns() // 1_000_000 * 1000 - 60 * S
    for name in fleet:
        send(kafka, topic, temperatures(name, start_us, [61, 62, 63]))
    ensure_table(spark, settings, STATISTICS)
    parts = [replace(settings, shard=(part, 2)) for part in (1, 2)]
    jobs = [AlertsJob(spark, each) for each in parts]
    assert [job.name for job in jobs] == ["alerts-1-of-2", "alerts-2-of-2"]
    spark.sql(
        f"select explode(array{tuple(fleet)}) gateway, 'box.temperature' channel, 60 interval_s, "
        f"timestamp_micros({start_us}) interval_start, 0.5D recovery, 1 version, current_date() date"
    ).write.format("delta").mode("append").save(settings.table("statistics"))
    for job, each in zip(jobs, parts, strict=True):
        run_to_end(each, job)
        # The clock's part: an hour later nothing has come from any of them.
        job._engine.caught_up = True
        job._deliver(job._records(job._engine.evaluate_silence(start_us + 3600 * S), start_us))
        job.write_table()
    found = [(name, alert.rule) for name in fleet for alert in alerts(kafka, name)]
    assert sorted(found) == sorted((name, rule) for name in fleet for rule in ("hot", "recovers", "still"))
    assert {len(rows(settings, name)) for name in fleet} == {3}
    own = [set(job._engine.to_state()) for job in jobs]
    assert [len(each) for each in own] == [2, 2]
    assert own[0] | own[1] == set(fleet)
    # Together they keep the rule's hourly limit.
    commands = [command for name in fleet for command in produced(kafka, COMMANDS_TOPIC, name)]
    assert len(commands) == 3
    with pytest.raises(SettingsError, match="its per_hour is 3, and each of 4 shards"):
        AlertsJob(spark, replace(settings, shard=(1, 4)))


SILENT = """
[[rule]]
name = "still"
kind = "silent"
gateway_after = "2m"
"""


def test_an_alert_whose_beginning_kafka_has_lost_keeps_its_id_without_a_state(
    spark: SparkSession, settings: Settings, kafka: LocalBroker, gateway: str, rules_file: Path
) -> None:
    provision_topics(kafka.bootstrap_servers)
    settings = replace(settings, bootstrap_servers=kafka.bootstrap_servers, rules=str(rules_file))
    start_us = time.time_ns() // 1_000_000 * 1000 - 20 * S

    def batch(job: AlertsJob, number: int, first: int, *values: float) -> None:
        found = encoded(temperatures(gateway, start_us, list(values), first))
        job.batch(kafka_frame(spark, found, kafka_us=start_us), number)

    job = AlertsJob(spark, settings)
    batch(job, 0, 1, 61, 62, 63)
    job.write_table()
    again = AlertsJob(spark, replace(settings, checkpoints=settings.checkpoints + "-lost"))
    batch(again, 0, 4, 64, 65, 66, 67)
    batch(again, 1, 8, 50)
    again.write_table()
    raised, cleared = alerts(kafka, gateway)
    assert (raised.id, raised.state, cleared.state) == (cleared.id, "raised", "cleared")
    assert [row[6:] for row in rows(settings, gateway)] == [(start_us, start_us + 7 * S)]


def test_a_checkpoint_put_back_from_its_copy_has_the_state_with_it(
    spark: SparkSession, settings: Settings, kafka: LocalBroker, topic: str, gateway: str, rules_file: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    settings = replace(
        settings, bootstrap_servers=kafka.bootstrap_servers, topic_pattern=topic, rules=str(rules_file)
    )
    start_us = time.time_ns() // 1_000_000 * 1000 - 20 * S
    # One is raised, of another one the violation has begun.
    send(kafka, topic, temperatures(gateway, start_us, [61, 62, 63]))
    send(kafka, topic, [replace_channel(r) for r in temperatures(gateway, start_us, [50, 70, 70])])
    run_to_end(settings, AlertsJob(spark, settings))
    copy = tmp_path / "copy"
    # Without its id, by which the job would take another batch of the same number for a repeat.
    shutil.copytree(settings.checkpoint("alerts"), copy, ignore=shutil.ignore_patterns("metadata"))
    send(kafka, topic, [replace_channel(r) for r in temperatures(gateway, start_us, [70], first=4)])
    run_to_end(settings, AlertsJob(spark, settings))
    before = alerts(kafka, gateway)
    assert sorted((r.channel, r.state, (r.raised_us - start_us) // S) for r in before) == [
        ("box.temperature", "raised", 0),
        ("lid.temperature", "raised", 1),
    ]
    shutil.rmtree(settings.checkpoint("alerts"))
    shutil.copytree(copy, settings.checkpoint("alerts"))
    send(kafka, topic, temperatures(gateway, start_us, [50], first=5))
    run_to_end(settings, AlertsJob(spark, settings))
    assert {record.id for record in alerts(kafka, gateway)} == {record.id for record in before}
    ended = {row[2]: row[7] is not None for row in rows(settings, gateway)}
    assert ended == {"box.temperature": True, "lid.temperature": False}


def test_rows_that_the_table_does_not_take_wait_and_the_job_goes_on(
    spark: SparkSession, settings: Settings, kafka: LocalBroker, gateway: str, rules_file: Path,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """OPTIMIZE, or the other shards, committed before each of its tries."""
    provision_topics(kafka.bootstrap_servers)
    settings = replace(settings, bootstrap_servers=kafka.bootstrap_servers, rules=str(rules_file))
    start_us = time.time_ns() // 1_000_000 * 1000 - 20 * S
    job = AlertsJob(spark, settings)
    job.batch(
        kafka_frame(spark, encoded(temperatures(gateway, start_us, [61, 62, 63])), kafka_us=start_us), 0
    )

    def conflict(*arguments: object) -> None:
        raise ConcurrentDeleteReadException("OPTIMIZE was first")

    with monkeypatch.context() as patch:
        patch.setattr("spark_jobs.jobs.alerts.merge_alerts", conflict)
        job.tick()
    assert "event=alerts.table_failed rows=1" in caplog.text
    assert rows(settings, gateway) == []
    # A start in between has them too.
    AlertsJob(spark, settings).tick()
    assert [row[1] for row in rows(settings, gateway)] == ["hot"]


def test_a_start_with_other_rules_ends_what_was_withheld_too(
    spark: SparkSession, settings: Settings, kafka: LocalBroker, gateway: str, rules_file: Path
) -> None:
    provision_topics(kafka.bootstrap_servers)
    settings = replace(settings, bootstrap_servers=kafka.bootstrap_servers, rules=str(rules_file))
    start_us = time.time_ns() // 1_000_000 * 1000 - 20 * S
    hot = [
        reading(at, 62.0, gateway=gateway, channel=f"box{box}.temperature", at_us=start_us + at * S)
        for at in range(1, 4)
        for box in range(MOST + 3)
    ]
    job = AlertsJob(spark, settings)
    job.batch(kafka_frame(spark, encoded(hot), kafka_us=start_us), 0)
    rules_file.write_text(RULES.replace('"hot"', '"warm"'))
    again = AlertsJob(spark, settings)
    again.tick()
    found = [(record.rule, record.state) for record in alerts(kafka, gateway)]
    assert Counter(found) == {
        ("hot", "raised"): MOST, ("hot", "cleared"): MOST, (CROWD[0], "raised"): 1, (CROWD[0], "cleared"): 1,
    }  # fmt: skip


def test_the_rules_are_looked_at_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text("[[rule]]\n")
    command = [sys.executable, "-m", "spark_jobs", "run", "alerts", "--rules", str(tmp_path / "r.toml")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=os.environ)
    assert ended.returncode == 2
    # What else a rule needs depends on its kind.
    assert ended.stderr.splitlines() == [f"error: {tmp_path}/r.toml:1: rule[1].kind: is required"]
    assert parse_run(["alerts"]).rules is None


def replace_channel(item: Reading) -> Reading:
    return replace(item, channel="lid.temperature")


def state_folder(settings: Settings) -> Path:
    return Path(settings.checkpoint("alerts")) / "alerts-state"


def state_of(path: Path) -> Any:
    """What a file has; None while it is being written."""
    content = path.read_bytes()
    if hashlib.sha256(content[32:]).digest() != content[:32]:
        return None
    return json.loads(zlib.decompress(content[32:]))


def test_an_outage_of_a_gateway_is_no_low_recovery_of_its_channels(spark: SparkSession) -> None:
    rows = spark.sql("""
        SELECT *, 600 AS interval_s, 1 AS version, DATE '2026-11-18' AS date FROM VALUES
            ('mast-1', 'a', TIMESTAMP '2026-11-18 10:00:00', 0D, 9, 0L),
            ('mast-1', 'b', TIMESTAMP '2026-11-18 10:00:00', 0D, 9, 0L),
            ('mast-1', 'a', TIMESTAMP '2026-11-18 10:10:00', 0D, 9, 0L),
            ('mast-1', 'b', TIMESTAMP '2026-11-18 10:10:00', 0.5D, 1, 0L),
            ('mast-2', 'a', TIMESTAMP '2026-11-18 10:00:00', 0D, 9, 5L)
            AS t(gateway, channel, interval_start, recovery, quality, n_missing)""")
    recovery = next(feed.rows for kind, feed in FEEDS if kind is Recovery)
    # Of mast-1 nothing came at ten; then one of its channels did, and of mast-2 readings without a value.
    found = recovery(rows, rows, 600).selectExpr(
        "gateway", "channel", "start_us % 3600000000 / 6e8", "measure"
    )
    assert sorted(map(tuple, found.collect())) == [
        ("mast-1", "a", 1.0, 0.0), ("mast-1", "b", 1.0, 0.5), ("mast-2", "a", 0.0, 0.0),
    ]  # fmt: skip
    # Each is judged though the others are in no batch with it.
    alone = recovery(rows.where("channel = 'a' and gateway = 'mast-1'"), rows, 600)
    assert [row.start_us % 3_600_000_000 for row in alone.collect()] == [600_000_000]
