"""``jobs replay``: a period from Kafka, or what is in quarantine, once more into the tables; nothing twice.

It writes ``readings`` in the place of ``ingest``, never beside it, and never to Kafka.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession, functions as F

from cloud.wire.fields import format_time
from cloud.wire.identities import Identities
from spark_jobs.jobs.ingest import LEASE, TABLES
from spark_jobs.platform.errors import JobError, SettingsError
from spark_jobs.platform.intervals import moment_of
from spark_jobs.platform.schemas import QUARANTINE, READINGS
from spark_jobs.platform.session import running_session, task_slots
from spark_jobs.platform.settings import Settings, moment_us
from spark_jobs.sinks.quarantine import release
from spark_jobs.sinks.reading_schemas import ReadingSchemas
from spark_jobs.sinks.readings import IngestSink
from spark_jobs.sources.kafka import IdentitySource, kafka_between
from spark_jobs.streaming.lease import Lease
from spark_jobs.transforms.dedupe import RECORD
from spark_jobs.transforms.packing import validated
from spark_jobs.transforms.validate import parse_batch

DESCRIPTION: Final = "a period from Kafka, or what is in quarantine, into the tables again"

log = logging.getLogger("fieldgate.jobs.replay")

_FIRST_SLICE_US: Final = 600_000_000
_LONGEST_SLICE_US: Final = 86_400_000_000
_FEW, _MANY = 100_000, 1_000_000
"""Records of a slice below and above which the next one is twice or half as long."""
_PLACE: Final = ["topic", "partition", "offset", "timestamp"]
"""The identity of a Kafka record: offsets begin again in a topic that was deleted and created again."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``jobs replay``."""
    parser.add_argument("--source", choices=("kafka", "quarantine"), default="kafka")
    begin = "by Kafka's time, e.g. 2026-05-28T06:00:00Z; or: quarantine"
    parser.add_argument("--from", dest="begin", metavar="TIME", help=begin)
    parser.add_argument("--to", dest="end", metavar="TIME", help="not included; default: now")
    parser.add_argument("--gateway", metavar="ID", help="only records with this gateway's key")
    parser.add_argument("--dry-run", action="store_true", help="count, and write nothing")
    parser.add_argument("--json", action="store_true", help="the counts as one JSON object")


@dataclass(frozen=True)
class ReplayedPeriod:
    """Records to take again, by Kafka's time: microseconds since the epoch, the end not included."""

    begin_us: int
    end_us: int
    gateway: str | None = None


Counts = Counter[str]
"""What became of the records: the counts of COUNTED; ``repeated`` were in the tables already."""
COUNTED: Final = ("records", "readings", "quarantined", "repeated", "left_quarantine")


def replay_kafka(
    spark: SparkSession, settings: Settings, period: ReplayedPeriod, lease: Lease, *, dry_run: bool = False
) -> Counts:
    """Takes the period slice by slice. Raises LeaseTakenError or FencedError where ``ingest`` took over."""
    sink = None if dry_run else IngestSink(spark, settings)
    identities = _identities(spark, settings)
    total = Counts(dict.fromkeys(COUNTED, 0))
    done: Mapping[str, Any]
    at_us, width_us = period.begin_us, _FIRST_SLICE_US
    while at_us < period.end_us:
        until_us = min(at_us + width_us, period.end_us)
        records = kafka_between(spark, settings, at_us, until_us, period.gateway)
        if sink is None:
            done = {"records": records.count()}
        else:
            few = records.coalesce(task_slots(spark))
            done = vars(sink.write(few, *lease.next_write(), identities))
        slice_counts = {name: done.get(name, 0) for name in COUNTED}
        total.update(slice_counts)
        log.info(
            "event=replay.slice until=%s done=%.0f%% %s",
            format_time(until_us),
            100 * (until_us - period.begin_us) / (period.end_us - period.begin_us),
            " ".join(f"{name}={count}" for name, count in slice_counts.items()),
        )
        if done["records"] < _FEW:
            width_us = min(width_us * 2, _LONGEST_SLICE_US)
        elif done["records"] > _MANY:
            width_us = max(width_us // 2, 1_000_000)
        at_us = until_us
    if sink is not None:
        sink.flush()
    return total


def replay_quarantine(
    spark: SparkSession, settings: Settings, period: ReplayedPeriod, lease: Lease, *, dry_run: bool = False
) -> Counts:
    """Validates what is in quarantine again: what is a reading by now goes to ``readings`` and leaves.

    Dead letters stay, for a gateway has refused them, and so do records of which only the beginning is kept.
    """
    records = quarantined_records(spark, settings, period.begin_us, period.end_us, period.gateway)
    identities = _identities(spark, settings)
    schemas = ReadingSchemas(spark, settings, keep=not dry_run)
    schemas.learn(schema_ids(records))
    parse = partial(parse_batch, dead_letter_topic=settings.dead_letter_topic, identities=identities)
    parse = partial(parse, schemas=schemas.known)
    readings = validated(records, parse, READINGS).select(*RECORD).persist()
    try:
        total = Counts(dict.fromkeys(COUNTED, 0))
        total.update(records=records.count(), left_quarantine=readings.count())
        if not dry_run and total["left_quarantine"]:
            good = records.join(readings.toDF(*_PLACE), _PLACE, "left_semi")
            sink = IngestSink(spark, settings)
            stored = sink.write(good, *lease.next_write(), identities)
            sink.flush()
            # Only now: what is cut short here is found in both tables, and leaves next time.
            release(spark, settings, readings)
            total.update(readings=stored.readings, repeated=stored.repeated)
    finally:
        readings.unpersist()
    return total


def _identities(spark: SparkSession, settings: Settings) -> Identities:
    with closing(IdentitySource(spark, settings)) as source:
        return source.current()


def period_of(options: argparse.Namespace, now_us: int) -> ReplayedPeriod:
    """The period that the options name; ``--from quarantine`` names the source. Raises SettingsError."""
    if options.begin == "quarantine":
        options.source, options.begin = "quarantine", None
    if options.begin is None and options.source == "kafka":
        raise SettingsError("--from is missing: the period begins there, by Kafka's time")
    begin_us = 0 if options.begin is None else moment_us(options.begin)
    end_us = now_us if options.end is None else moment_us(options.end)
    if begin_us >= end_us:
        raise SettingsError("--from must be before --to")
    return ReplayedPeriod(begin_us, end_us, options.gateway)


def main(options: argparse.Namespace, settings: Settings) -> None:
    """Replays, and prints what became of the records. Raises LeaseTakenError while ``ingest`` runs."""
    period = period_of(options, time.time_ns() // 1000)
    replay = replay_kafka if options.source == "kafka" else replay_quarantine
    with running_session(settings, "fieldgate-replay") as spark:
        lease = Lease(spark, settings, LEASE, "replay")
        with nullcontext() if options.dry_run else lease.held(TABLES):
            total = replay(spark, settings, period, lease, dry_run=options.dry_run)
    counts = {"dry_run": options.dry_run, **total}
    print(json.dumps(counts) if options.json else "\n".join(f"{k:<16}{v:>12}" for k, v in counts.items()))


def quarantined_records(
    spark: SparkSession, settings: Settings, begin_us: int, end_us: int, gateway: str | None
) -> DataFrame:
    """Records of reading topics whose every byte is in quarantine, with the columns of the Kafka source.

    By Kafka's time (microseconds since the epoch, the end not included), and by the key where a gateway is
    named. Dead letters are left out. Raises JobError where the lake has no quarantine.
    """
    location = settings.table(QUARANTINE.name)
    if not DeltaTable.isDeltaTable(spark, location):
        raise JobError(f"there is no table {location}: is --lake right?")
    rejects = spark.read.format("delta").load(location)
    whole = (F.col("payload_bytes") == F.length("payload")) & (F.col("kafka_offset").isNotNull())
    chosen = rejects.where(
        whole
        & (F.col("kafka_topic") != settings.dead_letter_topic)
        & F.col("kafka_topic").rlike(f"^(?:{settings.topic_pattern})$")
        & (F.col("kafka_time") >= moment_of(begin_us))
        & (F.col("kafka_time") < moment_of(end_us))
    )
    if gateway is not None:
        chosen = chosen.where(F.startswith(F.col("key"), F.lit(f"{gateway}/")))
    names = ("topic", "partition", "offset")
    places = (*(f"kafka_{name} as {name}" for name in names), "kafka_time as timestamp")
    return chosen.selectExpr("payload as value", "encode(key, 'UTF-8') as key", *places, "headers")


def schema_ids(records: DataFrame) -> set[int]:
    """The schemas that those in Avro name, by id."""
    value = F.col("value")
    named = records.where((F.substring(value, 1, 1) == F.lit(b"\0")) & (F.length(value) >= 5))
    number = F.conv(F.hex(F.substring(value, 2, 4)), 16, 10).cast("long").alias("id")
    return {row.id for row in named.select(number).distinct().collect()}
