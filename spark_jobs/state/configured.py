"""When channels were configured, by their calibration records, and which times a change of these touches.

Pure. Times are microseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cloud.wire.number_set import NumberSet
from spark_jobs.intervals import SECOND_US, Channel

FOREVER_US: Final = 1 << 62

Span = tuple[int, int]
"""Begin (inside) and end (outside), microseconds since the epoch; ±FOREVER_US where it has none."""


@dataclass(frozen=True, slots=True)
class Configured:
    """The times any record of a channel was in force: disjoint, ascending.

    An unknown begin (the gateway had no clock) is -FOREVER_US. ``period_ms`` and ``unit`` are those of the
    newest record.
    """

    spans: tuple[Span, ...]
    period_ms: int
    unit: str

    def within(self, first_us: int, end_us: int, interval_s: int) -> Iterator[Span]:
        """The whole intervals from ``first_us`` up to ``end_us`` that lie in one of the spans."""
        for span in self.spans:
            first, end = whole_intervals(span, interval_s)
            first, end = max(first_us, first), min(end_us, end)
            if first < end:
                yield first, end


def whole_intervals(span: Span, interval_s: int) -> Span:
    """Start of the first and end of the last interval that lie wholly within; empty where none does."""
    length_us = interval_s * SECOND_US
    return -(-span[0] // length_us) * length_us, span[1] // length_us * length_us


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


def configured(records: Iterable[Mapping[str, Any]]) -> dict[Channel, Configured]:
    """The times in force by channel, of records of ``channels``.

    Each record: gateway, channel, in_force, revision, interval_s, unit, and ``periods`` as a list of (begin,
    end) in microseconds, None where unknown. A period whose end is unknown though its record is no longer in
    force ends where the channel's next one begins; where there is none, nothing is known to be due in it.
    """
    by_channel: dict[Channel, list[Mapping[str, Any]]] = {}
    for record in records:
        by_channel.setdefault((record["gateway"], record["channel"]), []).append(record)
    return {channel: _configured(found) for channel, found in by_channel.items()}


def _configured(records: Sequence[Mapping[str, Any]]) -> Configured:
    periods = [period for record in records for period in record["periods"] or ()]
    begins = sorted(begin for begin, _ in periods if begin is not None)

    def end_of(begin: int | None, end: int | None, *, in_force: bool) -> int:
        if end is not None or in_force:
            return FOREVER_US if end is None else end
        start = -FOREVER_US if begin is None else begin
        return next((later for later in begins if later > start), start)

    newest = max(records, key=lambda record: (record["in_force"], record["revision"]))
    return Configured(
        spans=union(
            (-FOREVER_US if begin is None else begin, end_of(begin, end, in_force=record["in_force"]))
            for record in records
            for begin, end in record["periods"] or ()
        ),
        period_ms=max(1, round(newest["interval_s"] * 1000)),
        unit=newest["unit"],
    )


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
