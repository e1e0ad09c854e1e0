"""The one thread that touches the outbox. An fsync may take a second on an SD card: no other waits for it.

Invariants: a commit goes before all else, so that a reading is durable in time though removals wait for
fsyncs of their own; other tasks are done in order; a disk that refuses is tried after pauses that grow, and
refuses meanwhile. Each answer goes to ``report``, which must only enqueue.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, groupby
from operator import attrgetter
from queue import Empty, PriorityQueue
from typing import Final, NamedTuple

from buffer.errors import OnDrop, OutboxDiskFull, OutboxError, OutboxTooLarge
from buffer.outbox_file import Limits
from buffer.sqlite_outbox import SqliteOutbox
from cloud.backoff import Backoff
from gateway.config import Config
from gateway.forwarding.ledger import Entry, is_others
from gateway.forwarding.records import exactly, summarise, to_bytes
from gateway.system.watchdog import Heartbeat

log = logging.getLogger(__name__)

BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 256 << 10
"""Of rows that are read, or stored with one commit."""

_TEND_EVERY_S: Final = 1.0
# Two minutes: beyond them the kernel, too, calls a task hung (kernel.hung_task_timeout_secs).
_TASK_PERIODS: Final = 2.0
_FIRST, _IN_TURN, _LAST = range(3)
_FAILURES: Final = (OutboxError, sqlite3.Error, OSError)
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 16.0
# A disk that worked for so long is tried again soon after it fails, another one seldom.
_CALM_S: Final = 60.0


def open_outbox(config: Config, on_drop: OnDrop) -> SqliteOutbox:
    """The outbox. Raises OutboxError where its file is another's; a disk in trouble is tried again."""
    return SqliteOutbox(
        config.outbox.path,
        Limits(config.outbox.max_bytes, config.outbox.min_free_disk).with_ballast(),
        on_drop=exactly(on_drop),
        patient=True,
    )


class Stored(NamedTuple):
    """Entries are in the outbox under these numbers, on the disk."""

    entries: Sequence[Entry]
    numbers: Sequence[int]


class NotStored(NamedTuple):
    """The disk refused entries."""

    entries: Sequence[Entry]


class Fetched(NamedTuple):
    """The oldest rows after a number."""

    rows: Sequence[tuple[int, bytes]]


class NotFetched(NamedTuple):
    """Rows could not be read."""

    problem: str


class NotRemoved(NamedTuple):
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
    """Stores, fetches and removes rows on its own thread; any other may read its figures."""

    def __init__(
        self,
        outbox: SqliteOutbox,
        report: Callable[[Answer], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outbox = outbox
        self._report = report
        self._monotonic = monotonic
        self._tasks: PriorityQueue[tuple[int, int, Callable[[], None] | None]] = PriorityQueue()
        self._order = count()
        self._thread = threading.Thread(target=self._run, name="outbox-writer", daemon=True)
        self.records = self.size_bytes = 0
        """Rows, and the size on disk, write-ahead log included."""
        self.problem = outbox.problem
        """Why nothing can be stored, None while it can."""
        self.is_full = False
        """Whether that is for want of room."""
        self._try_at_s = self._worked_s = float("-inf")
        self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._at_work = self._asked = False
        self._done = 0
        if self.problem is not None:
            log.error("event=outbox.unusable action=keep_in_memory error=%s", self.problem)
        self._measure()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def may_try(self) -> bool:
        """Whether the disk would be tried now: it works, or a pause after it refused is over."""
        return self._monotonic() >= self._try_at_s

    @property
    def busy(self) -> bool:
        """Whether a task is under way or waits."""
        return self._at_work or not self._tasks.empty()

    def heartbeat(self) -> Heartbeat:
        """For the watchdog: how much is done, where there is something to do."""
        mark = self._done if self.busy else None
        return Heartbeat("outbox-writer", mark, _TASK_PERIODS, thread=self._thread.native_id)

    def store(self, entries: Sequence[Entry], *, drop_oldest: bool = False) -> None:
        """Put entries on disk; answered by Stored or NotStored.

        They take the place of the oldest there at the cap, and with ``drop_oldest`` where the disk is full.
        """
        self._put(_FIRST, lambda: self._store(entries, drop_oldest=drop_oldest))

    def fetch(self, after: int) -> None:
        """Read the next batch of rows; answered by Fetched or NotFetched."""
        self._put(_IN_TURN, lambda: self._fetch(after))

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove rows; answered only where that fails, by NotRemoved."""
        rows = tuple(numbers)
        self._put(_IN_TURN, lambda: self._remove(rows))

    def end(self) -> None:
        """Finish the tasks given so far, and end the thread."""
        self._put(_LAST, None)
        self._thread.join()

    def store_last(self, entries: Sequence[Entry]) -> None:
        """As ``store``, by the calling thread, once the other has ended; no pause is kept."""
        self._try_at_s = float("-inf")
        self._store(entries, drop_oldest=False)

    def close(self) -> None:
        """Close the outbox."""
        self._outbox.close()

    def _put(self, turn: int, task: Callable[[], None] | None) -> None:
        self._tasks.put((turn, next(self._order), task))

    def _run(self) -> None:
        while True:
            self._done += 1
            self._at_work = False
            try:
                *_, task = self._tasks.get(timeout=None if self.problem is None else _TEND_EVERY_S)
            except Empty:
                task = self._tend
            self._at_work = True
            if task is None:
                return
            task()

    def _tend(self) -> None:
        """Whether a disk that has refused works again, where no commit shows it: a little may still fit."""
        asked, self._asked = self._asked, False
        if not asked and self._monotonic() >= self._try_at_s:
            try:
                self._outbox.probe()
            except _FAILURES as error:
                self._failed(error)
            else:
                self._works()
        self._measure()

    def _failed(self, error: Exception) -> None:
        if isinstance(error, OutboxTooLarge):
            log.error("event=outbox.store_failed error=%s", error)
            return
        now_s = self._monotonic()
        if self.problem is None:
            log.warning("event=outbox.unusable action=keep_in_memory error=%s", error)
            if now_s - self._worked_s > _CALM_S:
                self._backoff.reset()
        self.problem, self.is_full = str(error), isinstance(error, OutboxDiskFull)
        self._try_at_s = now_s + self._backoff.next()

    def _works(self) -> None:
        if self.problem is not None:
            self.problem, self.is_full, self._worked_s = None, False, self._monotonic()
            log.warning("event=outbox.usable records=%d", len(self._outbox))

    def _answer(self, answer: Answer) -> None:
        """The figures first: the forwarder decides by them."""
        self._measure()
        self._report(answer)

    def _measure(self) -> None:
        """Note how the outbox stands."""
        try:
            self.records = len(self._outbox)
            self.size_bytes = self._outbox.size_bytes()
        except OSError as error:
            log.warning("event=outbox.size_unknown error=%s", error)

    def _store(self, entries: Sequence[Entry], *, drop_oldest: bool) -> None:
        """A commit for each part, none of two classes; what is stored before the disk refuses stays so."""
        self._asked = True
        waiting, stored = sorted(entries, key=is_others), 0
        if self._monotonic() < self._try_at_s and not (drop_oldest and self.is_full):
            self._answer(NotStored(entries))
            return
        for others, of_class in groupby(waiting, is_others):
            for part in _parts(tuple(of_class)):
                records = [entry.record for entry in part]
                try:
                    numbers = self._outbox.append(
                        list(map(to_bytes, records)),
                        summarise(records),
                        others=others,
                        drop_oldest=drop_oldest,
                    )
                except _FAILURES as error:
                    self._failed(error)
                    self._answer(NotStored(sorted(waiting[stored:], key=attrgetter("entered_s"))))
                    return
                stored += len(part)
                if not (drop_oldest and self.is_full):
                    self._works()
                self._answer(Stored(part, numbers))

    def _fetch(self, after: int) -> None:
        try:
            rows = self._outbox.peek(after, BATCH_RECORDS, BATCH_BYTES)
        except _FAILURES as error:
            self._answer(NotFetched(str(error)))
        else:
            self._answer(Fetched(rows))

    def _remove(self, numbers: tuple[int, ...]) -> None:
        try:
            self._outbox.remove(numbers)
        except _FAILURES as error:
            self._answer(NotRemoved(numbers, str(error)))
        else:
            self._measure()
