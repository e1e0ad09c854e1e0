"""The highest Kafka offsets a table has: repeats are searched for only below them."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

Partition = tuple[str, int]
"""Topic and partition."""
Spans = Mapping[Partition, tuple[int, int]]
"""Lowest and highest offset in each partition."""


class StoredOffsets:
    """The highest offset of each partition in a table of Kafka records. One thread at a time."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        rows = (
            spark.read.format("delta")
            .load(location)
            .groupBy("kafka_topic", "kafka_partition")
            .agg(F.max("kafka_offset").alias("offset"))
            .collect()
        )
        self._highest = {(row.kafka_topic, row.kafka_partition): int(row.offset) for row in rows}

    def may_hold(self, spans: Spans) -> bool:
        """Whether records of these spans may be in the table.

        Only after a lost checkpoint or a crash, or in a topic that was deleted and created again.
        """
        return any(lowest <= self._highest.get(place, -1) for place, (lowest, _) in spans.items())

    def add(self, spans: Spans) -> None:
        """Records of these spans are in the table now."""
        for place, (_, highest) in spans.items():
            self._highest[place] = max(self._highest.get(place, -1), highest)
