"""The load of ``pipeline`` and ``scale``: readings of 1,200 channels in Kafka; and the query beside which the
jobs are measured: Kafka, ``from_json``, Delta append, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession, functions as F

from cloud.wire.reading_records import Reading, encode_reading, reading_key
from spark_jobs.platform.schemas import READINGS
from spark_jobs.platform.settings import Settings
from spark_jobs.sources.kafka import kafka_records

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


def payloads(count: int, period_s: int) -> Iterator[tuple[bytes, bytes]]:
    """Key and payload of so many readings, period by period."""
    for number in range(count):
        seq, at = divmod(number, len(CHANNELS))
        yield reading_key(*CHANNELS[at]), encode_reading(reading_of(*CHANNELS[at], seq + 1, period_s))


def fill(bootstrap_servers: str, topic: str, count: int, period_s: int) -> None:
    """Produces so many readings."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, num_partitions=_PARTITIONS, replication_factor=1)])[topic].result(30)
    properties = {"compression.type": "zstd", "linger.ms": "20", "queue.buffering.max.messages": "100000"}
    producer = Producer({"bootstrap.servers": bootstrap_servers, **properties})
    headers: list[tuple[str, str | bytes | None]] = [
        ("mqtt-topic", b"fieldgate/mast-001/a/wind_speed"),
        ("received-at", b"2026-05-29T00:00:00.000Z"),
    ]
    for key, payload in payloads(count, period_s):
        while True:
            try:
                producer.produce(topic, payload, key, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0


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
