"""Kafka producers with the properties of a config."""

from __future__ import annotations

from cloud.kafka.producer import METERED_PROPERTIES, KafkaSink
from gateway.config import Config
from gateway.forwarding.spill import batch_s


def kafka_sink(config: Config, role: str) -> KafkaSink:
    """A producer; ``role`` (live, backlog) ends its client id. Raises CloudError."""
    kafka = config.kafka
    return KafkaSink(kafka.bootstrap_servers, f"{config.gateway.id}-{role}", kafka_properties(config, role))


def kafka_properties(config: Config, role: str) -> dict[str, str]:
    """A producer's librdkafka properties; a metered uplink's batches are compressed harder."""
    batched = role == "backlog" and batch_s(config) is not None
    return {**(METERED_PROPERTIES if batched else {}), **config.kafka.properties}
