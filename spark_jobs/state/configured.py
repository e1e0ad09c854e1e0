"""Which times a change of calibration records touches.

Pure. Times are microseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from cloud.wire.number_set import NumberSet
from spark_jobs.intervals import FOREVER_US

Span = tuple[int, int]
"""Begin (inside) and end (outside), microseconds since the epoch; ±FOREVER_US where it has none."""


def union(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same times as disjoint, ascending spans; those that touch are joined."""
    return _spans(_numbers(spans))


def without(spans: Iterable[Span], others: Iterable[Span]) -> tuple[Span, ...]:
    """The times in ``spans`` and not in ``others``."""
    return _spans(_numbers(spans).without(_numbers(others)))


def _numbers(spans: Iterable[Span]) -> NumberSet:
    return NumberSet((begin_us, end_us - 1) for begin_us, end_us in spans)


def _spans(numbers: NumberSet) -> tuple[Span, ...]:
    return tuple((first, last + 1) for first, last in numbers.spans())


BEFORE: Final = "update_preimage"
"""The change whose row is what was there; every other one's is what is there now."""


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
        in_order = sorted(of_key, key=lambda change: (change.version, change.kind != BEFORE))
        first, last = in_order[0], in_order[-1]
        before = _times(first.periods if first.kind == BEFORE else ())
        after = _times(last.periods if last.kind != BEFORE else ())
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
