"""How far a table holds each Kafka partition's records: repeats are looked for only below that."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

Place = tuple[str, int]
"""Topic and partition."""


class StoredPlaces:
    """The highest offset of each (topic, partition) in a table of Kafka records. One thread at a time."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        rows = (
            spark.read.format("delta")
            .load(location)
            .groupBy("kafka_topic", "kafka_partition")
            .agg(F.max("kafka_offset").alias("offset"))
            .collect()
        )
        self._highest = {(row.kafka_topic, row.kafka_partition): int(row.offset) for row in rows}

    def may_hold(self, lowest: Mapping[Place, int]) -> bool:
        """Whether records from these offsets on may be in the table.

        Only after a lost checkpoint or a crash, or in a topic that was created anew.
        """
        return any(offset <= self._highest.get(place, -1) for place, offset in lowest.items())

    def stored(self, highest: Mapping[Place, int]) -> None:
        """Notes that records up to these offsets are in the table."""
        for place, offset in highest.items():
            self._highest[place] = max(self._highest.get(place, -1), offset)
