"""The ingest job against a bare one: Kafka, ``from_json``, Delta append, and nothing else.

    python -m tests.bench.ingest --records 1000000 --rows 1000000 20000000

Prints rows for docs/performance.md. Both read the same topic, in turns, in one process and one Spark session,
and append to copies of the same table, which holds ``--rows`` readings of the same date. The rates are the
medians of the rounds after the first, from the start of the query until it has nothing left; the CPU is that
of the JVM and of Python, driver and workers (not of the broker).
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession, functions as F

from cloud.local.kafka_broker import LocalBroker
from cloud.wire.reading_records import Reading, encode_reading, format_time, reading_key
from spark_jobs.jobs.ingest import IngestJob
from spark_jobs.platform.schemas import QUARANTINE, READINGS, SEEN
from spark_jobs.platform.session import spark_session
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table, table_version, write
from spark_jobs.sources.kafka import kafka_records
from spark_jobs.streaming.query import BatchGate, start_query
from tests.bench.figures import cpu_s
from tests.bench.page import PROJECT
from tests.faults.results import source_commit

_GATEWAYS: Final = 100
_QUANTITIES: Final = (
    *["wind_speed"] * 6,
    "temperature",
    "temperature",
    "humidity",
    "pressure",
    "irradiance",
    "co2",
)
_UNITS: Final = {
    "wind_speed": ("m/s", "Hz"),
    "temperature": ("Cel", "Cel"),
    "humidity": ("%RH", "%RH"),
    "pressure": ("kPa", "V"),
    "irradiance": ("W/m2", "V"),
    "co2": ("ppm", "ppm"),
}
CHANNELS: Final = [
    (f"mast-{gateway:03}", f"sensor-{number}.{quantity}")
    for gateway in range(_GATEWAYS)
    for number, quantity in enumerate(_QUANTITIES)
]
DAY_US: Final = 1_780_012_800_000_000
"""2026-05-29T00:00:00Z; all readings are of that day, each period one of each channel."""
_RUN: Final = "9f3c21ab04de"
_PARTITIONS: Final = 4
_WIRE: Final = (
    "v int, gateway string, channel string, quantity string, unit string, time timestamp, period_ms int, "
    "value double, raw double, raw_unit string, quality int, reasons array<string>, run string, seq bigint, "
    "clock string, cal string, latitude double, longitude double, altitude_m double"
)


def reading_of(gateway: str, channel: str, seq: int, period_s: int = 1) -> Reading:
    """One channel's reading number ``seq``."""
    quantity = channel.partition(".")[2]
    unit, raw_unit = _UNITS[quantity]
    raw = float(seq % 29)
    return Reading(
        gateway, channel, quantity, unit, DAY_US + seq * period_s * 1_000_000, period_s * 1000,
        0.765 * raw + 0.35, raw, raw_unit, 1, (), _RUN, seq, "synced", "5d1c0a7e",
    )  # fmt: skip


def payloads(first: int, count: int, more: str, period_s: int) -> Iterator[tuple[bytes, bytes]]:
    """Key and payload of so many readings, period by period; ``more`` ends each payload."""
    written: list[tuple[bytes, str, str, str, str, str]] = []
    for gateway, channel in CHANNELS:
        sample = encode_reading(reading_of(gateway, channel, 7, period_s)).decode()
        begin, rest = sample.split(format_time(DAY_US + 7_000_000 * period_s))
        middle, rest = rest.split(f"{0.765 * 7.0 + 0.35!r}")
        between, rest = rest.split("7.0", 1)
        before, after = rest.split('"seq":7')
        written.append((reading_key(gateway, channel), begin, middle, between, before, after))
    for number in range(count):
        seq = first + number // len(CHANNELS)
        key, begin, middle, between, before, after = written[number % len(CHANNELS)]
        raw = float(seq % 29)
        at = format_time(DAY_US + seq * period_s * 1_000_000)
        text = f"{begin}{at}{middle}{0.765 * raw + 0.35!r}{between}{raw!r}"
        tail = f'{before}"seq":{seq}{after}'
        yield key, (text + (f"{tail[:-1]}{more % number}}}" if more else tail)).encode()


def fill(
    bootstrap_servers: str, topic: str, first: int, count: int, more: str = "", period_s: int = 1
) -> None:
    """Produces readings from number ``first`` of each channel on."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, num_partitions=_PARTITIONS, replication_factor=1)])[topic].result(30)
    properties = {"compression.type": "zstd", "linger.ms": "20", "queue.buffering.max.messages": "100000"}
    producer = Producer({"bootstrap.servers": bootstrap_servers, **properties})
    headers: list[tuple[str, str | bytes | None]] = [
        ("mqtt-topic", b"fieldgate/mast-001/a/wind_speed"),
        ("received-at", b"2026-05-29T00:00:00.000Z"),
    ]
    for number, (key, payload) in enumerate(payloads(first, count, more, period_s)):
        if number == 0 and not more:
            assert payload == encode_reading(reading_of(*CHANNELS[0], first, period_s))
        while True:
            try:
                producer.produce(topic, payload, key, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0


def prefill(spark: SparkSession, settings: Settings, rows: int) -> int:
    """A lake that holds so many readings of that day, as ingest would leave it; gives the next seq."""
    readings = ensure_table(spark, settings, READINGS)
    ensure_table(spark, settings, QUARANTINE)
    seen = ensure_table(spark, settings, SEEN)
    each = rows // len(CHANNELS)
    channels = spark.createDataFrame(
        [(at, *names) for at, names in enumerate(CHANNELS)], "at int, gateway string, channel string"
    )
    seq = (F.col("id") / len(CHANNELS)).cast("bigint") + 1
    numbers = spark.range(0, each * len(CHANNELS), 1, max(rows // 250_000, 1)).select(
        seq.alias("seq"),
        (F.col("id") % len(CHANNELS)).cast("int").alias("at"),
        F.col("id").alias("kafka_offset"),
    )
    raw = (F.col("seq") % 29).cast("double")
    filled: dict[str, Any] = {
        "run": F.lit(_RUN), "quantity": F.split_part("channel", F.lit("."), F.lit(2)), "unit": F.lit("m/s"),
        "time": F.timestamp_micros(F.lit(DAY_US) + F.col("seq") * 1_000_000), "period_ms": F.lit(1000),
        "value": raw * 0.765 + 0.35, "raw": raw, "raw_unit": F.lit("Hz"), "quality": F.lit(1),
        "reasons": F.array().cast("array<string>"), "clock": F.lit("synced"), "cal": F.lit("5d1c0a7e"),
        "replayed": F.lit(False), "kafka_topic": F.lit("earlier"), "kafka_partition": F.lit(0),
        "kafka_time": F.timestamp_micros(F.lit(DAY_US) + F.col("seq") * 1_000_000),
        "ingested_at": F.timestamp_micros(F.lit(DAY_US) + F.col("seq") * 1_000_000),
        "date": F.lit("2026-05-29").cast("date"),
    }  # fmt: skip
    write(numbers.join(F.broadcast(channels), "at").withColumns(filled).drop("at"), readings)
    version = table_version(spark, readings)
    ranges = [(*names, _RUN, 1, each, version) for names in CHANNELS]
    if each:
        write(spark.createDataFrame(ranges, SEEN.schema).coalesce(1), seen)
    return each + 1


def bare(spark: SparkSession, settings: Settings) -> None:
    """Kafka, from_json, Delta append."""
    stream = kafka_records(spark, settings, settings.topic_pattern, settings.max_records)
    parsed = stream.select(
        F.from_json(F.col("value").cast("string"), _WIRE).alias("r"),
        "topic",
        "partition",
        "offset",
        "timestamp",
    )
    rows = parsed.select(
        "r.*",
        F.col("topic").alias("kafka_topic"),
        F.col("partition").alias("kafka_partition"),
        F.col("offset").alias("kafka_offset"),
        F.col("timestamp").alias("kafka_time"),
        F.to_date("r.time").alias("date"),
    ).drop("v")
    query = (
        rows.writeStream.format("delta")
        .option("checkpointLocation", settings.checkpoint("bare"))
        .trigger(availableNow=True)
        .start(settings.table(READINGS.name))
    )
    query.awaitTermination()
    assert query.exception() is None, query.exception()


@dataclass(frozen=True)
class Round:
    """What one run of one job took."""

    seconds: float
    cpu_s: float


class Bench:
    """Runs jobs over copies of a lake."""

    def __init__(self, spark: SparkSession, settings: Settings, directory: Path) -> None:
        self._spark = spark
        self._settings = settings
        self._directory = directory
        self._jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
        self._runs = 0

    def _cpu_s(self) -> float:
        return time.process_time() + cpu_s(self._jvm)

    def measure(self, lake: Path, topic: str, records: int, job: str) -> Round:
        """One run over its own copy of the lake, which is looked at afterwards and removed."""
        self._runs += 1
        copy = self._directory / f"run-{self._runs}"
        # Delta never changes a file in place: links will do.
        shutil.copytree(lake, copy / "lake", copy_function=os.link)
        settings = replace(
            self._settings,
            lake=str(copy / "lake"),
            checkpoints=str(copy / "checkpoints"),
            topic_pattern=topic,
        )
        run: Callable[[], None]
        if job == "bare":
            run = lambda: bare(self._spark, settings)  # noqa: E731
        else:
            ingest = IngestJob(self._spark, settings)

            def run() -> None:
                query = start_query(settings, ingest, BatchGate())
                query.awaitTermination()
                assert query.exception() is None, query.exception()
                ingest.finish()

        table = self._spark.read.format("delta").load(settings.table(READINGS.name))
        before = table.count()
        begin_s, begin_cpu_s = time.monotonic(), self._cpu_s()
        run()
        took = Round(time.monotonic() - begin_s, self._cpu_s() - begin_cpu_s)
        after = self._spark.read.format("delta").load(settings.table(READINGS.name)).count()
        assert after - before == records, (job, before, after)
        shutil.rmtree(copy)
        sys.stderr.write(
            f"{job}: {records / took.seconds:,.0f} rows/s, {took.cpu_s / records * 1e6:.1f} us/row\n"
        )
        return took


def shown(rounds: list[Round], records: int) -> str:
    """Rate and CPU of the median round."""
    rate = records / median(each.seconds for each in rounds)
    return f"{rate:,.0f} rows/s, {median(each.cpu_s for each in rounds) / records * 1e6:.1f} µs CPU a row"


def main() -> int:
    parser = argparse.ArgumentParser(description="ingest against a bare Kafka, from_json, Delta append")
    parser.add_argument("--records", type=int, default=300_000, metavar="N", help="in the topic")
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[300_000], metavar="N", help="in the table before"
    )
    parser.add_argument("--rounds", type=int, default=3, help="counted ones, after one that isn't")
    parser.add_argument(
        "--one-by-one", type=int, default=100_000, metavar="N", help="with a field that changes"
    )
    options = parser.parse_args()
    rows = [("at", f"{datetime.now(UTC):%Y-%m-%d %H:%M}Z, commit {source_commit(PROJECT)}")]
    with tempfile.TemporaryDirectory(prefix="bench-") as name, LocalBroker(Path(name) / "kafka") as broker:
        settings = Settings(
            jobs=("ingest",), bootstrap_servers=broker.bootstrap_servers, lake="", checkpoints="", once=True
        )
        spark = spark_session(settings, app="bench")
        # A process's first commit to a date always joins that date's files: once in a job's life, but each
        # round here has a new table and would measure little else.
        spark.conf.set("spark.databricks.delta.autoCompact.enabled", "false")
        try:
            bench = Bench(spark, settings, Path(name))
            ratios, rates = [], []
            for there in options.rows:
                lake, topic = Path(name) / f"lake-{there}", f"bench-{there}"
                first = prefill(spark, replace(settings, lake=str(lake)), there)
                fill(broker.bootstrap_servers, topic, first, options.records)
                found: dict[str, list[Round]] = {"bare": [], "ingest": []}
                for _ in range(options.rounds + 1):
                    for job, rounds in found.items():
                        rounds.append(bench.measure(lake, topic, options.records, job))
                counted = {job: rounds[1:] for job, rounds in found.items()}
                medians = {job: median(each.seconds for each in rounds) for job, rounds in counted.items()}
                ratios.append(medians["bare"] / medians["ingest"])
                rates.append(options.records / medians["ingest"])
                what = f"{options.records:,} records into {there:,} rows of their date"
                rows += [
                    (f"{what}, bare", shown(counted["bare"], options.records)),
                    (
                        f"{what}, ingest",
                        f"{shown(counted['ingest'], options.records)}, **{ratios[-1]:.2f}** of it",
                    ),
                ]
                shutil.rmtree(lake)
            if len(rates) > 1:
                rows.append(("slowest of these ingests to fastest", f"{min(rates) / max(rates):.2f}"))
            if options.one_by_one:
                lake, topic = Path(name) / "lake-new", "bench-new"
                first = prefill(spark, replace(settings, lake=str(lake)), 0)
                fill(broker.bootstrap_servers, topic, first, options.one_by_one, ',"uptime":%d')
                slow = [bench.measure(lake, topic, options.one_by_one, "ingest") for _ in range(3)][1:]
                rows.append(
                    ("ingest of payloads with an unknown field that changes", shown(slow, options.one_by_one))
                )
        finally:
            spark.stop()
    rows.append(
        ("load of the machine, 1, 5 and 15 minutes", ", ".join(f"{load:.1f}" for load in os.getloadavg()))
    )
    sys.stdout.writelines(f"| {what} | {figure} |\n" for what, figure in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
