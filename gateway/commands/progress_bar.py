"""A bar on stderr about long work, while stderr is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

ShowProgress = Callable[..., None]
"""Called with how many are done, and of how many, where that is known."""


@contextmanager
def progress_bar(what: str) -> Iterator[ShowProgress]:
    """``what`` is counted, e.g. "records sent". The bar is gone at the end."""
    console = Console(stderr=True)
    with Progress(
        TextColumn(f"{{task.completed:,}} {what}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task("", total=None)
        yield lambda done, total=None: bar.update(task, completed=done, total=total)
