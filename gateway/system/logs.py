"""Where the daemon's log goes: the journal with fields, or standard error; bounded, by a thread of its own.

A line's fields come from its template, ``event=sensor.silent sensor=%s error=%s``: the template marks where a
value begins and ends, so that a value may hold blanks and equals signs. Lines wait in memory for the thread
that writes them, so a journal that is stuck blocks no sampler.

Repeated lines are limited, and those left out counted: a bad uplink must not fill a card. IN_A_ROW lines of
each kind (an event and what it is about) may come at once, then one each AGAIN_S: the last one, with how many
were left out (``suppressed=…``). All lines together have an allowance in bytes, which keeps any 24 hours
below a megabyte, in the journal's files too (journald's own limit counts messages, and drops the last ones).
Lines of level CRITICAL are written in any case. ``RateLimit`` and ``Journal`` are owned by the log's thread.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import re
import secrets
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from logging.handlers import QueueHandler, QueueListener
from queue import Empty, Full, Queue
from typing import Final

from gateway.system.watchdog import has_room

_KEY: Final = re.compile(r"(?:^| )([A-Za-z_][A-Za-z0-9_]*)=")
# Stands before each key while the arguments are filled in; no argument can have it.
_MARK: Final = f"\0{secrets.token_hex(8)}\0"


def fields_of(record: logging.LogRecord) -> dict[str, str]:
    """The fields by name, in the line's order; none where the line's template has no ``key=``."""
    if (found := record.__dict__.get("fields")) is not None:
        # A line from the queue: its text is complete, its template gone.
        return dict(found)
    if not isinstance(record.msg, str) or not isinstance(record.args, tuple | None):
        return {}
    template = _KEY.sub(rf"{_MARK}\1=", record.msg)
    _, *parts = (template % record.args if record.args else template).split(_MARK)
    return {key: value for key, _, value in (part.partition("=") for part in parts)}


IN_A_ROW: Final = 6
AGAIN_S: Final = 1800.0
_MOST_KINDS: Final = 256
"""Further ones are one kind together: topics without end must not fill the memory."""
BYTES_AT_ONCE: Final = 150_000
BYTES_PER_S: Final = 9.0
"""Both together allow at most 928 kB in any 24 hours."""
ENTRY_BYTES: Final = 750
"""What an entry takes in the journal's files beyond its text (20,000 entries with fields: 840 bytes each)."""
_ABOUT: Final = ("sensor", "sensors", "topic", "path", "pin", "problem", "reason")
"""What an event is about: the first of these keys that a line has."""


@dataclass(slots=True)
class _Kind:
    """``restored_s``: when its allowance, which grows with time, is complete again."""

    restored_s: float = 0.0
    suppressed: int = 0
    last: logging.LogRecord | None = None


class RateLimit:
    """Passes lines on to ``write``; they must be as LogQueue prepares them."""

    def __init__(
        self, write: Callable[[logging.LogRecord], object], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._monotonic = monotonic
        self._kinds: defaultdict[tuple[str, str], _Kind] = defaultdict(_Kind)
        self._restored_s = 0.0

    def handle(self, record: logging.LogRecord) -> None:
        """Write a line, or count it."""
        kind = self._kind(record)
        if not self._written(kind, record, kind.suppressed):
            kind.suppressed += 1
            kind.last = record

    @property
    def holds(self) -> bool:
        """Whether a line waits to be written later."""
        return any(kind.last is not None for kind in self._kinds.values())

    def release_due(self) -> None:
        """Write the last line of each kind that may come again, with how many were left out before it."""
        for kind in self._kinds.values():
            if kind.last is not None:
                self._written(kind, kind.last, kind.suppressed - 1)

    def _kind(self, record: logging.LogRecord) -> _Kind:
        fields = fields_of(record)
        about = next((fields[key] for key in _ABOUT if key in fields), "")
        key = (fields.get("event") or f"{record.pathname}:{record.lineno}", about)
        return self._kinds[key if key in self._kinds or len(self._kinds) < _MOST_KINDS else ("", "")]

    def _written(self, kind: _Kind, record: logging.LogRecord, suppressed: int) -> bool:
        if record.levelno < logging.CRITICAL:
            text = f"{record.msg}{record.exc_text or ''}".encode(errors="replace")
            now_s, size = self._monotonic(), len(text) + ENTRY_BYTES
            kind_s = max(kind.restored_s, now_s) + AGAIN_S
            all_s = max(self._restored_s, now_s) + size / BYTES_PER_S
            if kind_s > now_s + IN_A_ROW * AGAIN_S or all_s > now_s + BYTES_AT_ONCE / BYTES_PER_S:
                return False
            kind.restored_s, self._restored_s = kind_s, all_s
        if suppressed:
            record = copy.copy(record)
            record.__dict__["fields"] = {**fields_of(record), "suppressed": str(suppressed)}
            record.msg = f"{record.msg} suppressed={suppressed}"
        self._write(record)
        kind.last, kind.suppressed = None, 0
        return True


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


try:
    from systemd.journal import sendv as _sendv
except ImportError:
    _sendv = None

SOCKET: Final = "/run/systemd/journal/socket"
_NAMESPACE: Final = uuid.UUID("5f1d6a3e-4c0b-4a6e-9d0f-0c6c8a1e7b52")
_PRIORITIES: Final = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6}
_DEBUG: Final = 7
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Z0-9_]")
_LONGEST_NAME: Final = 64
_WAIT_S: Final = 1.0


def message_id(event: str) -> str:
    """The MESSAGE_ID of an event: 32 hexadecimal digits, made of its name and the same for ever."""
    return uuid.uuid5(_NAMESPACE, event).hex


def goes_to_journal(environ: Mapping[str, str], descriptor: int = 2) -> bool:
    """Whether standard error is the journal's: JOURNAL_STREAM has its device and inode (systemd.exec(5))."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def entry(record: logging.LogRecord, message: str) -> dict[str, str]:
    """The fields of one record as the journal keeps them; ``message`` is the whole text for people."""
    fields = fields_of(record)
    event = fields.get("event")
    return {
        "MESSAGE": message,
        "PRIORITY": str(_PRIORITIES.get(record.levelno, _DEBUG)),
        "SYSLOG_IDENTIFIER": "fieldgate",
        "LOGGER": record.name,
        "THREAD_NAME": record.threadName or "",
        "CODE_FILE": record.pathname,
        "CODE_LINE": str(record.lineno),
        "CODE_FUNC": record.funcName or "",
        **({"MESSAGE_ID": message_id(event)} if event else {}),
        **{_name(key): value for key, value in fields.items()},
    }


class Journal:
    """Writes entries; to ``fallback`` where journald is away or systemd-python isn't installed.

    Not a logging.Handler: its lock would be held while journald is stuck, and logging.shutdown waits for it.
    """

    def __init__(
        self, fallback: logging.Handler, sendv: Callable[..., object] | None = _sendv, address: str = SOCKET
    ) -> None:
        self._fallback = fallback
        self._sendv = sendv
        self._address = address

    def write(self, record: logging.LogRecord) -> None:
        """Write one entry; waits while journald is stuck."""
        if self._sendv is None:
            self._fallback.handle(record)
            return
        fields = entry(record, logging.Formatter().format(record)).items()
        try:
            # The library would wait with the interpreter lock held, and every thread with it.
            while not has_room(self._address, _WAIT_S):
                pass
            self._sendv(*(f"{name}={value}".encode(errors="backslashreplace") for name, value in fields))
        except OSError:
            self._fallback.handle(record)


def _name(key: str) -> str:
    return f"FIELDGATE_{_NOT_IN_A_NAME.sub('_', key.upper())}"[:_LONGEST_NAME]


LINE: Final = "%(asctime)s level=%(levelname)s %(name)s %(message)s"


@contextmanager
def set_up(environ: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Log from INFO on: to the journal where standard error is connected to it, else to standard error.

    At the end what is queued is written, within two seconds.
    """
    stderr = logging.StreamHandler(sys.stderr)
    stderr.setFormatter(logging.Formatter(LINE))
    queued = LogQueue()
    write = Journal(stderr).write if goes_to_journal(environ) else stderr.handle
    thread = LogThread(queued, RateLimit(write))
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(queued)
    thread.start()
    try:
        yield
    finally:
        root.removeHandler(queued)
        thread.stop()
