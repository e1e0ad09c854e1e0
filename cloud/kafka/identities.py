"""Reads and writes which gateways have to prove themselves, and reads the runs they are known by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import cast

from confluent_kafka import Message

from cloud.errors import CloudError
from cloud.kafka.single_record import publish
from cloud.kafka.topic_scan import open_scan
from cloud.wire.fields import InvalidFields
from cloud.wire.identities import IDENTITIES_TOPIC, IdentityRecord
from cloud.wire.reading_records import RUNS_TOPIC
from cloud.wire.run_records import RunRecord
from cloud.wire.signatures import Signature, signature


@dataclass(frozen=True, slots=True)
class Known:
    """A gateway's record, None without one; and its runs, with Kafka's time of what names them (us).

    ``signature`` is that of the last one of its runs' records.
    """

    record: IdentityRecord | None
    runs: Mapping[str, int]
    signature: Signature | None = None


class IdentityTopic:
    """One cluster's. Each call raises CloudError."""

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, str], timeout_s: float) -> None:
        self._kafka = bootstrap_servers, properties
        self._timeout_s = timeout_s

    def read(self, gateway: str) -> Known:
        """What is known of a gateway."""
        records: list[IdentityRecord] = []
        runs: dict[str, int] = {}
        last: list[Message] = []

        def book(message: Message) -> None:
            value = message.value() or b""
            if message.topic() == IDENTITIES_TOPIC:
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
                if not last or message.timestamp()[1] >= last[0].timestamp()[1]:
                    last[:] = [message]

        with open_scan(*self._kafka, self._timeout_s) as scan:
            there = scan.topics()
            if IDENTITIES_TOPIC not in there:
                raise CloudError(f"there is no topic {IDENTITIES_TOPIC}: fieldgate provision topics makes it")
            scan.read(sorted({IDENTITIES_TOPIC, RUNS_TOPIC} & there), book, lambda *_: None)
        return Known(records[-1] if records else None, runs, _signature(last[0]) if last else None)

    def all(self) -> dict[str, IdentityRecord]:
        """The record of each gateway; none where there is no such topic, or this login isn't shown it."""
        found: dict[str, IdentityRecord] = {}

        def book(message: Message) -> None:
            name = (message.key() or b"").decode(errors="replace")
            found.pop(name, None)
            if value := message.value():
                found[name] = _record(value, name)

        with open_scan(*self._kafka, self._timeout_s) as scan:
            scan.read(sorted({IDENTITIES_TOPIC} & scan.topics()), book, lambda *_: None)
        return found

    def write(self, record: IdentityRecord) -> None:
        """Store a record in the place of the gateway's last one."""
        key = record.gateway.encode()
        publish(*self._kafka, (IDENTITIES_TOPIC, key, record.to_json()), self._timeout_s)


def _signature(message: Message) -> Signature | None:
    digest = sha256(message.value() or b"").digest()
    headers = cast("list[tuple[str, bytes | None]] | None", message.headers())
    return signature(message.topic() or "", message.key(), digest, headers)


def _record(value: bytes, gateway: str) -> IdentityRecord:
    try:
        return IdentityRecord.from_json(value)
    except InvalidFields as problem:
        raise CloudError(f"{gateway}'s record in {IDENTITIES_TOPIC} can't be read: {problem}") from None
