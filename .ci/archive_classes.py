"""Writes Java's class archives of a local Kafka and a local Spark: ``archive_classes.py JARS [kafka]``.

Whatever a short run of the jobs loads from a broker of its own goes into ``JARS/kafka/classes.jsa`` and
``JARS/spark/classes.jsa`` (see ``cloud.local.process``); with ``kafka`` the broker's alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import Producer
from pyspark import SparkContext

from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.local.process import SILENT
from cloud.wire.reading_records import Reading, encode_reading
from spark_jobs.jobs.run import run
from spark_jobs.platform.settings import Settings


def writing(archive: Path) -> list[str]:
    """Options of a JVM that writes this archive when it ends."""
    return [f"-XX:ArchiveClassesAtExit={archive}", SILENT]


class ArchivedBroker(LocalBroker):
    """A broker whose JVM writes an archive when it ends, which may take it a while."""

    stop_timeout_s = 900.0

    def __init__(self, directory: Path, archive: Path) -> None:
        super().__init__(directory)
        self._archive = archive

    def _java(self, jars: Path, *arguments: str) -> tuple[str, ...]:
        options = writing(self._archive) if "kafka.Kafka" in arguments else ()
        return super()._java(jars, *options, *arguments)


JOBS = ("ingest", "statistics", "mast", "presence", "alerts")


def reading(seq: int) -> Reading:
    """One of a cup's."""
    return Reading(
        gateway="mast-1", channel="cup.wind_speed", quantity="wind_speed", unit="m/s",
        time_us=1_767_225_600_000_000 + seq * 1_000_000, period_ms=1000, value=7.25, raw=9.0, raw_unit="Hz",
        quality=1, reasons=(), run="run-1", seq=seq, clock="synced", cal=None,
    )  # fmt: skip


def run_jobs(place: Path, bootstrap_servers: str, archive: Path) -> None:
    """Has the jobs' Java write what it has loaded."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for seq in range(1, 91):
        producer.produce("mqtt.wind_speed", encode_reading(reading(seq)))
    if producer.flush(30):
        raise SystemExit("the local Kafka took no readings")
    java = " ".join(["-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", *writing(archive)])
    run(
        Settings(
            jobs=JOBS,
            bootstrap_servers=bootstrap_servers,
            lake=str(place / "lake"),
            checkpoints=str(place / "checkpoints"),
            interval_s=60,
            once=True,
            conf=(("spark.driver.extraJavaOptions", java),),
        )
    )
    # Java writes the archive when it ends, which it does when its standard input closes.
    started: Any = SparkContext._gateway
    started.proc.stdin.close()
    started.proc.wait(900)


def main(jars: Path, *only: str) -> None:
    """Runs the jobs once, and has both Javas write what they have loaded."""
    archives = {name: jars / name / "classes.jsa" for name in only or ("kafka", "spark")}
    for archive in archives.values():
        archive.unlink(missing_ok=True)
    new = {name: archive.with_suffix(".new") for name, archive in archives.items()}
    with TemporaryDirectory() as folder:
        place = Path(folder)
        with ArchivedBroker(place / "kafka", new["kafka"]) as broker:
            provision_topics(broker.bootstrap_servers, partitions=1, replication=1)
            if "spark" in new:
                run_jobs(place, broker.bootstrap_servers, new["spark"])
    for name, archive in archives.items():
        new[name].replace(archive)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
