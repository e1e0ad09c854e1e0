"""Records of a mast's channels: what was measured with which instrument and calibration, and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cloud.masts.reading import LakeReader

_RECORD: Final = dict.fromkeys(
    ("channel", "cal", "sensor", "quantity", "unit", "raw_unit", "driver", "slope", "offset", "model",
     "serial", "certificate", "lab", "height_m", "boom_deg", "pair", "in_force"), "",
)  # fmt: skip


def columns_of(reader: LakeReader, table: str) -> set[str]:
    """The columns that a table has; of an older version it may lack some. Raises Missing, LakeError."""
    return set(reader.read(table, f"SELECT column_name FROM (DESCRIBE {table})").column("column_name"))  # noqa: S608


def select(reader: LakeReader, table: str, wanted: Mapping[str, str]) -> str:
    """A SELECT's list of columns, each an expression by its name; one the table lacks is null."""
    there = columns_of(reader, table)
    return ", ".join(
        f'{sql or chr(34) + name + chr(34)} AS "{name}"' if (name in there or sql) else f'NULL AS "{name}"'
        for name, sql in wanted.items()
    )


def in_force(reader: LakeReader, gateway: str, begin_ms: int, end_ms: int) -> list[dict[str, Any]]:
    """Records of channels that were in force in a time, each with those ``spans`` of its that reach into it.

    From and to, in milliseconds since 1970; None is an unknown beginning, or no end yet. Raises Missing,
    LakeError.
    """
    there = columns_of(reader, "channels")
    extra = {
        "calibrated": "calibrated::VARCHAR", "expires": "expires::VARCHAR",
        "spans": "list_transform(periods, lambda each: [epoch_ms(each.\"begin\"), epoch_ms(each.\"end\")])",
    }  # fmt: skip
    needs = {"spans": "periods"}
    wanted = _RECORD | {name: sql for name, sql in extra.items() if needs.get(name, name) in there}
    rows = reader.read(
        "channels",
        f"SELECT {select(reader, 'channels', wanted)}, epoch_ms(valid_from) AS from_at, "  # noqa: S608
        "epoch_ms(valid_to) AS to_at FROM channels WHERE gateway = ? ORDER BY channel, valid_from",
        [gateway],
    ).dicts()
    for row in rows:
        row["spans"] = [
            (begin, end)
            for begin, end in row.get("spans") or [(row["from_at"], row["to_at"])]
            if (begin or 0) < end_ms and (end is None or end > begin_ms)
        ]
    return [row for row in rows if row["spans"]]
