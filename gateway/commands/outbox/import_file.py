"""``fieldgate outbox import``: sends the records of an exported outbox to Kafka."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from buffer.reader import OutboxReader
from cloud.errors import CloudError
from cloud.kafka.identities import IdentityTopic
from cloud.kafka.producer import KafkaSink
from cloud.kafka.run_accounts import Books
from cloud.kafka.topic_scan import REVISED, Revised, read_books, read_revised
from cloud.wire.identities import RUN_HEADER, IdentityRecord, claimed_run
from cloud.wire.reading_records import RUNS_TOPIC, STATUS_TOPIC
from cloud.wire.run_records import RunRecord
from gateway.clock.repair import UNREPAIRED
from gateway.commands.arguments import FAILED, OK, CommandError
from gateway.commands.progress_bar import ShowProgress, progress_bar
from gateway.config.model import GatewayConfig
from gateway.forwarding.record_codec import from_bytes
from gateway.forwarding.sinks import signing
from gateway.ports import Record

_OPEN_AT_KAFKA: Final = 5_000
_POLL_S: Final = 0.1


_Content = RunRecord | Revised
_PARSE: Final[Mapping[str, Callable[[bytes], _Content]]] = {RUNS_TOPIC: RunRecord.from_json, **REVISED}
"""The topics in which Kafka keeps each key's last record."""
_Furthest = dict[tuple[str, bytes], tuple[tuple[int, ...], Record]]
"""By topic and key the record that is furthest, with its rank."""


def _rank(content: _Content) -> tuple[int, ...]:
    """Grows with each record of a key."""
    return content.reach if isinstance(content, RunRecord) else (content.revision,)


@dataclass(frozen=True)
class _Signers:
    """Who must sign, and the gateway whose key signs here, None without one."""

    identities: Mapping[str, IdentityRecord]
    here: str | None

    def check(self, record: Record) -> None:
        """Raises CommandError where a record must be signed, and that can't be done here."""
        if not self.identities:
            return
        gateway, run = _sender(record)
        known = self.identities.get(gateway)
        if known is not None and gateway != self.here and known.wants_signature(run):
            raise CommandError(
                f"each record of {gateway} must be signed: name its config, which has the key, by -c; or "
                f"accept its run first: fieldgate provision gateway {gateway} --accept-run {run}"
            )


@dataclass
class _Sending:
    """Sends records with a bounded number open at a time; counts their outcomes, and what isn't sent."""

    sink: KafkaSink[None]
    progress: ShowProgress
    signers: _Signers
    confirmed: int = 0
    held: int = 0
    unreadable: int = 0
    undelivered: Counter[str] = field(default_factory=Counter)

    def send(self, record: Record) -> None:
        """Hand a record over; waits while Kafka has enough to confirm.

        Raises CommandError where it must be signed, and that can't be done here.
        """
        self.signers.check(record)
        record = record.replayed()
        while self.sink.open >= _OPEN_AT_KAFKA or not self.sink.send(record, None):
            self._take()

    def finish(self) -> None:
        """Wait for the outcome of all; librdkafka gives one for each, at the latest after its timeout."""
        while self.sink.open:
            self._take()

    def _take(self) -> None:
        for _, undelivered in self.sink.poll(_POLL_S):
            if undelivered is None:
                self.confirmed += 1
            else:
                self.undelivered[undelivered.problem] += 1
        self.progress(self.confirmed)


def _sender(record: Record) -> tuple[str, str | None]:
    """Whom a record is of: its gateway and run, as the jobs have it; of raw messages by their headers."""
    headers = {name: value.decode(errors="replace") for name, value in record.headers}
    if "gateway" not in headers and (claimed := claimed_run(record.value)) is not None:
        return claimed
    name = headers.get("gateway") or record.key.decode(errors="replace").partition("/")[0]
    return name, headers.get(RUN_HEADER)


def send_file(
    path: Path,
    bootstrap_servers: str,
    properties: Mapping[str, str],
    timeout_s: float,
    gateway: GatewayConfig | None = None,
) -> int:
    """Send an exported outbox to Kafka, marked as replayed: 0, or 1 where not all of it could be sent.

    Doing it again is safe: a reading's identity is counted once. ``timeout_s`` is how long Kafka may take
    for one record. By ``gateway``'s key they are signed, where it signs its own. Raises OutboxError,
    CloudError, CommandError.
    """
    waiting = {"delivery.timeout.ms": str(round(timeout_s * 1000))}
    key = None if gateway is None else gateway.signs_with
    with progress_bar("records confirmed") as progress, OutboxReader(path) as reader:
        identities = IdentityTopic(bootstrap_servers, properties, timeout_s).all()
        sink = KafkaSink[None](
            bootstrap_servers, "fieldgate-import", {**waiting, **properties}, headers_of=signing(key)
        )
        signers = _Signers(identities, None if gateway is None or key is None else gateway.id)
        sending = _Sending(sink, progress, signers)
        with closing(sink):
            if not sink.usable:
                raise CloudError(sink.problem or "no producer")
            try:
                furthest = _send_rows(reader, sending)
                if furthest:
                    books = read_books(
                        bootstrap_servers, properties=properties, timeout_s=timeout_s, runs_only=True
                    )
                    revised = read_revised(bootstrap_servers, properties=properties, timeout_s=timeout_s)
                    _send_newer(furthest, books, revised, sending)
                sending.finish()
            finally:
                sys.stderr.write(f"{sending.confirmed:,} records are in Kafka\n")
    if sending.held:
        sys.stderr.write(f"{sending.held:,} records wait for the clock: only the mast's daemon sends them\n")
    bad = reader.damaged or sending.unreadable
    if bad:
        sys.stderr.write(
            f"not sent: {reader.damaged:,} damaged blocks, {sending.unreadable:,} rows that are no records\n"
        )
    for problem, count in sending.undelivered.items():
        sys.stderr.write(f"{count:,} records were not delivered: {problem}: import the file again\n")
    return FAILED if bad or sending.undelivered else OK


def _send_rows(reader: OutboxReader, sending: _Sending) -> _Furthest:
    """Send what can be sent at once; of the other topics the furthest record of each key."""
    furthest: _Furthest = {}
    for _, stored in reader.records():
        try:
            record = from_bytes(stored)
            parse, place = _PARSE.get(record.topic), (record.topic, record.key)
            rank = _rank(parse(record.value)) if parse is not None else None
        except ValueError:
            sending.unreadable += 1
            continue
        if rank is not None:
            if place not in furthest or rank >= furthest[place][0]:
                furthest[place] = rank, record
        elif any(name == UNREPAIRED for name, _ in record.headers):
            sending.held += 1
        elif record.topic != STATUS_TOPIC:
            # A status would take the place of a newer one.
            sending.send(record)
    return furthest


def _send_newer(
    furthest: _Furthest, books: Books, revised: Mapping[tuple[str, bytes], Revised], sending: _Sending
) -> None:
    """Those that are further than what Kafka has: an older one would take a newer one's place."""
    for (topic, key), (rank, record) in furthest.items():
        gateway, _, run = key.decode(errors="replace").partition("/")
        known = books.run_record(gateway, run) if topic == RUNS_TOPIC else revised.get((topic, key))
        if known is None or rank > _rank(known):
            sending.send(record)
