"""What a reading costs each job on a standalone cluster of one, two and four cores.

    python -m tests.bench.scale --cores 1 2 4

Prints a table for docs/performance.md. Readings and records of 1,200 channels are produced once. Each number
of cores has a worker with so many, one executor, a driver of its own and an empty lake; the jobs run in it as
with ``--once``, query by query, after a small topic into another lake. A query is timed from its start to its
end: the start of Spark, executor and job isn't counted, nor most of Java's compiling. All figures are by
readings of the topic, whatever a query reads; the executors' CPU is that of their Java and its Python. More
cores than the machine has show only what they cost. Progress, with all figures, is on stderr.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import get_context
from operator import sub
from pathlib import Path
from typing import Final, NamedTuple

import psutil
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.wire.channel_records import CHANNELS_TOPIC, ChannelRecord, Period, channel_key, encode_channel
from spark_jobs.platform.registry import STREAMING, load
from spark_jobs.platform.session import spark_session
from spark_jobs.platform.settings import Settings
from tests.bench.figures import cpu_s
from tests.bench.load import CHANNELS, DAY_US, fill, reading_of
from tests.bench.page import PROJECT
from tests.faults.results import source_commit
from tests.spark.cluster import standalone_cluster
from tests.spark.running import run_to_end

_JOBS: Final = ("ingest", "statistics", "mast", "presence", "alerts")
"""All but ``anomaly``, which needs a model of the masts."""
_OF_SMALL: Final = 24_000
"""Readings before those that count."""


class Took(NamedTuple):
    """What one query took: seconds of the clock, and CPU seconds of the executors, Java and Python."""

    query: str
    cores: int
    spent_s: tuple[float, ...]

    def row(self, readings: int) -> str:
        """A row of the table."""
        seconds, *cpu_s = self.spent_s
        cpu = " | ".join(f"{each / readings * 1e6:.1f}" for each in cpu_s)
        return f"| {self.query} | {self.cores} | {seconds:.1f} | {readings / seconds:,.0f} | {cpu} |\n"


def make_topics(bootstrap_servers: str, passes: dict[str, int], period_s: int) -> None:
    """The topics that the jobs read and write, and what is read; the six cups are in pairs."""
    provision_topics(bootstrap_servers, partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for gateway, channel in CHANNELS:
        sensor, _, quantity = channel.partition(".")
        sample, number = reading_of(gateway, channel, 1), int(sensor.rpartition("-")[2])
        pair, height_m = (f"sensor-{number ^ 1}", 20.0 + number // 2 * 20) if number < 6 else (None, None)
        record = ChannelRecord(
            gateway, sensor, quantity, str(sample.cal), 1, True, (Period(DAY_US),), str(sample.unit),
            "made", 1.0, (0.0, 100.0), "linear", height_m=height_m, pair=pair,
        )  # fmt: skip
        producer.produce(CHANNELS_TOPIC, encode_channel(record), channel_key(gateway, channel, record.cal))
    assert producer.flush(60) == 0
    for topic, readings in passes.items():
        fill(bootstrap_servers, topic, readings, period_s)


def of_each_job(settings: Settings, spark: SparkSession, worker: int, cores: int) -> Iterator[Took]:
    """Runs the jobs' queries, one after the other; ``worker`` is the process that has the executors."""
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]

    def now() -> tuple[float, ...]:
        executors_s = sum(cpu_s(each.pid) for each in psutil.Process(worker).children())
        return time.monotonic(), executors_s, cpu_s(java), time.process_time()

    for place in " ".join(STREAMING[name] for name in settings.jobs).split():
        job = load(place)(spark, settings)
        before = now()
        run_to_end(settings, job)
        yield Took(job.name, cores, tuple(map(sub, now(), before)))


def measured(place: Settings, worker: int, cores: int, passes: dict[str, int], limit_s: float) -> list[Took]:
    """Each query over the last of the topics, after the others; in a process of its own, for its own Java."""
    faulthandler.dump_traceback_later(limit_s, exit=True)
    conf = {
        **dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), "127.0.0.1"),
        **dict.fromkeys(("spark.sql.shuffle.partitions", "spark.default.parallelism"), str(cores)),
        "spark.executor.memory": "2g",
        # A process's first commit to a date always joins that date's files, and each lake here is new.
        "spark.databricks.delta.autoCompact.enabled": "false",
        # On this machine alone, and as comparable with former versions.
        "spark.fieldgate.openCluster": "true",
    }
    place = replace(place, conf=tuple(conf.items()))
    spark = spark_session(place, app="scale")
    for topic, readings in passes.items():
        lake = f"{place.lake}/{topic}"
        here = replace(place, topic_pattern=topic, lake=lake, checkpoints=f"{lake}-checkpoints")
        found = []
        for took in of_each_job(here, spark, worker, cores):
            sys.stderr.write(f"{topic}: {took.row(readings)}")
            found.append(took)
    rows = {at.name: spark.read.format("delta").load(str(at)).count() for at in Path(lake).glob("[a-z]*")}
    sys.stderr.write(f"{cores} cores, rows: {rows}\n")
    assert rows["readings"] == readings
    spark.stop()
    return found


def main() -> None:
    """As the options set it."""
    parser = argparse.ArgumentParser(description="what a reading costs each job, by cores of a cluster")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2, 4], metavar="N")
    parser.add_argument("--readings", type=int, default=480_000, metavar="N", help="in the topic")
    parser.add_argument("--period", type=int, default=30, metavar="S", help="between a channel's readings")
    parser.add_argument("--jobs", nargs="+", default=_JOBS, choices=_JOBS, help="in their order")
    parser.add_argument("--limit", type=float, default=210.0, metavar="S", help="for one number of cores")
    options = parser.parse_args()
    passes = {"small": _OF_SMALL, "counted": options.readings}
    found: list[Took] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as name, LocalBroker(Path(name) / "kafka") as broker:
        make_topics(broker.bootstrap_servers, passes, options.period)
        for cores in options.cores:
            directory = Path(tempfile.mkdtemp(dir=name))
            with (
                standalone_cluster(directory, (cores,), "3g") as (master, (worker,)),
                ProcessPoolExecutor(1, get_context("spawn")) as pool,
            ):
                places = broker.bootstrap_servers, str(directory), ""
                place = Settings(tuple(options.jobs), *places, master=master, once=True)
                found += pool.submit(measured, place, worker.pid, cores, passes, options.limit).result()
    sys.stdout.write(
        f"{datetime.now(UTC):%Y-%m-%d}, commit {source_commit(PROJECT)}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[2]:.1f}. {options.readings:,} readings of {len(CHANNELS):,} channels, one each "
        f"{options.period} s; CPU in µs a reading:\n\n"
    )
    sys.stdout.write("| query | cores | s | readings/s | executors | driver's Java | driver's Python |\n")
    sys.stdout.write("|---" * 7 + "|\n")
    for query in dict.fromkeys(took.query for took in found):
        sys.stdout.writelines(took.row(options.readings) for took in found if took.query == query)


if __name__ == "__main__":
    main()
