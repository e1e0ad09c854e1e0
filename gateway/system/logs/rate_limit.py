"""Holds back what the log repeats, and counts it: a bad uplink must not fill a card.

Of each kind of line (an event and what it is about) IN_A_ROW may come at once, then one each AGAIN_S: the
last one, with how many were held back (``suppressed=…``). All lines together have an allowance in bytes,
which keeps any 24 hours below a megabyte, in the journal's files too (journald's own limit counts messages,
and drops the last ones). Lines of level CRITICAL are written in any case. Owned by the log's thread.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

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

    def has(self, cost: float, now_s: float) -> bool:
        self.left = min(self.most, self.left + (now_s - self.at_s) * self.per_s)
        self.at_s = now_s
        return self.left >= cost


@dataclass(slots=True)
class _Kind:
    lines: _Allowance
    suppressed: int = 0
    last: logging.LogRecord | None = None


class Target(Protocol):
    """Where lines are written."""

    def format(self, record: logging.LogRecord) -> str:
        """The text of a line."""
        ...

    def handle(self, record: logging.LogRecord) -> object:
        """Write a line."""
        ...


class RateLimit:
    """Passes lines on to ``target``; they must be as LogQueue prepares them."""

    def __init__(self, target: Target, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._target = target
        self._monotonic = monotonic
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._bytes = _Allowance(BYTES_AT_ONCE, BYTES_PER_S, BYTES_AT_ONCE, monotonic())

    def handle(self, record: logging.LogRecord) -> None:
        """Write a line, or hold it back."""
        kind = self._kind(record)
        if not self._write(kind, _counted(record, kind.suppressed)):
            kind.suppressed += 1
            kind.last = record

    def release_due(self) -> None:
        """Write the last line of each kind whose time has come, with how many were held back before it."""
        for kind in self._kinds.values():
            if kind.last is not None:
                self._write(kind, _counted(kind.last, kind.suppressed - 1))

    def _kind(self, record: logging.LogRecord) -> _Kind:
        fields = fields_of(record)
        about = next((fields[key] for key in _ABOUT if key in fields), "")
        key = (fields.get("event") or f"{record.pathname}:{record.lineno}", about)
        if key not in self._kinds and len(self._kinds) >= _MOST_KINDS:
            key = ("", "")
        fresh = _Allowance(IN_A_ROW, 1 / AGAIN_S, IN_A_ROW, self._monotonic())
        return self._kinds.setdefault(key, _Kind(fresh))

    def _write(self, kind: _Kind, line: logging.LogRecord) -> bool:
        now_s = self._monotonic()
        if line.levelno < logging.CRITICAL:
            if not kind.lines.has(1, now_s):
                return False
            size = len(self._target.format(line).encode(errors="replace")) + ENTRY_BYTES
            if not self._bytes.has(size, now_s):
                return False
            kind.lines.left -= 1
            self._bytes.left -= size
        self._target.handle(line)
        kind.last, kind.suppressed = None, 0
        return True


def _counted(record: logging.LogRecord, suppressed: int) -> logging.LogRecord:
    """The line with the count of those held back before it."""
    if not suppressed:
        return record
    line = copy.copy(record)
    line.msg = f"{record.msg} suppressed={suppressed}"
    line.__dict__["fields"] = {**fields_of(record), "suppressed": str(suppressed)}
    return line
