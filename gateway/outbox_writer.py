"""The one thread that touches the outbox. An fsync may take a second on an SD card: nobody else waits for it.

Tasks are done in order; each answer goes to ``report``, which must only enqueue.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue

from buffer.errors import OutboxError
from gateway import outbox_records
from gateway.drain import BATCH_BYTES, BATCH_RECORDS
from gateway.ledger import Entry
from gateway.ports import Outbox
from gateway.summaries import summarise

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stored:
    """Entries are on disk under these numbers."""

    entries: Sequence[Entry]
    numbers: Sequence[int]


@dataclass(frozen=True, slots=True)
class NotStored:
    """The disk refused entries."""

    entries: Sequence[Entry]
    problem: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """The oldest rows after the number asked for."""

    rows: Sequence[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class NotFetched:
    """Rows could not be read."""

    problem: str


@dataclass(frozen=True, slots=True)
class NotRemoved:
    """Rows are still there."""

    numbers: tuple[int, ...]
    problem: str


Answer = Stored | NotStored | Fetched | NotFetched | NotRemoved


def _parts(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Entries in commits of a bounded size, so that the write-ahead log is bounded and a damaged byte too."""
    begin, size = 0, 0
    for at, entry in enumerate(entries):
        length = len(entry.record.value)
        if at > begin and (at - begin >= BATCH_RECORDS or size + length > BATCH_BYTES):
            yield entries[begin:at]
            begin, size = at, 0
        size += length
    if begin < len(entries):
        yield entries[begin:]


class OutboxWriter:
    """Stores, fetches and removes rows on its own thread."""

    def __init__(self, outbox: Outbox, report: Callable[[Answer], None]) -> None:
        self._outbox = outbox
        self._report = report
        self._tasks: SimpleQueue[Callable[[], Answer | None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="outbox-writer", daemon=True)
        self.records = len(outbox)
        self.size_bytes = outbox.size_bytes()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def store(self, entries: Sequence[Entry]) -> None:
        """Put entries on disk; answered by Stored or NotStored."""
        self._tasks.put(lambda: self._store(entries))

    def fetch(self, after: int) -> None:
        """Read the next batch of rows; answered by Fetched or NotFetched."""
        self._tasks.put(lambda: self._fetch(after))

    def remove(self, numbers: Iterable[int]) -> None:
        """Forget rows; answered only where that fails, by NotRemoved."""
        doomed = tuple(numbers)
        self._tasks.put(lambda: self._remove(doomed))

    def stop(self) -> None:
        """Finish the tasks given so far, close the outbox and end."""
        self._tasks.put(None)
        self._thread.join()
        self._outbox.close()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            answer = task()
            try:
                self.records = len(self._outbox)
                self.size_bytes = self._outbox.size_bytes()
            except OSError as error:
                log.warning("event=outbox.size_unknown error=%s", error)
            if answer is not None:
                self._report(answer)

    def _store(self, entries: Sequence[Entry]) -> Answer:
        """One commit for each part; what is stored before the disk refuses stays stored."""
        for part in _parts(entries):
            records = [entry.record for entry in part]
            try:
                numbers = self._outbox.append(list(map(outbox_records.to_bytes, records)), summarise(records))
            except (OutboxError, sqlite3.Error, OSError) as error:
                return NotStored(entries, str(error))
            if len(part) == len(entries):
                return Stored(part, numbers)
            self._report(Stored(part, numbers))
            entries = entries[len(part) :]
        return Stored((), ())

    def _fetch(self, after: int) -> Answer:
        try:
            return Fetched(self._outbox.peek(after, BATCH_RECORDS, BATCH_BYTES))
        except (OutboxError, sqlite3.Error, OSError) as error:
            return NotFetched(str(error))

    def _remove(self, numbers: tuple[int, ...]) -> Answer | None:
        try:
            self._outbox.remove(numbers)
        except (OutboxError, sqlite3.Error, OSError) as error:
            return NotRemoved(numbers, str(error))
        return None
