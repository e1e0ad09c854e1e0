"""The one thread that touches the outbox. An fsync may take a second on an SD card: no other waits for it.

Invariants: a commit goes before all else, so that a reading is durable in time though removals wait for
fsyncs of their own; other tasks are done in order; entries in memory are reported as durable only once none
below them is in memory. Each answer goes to ``report``, which must only enqueue.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from queue import Empty, PriorityQueue
from typing import Final

from buffer.blocks import Group
from buffer.drops import OnDrop
from buffer.errors import OutboxError
from buffer.space_limits import BALLAST_BYTES, Limits
from buffer.tiered_outbox import TieredOutbox
from cloud.wire.channel_records import CHANNELS_TOPIC
from cloud.wire.reading_records import DEAD_LETTER_TOPIC, EVENTS_TOPIC, RUNS_TOPIC, STATUS_TOPIC
from gateway.config import Config
from gateway.forwarding.drain_cursor import BATCH_BYTES, BATCH_RECORDS
from gateway.forwarding.ledger import Entry
from gateway.forwarding.record_codec import to_bytes
from gateway.forwarding.seq_summary import exactly, summarise
from gateway.ports import Outbox, Record
from gateway.system.watchdog import Heartbeat

log = logging.getLogger(__name__)

_TEND_EVERY_S: Final = 1.0
# Two minutes: beyond them the kernel, too, calls a task hung (kernel.hung_task_timeout_secs).
_TASK_PERIODS: Final = 2.0
_FIRST, _IN_TURN, _LAST = range(3)
_FAILURES: Final = (OutboxError, sqlite3.Error, OSError)


def open_outbox(config: Config, on_drop: OnDrop) -> TieredOutbox:
    """The outbox. Raises OutboxError where its file is another's; on a disk in trouble it keeps in memory."""
    return TieredOutbox(
        config.outbox.path,
        Limits(config.outbox.max_bytes, config.outbox.min_free_disk, BALLAST_BYTES),
        on_drop=exactly(on_drop),
    )


@dataclass(frozen=True, slots=True)
class Stored:
    """Entries are in the outbox under these numbers; where not ``durable`` they end with the process."""

    entries: Sequence[Entry]
    numbers: Sequence[int]
    durable: bool = True


@dataclass(frozen=True, slots=True)
class Durable:
    """No entry below this number, none at all without one, is in memory any more: on disk, or announced."""

    below: int | None


@dataclass(frozen=True, slots=True)
class NotStored:
    """The disk refused entries."""

    entries: Sequence[Entry]
    problem: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """The oldest rows after a number; ``backfilled`` where rows may have come in below earlier ones."""

    rows: Sequence[tuple[int, bytes]]
    backfilled: bool = False


@dataclass(frozen=True, slots=True)
class NotFetched:
    """Rows could not be read."""

    problem: str


@dataclass(frozen=True, slots=True)
class NotRemoved:
    """Rows are still there."""

    numbers: tuple[int, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class Refiled:
    """Rows were stored again; each topic's new numbers follow one another."""

    before: Sequence[int]
    numbers: Mapping[str, Sequence[int]]


Answer = Stored | Durable | NotStored | Fetched | NotFetched | NotRemoved | Refiled


_STATE_TOPICS: Final = frozenset({RUNS_TOPIC, EVENTS_TOPIC, STATUS_TOPIC, CHANNELS_TOPIC})


def _is_others(entry: Entry) -> bool:
    """Whether it is neither a reading nor a state record of this gateway: it makes room for those."""
    topic = entry.record.topic
    return topic == DEAD_LETTER_TOPIC or not (entry.own or topic in _STATE_TOPICS)


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

    def __init__(self, outbox: Outbox, report: Callable[[Answer], None]) -> None:
        self._outbox = outbox
        self._report = report
        self._tasks: PriorityQueue[tuple[int, int, Callable[[], None] | None]] = PriorityQueue()
        self._order = count()
        self._thread = threading.Thread(target=self._run, name="outbox-writer", daemon=True)
        self.records = len(outbox)
        self.size_bytes = outbox.size_bytes()
        """Size on disk, write-ahead log included."""
        self.in_memory = outbox.in_memory()
        """What is in memory because the disk can't be used."""
        self._backfilled = outbox.backfilled
        self._at_work = False
        self._done = 0
        if self.in_memory.problem is not None:
            log.error("event=outbox.unusable action=keep_in_memory error=%s", self.in_memory.problem)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def busy(self) -> bool:
        """Whether a task is under way or waits."""
        return self._at_work or not self._tasks.empty()

    def heartbeat(self) -> Heartbeat:
        """For the watchdog: how much is done, where there is something to do."""
        mark = self._done if self.busy else None
        return Heartbeat("outbox-writer", mark, _TASK_PERIODS, thread=self._thread.native_id)

    def store(self, entries: Sequence[Entry]) -> None:
        """Put entries on disk; answered by Stored, where not durable later by Durable, or by NotStored."""
        self._put(_FIRST, lambda: self._store(entries))

    def fetch(self, after: int) -> None:
        """Read the next batch of rows; answered by Fetched or NotFetched."""
        self._put(_IN_TURN, lambda: self._fetch(after))

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove rows; answered only where that fails, by NotRemoved."""
        doomed = tuple(numbers)
        self._put(_IN_TURN, lambda: self._remove(doomed))

    def refile(self, topics: Mapping[str, Mapping[int, Record]]) -> None:
        """Store rows again by topic, in place of those read; answered by Refiled where that was done."""
        self._put(_IN_TURN, lambda: self._refile(topics))

    def stop(self) -> None:
        """Finish the tasks given so far, close the outbox (it announces what it can't keep) and end."""
        self._put(_LAST, None)
        self._thread.join()
        self._outbox.tend(at_once=True)
        self._measure()
        self._outbox.close()

    def _put(self, turn: int, task: Callable[[], None] | None) -> None:
        self._tasks.put((turn, next(self._order), task))

    def _run(self) -> None:
        while True:
            self._done += 1
            self._at_work = False
            try:
                *_, task = self._tasks.get(timeout=None if self.in_memory.problem is None else _TEND_EVERY_S)
            except Empty:
                task = self._tend
            self._at_work = True
            if task is None:
                return
            task()

    def _tend(self) -> None:
        self._outbox.tend()
        self._measure()

    def _answer(self, answer: Answer) -> None:
        """The figures first: the forwarder decides by them."""
        self._measure()
        self._report(answer)

    def _measure(self) -> None:
        """Note how the outbox stands; report what is durable now, and a disk that fails or works again."""
        try:
            self.records = len(self._outbox)
            self.size_bytes = self._outbox.size_bytes()
        except OSError as error:
            log.warning("event=outbox.size_unknown error=%s", error)
        before, self.in_memory = self.in_memory, self._outbox.in_memory()
        if before.problem is None and self.in_memory.problem is not None:
            log.warning("event=outbox.unusable action=keep_in_memory error=%s", self.in_memory.problem)
        elif before.problem is not None and self.in_memory.problem is None:
            log.warning("event=outbox.usable records=%d", self.records)
        oldest = self.in_memory.oldest
        if before.oldest is not None and (oldest is None or oldest > before.oldest):
            self._report(Durable(oldest))

    def _store(self, entries: Sequence[Entry]) -> None:
        """A commit for each part, none of two classes; what is stored before the disk refuses stays so."""
        waiting, stored = sorted(entries, key=_is_others), 0
        for others, of_class in groupby(waiting, _is_others):
            for part in _parts(tuple(of_class)):
                records = [entry.record for entry in part]
                try:
                    numbers = self._outbox.append(
                        list(map(to_bytes, records)), summarise(records), others=others
                    )
                except _FAILURES as error:
                    left = sorted(waiting[stored:], key=lambda entry: entry.entered_s)
                    self._answer(NotStored(left, str(error)))
                    return
                stored += len(part)
                oldest = self._outbox.in_memory().oldest
                self._answer(Stored(part, numbers, durable=oldest is None or numbers[-1] < oldest))

    def _fetch(self, after: int) -> None:
        try:
            rows = self._outbox.peek(after, BATCH_RECORDS, BATCH_BYTES)
            before, self._backfilled = self._backfilled, self._outbox.backfilled
        except _FAILURES as error:
            self._answer(NotFetched(str(error)))
        else:
            self._answer(Fetched(rows, backfilled=before != self._backfilled))

    def _refile(self, topics: Mapping[str, Mapping[int, Record]]) -> None:
        groups = [
            Group(tuple(rows), tuple(map(to_bytes, rows.values())), summarise(rows.values()))
            for rows in topics.values()
        ]
        try:
            numbers = self._outbox.refile(groups)
        except _FAILURES as error:
            # They are read again, and tried again with a later pass.
            log.debug("event=outbox.not_refiled topics=%d error=%s", len(topics), error)
        else:
            before = sorted(number for group in groups for number in group.numbers)
            self._answer(Refiled(before, dict(zip(topics, numbers, strict=True))))

    def _remove(self, numbers: tuple[int, ...]) -> None:
        in_memory_from = self._outbox.in_memory().oldest
        try:
            self._outbox.remove(numbers)
        except _FAILURES as error:
            # Those in memory are gone all the same: taken for rows that are still there, they would hide as
            # many that are.
            left = (number for number in numbers if in_memory_from is None or number < in_memory_from)
            self._answer(NotRemoved(tuple(left), str(error)))
        else:
            self._measure()
