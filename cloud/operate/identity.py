"""Which gateways have to prove themselves: what ``provision gateway`` reads, decides and writes.

A change counts from a minute later on: by then all jobs have read it, so that what is decided doesn't depend
on which of them reads first. The decisions themselves are pure.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from confluent_kafka import Message

from cloud.command_line import CommandError
from cloud.config import CloudConfig
from cloud.errors import CloudError
from cloud.kafka.command_client import publish
from cloud.kafka.topic_scan import open_scan
from cloud.wire.fields import InvalidFields, format_time
from cloud.wire.identities import IDENTITIES_TOPIC, Identity, IdentityRecord, Step, gateway_key
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


_LEAD_MS: Final = 60_000
"""A decision counts after this time."""


def _from_us() -> int:
    return (time.time_ns() // 1_000_000 + _LEAD_MS) * 1000


class GatewayIdentity:
    """One gateway's, where ``[identity]`` has a master key. Each call raises CloudError."""

    def __init__(self, config: CloudConfig, gateway: str, timeout_s: float, *, dry_run: bool) -> None:
        self._gateway = gateway
        self._master = config.identity.master()
        kafka = config.kafka
        self._topic = IdentityTopic(kafka.servers, kafka.properties(), timeout_s, kafka.prefix)
        self._dry_run = dry_run

    def hand_out(self, *, another: bool) -> str | None:
        """Returns the key for the mast, with ``another`` a new one; None without a master key."""
        if self._master is None:
            return None
        known = self._topic.read(self._gateway)
        record = handed_out(known, self._gateway, self._master, _from_us(), another=another)
        self._write(known, record, "key {0}")
        return gateway_key(self._master, self._gateway, record.generation)

    def change(self, *, accepted: str | None, enforce: bool) -> None:
        """Accepts one run, whatever it proves, or decides whether new runs must prove themselves.

        Raises CommandError where the gateway has no key, or no run has proven itself by the one to enforce.
        """
        if self._master is None:
            raise CommandError("the cloud's config has no [identity] master_key")
        known = self._topic.read(self._gateway)
        if known.record is None:
            raise CommandError(f"{self._gateway} has no key yet: provision gateway {self._gateway} --rotate")
        if accepted is not None:
            record = replace(known.record, runs=known.record.runs | {accepted})
            self._write(known, record, f"accepts run {accepted}")
        elif enforce:
            record = enforced(known, self._master, _from_us())
            self._write(known, record, "must prove itself by key {0}")
        else:
            self._write(known, lifted(known, _from_us()), "need prove nothing")

    def revoke(self) -> None:
        """Makes nothing that names the gateway welcome, from soon on."""
        if self._master is not None:
            known = self._topic.read(self._gateway)
            self._write(known, revoked(known, self._gateway, _from_us()), "is nobody's name")

    def _write(self, known: Known, record: IdentityRecord, what: str) -> None:
        if record == known.record:
            print(f"identity  {self._gateway}: nothing to change")
            return
        changed = record.steps[-1:] if record.steps != (known.record.steps if known.record else ()) else ()
        since = "".join(f", from {format_time(step.from_us)} on {_words(step)}" for step in changed)
        would = "would be: " if self._dry_run else ""
        text = what.format(record.generation) if not changed else f"key {record.generation}"
        print(f"identity  {self._gateway}: {would}{text}{since}")
        if not self._dry_run:
            self._topic.write(record)


def _words(step: Step) -> str:
    if step.least is None:
        return "nothing of it is accepted"
    if step.least == 0:
        return "its runs needn't prove themselves"
    return f"its new runs must prove themselves by key {step.least}"


def handed_out(known: Known, gateway: str, master: str, from_us: int, *, another: bool) -> IdentityRecord:
    """The record once the mast is given a key: the newest one, or with ``another`` the one after it.

    A gateway that nobody has seen begins with it. After a revocation there is always another key, and the
    runs from before it are welcome again.
    """
    record = known.record
    if record is None:
        steps = () if known.runs else (Step(from_us, 1),)
        return IdentityRecord(gateway, 1, steps)
    if record.at(from_us).least is not None:
        return replace(record, generation=record.generation + another)
    return _requiring(replace(record, generation=record.generation + 1), known, master, from_us)


def enforced(known: Known, master: str, from_us: int) -> IdentityRecord:
    """The record once the newest key counts; runs that were welcome so far stay so.

    Raises CommandError where no run has proven itself by it: the mast may not have it yet.
    """
    record = known.record
    assert record is not None  # noqa: S101 - the caller's to see to
    if record.at(from_us).least == record.generation:
        return record
    identity = Identity.of(record, master)
    if known.runs and all(identity.generation(run) < record.generation for run in known.runs):
        raise CommandError(
            f"no run of {record.gateway} has proven itself by key {record.generation} yet: on the mast "
            "`fieldgate init --access` puts the key in place, and a restart makes such a run; then repeat"
        )
    return _requiring(record, known, master, from_us)


def _requiring(record: IdentityRecord, known: Known, master: str, from_us: int) -> IdentityRecord:
    """The record with a step that requires its newest key, but of runs that were welcome so far."""
    identity = Identity.of(record, master)
    earlier = {
        run
        for run, time_us in known.runs.items()
        if identity.generation(run) < record.generation and identity.proven(run, record.at(time_us).least)
    }
    steps = (*record.steps, Step(from_us, record.generation))
    return replace(record, steps=steps, runs=record.runs | earlier)


def lifted(known: Known, from_us: int) -> IdentityRecord:
    """The record once nothing needs to be proven."""
    record = known.record
    assert record is not None  # noqa: S101 - the caller's to see to
    if record.at(from_us).least == 0:
        return record
    return replace(record, steps=(*record.steps, Step(from_us, 0)))


def revoked(known: Known, gateway: str, from_us: int) -> IdentityRecord:
    """The record once nothing is accepted."""
    record = known.record or IdentityRecord(gateway, 1)
    if record.at(from_us).least is None:
        return record
    return replace(record, steps=(*record.steps, Step(from_us, None)))
