"""The jobs end to end: from a real Kafka to the answer of a query."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client.parser import text_string_to_metric_families

from cloud.local.kafka_broker import LocalBroker
from cloud.wire.reading_records import Reading, encode_reading, reading_key
from spark_jobs.platform.settings import Settings
from tests.spark.programs import QUICK
from tests.spark.records import START_US, reading, rows_of
from tests.support.servers import eventually, unique_name

M = 60_000_000


def rows(settings: Settings) -> dict[int, tuple[int, int, float | None]]:
    """Version, count and average by minute after START_US."""
    return {
        (round(row["interval_start"].timestamp() * 1e6) - START_US) // M: (
            row["version"],
            row["count"],
            row["avg"],
        )
        for row in rows_of(settings, "statistics")
    }


@pytest.fixture
def topics(kafka: LocalBroker) -> Iterator[tuple[str, str]]:
    """Names of a reading topic and a dead-letter topic that no other test uses; they don't exist yet."""
    name = unique_name("jobs")
    yield f"{name}.wind_speed", f"{name}.dead"
    AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).delete_topics(
        [f"{name}.wind_speed", f"{name}.dead"]
    )


def create(kafka: LocalBroker, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    created = admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1) for name in names])
    for future in created.values():
        future.result(30)


def produce(kafka: LocalBroker, topic: str, records: Iterable[Reading | bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all"})
    for item in records:
        if isinstance(item, Reading):
            producer.produce(topic, encode_reading(item), reading_key(item.gateway, item.channel))
        else:
            producer.produce(topic, item, b"any")
    assert producer.flush(30) == 0


def with_topics(settings: Settings, kafka: LocalBroker, topics: tuple[str, str]) -> Settings:
    prefix = topics[0].removesuffix(".wind_speed")
    return replace(
        settings,
        bootstrap_servers=kafka.bootstrap_servers,
        topic_pattern=f"{prefix}\\..+",
        dead_letter_topic=topics[1],
    )


@pytest.mark.timeout(900)
def test_the_program_follows_new_topics_and_stops_on_sigterm(
    settings: Settings, kafka: LocalBroker, topics: tuple[str, str], tmp_path: Path
) -> None:
    settings = with_topics(settings, kafka, topics)
    words = "run all --interval 1m --trigger 2s --open-every 5s --metrics 127.0.0.1:0"
    command = [sys.executable, "-m", "spark_jobs", *words.split(), *QUICK]
    command += ["--bootstrap-servers", kafka.bootstrap_servers, "--topics", settings.topic_pattern]
    command += ["--lake", settings.lake, "--checkpoints", settings.checkpoints]
    command += ["--dead-letter-topic", topics[1]]
    place = tmp_path / "started-here"
    place.mkdir()
    packages = {"PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=place, env=os.environ | packages
    ) as jobs:
        assert jobs.stderr is not None
        lines: list[str] = []

        def until(text: str) -> str:
            """The next line of the program's log that holds the text; the test's timeout is the deadline."""
            for line in jobs.stderr or ():
                lines.append(line)
                if text in line:
                    return line
            raise AssertionError(f"the jobs ended without saying {text!r}: {''.join(lines)}")

        try:
            metrics = until("event=metrics.listen").rpartition("address=")[2].strip()
            until("event=query.start query=statistics")
            create(kafka, *topics)
            produce(kafka, topics[0], [reading(seq) for seq in range(1, 61)])
            produce(kafka, topics[0], [b"bad"])
            until("event=statistics.computed")
            # The supervisor reads the queries about once a second, at one after the other.
            scraped_values = eventually(lambda: scraped(metrics), until=all_reported)
            signalled_at = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
            # To its Java alone, as to that of a cluster; test_demo.py ends the program itself.
            psutil.Process(jobs.pid).children()[0].terminate()
            until("event=jobs.stop reason=signal")
            assert jobs.wait(120) == 0
        finally:
            jobs.kill()
    # What is cut off with Java is done again: one line for it, without a traceback.
    assert not [line for line in lines if line.startswith(("\tat", "Traceback", "Caused by"))]
    running = [line for line in lines if line[: len(signalled_at)] < signalled_at]
    assert not [line for line in running if "Exception" in line or " ERROR " in line]
    events = [line for line in lines if " event=" in line]
    assert len(events) == len(set(events)), "a line of the log came twice"
    assert not list(place.iterdir()), "the jobs left something where they were started"
    assert rows(settings)[0][1] > 0
    for query in ("ingest", "statistics-60s"):
        ended_s = scraped_values[f'fieldgate_jobs_last_progress_timestamp_seconds{{query="{query}"}}']
        assert 0 <= time.time() - ended_s < 300
    assert scraped_values["process_resident_memory_bytes"] > 1e7


_REPORTED = {
    'fieldgate_jobs_input_rows_total{query="ingest"}': 61,
    "fieldgate_jobs_readings_total": 60,
    "fieldgate_jobs_repeated_total": 0,
    # Of May by the reading; November at least by Kafka.
    "fieldgate_jobs_late_total": 60,
    'fieldgate_jobs_quarantined_total{reason="NOT_JSON"}': 1,
    'fieldgate_jobs_up{query="ingest"}': 1,
    'fieldgate_jobs_up{query="statistics-60s"}': 1,
    'fieldgate_jobs_lag_offsets{query="ingest"}': 0,
    'fieldgate_jobs_state_rows{query="ingest",state="seen_ranges"}': 1,
}


def all_reported(scraped_values: dict[str, float]) -> bool:
    lags = [
        scraped_values[f'fieldgate_jobs_lag_seconds{{query="{query}"}}']
        for query in ("ingest", "statistics-60s")
    ]
    return {name: scraped_values[name] for name in _REPORTED} == _REPORTED and max(lags) < 60


def scraped(address: str) -> dict[str, float]:
    """Samples by name and labels, as Prometheus would take them."""
    with urlopen(address, timeout=10) as answer:  # noqa: S310 - the program's own address
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        sample.name
        + ("{" + ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items())) + "}")
        * bool(sample.labels): sample.value
        for family in families
        for sample in family.samples
    }


def test_wrong_usage_is_reported_with_its_reason(tmp_path: Path) -> None:
    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "spark_jobs", "run", *arguments]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
            timeout=60,
            check=False,
        )

    unknown = run("ingets")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    assert "no job is named 'ingets'" in unknown.stderr
    no_jars = run("ingest", "--lake", str(tmp_path), FIELDGATE_JARS=str(tmp_path))
    assert no_jars.returncode == 2
    assert "make jars" in no_jars.stderr
