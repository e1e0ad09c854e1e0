"""How many records Kafka has taken, topic by topic."""

from __future__ import annotations

import logging
from typing import Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined] # no __all__

from cloud.errors import CloudError

log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 3.0


class EndOffsets:
    """Requests from one cluster the ends of its topics, again and again. One thread at a time."""

    def __init__(self, bootstrap_servers: str) -> None:
        # An outage is reported by the exception; librdkafka would repeat it on stderr several times a second.
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}, logger=log)

    def by_topic(self) -> dict[str, int]:
        """Sum of end offsets over each topic's partitions. Raises CloudError."""
        try:
            topics = self._admin.list_topics(timeout=_TIMEOUT_S).topics
            partitions = [
                TopicPartition(name, partition)
                for name, topic in topics.items()
                if not name.startswith("__")
                for partition in topic.partitions
            ]
            ends = dict.fromkeys((partition.topic for partition in partitions), 0)
            if partitions:
                latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
                wanted = dict.fromkeys(partitions, latest)
                for partition, answer in self._admin.list_offsets(wanted, request_timeout=_TIMEOUT_S).items():
                    ends[partition.topic] += answer.result(timeout=2 * _TIMEOUT_S).offset
        except (KafkaException, TimeoutError) as error:
            raise CloudError(str(error)) from error
        return ends
