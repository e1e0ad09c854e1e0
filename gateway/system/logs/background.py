"""Log lines wait in memory for a thread that writes them: a journal that is stuck blocks no sampler."""

from __future__ import annotations

import contextlib
import copy
import logging
import threading
from logging.handlers import QueueHandler, QueueListener
from queue import Empty, Full, Queue
from typing import Final

from gateway.system.logs.fields import fields_of
from gateway.system.logs.rate_limit import RateLimit

MOST_LINES: Final = 2_000
_TICK_S: Final = 1.0
_FLUSH_S: Final = 2.0
_UNSENT: Final = "event=log.unsent lines=%d"


class LogQueue(QueueHandler):
    """Called by any thread; never blocks. Lines beyond MOST_LINES are dropped and counted."""

    def __init__(self) -> None:
        self.lines: Queue[logging.LogRecord] = Queue(MOST_LINES)
        super().__init__(self.lines)
        self._dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """A copy that holds text only, and the fields; an exception would keep its frames and all in them."""
        line = copy.copy(record)
        line.__dict__["fields"] = fields_of(record)
        line.msg, line.args = record.getMessage(), None
        if record.exc_info:
            line.exc_text, line.exc_info = logging.Formatter().formatException(record.exc_info), None
        return line

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue a line or count it; the handler's lock is held."""
        try:
            self.lines.put_nowait(record)
        except Full:
            self._dropped += 1

    def dropped_line(self) -> logging.LogRecord | None:
        """Once the queue is empty: a line with how many are missing before it, if any are."""
        if not self._dropped or not self.lines.empty():
            return None
        self.acquire()
        count, self._dropped = self._dropped, 0
        self.release()
        return self.prepare(
            logging.LogRecord(__name__, logging.WARNING, __file__, 0, _UNSENT, (count,), None)
        )


class LogThread(QueueListener):
    """Writes what is queued, as far as the limit allows."""

    def __init__(self, queued: LogQueue, limit: RateLimit) -> None:
        super().__init__(queued.lines)
        self._queued = queued
        self._limit = limit
        self._thread: threading.Thread | None

    def dequeue(self, block: bool) -> logging.LogRecord:
        """The next line; while none comes, what the limit holds and releases."""
        while True:
            try:
                return self._queued.lines.get(block, _TICK_S if self._limit.holds else None)
            except Empty:
                self._limit.release_due()

    def handle(self, record: logging.LogRecord) -> None:
        """Write a line, and after the last one how many were dropped."""
        self._limit.handle(record)
        if (missing := self._queued.dropped_line()) is not None:
            self._limit.handle(missing)

    def stop(self) -> None:
        """Write what is queued; what a journal that is stuck doesn't take in time is given up."""
        thread, self._thread = self._thread, None
        if thread is not None:
            with contextlib.suppress(Full):
                self.enqueue_sentinel()
            thread.join(_FLUSH_S)
