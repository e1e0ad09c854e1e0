"""``fieldgate outbox import``: sends the records of an exported outbox to Kafka."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from buffer.reader import OutboxReader
from cloud.command_line import FAILED, OK
from cloud.errors import CloudError
from cloud.kafka.producer import KafkaSink
from cloud.kafka.roles import SENT
from cloud.kafka.topic_scan import COMPACTED, rank, read_furthest
from cloud.operate.identity import IdentityTopic
from cloud.terminal import ShowProgress, progress_bar
from cloud.wire.identities import IdentityRecord, claimed_gateway
from cloud.wire.reading_records import STATUS_TOPIC
from gateway.clock.hold import UNREPAIRED
from gateway.config import Config
from gateway.config.kafka import destinations
from gateway.forwarding.records import from_bytes
from gateway.ports import Record

_OPEN_AT_KAFKA: Final = 5_000
_POLL_S: Final = 0.1
_MOST_NAMED: Final = 20
_LONGEST: Final = 80
_MOST_HELD: Final = 64 << 20
"""Bytes of run records and their kin that are read before the first is sent: a mast's are some kilobytes."""

_Furthest = dict[tuple[str, bytes], tuple[tuple[int, ...], Record]]
"""By topic and key the record that is furthest, with its rank."""


@dataclass
class _Mast:
    """Whose outbox the file is: where no config says it, that of the first record of a gateway about itself.

    A card may have been written by anybody, and the login that sends its records may write anywhere.
    """

    config: Config | None
    gateway: str | None
    identities: Mapping[str, IdentityRecord]
    refused: Counter[str] = field(default_factory=Counter)
    held: int = 0
    unreadable: int = 0

    def __post_init__(self) -> None:
        self._destinations = destinations(self.config)

    def sends(self, record: Record) -> bool:
        """Whether this gateway sends such a record; others are counted."""
        name = record.key.decode(errors="replace").partition("/")[0]
        headers = (value.decode(errors="replace") for key, value in record.headers if key == "gateway")
        # Consumers go by any of them.
        names = {name, claimed_gateway(record.value) or name, *headers}
        if record.topic in SENT:
            self.gateway = self.gateway or name
            taken = names == {self.gateway}
        else:
            known, begins = self._destinations
            own = record.topic.startswith(("gateway.", "__"))
            taken = not own and (record.topic in known or record.topic.startswith(begins))
            if self.gateway is not None:
                # Devices have names of their own, but not one of those that have keys.
                taken = taken and not (names - {self.gateway}) & self.identities.keys()
        if not taken:
            self.refuse(record, name)
        return taken

    def refuse(self, record: Record, name: str) -> None:
        """Count a record that isn't sent."""
        place = f"{record.topic[:_LONGEST]!r} of {name[:_LONGEST]!r}"
        room = place in self.refused or len(self.refused) < _MOST_NAMED
        self.refused[place if room else "others"] += 1

    def report(self) -> None:
        """Print what was refused."""
        if self.config is None and self.gateway is not None:
            sys.stderr.write(f"by its first record this is the outbox of {self.gateway[:_LONGEST]!r}\n")
        for place, count in self.refused.items():
            sys.stderr.write(f"refused: {count:,} records to {place}\n")
        if self.refused:
            whose = f"{self.gateway or 'a gateway'} sends nothing there, or not by that name"
            remedy = "" if self.config else "; topics of its own are in its config: name that by -c"
            sys.stderr.write(f"{self.refused.total():,} records were refused: {whose}{remedy}\n")


@dataclass
class Sending:
    """Sends records with a bounded number open at a time, and counts their outcomes.

    librdkafka gives one for each record, at the latest after its timeout.
    """

    sink: KafkaSink[None]
    progress: ShowProgress = lambda _done: None
    confirmed: int = 0
    undelivered: Counter[str] = field(default_factory=Counter)

    def send(self, record: Record) -> None:
        """Hand a record over; waits while Kafka has enough to confirm."""
        while self.sink.open >= _OPEN_AT_KAFKA or not self.sink.send(record, None):
            self.take(_POLL_S)

    def finish(self) -> None:
        """Wait for the outcome of all."""
        while self.sink.open:
            self.take(_POLL_S)

    def take(self, timeout_s: float) -> None:
        """Count outcomes; waits at most so long for one."""
        for _, undelivered in self.sink.poll(timeout_s):
            if undelivered is None:
                self.confirmed += 1
            else:
                self.undelivered[undelivered.problem] += 1
        self.progress(self.confirmed)


def send_file(
    path: Path,
    bootstrap_servers: str,
    properties: Mapping[str, str],
    timeout_s: float,
    config: Config | None = None,
    prefix: str = "",
) -> int:
    """Send an exported outbox to Kafka, marked as replayed: 0, or 1 where not all of it could be sent.

    Doing it again is safe: a reading's identity is counted once. ``timeout_s`` is how long Kafka may take
    for one record. ``config`` is the gateway's; its prefix counts unless another is given. Raises
    OutboxError, CloudError, CommandError.
    """
    waiting = {"delivery.timeout.ms": str(round(timeout_s * 1000))}
    gateway = None if config is None else config.gateway
    prefix = prefix or ("" if config is None else config.kafka.prefix)
    with progress_bar("records confirmed") as progress, OutboxReader(path) as reader:
        identities = IdentityTopic(bootstrap_servers, properties, timeout_s, prefix).all()
        whose = _first_sender(reader) if gateway is None and identities else None
        mast = _Mast(config, whose if gateway is None else gateway.id, identities)
        waiting |= properties
        sink = KafkaSink[None](bootstrap_servers, "fieldgate-import", waiting, prefix=prefix)
        sending = Sending(sink, progress)
        with closing(sink):
            if not sink.usable:
                raise CloudError(sink.problem or "no producer")
            try:
                furthest = _send_rows(reader, mast, sending)
                if furthest:
                    known = read_furthest(
                        bootstrap_servers, properties=properties, prefix=prefix, timeout_s=timeout_s
                    )
                    _send_newer(furthest, known, sending)
                sending.finish()
            finally:
                sys.stderr.write(f"{sending.confirmed:,} records are in Kafka\n")
    if mast.held:
        sys.stderr.write(f"{mast.held:,} records wait for the clock: only the mast's daemon sends them\n")
    mast.report()
    bad = reader.damaged or mast.unreadable
    if bad:
        sys.stderr.write(
            f"not sent: {reader.damaged:,} damaged blocks, {mast.unreadable:,} rows that are no records\n"
        )
    for problem, count in sending.undelivered.items():
        sys.stderr.write(f"{count:,} records were not delivered: {problem}: import the file again\n")
    return FAILED if bad or mast.refused or sending.undelivered else OK


def _first_sender(reader: OutboxReader) -> str | None:
    """The gateway of the first record about itself."""
    for _, stored in reader.records():
        with suppress(ValueError):
            record = from_bytes(stored)
            if record.topic in SENT:
                return record.key.decode(errors="replace").partition("/")[0]
    return None


def _send_rows(reader: OutboxReader, mast: _Mast, sending: Sending) -> _Furthest:
    """Send what can be sent at once; of the other topics the furthest record of each key."""
    furthest: _Furthest = {}
    room = _MOST_HELD
    for _, stored in reader.records():
        try:
            record = from_bytes(stored)
            if not mast.sends(record):
                continue
            parse, place = COMPACTED.get(record.topic), (record.topic, record.key)
            reach = rank(parse(record.value)) if parse is not None else None
        except ValueError:
            mast.unreadable += 1
            continue
        if reach is not None:
            room -= len(record.value)
            if room < 0:
                mast.refuse(record, record.key.decode(errors="replace").partition("/")[0])
            elif place not in furthest or reach >= furthest[place][0]:
                furthest[place] = reach, record
        elif any(name == UNREPAIRED for name, _ in record.headers):
            mast.held += 1
        elif record.topic != STATUS_TOPIC:
            # A status would take the place of a newer one.
            sending.send(record.replayed())
    return furthest


def _send_newer(
    furthest: _Furthest, known: Mapping[tuple[str, bytes], tuple[int, ...]], sending: Sending
) -> None:
    """Sends the records that are further than what Kafka has: an older one would take a newer one's place."""
    for place, (reach, record) in furthest.items():
        if reach > known.get(place, ()):
            sending.send(record.replayed())
