"""Tables for people, without lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table


def plain_table(*columns: str, right: Collection[str] = (), wrapped: Collection[str] = ()) -> Table:
    """A table of these columns, each on one line; those in ``wrapped`` may have several."""
    table = Table(box=None, pad_edge=False)
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in right else "left"
        table.add_column(name, justify=justify, no_wrap=name not in wrapped, overflow="fold")
    return table


def wide_console(columns: int = 200) -> Console:
    """Standard output: as wide as its terminal, else of so many columns; piped, a table isn't cut at 80."""
    return Console() if sys.stdout.isatty() else Console(width=columns)


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
