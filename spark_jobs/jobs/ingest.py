"""``ingest``, two queries: readings, and all other records that Kafka has. No watermark: late is normal."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession, functions as F

from cloud.wire.identities import Identities
from spark_jobs.platform import metrics
from spark_jobs.platform.intervals import moment_of
from spark_jobs.platform.schemas import MESSAGES, QUARANTINE, READINGS, SEEN
from spark_jobs.platform.session import small_batch_session, task_slots
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import write_once, writing_as
from spark_jobs.sinks.quarantine import QuarantineSink
from spark_jobs.sinks.readings import IngestSink
from spark_jobs.sinks.records import RecordSink, reasons_frame
from spark_jobs.sources.kafka import IdentitySource, kafka_records
from spark_jobs.streaming.lease import Lease
from spark_jobs.streaming.query import Job, Source
from spark_jobs.transforms.dedupe import RECORD, unstored
from spark_jobs.transforms.events import EVENT_RECORDS, HEALTH_RECORDS
from spark_jobs.transforms.records import (
    CHANNEL_RECORDS,
    RUN_RECORDS,
    SITE_RECORDS,
    STATUS_RECORDS,
    messages,
    record_rows,
    refused,
    unproven,
)

log = logging.getLogger("fieldgate.jobs.ingest")

LEASE: Final = "readings"
TABLES: Final = (READINGS, QUARANTINE, SEEN)
"""What is written under the lease of the readings."""


_MOST_RECORDS: Final = 20_000
"""The bound of a batch: parsed ones are in the driver's memory, a kilobyte or two each."""


class RecordsJob(Job):
    """Stores Kafka records that are no readings, each once. After a failure, make a new one.

    Other devices' messages go to ``messages``; records of runs, calibrations, sites and statuses to ``runs``,
    ``channels``, ``sites`` and the internal ``_status``; events to ``events``, reports to ``health`` as well;
    what is none of these to ``quarantine``. It follows topics of its own, so it never holds up the readings.
    """

    name = "ingest-records"

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark = small_batch_session(spark)
        self._settings = settings
        self._slots = task_slots(spark)
        kinds = {
            settings.channels_topic: (CHANNEL_RECORDS,),
            settings.runs_topic: (RUN_RECORDS,),
            settings.status_topic: (STATUS_RECORDS,),
            settings.sites_topic: (SITE_RECORDS,),
            settings.events_topic: (EVENT_RECORDS, HEALTH_RECORDS),
        }
        self.lease = lease = Lease(spark, settings, "records", self.name)
        self._next_write = lease.next_write
        lease.take((MESSAGES, QUARANTINE, *(kind.table for made in kinds.values() for kind in made)))
        self._messages = settings.table(MESSAGES.name)
        self._quarantine = QuarantineSink(spark, settings)
        self.identities: IdentitySource = IdentitySource(spark, settings)
        self._sinks = {
            topic: [RecordSink(spark, settings, kind) for kind in made] for topic, made in kinds.items()
        }

    def source(self) -> Source:
        """Everything in the topics of messages, records and statuses, from the earliest."""
        self.topics = "|".join(map(re.escape, (self._settings.raw_topic, *self._sinks)))
        most = min(self._settings.max_records, _MOST_RECORDS)
        stream = kafka_records(self._spark, self._settings, self.topics, most)
        return Source(stream, self._settings.trigger_s)

    def batch(self, rows: DataFrame, number: int) -> None:
        """Stores messages and records, each once."""
        started = time.monotonic()
        write = self._next_write()
        # Several passes: what the broker has given once needn't be fetched again.
        records = rows.coalesce(self._slots).persist()
        try:
            topics = _topics(records)
            identities = self.identities.current()
            stored, refusals = self._write_messages(records, topics, identities, write)
            changed, others = self._write_records(records, topics, identities, write)
            rejected = self._reject(records, refusals + others, topics, write)
        finally:
            records.unpersist()
        number_of = sum(found.records for found in topics.values())
        figures = number_of, stored, changed, rejected, time.monotonic() - started
        log.info(
            "event=records.batch batch=%d records=%d messages=%d changed=%d quarantined=%d seconds=%.2f",
            number,
            *figures,
        )

    def _write_messages(
        self, records: DataFrame, topics: Mapping[str, Row], identities: Identities, write: tuple[str, int]
    ) -> tuple[int, list[dict[str, Any]]]:
        """How many messages are new, and those that are refused."""
        topic = self._settings.raw_topic
        if topic not in topics:
            return 0, []
        # Those of its time are where repeats are: after a lost checkpoint or a crash.
        there = self._spark.read.format("delta").load(self._messages)
        there = there.where(F.col("kafka_time") >= moment_of(topics[topic].first_us))
        given = records.where(F.col("topic") == topic)
        found = messages(given)
        rows, refusals = unstored(found, there), []
        if len(identities):
            refusals = unproven(given, identities).toArrow().to_pylist()
        if refusals:
            places = F.broadcast(reasons_frame(self._spark, refusals))
            rows = rows.join(places, list(RECORD[:3]), "left_anti").select(*found.columns)
        stored = rows.count()
        if stored:
            write_once(rows.coalesce(1), self._messages, *write)
        return stored, refusals

    def _write_records(
        self, records: DataFrame, topics: Mapping[str, Row], identities: Identities, write: tuple[str, int]
    ) -> tuple[int, list[dict[str, Any]]]:
        """How many rows changed, and the records that are refused."""
        changed = 0
        refusals: list[dict[str, Any]] = []
        for topic in topics.keys() & self._sinks.keys():
            sinks = self._sinks[topic]
            rows = record_rows(records.where(F.col("topic") == topic), sinks[0].kind, identities)
            parsed = rows.toArrow().to_pylist()
            for sink in sinks:
                with writing_as(self._spark, sink.location, *write):
                    found, without = sink.merge(parsed)
                changed += found
                refusals += without
        return changed, refusals

    def _reject(
        self,
        records: DataFrame,
        refusals: list[dict[str, Any]],
        topics: Mapping[str, Row],
        write: tuple[str, int],
    ) -> int:
        """How many rejects are new."""
        if not refusals:
            return 0
        rejects = refused(records, reasons_frame(self._spark, refusals))
        new = self._quarantine.write(rejects, min(found.first_us for found in topics.values()), *write)
        metrics.quarantined(new)
        return new.total()


def _topics(records: DataFrame) -> dict[str, Row]:
    """By topic how many ``records`` of it there are, and Kafka's time of the first of them, ``first_us``."""
    of_all = F.count("*").alias("records"), F.unix_micros(F.min("timestamp")).alias("first_us")
    return {row.topic: row for row in records.groupBy("topic").agg(*of_all).collect()}


class IngestJob(Job):
    """Stores Kafka records in ``readings`` and ``quarantine``, each once. After a failure, make a new one."""

    name = "ingest"

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        self._settings = settings
        self.lease = lease = Lease(spark, settings, LEASE, self.name)
        lease.take(TABLES)
        self._next_write = lease.next_write
        self._sink = IngestSink(spark, settings)
        self.identities: IdentitySource = IdentitySource(spark, settings)
        self._slots = task_slots(spark)

    def source(self) -> Source:
        """Readings and dead letters, from the earliest."""
        self.topics, most = self._settings.topic_pattern, self._settings.max_records
        stream = kafka_records(self._spark, self._settings, self.topics, most)
        return Source(stream, self._settings.trigger_s)

    def batch(self, rows: DataFrame, number: int) -> None:
        """Validates a batch and stores what is new of it."""
        started = time.monotonic()
        write = self._next_write()
        # Many topics, few records each: as many tasks as cores, not one per partition.
        counts = self._sink.write(rows.coalesce(self._slots), *write, self.identities.current())
        metrics.READINGS.inc(counts.readings)
        metrics.REPEATED.inc(counts.repeated)
        metrics.LATE.inc(counts.late)
        metrics.quarantined(counts.reasons)
        metrics.STATE_ROWS.labels(self.name, "seen_ranges").set(self._sink.remembered())
        if counts.newest_us is not None:
            metrics.read_up_to(self.name, counts.newest_us / 1e6)
        log.info(
            "event=ingest.batch batch=%(batch)d records=%(records)d readings=%(readings)d "
            "quarantined=%(quarantined)d repeated=%(repeated)d seconds=%(seconds).2f",
            {**vars(counts), "batch": number, "seconds": time.monotonic() - started},
        )

    def recover(self) -> None:
        """Makes the seen ranges those of the tables: what failed may be among them, and isn't stored."""
        self._sink = IngestSink(self._spark, self._settings)

    def finish(self) -> None:
        """Stores the seen ranges."""
        self._sink.flush()
