"""What each kind of user may do in Kafka: what it needs, and nothing else. Pure.

Read and Write imply Describe in Kafka's authorizer. An idempotent producer needs no permission of its own,
and a reader that names its partitions, as the jobs do, needs no group.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from cloud.wire.channel_records import CHANNELS_TOPIC
from cloud.wire.identities import IDENTITIES_TOPIC
from cloud.wire.lake_tables import lake_topic
from cloud.wire.reading_records import (
    ALERTS_TOPIC,
    COMMAND_RESULTS_TOPIC,
    COMMANDS_TOPIC,
    DEAD_LETTER_TOPIC,
    EVENTS_TOPIC,
    READING_TOPIC_PREFIX,
    RUNS_TOPIC,
    STATUS_TOPIC,
)
from cloud.wire.site_records import SITES_TOPIC

CLUSTER: Final = "kafka-cluster"
"""The cluster's name as a resource."""

SENT: Final = (
    STATUS_TOPIC, RUNS_TOPIC, CHANNELS_TOPIC, SITES_TOPIC, EVENTS_TOPIC, COMMAND_RESULTS_TOPIC,
    DEAD_LETTER_TOPIC,
)  # fmt: skip
"""What each gateway reports about itself, by its key."""
_DESCRIBES: Final = (STATUS_TOPIC, RUNS_TOPIC, CHANNELS_TOPIC, SITES_TOPIC, EVENTS_TOPIC, ALERTS_TOPIC)
"""What an analyst reads beside the readings and the published tables."""
_LAKE: Final = lake_topic("*")


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One operation, by Kafka's name, on a resource; a name with ``*`` at its end is a prefix."""

    kind: Literal["topic", "group", "cluster"]
    name: str
    operation: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.kind}" + ("" if self.kind == "cluster" else f" {self.name}")


def group_of(gateway: str) -> str:
    """The consumer group in which Kafka keeps where a gateway is."""
    return f"fieldgate-{gateway}"


def commands_group_of(gateway: str) -> str:
    """The group whose one member reads a gateway's commands."""
    return f"fieldgate-{gateway}-commands"


def gateway(topics: Iterable[str] = (), name: str = "", reads: Iterable[str] = ()) -> frozenset[Permission]:
    """A gateway's: ``topics`` are those that its config names beside the usual ones, or ``prefix*``.

    ``reads`` are its downlinks' topics, of which the group of its name keeps where it is.
    """
    sent = {f"{READING_TOPIC_PREFIX}*", *SENT}
    sent |= {topic for topic in topics if not topic.startswith(READING_TOPIC_PREFIX)}
    read = (COMMANDS_TOPIC, *reads)
    groups = (commands_group_of(name), *((group_of(name),) if reads else ()))
    reading = frozenset(Permission("group", each, "READ") for each in groups)
    return _topics("WRITE", sent) | _topics("READ", read) | reading


def job(topics: Iterable[str] = (), derived: Iterable[str] = ()) -> frozenset[Permission]:
    """The jobs': they read all that gateways send, ``topics`` too; they write alerts, commands and tables.

    ``derived`` are the topics that streams write to.

    What ``publish`` writes it may read, as each query may its topics.
    """
    read = (f"{READING_TOPIC_PREFIX}*", "gateway.*", _LAKE, *topics)
    return _topics("READ", read) | _topics("WRITE", (ALERTS_TOPIC, COMMANDS_TOPIC, _LAKE, *derived))


def analyst(user: str, topics: Iterable[str] = ()) -> frozenset[Permission]:
    """An analyst's: readings, what describes them, published tables, ``topics``; groups of the own name."""
    read = _topics("READ", (f"{READING_TOPIC_PREFIX}*", *_DESCRIBES, _LAKE, *topics))
    return read | {Permission("group", f"{user}-*", "READ")}


def operator() -> frozenset[Permission]:
    """An operator's: topics, users, permissions and quotas; reads all, deletes nothing.

    It writes commands, and which gateways must prove themselves.

    Who may change permissions may give himself others.
    """
    own = ("READ", "CREATE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
    cluster = ("DESCRIBE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
    return (
        frozenset(each for operation in own for each in _topics(operation, ("*",)))
        | _topics("WRITE", (COMMANDS_TOPIC, IDENTITIES_TOPIC))
        | {Permission("cluster", CLUSTER, operation) for operation in cluster}
    )


def within(prefix: str, permissions: Iterable[Permission]) -> frozenset[Permission]:
    """The same, for topics and groups that begin with a prefix."""
    return frozenset(
        each if each.kind == "cluster" else replace(each, name=prefix + each.name) for each in permissions
    )


def _topics(operation: str, names: Iterable[str]) -> frozenset[Permission]:
    return frozenset(Permission("topic", name, operation) for name in names)
