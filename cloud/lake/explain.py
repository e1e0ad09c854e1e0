"""What a statement read of the lake: files, parts of them and rows, as DuckDB counted them while it ran."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

from cloud.lake.tables import LakeError, LazyLakes

COLUMNS: Final = ("table", "files", "row_groups", "row_groups_read", "rows_read", "seconds")
"""``seconds`` are those of all threads together; a row group is a part of a file that is read or left out."""


def read_by(lakes: LazyLakes, text: str) -> tuple[list[tuple[Any, ...]], str]:
    """Runs one statement: a row of ``COLUMNS`` for each scan, and the whole in words.

    Raises LakeError, duckdb.Error.
    """
    if len(lakes.connection.extract_statements(text)) != 1:
        raise LakeError("--explain takes one statement")
    # First its plan: that opens the tables it names.
    lakes.sql(f"EXPLAIN {text}")
    rows = lakes.connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}").fetchall()
    found = json.loads(rows[0][1])
    scans = [scan for part in found["operator"] for scan in _scans(part)]
    whole, io = found["query"], found["io"]
    words = f"{whole['total_time']:.3f} s, {io['total_bytes_read'] / 1e6:,.1f} MB read"
    return [_row(scan) for scan in scans], words


def _scans(part: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if part["type"] == "TABLE_SCAN":
        yield part
    for child in part.get("children", ()):
        yield from _scans(child)


def _row(scan: Mapping[str, Any]) -> tuple[Any, ...]:
    info = scan["extra_info"]
    return (
        _table(info),
        int(info["Total Files Read"]) if "Total Files Read" in info else None,
        scan.get("total_row_groups_to_scan"),
        scan.get("row_groups_scanned"),
        scan.get("rows_scanned"),
        round(scan["timing"], 3),
    )


def _table(info: Mapping[str, Any]) -> str:
    """The folder of the first file, else what DuckDB calls the scan."""
    first = PurePath(str(info.get("Filename(s)", "")).partition(", ")[0])
    folders = [each for each in first.parts[:-1] if "=" not in each]
    return folders[-1] if folders else str(info.get("Text") or info.get("Function") or "")
