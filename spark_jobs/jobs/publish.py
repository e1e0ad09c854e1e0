"""``publish``: closed rows of some tables to Kafka's compacted topics ``lake.statistics``, ``lake.mast`` ….

The rows come from the tables' change feeds. A record's key is the table's key, its value the whole row, or
nothing once the row has left the table. Each batch publishes the last change of each key. So a batch that is
done again, after a kill, publishes the same records again, and never a row that is older than the topic's.

Columns without a counterpart in SQL (maps, lists) are JSON in a string, as ``events.fields`` is.
"""

from __future__ import annotations

import logging
import re
import time
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.types import ArrayType, MapType, StructField

from cloud.wire.lake_tables import PUBLISHED, lake_topic
from spark_jobs.platform import schemas
from spark_jobs.platform.schemas import Table
from spark_jobs.platform.session import small_batch_session
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table, table_changes
from spark_jobs.sinks.kafka import AS_JSON, produce_rows
from spark_jobs.streaming.query import Job, Source

log = logging.getLogger("fieldgate.jobs.publish")

TABLES: Final[tuple[Table, ...]] = tuple(getattr(schemas, name.upper()) for name in PUBLISHED)
_TRIGGERS: Final = 5
"""Polls the tables once in so many triggers, as ``mast`` does."""
_MOST_FIELDS_BYTES: Final = 256 << 10


class PublishJob(Job):
    """One run of the query; after a failure, make a new one."""

    name = "publish"

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark = small_batch_session(spark)
        self._settings = settings
        for table in TABLES:
            ensure_table(spark, settings, table)

    def source(self) -> Source:
        """The changes of the tables, as records; from their beginning where a topic was made anew."""
        topics = {table: self._settings.prefix + lake_topic(table.name) for table in TABLES}
        self.topics = "|".join(map(re.escape, topics.values()))
        changes = (
            _records(table_changes(self._spark, self._settings, table, deletions=True), table, topic)
            for table, topic in topics.items()
        )
        rows = reduce(DataFrame.unionByName, changes)
        return Source(rows, _TRIGGERS * self._settings.trigger_s, follows=TABLES)

    def batch(self, rows: DataFrame, number: int) -> None:
        """Publishes the last change of each key."""
        started = time.monotonic()
        # A commit that takes a row out and puts one in has the latter.
        order = F.struct("_commit_version", F.col("value").isNotNull())
        last = rows.groupBy("topic", "key").agg(F.max_by("value", order).alias("value"))
        produce_rows(last, self._settings)
        log.info("event=publish.batch batch=%d seconds=%.2f", number, time.monotonic() - started)


def _records(changes: DataFrame, table: Table, topic: str) -> DataFrame:
    """Changes of closed rows as records; the value of a row that has left is null."""
    closed = F.col("version") > 0 if "version" in table.schema.names else F.lit(True)
    row = F.to_json(F.struct(*map(_plain, table.schema)), AS_JSON)
    return changes.where(closed & (F.col("_change_type") != "update_preimage")).select(
        F.lit(topic).alias("topic"),
        F.to_json(F.struct(*table.key), AS_JSON).alias("key"),
        F.when(F.col("_change_type") != "delete", row).alias("value"),
        "gateway",
        "_commit_version",
    )


def _plain(field: StructField) -> Column:
    if field.name == "fields":
        # Kafka's producer refuses a record of more than 1 MiB, and with it the batch; escapes double it.
        is_short = F.octet_length("fields") <= _MOST_FIELDS_BYTES
        return F.when(is_short, F.col("fields")).otherwise("{}").alias("fields")
    is_nested = isinstance(field.dataType, ArrayType | MapType)
    return F.to_json(field.name, AS_JSON).alias(field.name) if is_nested else F.col(field.name)
