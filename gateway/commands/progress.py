"""A bar on stderr about long work, while stderr is a terminal."""

from __future__ import annotations

import time
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

_REDRAW_EVERY_S: Final = 0.2


class Progress:
    """``what`` is counted, e.g. "records sent". Work that ends at once shows nothing."""

    def __init__(self, what: str) -> None:
        columns = (
            TextColumn(f"{{task.completed:,}} {what}"),
            BarColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        console = Console(stderr=True)
        self._bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=None)
        self._drawn_s = time.monotonic()

    def __call__(self, done: int, total: int | None = None) -> None:
        """So many are done, of so many; None where that is unknown."""
        if (now_s := time.monotonic()) >= self._drawn_s + _REDRAW_EVERY_S:
            self._drawn_s = now_s
            self._bar.start()
            self._bar.update(self._task, completed=done, total=total)

    def end(self) -> None:
        """Remove it."""
        if self._bar.live.is_started:
            self._bar.stop()
