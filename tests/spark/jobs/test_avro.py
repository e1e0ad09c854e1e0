"""Gateways that send JSON and Avro side by side, to real Kafka: one table, whatever the registry does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cloud.config import RegistryConfig
from cloud.kafka.producer import KafkaSink
from cloud.local.kafka_broker import LocalBroker
from cloud.wire.avro_readings import SCHEMA, SUBJECT, head, to_avro
from cloud.wire.reading_records import Reading, encode_reading, reading_key
from gateway.config.model import KafkaConfig
from gateway.forwarding.reading_format import ReadingFormat
from gateway.ports import REPLAYED, Record
from spark_jobs.jobs.alerts import collect_samples
from spark_jobs.jobs.ingest import LEASE, TABLES, IngestJob
from spark_jobs.jobs.replay import ReplayedPeriod, replay_quarantine
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.reading_schemas import ReadingSchemas
from spark_jobs.streaming.lease import Lease
from tests.spark.records import identities, in_avro, kafka_frame, reading, rows_of
from tests.spark.running import run_to_end
from tests.support.schema_registry import SmallRegistry, small_registry
from tests.support.servers import eventually

OWN = ("gateway", "kafka_partition", "kafka_offset", "kafka_time", "ingested_at")
READINGS = [
    reading(1, extra={"rain": [1, 2.5], "sky": "clear"}),
    reading(2, quality=9),
    reading(3, -0.0),
    replace(reading(4, clock="unsynced", quality=3), reasons=("CLOCK_UNSYNCED",), boot="b-1", mono_ms=7),
    replace(reading(5), latitude=27.7, longitude=85.5, altitude_m=2100.5),
    replace(reading(6, clock="repaired"), cal=None, raw=None, raw_unit=None),
]


def send(
    kafka: LocalBroker, topic: str, written: ReadingFormat | None, readings: Iterable[Reading | Record]
) -> None:
    """As a gateway does it, through its sink."""
    value_of = (lambda record: record.value) if written is None else written.value_of
    with closing(KafkaSink[int](kafka.bootstrap_servers, "live", {}, value_of)) as sink:
        count = 0
        for count, each in enumerate(readings, 1):
            if isinstance(each, Record):
                assert sink.send(each, count)
                continue
            headers = (("mqtt-topic", b"fieldgate/cup"), *((REPLAYED,) if count % 2 else ()))
            key = reading_key(each.gateway, each.channel)
            assert sink.send(Record(topic, key, encode_reading(each), headers), count)
        outcomes: list[Any] = []

        def reported() -> bool:
            outcomes.extend(sink.poll(0.1))
            return len(outcomes) == count

        eventually(reported)
        assert {problem for _, problem in outcomes} == {None}


def of(settings: Settings, gateway: str) -> list[dict[str, Any]]:
    """A gateway's readings, but for what is its own and Kafka's."""
    rows = (row for row in rows_of(settings, "readings") if row["gateway"] == gateway)
    shared = ({name: value for name, value in row.items() if name not in OWN} for row in rows)
    return sorted(shared, key=lambda row: row["seq"])


def test_json_and_avro_side_by_side(
    spark: SparkSession,
    settings: Settings,
    kafka: LocalBroker,
    kafka_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = kafka_topic("avro", 2)
    small = SmallRegistry()
    small.register("another", '"string"')
    small.register(SUBJECT, SCHEMA)
    written = ReadingFormat(tmp_path / "schema")
    with small_registry(small) as registry:
        port = int(registry.url.rpartition(":")[2])
        settings = replace(
            settings,
            bootstrap_servers=kafka.bootstrap_servers,
            topic_pattern=topic,
            registry=RegistryConfig(url=registry.url),
        )
        written.apply(KafkaConfig(format="avro", schema_registry_url=registry.url))
        eventually(lambda: written.problem is None)
        small.requests.clear()
        for name, format_ in (("json", None), ("avro", written)):
            send(kafka, topic, format_, [replace(each, gateway=name) for each in READINGS])
        run_to_end(settings, IngestJob(spark, settings))
        # Once for the id, whatever came by it.
        assert small.requests == ["GET /schemas/ids/2"]
    assert of(settings, "avro") == of(settings, "json")
    assert [row["seq"] for row in of(settings, "avro")] == [1, 2, 3, 4, 5, 6]
    assert of(settings, "avro")[0]["extra"] == '{"rain":[1,2.5],"sky":"clear"}'

    # The registry is away. What is known goes on; what it alone knows waits, and what is none has its reason.
    newer = SCHEMA.replace('"doc":"of raw"', '"doc":"of what the sensor gave"')
    value = to_avro(encode_reading(reading(7, gateway="newer")), head(3))
    assert value is not None
    key = b"newer/cup.wind_speed"
    strays = [
        Record(topic, key, bad, ())
        for bad in (value, b"\0\0\0\0\2short", b"\0", in_avro(reading(8), 1), b"\7")
    ]
    send(kafka, topic, written, [reading(7, gateway="avro"), *strays])
    run_to_end(settings, IngestJob(spark, settings))
    assert [row["seq"] for row in of(settings, "avro")] == [1, 2, 3, 4, 5, 6, 7]
    reasons = {row["payload"]: row["reason"] for row in rows_of(settings, "quarantine")}
    assert reasons == {
        value: "UNKNOWN_SCHEMA",
        b"\0\0\0\0\2short": "BAD_AVRO",
        b"\0": "BAD_AVRO",
        in_avro(reading(8), 1): "UNKNOWN_SCHEMA",
        b"\7": "NOT_JSON",
    }

    lease = Lease(spark, settings, LEASE, "replay")
    period = ReplayedPeriod(0, 1 << 52)
    with lease.held(TABLES):
        assert replay_quarantine(spark, settings, period, lease)["left_quarantine"] == 0
        # It is back, with what it knows besides.
        small.register(SUBJECT, newer)
        with small_registry(small, port=port):
            done = replay_quarantine(spark, settings, period, lease)
    assert (done["records"], done["readings"], done["left_quarantine"]) == (5, 1, 1)
    assert [row[0] for row in identities(settings)].count("newer") == 1
    left = {row["payload"]: row["reason"] for row in rows_of(settings, "quarantine")}
    assert left == {payload: reason for payload, reason in reasons.items() if payload != value}

    # The rules' way, by what the lake has.
    schemas = ReadingSchemas(spark, settings)
    frame = kafka_frame(spark, [in_avro(reading(1), 2), encode_reading(reading(2)), in_avro(reading(3), 99)])
    assert len(collect_samples(frame, settings.dead_letter_topic, schemas)) == 2
