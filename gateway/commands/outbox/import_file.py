"""``fieldgate outbox import``: sends the records of an exported file to Kafka."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from cloud.errors import CloudError
from cloud.kafka.producer import KafkaSink
from cloud.kafka.run_accounts import Books
from cloud.kafka.topic_scan import read_books, read_channels
from cloud.wire.channel_records import CHANNELS_TOPIC, ChannelRecord, parse_channel
from cloud.wire.reading_records import RUNS_TOPIC, STATUS_TOPIC
from cloud.wire.run_records import RunRecord
from gateway.clock.repair import UNREPAIRED
from gateway.commands.arguments import FAILED, OK, CommandError
from gateway.commands.outbox import export_format
from gateway.commands.outbox.export_format import BadLine, End
from gateway.commands.progress import ShowProgress, progress_bar
from gateway.ports import Record

_OPEN_AT_KAFKA: Final = 5_000
_MOST_PRINTED: Final = 20
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A record of a topic in which Kafka keeps each key's last record, with its line and its content."""

    line: int
    record: Record
    content: RunRecord | ChannelRecord


class Sending:
    """Sends records with a bounded number open at a time, and counts their outcomes."""

    def __init__(self, sink: KafkaSink[int]) -> None:
        self._sink = sink
        self.confirmed = 0
        self.undelivered: Counter[str] = Counter()

    def send(self, line: int, record: Record) -> None:
        """Hand a record over; waits while Kafka has enough to confirm."""
        record = record.replayed()
        while self._sink.open >= _OPEN_AT_KAFKA or not self._sink.send(record, line):
            self._take()

    def finish(self, progress: ShowProgress) -> None:
        """Wait for the outcome of all; librdkafka gives one for each, at the latest after its timeout."""
        while self._sink.open:
            self._take()
            progress(self.confirmed, self.confirmed + self._sink.open)

    def _take(self) -> None:
        for line, undelivered in self._sink.poll(_POLL_S):
            if undelivered is None:
                self.confirmed += 1
                continue
            self.undelivered[undelivered.problem] += 1
            if self.undelivered.total() <= _MOST_PRINTED:
                sys.stderr.write(f"line {line}: not delivered: {undelivered.problem}\n")


def send_file(source: str, bootstrap_servers: str, properties: Mapping[str, str], timeout_s: float) -> int:
    """Send an exported file to Kafka, marked as replayed: 0, or 1 where a line is bad or not delivered.

    Doing it again is safe: a reading's identity is counted once. ``timeout_s`` is how long Kafka may take
    for one record. Raises CommandError, CloudError.
    """
    bad = 0
    complete = False
    sending: Sending | None = None
    keyed: dict[tuple[str, bytes], _Keyed] = {}
    waiting = {"delivery.timeout.ms": str(round(timeout_s * 1000))}
    try:
        with progress_bar("records confirmed") as progress, _opened(source) as file:
            # A longer line comes in pieces, none of which is a record.
            lines = iter(partial(file.readline, export_format.MAX_LINE_BYTES), b"")
            export_format.decode_head(next(lines, b""))
            sink = KafkaSink[int](bootstrap_servers, "fieldgate-import", {**waiting, **properties})
            with closing(sink):
                if not sink.usable:
                    raise CloudError(sink.problem or "no producer")
                sending = Sending(sink)
                for number, line in enumerate(lines, 2):
                    try:
                        found = export_format.decode(line)
                        if isinstance(found, End):
                            complete = True
                        elif found.topic in (RUNS_TOPIC, CHANNELS_TOPIC):
                            _keep_furthest(keyed, number, found)
                        elif found.topic != STATUS_TOPIC:
                            # A status would take the place of a newer one.
                            if any(name == UNREPAIRED for name, _ in found.headers):
                                raise BadLine("its time isn't known; only the daemon can send it")
                            sending.send(number, found)
                    except BadLine as problem:
                        bad += 1
                        if bad <= _MOST_PRINTED:
                            sys.stderr.write(f"line {number}: {problem}\n")
                    progress(sending.confirmed)
                for each in _newer(keyed.values(), bootstrap_servers, properties, timeout_s):
                    sending.send(each.line, each.record)
                sending.finish(progress)
    except BadLine as problem:
        raise CommandError(f"{source}: {problem}") from problem
    except OSError as error:
        raise CommandError(error) from error
    finally:
        if sending is not None:
            sys.stderr.write(f"{sending.confirmed:,} records are in Kafka\n")
    if bad:
        sys.stderr.write(f"{bad:,} lines are no records\n")
    if sending.undelivered:
        count = sending.undelivered.total()
        sys.stderr.write(f"{count:,} records were not delivered: import the file again\n")
    if not complete:
        sys.stderr.write(f"{source} is cut off: its last line is missing\n")
    return FAILED if bad or sending.undelivered or not complete else OK


def _opened(source: str) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if source == "-" else Path(source).open("rb")


def _keep_furthest(keyed: dict[tuple[str, bytes], _Keyed], line: int, record: Record) -> None:
    """Store a record where it is the furthest of its key so far. Raises BadLine."""
    content: RunRecord | ChannelRecord
    try:
        if record.topic == RUNS_TOPIC:
            content = RunRecord.from_json(record.value)
        else:
            content = parse_channel(record.value)
    except ValueError as error:
        raise BadLine(str(error)) from error
    before = keyed.get((record.topic, record.key))
    if before is None or _rank(content) >= _rank(before.content):
        keyed[record.topic, record.key] = _Keyed(line, record, content)


def _rank(content: RunRecord | ChannelRecord) -> tuple[int, ...]:
    return content.reach if isinstance(content, RunRecord) else (content.revision,)


def _newer(
    keyed: Iterable[_Keyed], bootstrap_servers: str, properties: Mapping[str, str], timeout_s: float
) -> Iterator[_Keyed]:
    """Those that are further than what Kafka has: an older one would take a newer one's place."""
    found = list(keyed)
    topics = {each.record.topic for each in found}
    books, channels = Books(None), {}
    if RUNS_TOPIC in topics:
        books = read_books(bootstrap_servers, properties=properties, timeout_s=timeout_s, runs_only=True)
    if CHANNELS_TOPIC in topics:
        channels = read_channels(bootstrap_servers, properties=properties, timeout_s=timeout_s)
    for each in found:
        content = each.content
        known: RunRecord | ChannelRecord | None
        if isinstance(content, RunRecord):
            known = books.run_record(content.gateway, content.run)
        else:
            known = channels.get(each.record.key)
        if known is None or _rank(content) > _rank(known):
            yield each
