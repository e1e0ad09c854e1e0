"""The topics a fleet needs, created where they are missing; doing it again changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined] # no __all__
from confluent_kafka.cimpl import NewTopic

from cloud.errors import CloudError
from cloud.kafka.cluster_check import NoAnswer, open_admin
from cloud.wire.channel_records import CHANNELS_TOPIC
from cloud.wire.quantities import QUANTITIES
from cloud.wire.reading_records import (
    ALERTS_TOPIC,
    COMMANDS_TOPIC,
    DEAD_LETTER_TOPIC,
    EVENTS_TOPIC,
    RAW_TOPIC,
    READING_TOPIC_PREFIX,
    RUNS_TOPIC,
    STATUS_TOPIC,
)
from cloud.wire.site_records import SITES_TOPIC

_COMPACTED: Final = (STATUS_TOPIC, RUNS_TOPIC, CHANNELS_TOPIC, SITES_TOPIC)
_PLAIN: Final = (
    *(f"{READING_TOPIC_PREFIX}{quantity}" for quantity in QUANTITIES),
    RAW_TOPIC,
    EVENTS_TOPIC,
    COMMANDS_TOPIC,
    "gateway.command-results",
    ALERTS_TOPIC,
    DEAD_LETTER_TOPIC,
)

# Never the event time: brokers refuse and expire records by it, and a mast may deliver last month's today.
_BY_ARRIVAL: Final = {"message.timestamp.type": "LogAppendTime"}
_DELETED: Final = {**_BY_ARRIVAL, "cleanup.policy": "delete"}

TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    **dict.fromkeys(_PLAIN, _DELETED),
    **{name: {**_BY_ARRIVAL, "cleanup.policy": "compact"} for name in _COMPACTED},
}
"""Every topic with the settings it depends on."""

BROKER_DEFAULT: Final = -1
"""As many partitions or replicas as the broker gives by itself."""


@dataclass(frozen=True, slots=True)
class Provisioned:
    """What was found and done; ``deviations`` are settings of existing topics that must be different."""

    created: tuple[str, ...]
    existing: tuple[str, ...]
    deviations: tuple[str, ...]


def provision_topics(
    bootstrap_servers: str,
    *,
    partitions: int = BROKER_DEFAULT,
    replication: int = BROKER_DEFAULT,
    others: Iterable[str] = (),
    dry_run: bool = False,
    properties: Mapping[str, str] | None = None,
    timeout_s: float = 10.0,
) -> Provisioned:
    """Create the missing ones of TOPICS and of ``others``; existing ones are compared, never changed.

    ``dry_run`` only reports what would be created. ``properties`` are librdkafka's (security, mostly). Raises
    CloudError.
    """
    try:
        admin, found = open_admin(bootstrap_servers, properties or {}, timeout_s)
    except NoAnswer as error:
        raise CloudError(f"no answer from Kafka at {bootstrap_servers}: {error}") from error
    present = found.topics
    wanted = dict.fromkeys((*TOPICS, *sorted(others)))
    missing = [name for name in wanted if name not in present]
    existing = [name for name in wanted if name in present]
    deviations = _deviations(admin, existing, timeout_s)
    if missing and not dry_run:
        missing = _create(admin, missing, partitions, replication, timeout_s)
    return Provisioned(tuple(missing), tuple(existing), deviations)


def _create(
    admin: AdminClient, names: list[str], partitions: int, replication: int, timeout_s: float
) -> list[str]:
    wanted = [
        NewTopic(name, num_partitions=partitions, replication_factor=replication, config=_settings(name))
        for name in names
    ]
    created, refused = [], []
    for name, outcome in admin.create_topics(wanted, operation_timeout=timeout_s).items():
        try:
            outcome.result(timeout=2 * timeout_s)
        except KafkaException as error:
            # Another program may provision at the same moment; then it is there all the same.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                refused.append(f"{name}: {_reason(error)}")
        else:
            created.append(name)
    if refused:
        raise CloudError("Kafka refused to create " + "; ".join(refused))
    return created


def _deviations(admin: AdminClient, names: list[str], timeout_s: float) -> tuple[str, ...]:
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    if not resources:
        return ()
    found = []
    for resource, answer in admin.describe_configs(resources, request_timeout=timeout_s).items():
        try:
            settings = answer.result(timeout=2 * timeout_s)
        except KafkaException as error:
            raise CloudError(f"can't read the settings of {resource.name}: {_reason(error)}") from error
        for key, value in _settings(resource.name).items():
            actual = settings[key].value
            if actual != value:
                found.append(f"{resource.name}: {key} is {actual}, must be {value}")
    return tuple(sorted(found))


def _settings(name: str) -> dict[str, str]:
    return dict(TOPICS.get(name, _DELETED))


def _reason(error: KafkaException) -> str:
    return str(error.args[0].str())
