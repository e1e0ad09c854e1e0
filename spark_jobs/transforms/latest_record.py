"""The row of a run, a calibration, a site or a status once one more record of it has come.

Pure, over rows as dicts. Each fold gives the same whatever comes twice; all but that of a status give the
same in whatever order records come, for old ones are stored during outages and arrive late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cloud.wire.fields import InvalidFields
from cloud.wire.run_records import reach

Row = dict[str, Any]
Fold = Callable[[Row | None, Row], Row]

DETERMINING: Final = (
    *("driver", "quantity", "unit", "slope", "offset", "settings", "model", "serial"),
    *("certificate", "lab", "calibrated", "expires", "height_m", "boom_deg"),
)
"""What never changes under one ``cal`` (docs/analyse.md); accuracy and range may be defaults."""


def run_rank(row: Row) -> tuple[int, int, int, Any]:
    """Grows with each record of one run: how far it got, its revision, Kafka's time."""
    return *reach(row["state"], (seq for _, seq in row["last_seq"])), row["revision"], row["reported_at"]


def furthest_run(known: Row | None, new: Row) -> Row:
    """The record of a run that got furthest; a run that has ended doesn't run again."""
    return new if known is None or run_rank(new) > run_rank(known) else known


def calibration(known: Row | None, new: Row) -> Row:
    """The record of a calibration with the highest revision, and the earliest beginning of any.

    Raises InvalidFields (CAL_CHANGED) where the records contradict each other in what determines a value.
    """
    if known is None:
        return new
    for name in DETERMINING:
        if _plain(known[name]) != _plain(new[name]):
            raise InvalidFields("CAL_CHANGED", f"{name} is another than under the same cal before")
    newest = new if new["revision"] >= known["revision"] else known
    begins = [row["valid_from"] for row in (known, new) if row["valid_from"] is not None]
    merged = {**newest, "valid_from": min(begins, default=None)}
    return known if _content(merged) == _content(known) else merged


def revised(known: Row | None, new: Row) -> Row:
    """The record of a key with the highest revision."""
    return new if known is None or new["revision"] > known["revision"] else known


def last_status(known: Row | None, new: Row) -> Row:
    """The last status of a run in Kafka's order.

    One that was stored and comes late is known by its revision; a last will has none (0).
    """
    if known is None:
        return new
    later = (new["reported_at"], new["reported_offset"]) > (known["reported_at"], known["reported_offset"])
    stale = 0 < new["revision"] < known["revision"]
    if not later or stale:
        return known
    # A will after revision 7 doesn't let revision 6 through.
    return {**new, "revision": max(new["revision"], known["revision"])}


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value


def _content(row: Row) -> dict[str, Any]:
    """A row as it would be stored: place in Kafka and bookkeeping left out, maps in a fixed order."""
    return {
        name: _plain(value)
        for name, value in row.items()
        if name != "updated_at" and name != "reason" and not name.startswith("kafka_")
    }
