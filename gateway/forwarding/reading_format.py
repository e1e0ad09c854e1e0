"""How readings leave for Kafka: as the JSON they are everywhere in the gateway, or as Avro.

The one place where that is decided, at the sink: the outbox, the local broker and what repairs a time have
JSON alone, so a config may change the format while there is a backlog. A registry that is away stops nothing:
the schema's id is kept beside the outbox. While it isn't known, readings leave as JSON, which every reader of
ours takes beside Avro.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from cloud.backoff import Backoff
from cloud.errors import CloudError
from cloud.registry import PROVISION, NotRegistered, Registry, RegistryAccess
from cloud.wire.avro_readings import SCHEMA, SUBJECT, head, to_avro
from gateway.config.model import KafkaConfig
from gateway.system.atomic_file import read_state, write_state

log = logging.getLogger(__name__)

_AGAIN_S: Final = (2.0, 3600.0)
"""A try costs some kilobytes of a metered uplink."""
_SCHEMA: Final = hashlib.sha256(SCHEMA.encode()).hexdigest()


class Sendable(Protocol):
    """A record, as far as its format counts."""

    @property
    def topic(self) -> str:
        """Kafka's topic."""

    @property
    def value(self) -> bytes:
        """JSON, or the bytes of a raw message."""

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Names and values."""


class ReadingFormat:
    """``value_of`` is the forwarder's; the registry is asked by a thread of its own, once, until it answers.

    ``kept`` is the file with the id.
    """

    def __init__(self, kept: Path) -> None:
        self._kept = kept
        self._access: RegistryAccess | None = None
        self._head: bytes | None = None
        self._lock = threading.Lock()
        self._moved = threading.Event()
        self.problem: str | None = None
        """Why readings leave as JSON though Avro is wanted; None where all is as the config has it."""

    def apply(self, kafka: KafkaConfig) -> None:
        """Write as a config has it from now on."""
        access = access_of(kafka)
        with self._lock:
            if access == self._access:
                return
            self._moved.set()
            self._moved = moved = threading.Event()
            self._access, self.problem, self._head = access, None, None
            if access is None:
                return
            number = read_state(self._kept, lambda kept: _id_in(kept, access.url), None)
            if number is None:
                self.problem = f"readings leave as JSON until {access.url} answers"
            else:
                self._head = head(number)
        threading.Thread(target=self._ask, args=(access, moved), name="schema-registry", daemon=True).start()

    def value_of(self, record: Sendable) -> bytes:
        """What is sent as a record's value."""
        known = self._head
        if known is None or not is_reading(record):
            return record.value
        return to_avro(record.value, known) or record.value

    def close(self) -> None:
        """Ask nothing more."""
        self._moved.set()

    def _ask(self, access: RegistryAccess, moved: threading.Event) -> None:
        pause, registry, failed = Backoff(*_AGAIN_S), Registry(access), False
        while not moved.is_set():
            try:
                number = registry.own_id()
            except CloudError as error:
                level = logging.DEBUG if failed else logging.WARNING
                log.log(level, "event=schema.unknown kept=%s error=%s", self._head is not None, error)
                failed = True
                self._settle(moved, self._without_id(error))
                moved.wait(pause.next())
                continue
            with self._lock:
                if not moved.is_set():
                    self._head, self.problem = head(number), None
                    write_state(self._kept, {"url": access.url, "schema": _SCHEMA, "id": number})
                    log.info("event=schema.known id=%d subject=%s", number, SUBJECT)
            return

    def _without_id(self, error: CloudError) -> str | None:
        """The problem there is without an answer; an id that is kept holds until the registry denies it."""
        if isinstance(error, NotRegistered):
            return f"readings leave as JSON: {SUBJECT} isn't registered as this version has it: {PROVISION}"
        return None if self._head is not None else f"readings leave as JSON: {error}"

    def _settle(self, moved: threading.Event, problem: str | None) -> None:
        with self._lock:
            if not moved.is_set():
                self.problem = problem
                self._head = None if problem is not None else self._head


def access_of(kafka: KafkaConfig) -> RegistryAccess | None:
    """The registry of a config; None where it has JSON."""
    if kafka.format != "avro" or kafka.schema_registry_url is None:
        return None
    ca = kafka.schema_registry_ca
    return RegistryAccess(
        kafka.schema_registry_url.rstrip("/"),
        None if ca is None else str(ca),
        kafka.schema_registry_username,
        kafka.schema_registry_password,
    )


def is_reading(record: Sendable) -> bool:
    """Whether a record is a reading by where it goes; raw messages have their number in a header."""
    return not record.topic.startswith("gateway.") and all(name != "seq" for name, _ in record.headers)


def _id_in(kept: Mapping[str, Any], url: str) -> int | None:
    """The id that a registry gave this version's schema; None where it is another's."""
    number = kept["id"]
    sound = type(number) is int and 0 < number < 1 << 31
    return number if sound and (kept["url"], kept["schema"]) == (url, _SCHEMA) else None
