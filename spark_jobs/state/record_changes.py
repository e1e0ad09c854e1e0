"""Which stretches of time a change of calibration records touches: where one came into force, or left.

Pure. Times are microseconds since the epoch; what isn't known is before, or after, all times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from spark_jobs.state.configured import FOREVER_US, Span, union, without

BEFORE: Final = ("update_preimage", "delete")
"""Changes whose row is what was there; every other one's is what is there now."""


@dataclass(frozen=True, slots=True)
class RecordChange:
    """One row of the change feed of ``channels``; ``use`` is what a reader makes of the record."""

    key: tuple[str, ...]
    version: int
    kind: str
    periods: tuple[tuple[int | None, int | None], ...]
    use: tuple[object, ...]


def touched_spans(changes: Iterable[RecordChange]) -> Iterator[tuple[str, Span]]:
    """Gateway (a key's first part) and span of all times whose record, or whose use of it, is another now."""
    by_key: dict[tuple[str, ...], list[RecordChange]] = {}
    for change in changes:
        by_key.setdefault(change.key, []).append(change)
    for key, of_key in by_key.items():
        # The feed may have several changes of a record: only the first state and the last count.
        in_order = sorted(of_key, key=lambda change: (change.version, change.kind not in BEFORE))
        first, last = in_order[0], in_order[-1]
        before = _times(first.periods if first.kind in BEFORE else ())
        after = _times(last.periods if last.kind not in BEFORE else ())
        touched = [*before, *after]
        if first.use == last.use:
            touched = [*without(before, after), *without(after, before)]
        for span in union(touched):
            yield key[0], span


def _times(periods: Iterable[tuple[int | None, int | None]]) -> list[Span]:
    return [
        (-FOREVER_US if begin is None else begin, FOREVER_US if end is None else end)
        for begin, end in periods
    ]
