"""The run record of ``gateway.runs``: how far a run got, and what it announced as dropped.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Self

import msgspec
from msgspec import Meta

from cloud.wire.bounds import MAX_COUNT, Count, Number
from cloud.wire.fields import InvalidFields, convert, split_object, time_of
from cloud.wire.reading_records import MAX_PAYLOAD_BYTES, GatewayId, RunId

_RANGE: Final = re.compile(
    r"(?:(?P<gateway>[a-z0-9-]{1,63})/)?(?P<run>[A-Za-z0-9-]{1,64}) (?P<channel>[^ ]{1,200}) "
    r"(?P<first>\d{1,19})-(?P<last>\d{1,19})",
    re.ASCII,
)
ENDS: Final = {"killed": 1, "stopped": 2}
"""States of a run that has ended; of two the higher one holds."""

_Name = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]{1,256}\Z")]


@dataclass(frozen=True, slots=True)
class DroppedRange:
    """Readings ``first`` to ``last`` (both included) of one channel and run, announced as dropped."""

    reason: str
    gateway: str
    run: str
    channel: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that did not end itself: its process was "killed", or the whole machine "reset" (``end``).

    Readings of its last ``lost_at_most_s`` seconds may be missing, and no record has which.
    """

    run: _Name
    end: str
    lost_at_most_s: Number


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The last record of one run: the highest seq of each channel, and what was not in Kafka yet.

    ``started_us`` is by the gateway's clock, microseconds since the epoch; ``revision`` counts a run's
    records from 1 (0: unknown), and a closing record has that of the record it closes.
    ``dropped`` are the ranges it announced, of whatever run; ``dropped_records`` is its count of records by
    reason, which also counts those that are no readings. ``drops_unknown`` where it didn't count them.
    ``unfinished`` are the latest runs before this one that did not end themselves. ``reading_topics`` are
    those of its readings that don't begin like all readings'. ``last_event`` is the highest seq of its
    events; None where its daemon doesn't number them.
    """

    gateway: GatewayId
    run: RunId
    state: _Name
    last_seq: Mapping[_Name, Count]
    in_flight: Count = 0
    outbox_records: Count = 0
    previous_run: _Name | None = None
    dropped: tuple[DroppedRange, ...] = ()
    dropped_records: Mapping[str, Count] = field(default_factory=dict)
    drops_unknown: bool = False
    unfinished: tuple[Unfinished, ...] = ()
    boot: _Name | None = None
    started_us: int | None = None
    revision: Count = 0
    reading_topics: tuple[str, ...] = ()
    last_event: Count | None = None

    @property
    def reach(self) -> tuple[int, int]:
        """Grows with each record of one run, in whatever order they arrive: some come late."""
        return reach(self.state, self.last_seq.values())

    @classmethod
    def from_json(cls, payload: bytes) -> Self:
        """The record in a message; unknown fields are ignored. Raises InvalidFields."""
        fields, _ = split_object(payload, MAX_PAYLOAD_BYTES, _NAMES)
        given = {name: value for name, value in fields.items() if value is not None}
        written = convert(given, _Written)
        return replace(
            convert({**given, "dropped": ()}, cls),
            started_us=None if written.started is None else time_of("started", written.started),
            dropped=tuple(
                _range(fields["gateway"], drop.reason, text)
                for drop in written.dropped
                for text in drop.ranges
            ),
            dropped_records={drop.reason: drop.count or 0 for drop in written.dropped},
            drops_unknown=any(drop.more_unknown for drop in written.dropped),
        )


class DroppedFields(msgspec.Struct):
    """What a run has dropped for one reason.

    ``ranges`` are texts: ``run channel first-last``, another device's with ``gateway/`` before its run.
    ``count`` is null where it is unknown; ``more_unknown``: more than the ranges name.
    """

    reason: _Name
    count: Count | None
    ranges: list[str]
    more_unknown: bool = False


class _Written(msgspec.Struct):
    """What is written of a record in another form."""

    started: str | None = None
    dropped: list[DroppedFields] = []


_NAMES: Final = (
    *("gateway", "run", "previous_run", "unfinished", "boot", "started", "state", "revision", "last_seq"),
    *("in_flight", "outbox_records", "dropped", "reading_topics", "last_event"),
)


def reach(state: str, seqs: Iterable[int]) -> tuple[int, int]:
    """How far a run's record got: whether and how the run ended, and how many readings it had issued."""
    return ENDS.get(state, 0), sum(seqs)


def _range(gateway: str, reason: str, text: str) -> DroppedRange:
    """A range in a record of ``gateway``: ``run channel first-last``, another gateway's before its run."""
    found = _RANGE.fullmatch(text)
    first, last = map(int, found.group("first", "last")) if found else (0, 0)
    if found is None or not 1 <= first <= last <= MAX_COUNT:
        raise InvalidFields("OUT_OF_RANGE", f"not a range of readings: {text!r:.100}")
    return DroppedRange(reason, found["gateway"] or gateway, found["run"], found["channel"], first, last)
