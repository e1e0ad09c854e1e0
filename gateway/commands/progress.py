"""A bar on stderr about long work, while stderr is a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_REDRAW_EVERY_S: Final = 0.2

ShowProgress = Callable[..., None]
"""Called with how many are done, and of how many, where that is known."""


@contextmanager
def progress_bar(what: str) -> Iterator[ShowProgress]:
    """``what`` is counted, e.g. "records sent". Work that ends at once shows nothing."""
    text = TextColumn(f"{{task.completed:,}} {what}")
    console = Console(stderr=True)
    bar = Progress(
        text, BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
    task = bar.add_task("", total=None)
    drawn_s = time.monotonic()

    def show(done: int, total: int | None = None) -> None:
        nonlocal drawn_s
        if (now_s := time.monotonic()) >= drawn_s + _REDRAW_EVERY_S:
            drawn_s = now_s
            bar.start()
            bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()
