"""``ingest``: Kafka records to ``readings`` and ``quarantine``, each once. No watermark: late is normal."""

from __future__ import annotations

import logging
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs import metrics
from spark_jobs.files import Files
from spark_jobs.settings import Settings
from spark_jobs.sinks.readings import IngestSink
from spark_jobs.sources.kafka import kafka_records
from spark_jobs.state.lease import Lease
from spark_jobs.streaming.batch_gate import Gate
from spark_jobs.streaming.query import start_query
from spark_jobs.transforms.packing import packed

log = logging.getLogger("fieldgate.jobs.ingest")


class IngestJob:
    """One run of the query; after a failure, make a new one."""

    name = "ingest"

    def __init__(self, spark: SparkSession, settings: Settings, gate: Gate) -> None:
        self._gate = gate
        self._spark = spark
        self._settings = settings
        self._lease = Lease(Files(spark), settings.lake, self.name)
        self._lease.take()
        self._sink = IngestSink(spark, settings)
        self._cores = int(spark.conf.get("spark.sql.shuffle.partitions") or 2)

    def start(self) -> StreamingQuery:
        """Starts the query."""
        stream = kafka_records(
            self._spark, self._settings, self._settings.topic_pattern, self._settings.max_records
        )
        return start_query(
            self._settings, self.name, stream, self._batch, self._gate, trigger_s=self._settings.trigger_s
        )

    def _batch(self, records: DataFrame, batch: int) -> None:
        started = time.monotonic()
        self._lease.renew()
        generation = records.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        # Many topics, few records each: as many tasks as cores, not one per partition.
        rows = packed(records.coalesce(self._cores), self._settings.dead_letter_topic)
        counts = self._sink.write(rows, f"ingest-{generation}", batch)
        metrics.READINGS.inc(counts.readings)
        metrics.REPEATED.inc(counts.repeated)
        metrics.LATE.inc(counts.late)
        metrics.quarantined(counts.reasons)
        metrics.state_rows(self.name, "seen_ranges", self._sink.remembered())
        if counts.newest_us is not None:
            metrics.read_up_to(self.name, counts.newest_us / 1e6)
        log.info(
            "event=ingest.batch batch=%d records=%d readings=%d quarantined=%d repeated=%d seconds=%.2f",
            batch,
            counts.records,
            counts.readings,
            counts.quarantined,
            counts.repeated,
            time.monotonic() - started,
        )

    def tick(self) -> None:
        """Holds the lease of the readings."""
        self._lease.renew()

    def finish(self) -> None:
        """Stores what the sink has put off, and gives the lease of the readings back."""
        self._sink.flush()
        self._lease.give_back()
