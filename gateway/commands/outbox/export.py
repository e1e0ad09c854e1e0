"""``fieldgate outbox export`` and ``import``: an outbox's records in a file, and from there into Kafka.

Exporting removes nothing: what is exported goes out again when the mast has signal, and is counted once.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import BinaryIO, Final

from buffer.reader import OutboxReader
from cloud.kafka.producer import KafkaSink
from cloud.kafka.topic_scan import read_books, read_channels
from cloud.wire.channel_records import CHANNELS_TOPIC, ChannelRecord, InvalidChannel, parse_channel
from cloud.wire.reading_records import RUNS_TOPIC, STATUS_TOPIC
from cloud.wire.run_records import RunRecord
from gateway.clock.repair import UNREPAIRED
from gateway.commands.arguments import FAILED, OK, CommandError
from gateway.commands.outbox import export_format
from gateway.commands.outbox.export_format import BadLine, End
from gateway.commands.progress import Progress
from gateway.config import Config
from gateway.forwarding.backlog import REPLAYED
from gateway.forwarding.record_codec import from_bytes
from gateway.ports import Record, Undelivered
from gateway.system.atomic_file import replacing
from gateway.system.times import now_text

_OPEN_AT_KAFKA: Final = 5_000
_COMPLAINTS: Final = 20


Runs = dict[tuple[str, str], tuple[RunRecord, int, Record]]
"""The furthest record of each gateway's runs, with its line."""
Channels = dict[bytes, tuple[ChannelRecord, int, Record]]
"""The newest record of each calibration, with its line."""


def export(config: Config, target: str) -> int:
    """Write all records to a file, ``-`` for standard output: 0, or 1 where not all could be.

    Raises CommandError, OutboxError.
    """
    progress = Progress("records written")
    try:
        with OutboxReader(config.outbox.path) as reader, _opened(target) as file:
            file.write(export_format.head(config.gateway.id, now_text("seconds")))
            written = held = unreadable = 0
            for _, stored in reader.records():
                try:
                    record = from_bytes(stored)
                except ValueError:
                    unreadable += 1
                    continue
                if any(name == UNREPAIRED for name, _ in record.headers):
                    held += 1
                    continue
                file.write(export_format.encode(record))
                written += 1
                progress(written)
            file.write(export_format.end(written))
    except OSError as error:
        raise CommandError(error) from error
    finally:
        progress.end()
    sys.stderr.write(f"{written:,} records written to {'standard output' if target == '-' else target}\n")
    if held:
        sys.stderr.write(f"{held:,} records wait for the clock: only the daemon can send them\n")
    if unreadable or reader.damaged:
        sys.stderr.write(
            f"not exported: {reader.damaged:,} damaged blocks, {unreadable:,} rows that are no records\n"
        )
        return FAILED
    return OK


@contextmanager
def _opened(target: str) -> Iterator[BinaryIO]:
    """A file that has its name only when all of it is on the disk."""
    if target == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(target)
    if path.exists():
        raise CommandError(f"{path} is there already; choose another name")
    with replacing(path) as file:
        yield file


class Sending:
    """Sends records with a bounded number open at a time; what became of them is counted here."""

    def __init__(self, sink: KafkaSink) -> None:
        self._sink = sink
        self._told: SimpleQueue[tuple[int, Undelivered | None]] = SimpleQueue()
        self._open = 0
        self.confirmed = 0
        self.undelivered: Counter[str] = Counter()

    def send(self, line: int, record: Record) -> None:
        """Hand a record over; waits while Kafka has enough to confirm."""
        if REPLAYED not in record.headers:
            record = Record(record.topic, record.key, record.value, (*record.headers, REPLAYED))
        while self._open >= _OPEN_AT_KAFKA or not self._sink.send(
            record, lambda undelivered: self._told.put((line, undelivered))
        ):
            self._take()
        self._open += 1
        while not self._told.empty():
            self._take()

    def finish(self, progress: Progress) -> None:
        """Wait for the outcome of all; librdkafka gives one for each, at the latest after its timeout."""
        while self._open:
            self._take()
            progress(self.confirmed, self.confirmed + self._open)

    def _take(self) -> None:
        try:
            line, undelivered = self._told.get(timeout=0.1)
        except Empty:
            return
        self._open -= 1
        if undelivered is None:
            self.confirmed += 1
            return
        self.undelivered[undelivered.problem] += 1
        if self.undelivered.total() <= _COMPLAINTS:
            sys.stderr.write(f"line {line}: not delivered: {undelivered.problem}\n")


def send_file(source: str, bootstrap_servers: str, properties: Mapping[str, str], timeout_s: float) -> int:
    """Send an exported file to Kafka, marked as replayed: 0, or 1 where a line is bad or not delivered.

    Doing it again is safe: a reading's identity is counted once. ``timeout_s`` is how long Kafka may take
    for one record. Raises CommandError, CloudError.
    """
    progress = Progress("records confirmed")
    bad = 0
    complete: End | None = None
    sending: Sending | None = None
    runs: Runs = {}
    channels: Channels = {}
    try:
        with _source(source) as file:
            export_format.decode_head(file.readline(export_format.MAX_LINE_BYTES))
            waiting = {"delivery.timeout.ms": str(round(timeout_s * 1000))}
            sink = KafkaSink(bootstrap_servers, "fieldgate-import", {**waiting, **properties})
            try:
                sending = Sending(sink)
                for number, line in enumerate(_lines(file), 2):
                    try:
                        found = export_format.decode(line)
                        if isinstance(found, End):
                            complete = found
                            continue
                        if found.topic == STATUS_TOPIC:
                            # It would take the place of what the gateway has said since.
                            continue
                        if found.topic == RUNS_TOPIC:
                            _note(runs, number, found)
                            continue
                        if found.topic == CHANNELS_TOPIC:
                            _note_channel(channels, number, found)
                            continue
                        if any(name == UNREPAIRED for name, _ in found.headers):
                            raise BadLine("its time isn't known; only the daemon can send it")
                    except BadLine as problem:
                        bad += 1
                        if bad <= _COMPLAINTS:
                            sys.stderr.write(f"line {number}: {problem}\n")
                        continue
                    sending.send(number, found)
                    progress(sending.confirmed)
                for number, found in _news(runs, bootstrap_servers, properties, timeout_s):
                    sending.send(number, found)
                for number, found in _newer(channels, bootstrap_servers, properties, timeout_s):
                    sending.send(number, found)
                sending.finish(progress)
            finally:
                sink.close()
    except BadLine as problem:
        raise CommandError(f"{source}: {problem}") from problem
    except OSError as error:
        raise CommandError(error) from error
    finally:
        progress.end()
        if sending is not None:
            sys.stderr.write(f"{sending.confirmed:,} records are in Kafka\n")
    if bad:
        sys.stderr.write(f"{bad:,} lines are no records\n")
    if sending.undelivered:
        count = sending.undelivered.total()
        sys.stderr.write(f"{count:,} records were not delivered: import the file again\n")
    if complete is None:
        sys.stderr.write(f"{source} is cut off: its last line is missing\n")
    return FAILED if bad or sending.undelivered or complete is None else OK


def _note(runs: Runs, number: int, record: Record) -> None:
    """Take down a run's record where it is the furthest so far. Raises BadLine."""
    try:
        run = RunRecord.from_json(record.value)
    except ValueError as error:
        raise BadLine(str(error)) from error
    known = runs.get((run.gateway, run.run))
    if known is None or run.reach >= known[0].reach:
        runs[run.gateway, run.run] = run, number, record


def _news(
    runs: Runs, bootstrap_servers: str, properties: Mapping[str, str], timeout_s: float
) -> list[tuple[int, Record]]:
    """The run records that are further than what Kafka has: an older one would take a newer one's place."""
    if not runs:
        return []
    books = read_books(bootstrap_servers, properties=properties, timeout_s=timeout_s, runs_only=True)
    news = []
    for (gateway, name), (run, number, record) in runs.items():
        known = books.run_record(gateway, name)
        if known is None or run.reach > known.reach:
            news.append((number, record))
    return news


def _note_channel(channels: Channels, number: int, record: Record) -> None:
    """Take down a calibration's record where it is the newest so far. Raises BadLine."""
    try:
        channel = parse_channel(record.value)
    except InvalidChannel as error:
        raise BadLine(str(error)) from error
    known = channels.get(record.key)
    if known is None or channel.revision >= known[0].revision:
        channels[record.key] = channel, number, record


def _newer(
    channels: Channels, bootstrap_servers: str, properties: Mapping[str, str], timeout_s: float
) -> list[tuple[int, Record]]:
    """The calibration records that are newer than what Kafka has."""
    if not channels:
        return []
    there = read_channels(bootstrap_servers, properties=properties, timeout_s=timeout_s)
    return [
        (number, record)
        for key, (channel, number, record) in channels.items()
        if key not in there or channel.revision > there[key].revision
    ]


@contextmanager
def _source(source: str) -> Iterator[BinaryIO]:
    if source == "-":
        yield sys.stdin.buffer
    else:
        with Path(source).open("rb") as file:
            yield file


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines of a bounded length: a longer one comes in pieces, none of which is a record."""
    while line := file.readline(export_format.MAX_LINE_BYTES):
        yield line
