"""Which stretches of time a change of calibration records touches: where one came into force, or left.

Pure. Times are microseconds since the epoch; what isn't known is before, or after, all times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_FIRST_US, _LAST_US = -(1 << 62), 1 << 62

Span = tuple[int, int]
"""Begin (included) and end (not)."""

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
        # The feed may tell several changes of a record at once: only the first state and the last count.
        in_order = sorted(of_key, key=lambda change: (change.version, change.kind not in BEFORE))
        first, last = in_order[0], in_order[-1]
        before = _spans(first.periods) if first.kind in BEFORE else []
        after = _spans(last.periods) if last.kind not in BEFORE else []
        same_use = first.use == last.use
        for span in _covered(before, after, same_use=same_use):
            yield key[0], span


def _spans(periods: Iterable[tuple[int | None, int | None]]) -> list[Span]:
    return [
        (_FIRST_US if begin is None else begin, _LAST_US if end is None else end) for begin, end in periods
    ]


def _covered(before: Sequence[Span], after: Sequence[Span], *, same_use: bool) -> Iterator[Span]:
    """What only one of them covers, or, where the use has changed, either."""
    edges = sorted({edge for span in (*before, *after) for edge in span})
    for begin, end in pairwise(edges):
        was, is_now = (any(b <= begin and end <= e for b, e in spans) for spans in (before, after))
        if was != is_now or (was and not same_use):
            yield begin, end
