"""A line on stderr about long work: redrawn on a terminal, said now and then in a log."""

from __future__ import annotations

import sys
import time
from typing import Final

_REDRAW_EVERY_S: Final = 0.2
_SAY_EVERY_S: Final = 5.0


class Progress:
    """``what`` is counted, e.g. "records sent". Nothing is said about what is done at once."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._terminal = sys.stderr.isatty()
        self._begin_s = self._said_s = time.monotonic()
        self._drawn = False

    def __call__(self, done: int, total: int | None = None) -> None:
        """So many are done, of so many; None where nobody knows."""
        now_s = time.monotonic()
        if now_s - self._said_s < (_REDRAW_EVERY_S if self._terminal else _SAY_EVERY_S):
            return
        self._said_s, self._drawn = now_s, self._terminal
        rate = done / (now_s - self._begin_s)
        line = f"{done:,} {self._what}, {rate:,.0f}/s"
        if total is not None:
            left = max(total - done, 0)
            line += f", {left:,} left" + (f", {left / rate:,.0f} s to go" if rate else "")
        sys.stderr.write(f"\r\x1b[K{line}" if self._terminal else f"{line}\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Take the line away."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
