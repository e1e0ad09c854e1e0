"""A reader that is made while the brokers move what it reads."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from cloud.errors import CloudError
from cloud.kafka.readers import Reader


class Moving(Reader):
    """Its places are refused, by one error after the other."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        # Nothing listens there: a consumer is made without a broker.
        super().__init__("127.0.0.1:9", {}, ("commands",), patient=False)

    def _places(self) -> Sequence[TopicPartition]:
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return (TopicPartition("commands", 0, 0),)


def test_what_is_being_moved_is_asked_for_again() -> None:
    reader = Moving(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.NOT_COORDINATOR)
    assert not reader.errors
    reader.close()


def test_what_is_refused_is_not() -> None:
    with pytest.raises(CloudError, match="provision topics"):
        Moving(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.NOT_COORDINATOR)
