"""The topics a fleet needs, created where they are missing; doing it again changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined] # no __all__
from confluent_kafka.cimpl import NewPartitions, NewTopic

from cloud.errors import CloudError
from cloud.kafka.cluster_check import NoAnswer, answer_of, open_admin
from cloud.kafka.librdkafka import MAX_RECORD_BYTES
from cloud.wire.channel_records import CHANNELS_TOPIC
from cloud.wire.identities import IDENTITIES_TOPIC
from cloud.wire.lake_tables import PUBLISHED, lake_topic
from cloud.wire.quantities import QUANTITIES
from cloud.wire.reading_records import (
    ALERTS_TOPIC,
    COMMAND_RESULTS_TOPIC,
    COMMANDS_TOPIC,
    DEAD_LETTER_TOPIC,
    EVENTS_TOPIC,
    RAW_TOPIC,
    READING_TOPIC_PREFIX,
    RUNS_TOPIC,
    STATUS_TOPIC,
)
from cloud.wire.site_records import SITES_TOPIC

_COMPACTED: Final = (
    *(STATUS_TOPIC, RUNS_TOPIC, CHANNELS_TOPIC, SITES_TOPIC, IDENTITIES_TOPIC),
    *map(lake_topic, PUBLISHED),
)
_PLAIN: Final = (
    *(f"{READING_TOPIC_PREFIX}{quantity}" for quantity in QUANTITIES),
    RAW_TOPIC,
    EVENTS_TOPIC,
    COMMANDS_TOPIC,
    COMMAND_RESULTS_TOPIC,
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
"""The broker gives its own number of partitions or replicas."""


_REQUIRED: Final = tuple(_DELETED)
_PARTITIONS: Final = "partitions"
_SIZE: Final = "max.message.bytes"
"""At least: 1 MiB of payload is no dead letter, where it isn't compressed either."""
_KEYS_STAY: Final = (*_COMPACTED, COMMANDS_TOPIC)
"""Where a key must stay in its partition: a gateway reads one for its commands, and the cleaner sees one."""


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """What is not as it should be of a topic: a setting, or how many partitions or replicas it has."""

    topic: str
    key: str
    found: str
    wanted: str
    possible: bool = field(kw_only=True)
    """Whether it is changed here."""

    def __str__(self) -> str:
        text = f"{self.topic}: {self.key} is {self.found}, must be {self.wanted}"
        return text if self.possible else f"{text}: {self._remedy}"

    @property
    def _remedy(self) -> str:
        return "its keys would move; it stays" if self.key == _PARTITIONS else "by kafka-reassign-partitions"


@dataclass(frozen=True, slots=True)
class Provisioned:
    """What was found and done.

    Three are about existing topics: ``deviations`` are settings that must be different, ``differences`` what
    is not as it was asked for, ``changed`` what was either of them.
    """

    created: tuple[str, ...]
    existing: tuple[str, ...]
    deviations: tuple[str, ...]
    differences: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


def provision_topics(
    bootstrap_servers: str,
    *,
    partitions: int = BROKER_DEFAULT,
    replication: int = BROKER_DEFAULT,
    others: Iterable[str] = (),
    prefix: str = "",
    retention_s: float | None = None,
    dry_run: bool = False,
    apply: bool = False,
    properties: Mapping[str, str] | None = None,
    timeout_s: float = 10.0,
) -> Provisioned:
    """Create the missing ones of TOPICS and of ``others``, all with ``prefix``; existing ones are compared.

    ``dry_run`` only reports what would be created. ``apply`` changes settings of existing topics, and makes
    partitions where keys may move. ``retention_s`` is for topics that aren't compacted. ``properties`` are
    librdkafka's (security, mostly). Raises CloudError.
    """
    try:
        admin, found = open_admin(bootstrap_servers, properties or {}, timeout_s)
    except NoAnswer as error:
        raise CloudError(f"no answer from Kafka at {bootstrap_servers}: {error}") from error
    present = found.topics
    settings = {prefix + name: _settings(name, retention_s) for name in (*TOPICS, *sorted(others))}
    missing = [name for name in settings if name not in present]
    existing = [name for name in settings if name in present]
    found_settings = _settings_of(admin, existing, timeout_s)
    wrong = [
        Change(name, key, found_settings[name][key], value, possible=True)
        for name in existing
        for key, value in settings[name].items()
        if found_settings[name][key] != value
        and not (key == _SIZE and int(found_settings[name][key]) > int(value))
    ]
    few = [
        Change(
            name,
            count,
            str(now),
            str(asked),
            possible=count == _PARTITIONS and name.removeprefix(prefix) not in _KEYS_STAY,
        )
        for name in existing
        for count, now, asked in _counts(found.topics[name], partitions, replication)
    ]
    if missing and not dry_run:
        missing = _create(admin, missing, settings, partitions, replication, timeout_s)
    changed = []
    if apply:
        changed = wrong + [each for each in few if each.possible]
        _change(admin, changed, timeout_s)
    left = sorted(each for each in (*wrong, *few) if each not in changed)
    return Provisioned(
        tuple(missing),
        tuple(existing),
        tuple(str(each) for each in left if each.key in _REQUIRED),
        tuple(str(each) for each in left if each.key not in _REQUIRED),
        tuple(map(str, sorted(changed))),
    )


def _counts(topic: Any, partitions: int, replication: int) -> list[tuple[str, int, int]]:
    """Partitions and replicas of a topic that has fewer than asked for."""
    replicas = min((len(each.replicas) for each in topic.partitions.values()), default=0)
    counts = (_PARTITIONS, len(topic.partitions), partitions), ("replicas", replicas, replication)
    return [each for each in counts if each[1] < each[2]]


def _change(admin: AdminClient, changes: list[Change], timeout_s: float) -> None:
    more = [NewPartitions(each.topic, int(each.wanted)) for each in changes if each.key == _PARTITIONS]
    entries: dict[str, list[ConfigEntry]] = {}
    for each in changes:
        if each.key != _PARTITIONS:
            entry = ConfigEntry(each.key, each.wanted, incremental_operation=AlterConfigOpType.SET)
            entries.setdefault(each.topic, []).append(entry)
    resources = [
        ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=given)
        for topic, given in entries.items()
    ]
    answers: list[Future[Any]] = []
    answers += admin.create_partitions(more, operation_timeout=timeout_s).values() if more else ()
    answers += admin.incremental_alter_configs(resources).values() if resources else ()
    for answer in answers:
        try:
            answer_of(answer, timeout_s)
        except KafkaException as error:
            raise CloudError(f"Kafka refused a change, others may be made: {_reason(error)}") from error


def _create(
    admin: AdminClient,
    names: list[str],
    settings: Mapping[str, dict[str, str]],
    partitions: int,
    replication: int,
    timeout_s: float,
) -> list[str]:
    wanted = [
        NewTopic(name, num_partitions=partitions, replication_factor=replication, config=settings[name])
        for name in names
    ]
    created, refused = [], []
    for name, outcome in admin.create_topics(wanted, operation_timeout=timeout_s).items():
        try:
            answer_of(outcome, timeout_s)
        except KafkaException as error:
            # Another program may provision at the same moment; then it is there all the same.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                refused.append(f"{name}: {_reason(error)}")
        else:
            created.append(name)
    if refused:
        raise CloudError("Kafka refused to create " + "; ".join(refused))
    return created


def _settings_of(admin: AdminClient, names: list[str], timeout_s: float) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    if not resources:
        return {}
    found = {}
    for resource, answer in admin.describe_configs(resources, request_timeout=timeout_s).items():
        try:
            settings = answer_of(answer, timeout_s)
        except KafkaException as error:
            raise CloudError(f"can't read the settings of {resource.name}: {_reason(error)}") from error
        found[str(resource.name)] = {key: str(entry.value) for key, entry in settings.items()}
    return found


def _settings(name: str, retention_s: float | None) -> dict[str, str]:
    settings = dict(TOPICS.get(name, _DELETED))
    if retention_s is not None and settings == _DELETED:
        settings["retention.ms"] = str(round(retention_s * 1000))
    if name == RAW_TOPIC or name not in TOPICS:
        settings[_SIZE] = str(MAX_RECORD_BYTES)
    return settings


def _reason(error: KafkaException) -> str:
    return str(error.args[0].str())
