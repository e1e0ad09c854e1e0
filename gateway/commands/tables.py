"""Tables for people, without lines."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Literal

from rich.console import Console
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
