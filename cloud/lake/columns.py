"""What each column of the tables means, and its unit: ``columns.csv``, the pages' dictionary too."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from cloud.lake.tables import FILLED_BY, LazyLakes


@cache
def meanings() -> dict[tuple[str, str], tuple[str, str]]:
    """Unit and meaning of a column by table and name."""
    with Path(__file__).with_name("columns.csv").open(newline="") as file:
        return {(row["table"], row["column"]): (row["unit"], row["meaning"]) for row in csv.DictReader(file)}


def tables_of(lakes: LazyLakes) -> Iterator[tuple[str, str]]:
    """The tables there are, each with the command that fills it."""
    return ((name, FILLED_BY.get(name, "")) for name in sorted(lakes.names))


def described(lakes: LazyLakes, table: str) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, unit and meaning of each column of a table. Raises LakeError."""
    lakes.add(table)
    view = lakes.connection.view(table)
    for name, kind in zip(view.columns, view.types, strict=True):
        yield (name, str(kind), *meanings().get((table.lower(), name), ("", "")))
