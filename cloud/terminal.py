"""What commands print at a terminal: tables without lines, a progress bar, times and flags as text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from cloud.values import duration_text
from cloud.wire.reading_records import QUALITIES

ShowProgress = Callable[..., None]
"""Called with how many are done, and of how many, where that is known."""

_COLOURS: Final = {1: "green", 2: "cyan", 3: "yellow", 4: "red", 9: "magenta"}
"""The colours by quality flag."""


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


@contextmanager
def progress_bar(what: str) -> Iterator[ShowProgress]:
    """Shows a bar on standard error, if that is a terminal; ``what`` is counted, e.g. "records sent"."""
    console = Console(stderr=True)
    with Progress(
        TextColumn(f"{{task.completed:,}} {what}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task("", total=None)
        yield lambda done, total=None: bar.update(task, completed=done, total=total)


def quality_text(quality: int) -> Text:
    """A quality flag's name in its colour."""
    return Text(QUALITIES.get(quality, "?"), style=_COLOURS.get(quality, "white"))


def clock_text(time: str | None) -> str:
    """The time of day, UTC, of a time in RFC 3339 with a Z."""
    return time[11:19] if time else "–"


def age_text(time: str | None, now: datetime) -> str:
    """How long ago a time was."""
    if not time:
        return "–"
    return duration_text((now - datetime.fromisoformat(time)).total_seconds())
