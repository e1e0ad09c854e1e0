"""Reads and writes which gateways have to prove themselves, and reads the runs they are known by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Message

from cloud.errors import CloudError
from cloud.kafka.command_client import publish
from cloud.kafka.topic_scan import open_scan
from cloud.wire.fields import InvalidFields
from cloud.wire.identities import IDENTITIES_TOPIC, IdentityRecord
from cloud.wire.reading_records import RUNS_TOPIC
from cloud.wire.run_records import RunRecord


@dataclass(frozen=True, slots=True)
class Known:
    """A gateway's record, None without one; and its runs, with Kafka's time of what names them (us)."""

    record: IdentityRecord | None
    runs: Mapping[str, int]


class IdentityTopic:
    """One cluster's, of a prefix. Each call raises CloudError."""

    def __init__(
        self, bootstrap_servers: str, properties: Mapping[str, str], timeout_s: float, prefix: str = ""
    ) -> None:
        self._kafka = bootstrap_servers, properties
        self._timeout_s = timeout_s
        self._prefix = prefix

    def read(self, gateway: str) -> Known:
        """What is known of a gateway."""
        records: list[IdentityRecord] = []
        runs: dict[str, int] = {}

        def receive(topic: str, message: Message) -> None:
            value = message.value() or b""
            if topic == IDENTITIES_TOPIC:
                if message.key() == gateway.encode():
                    # One that was deleted is none.
                    records[:] = [_record(value, gateway)] if value else []
                return
            try:
                run = RunRecord.from_json(value)
            except InvalidFields:
                return
            if run.gateway == gateway:
                names = (run.run, run.previous_run, *(each.run for each in run.unfinished))
                runs.update(dict.fromkeys(filter(None, names), message.timestamp()[1] * 1000))

        with open_scan(*self._kafka, self._timeout_s, self._prefix) as scan:
            there = scan.topics()
            if IDENTITIES_TOPIC not in there:
                raise CloudError(f"there is no topic {IDENTITIES_TOPIC}: fieldgate provision topics makes it")
            scan.read(sorted({IDENTITIES_TOPIC, RUNS_TOPIC} & there), receive)
        return Known(records[-1] if records else None, runs)

    def all(self) -> dict[str, IdentityRecord]:
        """The record of each gateway; none where there is no such topic, or this login isn't shown it."""
        found: dict[str, IdentityRecord] = {}

        def receive(_topic: str, message: Message) -> None:
            name = (message.key() or b"").decode(errors="replace")
            found.pop(name, None)
            if value := message.value():
                found[name] = _record(value, name)

        with open_scan(*self._kafka, self._timeout_s, self._prefix) as scan:
            scan.read(sorted({IDENTITIES_TOPIC} & scan.topics()), receive)
        return found

    def write(self, record: IdentityRecord) -> None:
        """Store a record in the place of the gateway's last one."""
        topic, key = self._prefix + IDENTITIES_TOPIC, record.gateway.encode()
        publish(*self._kafka, (topic, key, record.to_json()), self._timeout_s)


def _record(value: bytes, gateway: str) -> IdentityRecord:
    try:
        return IdentityRecord.from_json(value)
    except InvalidFields as problem:
        raise CloudError(f"{gateway}'s record in {IDENTITIES_TOPIC} can't be read: {problem}") from None
