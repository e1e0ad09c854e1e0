"""Holds back what the log says again and again, and counts it: a bad uplink must not fill a card.

Each kind of line (an event and what it is about) may be told a few times in a row, then once in half an hour:
the last one, with how many were held back (``suppressed=…``). So the last word of a flapping uplink always
comes. All lines together have an allowance in bytes, which keeps any day below a megabyte, in the journal's
files too; only what ends the daemon (CRITICAL) is beyond it. Safe to use from any thread.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.system.logs.fields import fields_of

IN_A_ROW: Final = 6
AGAIN_S: Final = 1800.0
_MOST_KINDS: Final = 256
"""Further ones are one kind together: topics without end must not fill the memory."""
BYTES_AT_ONCE: Final = 150_000
BYTES_PER_S: Final = 9.0
"""With the former at most 928 kB in any 24 hours."""
ENTRY_BYTES: Final = 750
"""What an entry takes in the journal's files beyond its text (20,000 entries with fields: 840 bytes each)."""
_ABOUT: Final = ("sensor", "sensors", "topic", "path", "pin", "problem", "reason")
"""What an event is about: the first of these keys that a line has."""


@dataclass(slots=True)
class _Allowance:
    """Grows with time up to ``most``."""

    most: float
    per_s: float
    left: float
    at_s: float

    def grow(self, now_s: float) -> float:
        """What may be taken now."""
        self.left = min(self.most, self.left + max(now_s - self.at_s, 0.0) * self.per_s)
        self.at_s = now_s
        return self.left


@dataclass(slots=True)
class _Kind:
    allowance: _Allowance
    suppressed: int = 0
    last: logging.LogRecord | None = None


class Bounded(logging.Handler):
    """Hands on to ``target`` what may be told."""

    def __init__(self, target: logging.Handler, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._target = target
        self._monotonic = monotonic
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._bytes = _Allowance(BYTES_AT_ONCE, BYTES_PER_S, BYTES_AT_ONCE, monotonic())

    def emit(self, record: logging.LogRecord) -> None:
        """Tell a line, or hold it back."""
        try:
            self._emit(record)
        except (TypeError, ValueError):
            # Arguments that don't fit their template: said on standard error, as logging does.
            self.handleError(record)

    def _emit(self, record: logging.LogRecord) -> None:
        now_s, kind = self._monotonic(), self._kind(record)
        told, record = record, _counted(record, kind.suppressed)
        if record.levelno >= logging.CRITICAL or self._may(kind, record, now_s):
            self._target.handle(record)
            kind.last, kind.suppressed = None, 0
            return
        kind.suppressed += 1
        kind.last = _kept(told)

    def tell_overdue(self) -> None:
        """Tell the last line of each kind whose time has come, with how many were held back before it."""
        self.acquire()
        try:
            now_s = self._monotonic()
            for kind in self._kinds.values():
                if kind.last is None:
                    continue
                record = _counted(kind.last, kind.suppressed - 1)
                if self._may(kind, record, now_s):
                    self._target.handle(record)
                    kind.last, kind.suppressed = None, 0
        finally:
            self.release()

    def _kind(self, record: logging.LogRecord) -> _Kind:
        fields = fields_of(record)
        about = next((fields[key] for key in _ABOUT if key in fields), "")
        key = (fields.get("event") or f"{record.name} {record.msg}"[:200], about)
        if key not in self._kinds and len(self._kinds) >= _MOST_KINDS:
            key = ("", "")
        now_s = self._monotonic()
        return self._kinds.setdefault(key, _Kind(_Allowance(IN_A_ROW, 1 / AGAIN_S, IN_A_ROW, now_s)))

    def _may(self, kind: _Kind, record: logging.LogRecord, now_s: float) -> bool:
        """Take what the line costs, where there is enough."""
        if kind.allowance.grow(now_s) < 1 or self._bytes.grow(now_s) < ENTRY_BYTES:
            return False
        size = len(self._target.format(record).encode(errors="replace")) + ENTRY_BYTES
        if self._bytes.left < size:
            return False
        kind.allowance.left -= 1
        self._bytes.left -= size
        return True


def _kept(record: logging.LogRecord) -> logging.LogRecord:
    """A copy that holds text only: an exception would keep its frames, and all that is in them."""
    kept = copy.copy(record)
    if isinstance(record.args, tuple):
        kept.args = tuple(each if isinstance(each, int | float | str) else str(each) for each in record.args)
    if record.exc_info:
        kept.exc_text = logging.Formatter().formatException(record.exc_info)
        kept.exc_info = None
    return kept


def _counted(record: logging.LogRecord, suppressed: int) -> logging.LogRecord:
    """The line with the count of those held back before it."""
    if not suppressed or not isinstance(record.args, tuple | None):
        return record
    counted = copy.copy(record)
    counted.msg, counted.args = f"{record.msg} suppressed=%d", (*(record.args or ()), suppressed)
    return counted
