"""``ingest``: Kafka records to ``readings`` and ``quarantine``, each once. No watermark: late is normal."""

from __future__ import annotations

import logging
import time
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.platform import metrics
from spark_jobs.platform.schemas import QUARANTINE, READINGS, SEEN
from spark_jobs.platform.session import task_slots
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.readings import IngestSink
from spark_jobs.sources.identities import IdentitySource
from spark_jobs.sources.kafka import kafka_records
from spark_jobs.streaming.lease import Lease
from spark_jobs.streaming.query import Job, Source

log = logging.getLogger("fieldgate.jobs.ingest")

LEASE: Final = "readings"
TABLES: Final = (READINGS, QUARANTINE, SEEN)
"""What is written under the lease of the readings."""


class IngestJob(Job):
    """One run of the query; after a failure, make a new one."""

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
