"""Checks a Kafka cluster without changing it, and librdkafka properties without a cluster."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from cloud.errors import CloudError
from cloud.kafka.librdkafka import DEFAULTS, open_client
from cloud.kafka.listener_probe import listener_fault

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ClusterMetadata  # type: ignore[attr-defined] # no __all__

log = logging.getLogger(__name__)

_STEP_S: Final = 0.5
_REACH_S: Final = 3.0
_LOADS_CODE: Final = "plugin."
NAMES_A_FILE: Final = ".location"
"""How the names of properties end that name a file."""
_OF_ITS_OWN: Final = ("No such configuration property", "Invalid value", "Configuration property")


class NoAnswer(CloudError):
    """Kafka doesn't answer; the message has the cause."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a cluster answers: how many brokers, the topics there are, and how long the answer took (s).

    ``round_trip_s`` is a request's on a connection that stands; ``unreachable``: the addresses that clients
    are given, and why this machine doesn't reach them.
    """

    brokers: int
    topics: frozenset[str]
    took_s: float
    round_trip_s: float
    unreachable: Mapping[str, str] = field(default_factory=dict)


def property_problem(name: str, value: str) -> str | None:
    """Why librdkafka doesn't take a property by itself; None where it does. No network, no files."""
    if name.startswith(_LOADS_CODE):
        return None
    try:
        # Without servers it connects to nothing.
        Producer({name: value, "log_level": 0}, logger=log)
    except KafkaException as error:
        problem = str(error.args[0].str()).strip()
        # Others compare properties with each other, and their neighbours aren't here.
        return problem if problem.startswith(_OF_ITS_OWN) else None
    except (TypeError, AttributeError, ValueError):
        return f"{name} can't be set by a file"
    return None


def together_problem(properties: Mapping[str, str], *, files: bool = False) -> str | None:
    """Why librdkafka doesn't take properties together that it takes one by one; None where it does.

    No network. Without ``files`` those that properties name are left out: they may be elsewhere.
    """
    taken = {
        name: value
        for name, value in properties.items()
        if not name.startswith(_LOADS_CODE) and (files or not name.endswith(NAMES_A_FILE))
    }
    try:
        Producer({**DEFAULTS, **taken, "log_level": 0}, logger=log)
    except KafkaException as error:
        return str(error.args[0].str()).strip().removeprefix("Failed to create producer: ")
    return None


def describe_cluster(bootstrap_servers: str, properties: Mapping[str, str], timeout_s: float) -> Cluster:
    """Request brokers and topics. Raises NoAnswer, CloudError where the properties don't go together."""
    begin_s = time.monotonic()
    admin, found = open_admin(bootstrap_servers, properties, timeout_s)
    connected_s = time.monotonic()
    unreachable = _unreachable([(str(each.host), each.port) for each in found.brokers.values()])
    if unreachable:
        return Cluster(len(found.brokers), frozenset(found.topics), connected_s - begin_s, 0.0, unreachable)
    again_s = time.monotonic()
    try:
        found = admin.list_topics(timeout=timeout_s)
    except KafkaException as error:
        raise NoAnswer(str(error.args[0].str())) from error
    took_s, again_s = connected_s - begin_s, time.monotonic() - again_s
    return Cluster(len(found.brokers), frozenset(found.topics), took_s, again_s)


def _unreachable(addresses: Sequence[tuple[str, int]]) -> dict[str, str]:
    """Which addresses take no connection from here, and why."""
    found = {}
    for address in addresses:
        try:
            socket.create_connection(address, _REACH_S).close()
        except OSError as error:
            found["{}:{}".format(*address)] = error.strerror or str(error)
    return found


def open_admin(
    bootstrap_servers: str, properties: Mapping[str, str], timeout_s: float
) -> tuple[AdminClient, ClusterMetadata]:
    """A client, and the metadata it has got. Raises NoAnswer, CloudError as ``describe_cluster``."""
    # Imported here: the daemon, which only checks properties, has no use for it.
    from confluent_kafka.admin import AdminClient

    errors: list[KafkaError] = []
    settings: dict[str, Any] = {
        **properties,
        "bootstrap.servers": bootstrap_servers,
        "log_level": 0,
        "error_cb": errors.append,
    }
    admin = open_client(AdminClient, settings)
    return admin, first_metadata(admin, errors, bootstrap_servers, properties, timeout_s)


def answer_of(request: Future[Any], timeout_s: float) -> Any:
    """What Kafka answers to a request of ``open_admin``'s client. Raises KafkaException, NoAnswer."""
    # librdkafka's own limit, a minute where the request has none, may be far away.
    try:
        return request.result(timeout=2 * timeout_s)
    except TimeoutError as error:
        raise NoAnswer(
            f"no answer from Kafka in {2 * timeout_s:g} s: what was requested may be done"
        ) from error


def first_metadata(
    client: AdminClient | Consumer,
    errors: list[KafkaError],
    bootstrap_servers: str,
    properties: Mapping[str, str],
    timeout_s: float,
) -> ClusterMetadata:
    """What a new client gets; ``errors`` are those of its ``error_cb``. Raises NoAnswer with the cause."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            # The steps are short: librdkafka can't be interrupted while it waits.
            return client.list_topics(timeout=min(_STEP_S, timeout_s))
        except KafkaException as error:
            client.poll(0)
            # The broker won't let the client in, however often it tries.
            refused = any(each.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL) for each in errors)
            if refused or time.monotonic() >= deadline_s:
                raise NoAnswer(_reason(errors or [error.args[0]], bootstrap_servers, properties)) from error


def _reason(errors: Sequence[KafkaError], bootstrap_servers: str, properties: Mapping[str, str]) -> str:
    """What of librdkafka's complaints helps most; that all brokers are down helps least."""
    causes = [error for error in errors if error.code() != KafkaError._ALL_BROKERS_DOWN]
    text = str((causes or errors)[-1].str())
    if causes and causes[-1].code() == KafkaError._AUTHENTICATION:
        return text
    fault = listener_fault(bootstrap_servers, properties)
    return text if fault is None else fault.text
