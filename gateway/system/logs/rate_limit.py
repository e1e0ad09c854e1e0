"""Limits repeated log lines and counts those left out: a bad uplink must not fill a card.

IN_A_ROW lines of each kind (an event and what it is about) may come at once, then one each AGAIN_S: the
last one, with how many were left out (``suppressed=…``). All lines together have an allowance in bytes, which
keeps any 24 hours below a megabyte, in the journal's files too (journald's own limit counts messages, and
drops the last ones). Lines of level CRITICAL are written in any case. Owned by the log's thread.
"""

from __future__ import annotations

import copy
import logging
import time
from collections import defaultdict
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
