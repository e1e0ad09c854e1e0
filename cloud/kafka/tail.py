"""The readings that arrive in Kafka from now on, or from a while ago: for people who watch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from cloud.errors import CloudError
from cloud.kafka.cluster_check import NoAnswer, first_metadata
from cloud.kafka.topic_scan import open_consumer, reading_topics
from cloud.wire.avro_readings import NO_SCHEMAS, UnknownSchema, plain
from cloud.wire.fields import InvalidFields
from cloud.wire.reading_records import Reading, parse_reading

_MOST: Final = 2000


class Tail:
    """One thread uses it. Each call raises CloudError.

    ``refused`` counts records that are no readings, ``unknown`` those in Avro by no schema of ``schemas``.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, str],
        since_s: float,
        timeout_s: float,
        schemas: Mapping[int, str] = NO_SCHEMAS,
        prefix: str = "",
    ) -> None:
        self._schemas = schemas
        self._servers = bootstrap_servers
        self._errors: list[KafkaError] = []
        self.refused = self.unknown = 0
        self._consumer: Consumer = open_consumer(bootstrap_servers, properties, self._errors)
        try:
            found = first_metadata(
                self._consumer, self._errors, bootstrap_servers, dict(properties), timeout_s
            ).topics
            from_ms = round((time.time() - since_s) * 1000)
            places = [
                TopicPartition(topic, partition, from_ms)
                for topic in sorted(found)
                if topic.startswith(prefix) and reading_topics((topic[len(prefix) :],))
                for partition in found[topic].partitions
            ]
            if not places:
                raise CloudError(f"Kafka at {bootstrap_servers} has no topic of readings, {prefix}mqtt.…")
            begins = self._consumer.offsets_for_times(places, timeout=timeout_s)
            for place in begins:
                place.offset = place.offset if place.offset >= 0 else OFFSET_END
            self._consumer.assign(begins)
        except (KafkaException, NoAnswer) as error:
            self.close()
            raise CloudError(f"no answer from Kafka at {bootstrap_servers}: {error}") from error

    def read(self, timeout_s: float) -> list[tuple[Reading, int]]:
        """What has come, at the latest after so long; with Kafka's time, microseconds since the epoch."""
        found = []
        messages = self._consumer.consume(_MOST, timeout=timeout_s)
        if any(message.error() is None for message in messages):
            self._errors.clear()
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise CloudError(f"Kafka at {self._servers} forbids {message.topic()}: allow Read")
                continue
            try:
                value = plain(message.value() or b"", self._schemas)
                received_us = message.timestamp()[1] * 1000
                # The jobs have it so too: else one of the future would be the newest until then.
                found.append((parse_reading(value, received_us), received_us))
            except UnknownSchema:
                self.unknown += 1
            except InvalidFields:
                self.refused += 1
        return found

    @property
    def problem(self) -> str | None:
        """Kafka's last complaint since a record came, None where there was none."""
        return self._errors[-1].str() if self._errors else None

    @property
    def is_lost(self) -> bool:
        """Whether no broker could be reached since a record came."""
        return any(each.code() == KafkaError._ALL_BROKERS_DOWN for each in self._errors)

    def close(self) -> None:
        """Leave."""
        self._consumer.close()
