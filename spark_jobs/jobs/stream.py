"""``stream``: what the SQL of each ``[[stream]]`` makes of readings as they come, appended to Kafka's topics.

A query reads the table ``readings`` as it grows, so each reading once, validated, with its sender's proof.
Corrections (``recalibrate``) change no row that was appended. A batch that is done again, after a kill,
appends its records again: at least once. What can't be computed of a reading, such as a division by zero, is
null, as Spark has it without ANSI mode: no reading stops a query.

A checkpoint is of one name and SQL: another SQL begins anew, for Spark can't go on with other state.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import re
import tempfile
import time
from typing import Final

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession, functions as F

from cloud.config.model import StreamConfig
from spark_jobs.platform.errors import JobError, SettingsError
from spark_jobs.platform.java import java_frame, java_of, java_session
from spark_jobs.platform.schemas import READINGS
from spark_jobs.platform.session import running_session, small_batch_session
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table
from spark_jobs.sinks.kafka import AS_JSON, produce_rows
from spark_jobs.streaming.query import Job, Source

log = logging.getLogger("fieldgate.jobs.stream")

DESCRIPTION: Final = "checks the SQL of each [[stream]] and prints its topic and columns"

_TRIGGERS: Final = 5
"""Polls the table once in so many triggers, as ``mast`` does."""
_REMEDY: Final = (
    "write one SELECT … FROM readings with the columns of that table, each of its results named once; with "
    "aggregates GROUP BY window(time, '1 minute')"
)


class WrongSqlError(JobError):
    """SQL that Spark can't run as a stream; the text names file, line, key and remedy."""


class StreamJob(Job):
    """One run of one stream's query; after a failure, make a new one."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        (self._stream,) = settings.streams
        self.name = f"stream-{self._stream.name}-{hashlib.sha256(self._stream.sql.encode()).hexdigest()[:8]}"
        self._spark = spark
        self._settings = settings
        self._location = ensure_table(spark, settings, READINGS)

    def source(self) -> Source:
        """The query's rows as records. Raises WrongSqlError."""
        # The table as it is comes by the age of its files, of which upkeep rewrites some: within one batch no
        # reading is late.
        options = {"skipChangeCommits": "true", "maxFilesPerTrigger": "2000"}
        if self._stream.begin == "latest":
            options["startingVersion"] = "latest"
        stream = _session(self._spark).readStream.format("delta").options(**options)
        readings = stream.load(self._location)
        records = derived(readings, self._stream, self._settings.prefix)
        return Source(records, _TRIGGERS * self._settings.trigger_s, follows=(READINGS,))

    def batch(self, rows: DataFrame, number: int) -> None:
        """Appends a batch's records to the topic."""
        started = time.monotonic()
        produce_rows(rows, self._settings)
        log.info(
            "event=stream.batch query=%s batch=%d seconds=%.2f", self.name, number, time.monotonic() - started
        )


def _session(spark: SparkSession) -> SparkSession:
    """A session of a stream's own: its view hides no other's, and no value is an error."""
    session = small_batch_session(spark)
    session.conf.set("spark.sql.ansi.enabled", "false")
    # PySpark logs pages of stack traces of an error in SQL, which has its one line here.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    return session


def derived(readings: DataFrame, stream: StreamConfig, prefix: str = "") -> DataFrame:
    """What a stream's SQL makes of a stream of ``readings``, as records: topic, key, value.

    The key is that of readings, as far as the rows have it: ``gateway/channel``. Raises WrongSqlError.
    """
    spark = readings.sparkSession
    watermark_us = round(stream.watermark_s * 1e6)
    # One mast's clock that is ahead would make all others' readings late.
    arrived_us = F.unix_micros(F.coalesce("kafka_time", "ingested_at"))
    timely = readings.where(F.unix_micros("time") <= arrived_us + watermark_us)
    timely.withWatermark("time", f"{watermark_us} microseconds").createOrReplaceTempView(READINGS.name)
    try:
        # A statement that is no query would be carried out by `sql`.
        java_session(spark).sessionState().sqlParser().parseQuery(stream.sql)
        rows = spark.sql(stream.sql)
        names = [name for name in ("gateway", "channel") if name in rows.columns]
        key = F.concat_ws("/", *names) if names else F.lit(None).cast("string")
        value = F.to_json(F.struct("*"), AS_JSON)
        records = rows.select(
            F.lit(prefix + stream.topic).alias("topic"), key.alias("key"), value.alias("value")
        )
        java = java_of(spark).org.apache.spark.sql
        append, plan = java.streaming.OutputMode.Append(), java_frame(records).queryExecution().analyzed()
        java.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, append)
    except PySparkException as error:
        why = next(line for line in str(error).splitlines() if line.strip())
        why = re.sub(r"\.? SQLSTATE: \w+", "", why).strip(" ;")
        raise WrongSqlError(f"{stream.where}: {why}; {_REMEDY}") from error
    if len(set(rows.columns)) < len(rows.columns):
        raise WrongSqlError(f"{stream.where}: two columns have one name; {_REMEDY}")
    return records


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``jobs streams`` has no options of its own."""


def main(options: argparse.Namespace, settings: Settings) -> None:
    """Prints each stream's name, topic and columns. Raises SettingsError with all that is wrong."""
    if not settings.streams:
        raise SettingsError("the cloud's config has no [[stream]] (docs/connect.md); --cloud names it")
    wrong = []
    with running_session(settings) as spark, tempfile.TemporaryDirectory() as nothing:
        for stream in settings.streams:
            readings = _session(spark).readStream.schema(READINGS.schema).parquet(nothing)
            try:
                derived(readings, stream)
            except WrongSqlError as error:
                wrong.append(str(error))
                continue
            rows = readings.sparkSession.sql(stream.sql)
            print(f"{stream.name}: {settings.prefix}{stream.topic}: {rows.schema.simpleString()}")
    if wrong:
        raise SettingsError("\n".join(wrong))
