"""``ingest``, its second query: Kafka records that are no readings, each once.

Other devices' messages to ``messages``; run records, calibration records and statuses to ``runs``,
``channels`` and the internal ``_status``; what is none of these to ``quarantine``. It follows topics of its
own, so it never holds up the readings.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs import metrics
from spark_jobs.schemas import MESSAGES, QUARANTINE
from spark_jobs.session import small_batch_session, task_slots
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import write_once, writing_as
from spark_jobs.sinks.partition_offsets import Partition, Spans, StoredOffsets
from spark_jobs.sinks.quarantine import QuarantineSink
from spark_jobs.sinks.records import RecordSink, reasons_frame
from spark_jobs.sources.kafka import kafka_records
from spark_jobs.streaming.lease import Lease
from spark_jobs.streaming.query import Job, Source
from spark_jobs.transforms.dedupe import unstored
from spark_jobs.transforms.latest_record import Row
from spark_jobs.transforms.messages import messages
from spark_jobs.transforms.records import CHANNEL_RECORDS, RUN_RECORDS, STATUS_RECORDS, record_rows, refused

log = logging.getLogger("fieldgate.jobs.records")

_MOST_RECORDS: Final = 20_000
"""In one batch: what the parsed ones of them amount to is in the driver's memory, a kilobyte or two each."""


class RecordsJob(Job):
    """One run of the query; after a failure, make a new one."""

    name = "ingest-records"

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark = small_batch_session(spark)
        self._settings = settings
        self._slots = task_slots(spark)
        kinds = {
            settings.channels_topic: CHANNEL_RECORDS,
            settings.runs_topic: RUN_RECORDS,
            settings.status_topic: STATUS_RECORDS,
        }
        self.lease = lease = Lease(spark, settings, "records", self.name)
        self._next_write = lease.next_write
        lease.take((MESSAGES, QUARANTINE, *(kind.table for kind in kinds.values())))
        self._messages = settings.table(MESSAGES.name)
        self._stored = StoredOffsets(spark, self._messages)
        self._quarantine = QuarantineSink(spark, settings)
        self._kinds = {topic: (kind, RecordSink(spark, settings, kind)) for topic, kind in kinds.items()}

    def source(self) -> Source:
        """Everything in the topics of messages, records and statuses, from the earliest."""
        self.topics = "|".join(map(re.escape, (self._settings.raw_topic, *self._kinds)))
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
            spans, counts = _spans(records)
            stored = self._write_messages(records, spans, counts, write)
            changed, rejected = self._write_records(records, spans, write)
        finally:
            records.unpersist()
        figures = sum(counts.values()), stored, changed, rejected, time.monotonic() - started
        log.info(
            "event=records.batch batch=%d records=%d messages=%d changed=%d quarantined=%d seconds=%.2f",
            number,
            *figures,
        )

    def _write_messages(
        self, records: DataFrame, spans: Spans, counts: Mapping[Partition, int], write: tuple[str, int]
    ) -> int:
        topic = self._settings.raw_topic
        mine = {place: span for place, span in spans.items() if place[0] == topic}
        if not mine:
            return 0
        rows = messages(records.where(F.col("topic") == topic))
        stored = sum(counts[place] for place in mine)
        if self._stored.may_hold(mine):
            rows = unstored(rows, self._spark.read.format("delta").load(self._messages))
            stored = rows.count()
        if stored:
            write_once(rows.coalesce(1), self._messages, *write)
        self._stored.add(mine)
        return stored

    def _write_records(self, records: DataFrame, spans: Spans, write: tuple[str, int]) -> tuple[int, int]:
        changed = 0
        refusals: list[Row] = []
        for topic in {topic for topic, _ in spans} & self._kinds.keys():
            kind, sink = self._kinds[topic]
            with writing_as(self._spark, self._settings.table(kind.table.name), *write):
                found, without = sink.write(record_rows(records.where(F.col("topic") == topic), kind))
            changed += found
            refusals += without
        if not refusals:
            return changed, 0
        rejects = refused(records, reasons_frame(self._spark, refusals))
        places = {place: span for place, span in spans.items() if place[0] in self._kinds}
        new = self._quarantine.write(rejects, places, *write)
        metrics.quarantined(new)
        return changed, new.total()


def _spans(records: DataFrame) -> tuple[Spans, dict[Partition, int]]:
    """Offsets and number of the batch's records by partition."""
    rows = (
        records.groupBy("topic", "partition")
        .agg(F.min("offset").alias("lowest"), F.max("offset").alias("highest"), F.count(F.lit(1)).alias("n"))
        .collect()
    )
    spans = {(row.topic, row.partition): (int(row.lowest), int(row.highest)) for row in rows}
    return spans, {(row.topic, row.partition): int(row.n) for row in rows}
