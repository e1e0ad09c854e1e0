"""Produces one record and waits for Kafka: what commands of operators do."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cloud.errors import CloudError
from cloud.kafka.producer import DEFAULTS

log = logging.getLogger(__name__)


def publish(
    bootstrap_servers: str, properties: Mapping[str, str], record: tuple[str, bytes, bytes], timeout_s: float
) -> None:
    """Produce one record, topic, key and value, and wait until Kafka has it. Raises CloudError."""
    topic, key, value = record
    settings = {
        **DEFAULTS,
        **properties,
        "bootstrap.servers": bootstrap_servers,
        "delivery.timeout.ms": str(round(timeout_s * 1000)),
        "log_level": 0,
    }
    outcome: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        outcome.append(error)

    try:
        producer = Producer(settings, logger=log)
        producer.produce(topic, key=key, value=value, on_delivery=delivered)
        producer.flush(timeout_s + 1)
    except KafkaException as error:
        raise CloudError(f"{topic}: {error.args[0].str()}") from error
    if not outcome or outcome[0] is not None:
        reason = outcome[0].str() if outcome and outcome[0] is not None else "no answer"
        raise CloudError(f"{topic}: the record may not have been stored: {reason}")
