"""Which readings a block of the outbox holds: kept beside the block, so that a lost one can be announced.

A summary is JSON, deflated: ``[[gateway, run, channel, first, last, first, last, …], …]``.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from buffer.drops import Drop
from cloud.wire.schema import InvalidReading, parse_reading
from gateway.ports import Record

# Nobody needs a larger one; a damaged length must not fill the memory.
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Range:
    """The readings ``first`` to ``last`` (both included) of one channel and run."""

    gateway: str
    run: str
    channel: str
    first: int
    last: int


def spans(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The runs of consecutive numbers, in order."""
    first = last = None
    for number in sorted(set(numbers)):
        if first is None or last is None:
            first = last = number
        elif number == last + 1:
            last = number
        else:
            yield first, last
            first = last = number
    if first is not None and last is not None:
        yield first, last


def summarise(records: Iterable[Record]) -> bytes:
    """The summary of a block; records that are no readings (dead letters, run records) are not in it."""
    seqs: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for record in records:
        try:
            # One that waits for the clock may be of 1970; it is a reading all the same.
            reading = parse_reading(record.value, unrepaired=True)
        except InvalidReading:
            continue
        seqs[reading.gateway, reading.run, reading.channel].append(reading.seq)
    return _packed(
        [
            [*key, *(number for span in spans(numbers) for number in span)]
            for key, numbers in sorted(seqs.items())
        ]
    )


def joined(drops: Iterable[Drop]) -> Iterator[Drop]:
    """Drops of one reason whose numbers adjoin as one, with one summary."""
    waiting: list[Drop] = []
    for drop in drops:
        if waiting and (waiting[-1].reason, waiting[-1].last + 1) != (drop.reason, drop.first):
            yield _join(waiting)
            waiting = []
        waiting.append(drop)
    if waiting:
        yield _join(waiting)


def _join(drops: list[Drop]) -> Drop:
    if len(drops) == 1:
        return drops[0]
    counts = [drop.count for drop in drops]
    known = [count for count in counts if count is not None]
    numbers: defaultdict[tuple[str, str, str], list[tuple[int, int]]] = defaultdict(list)
    for drop in drops:
        for lost in ranges(drop.summary):
            of_channel = numbers[lost.gateway, lost.run, lost.channel]
            if of_channel and of_channel[-1][1] + 1 == lost.first:
                of_channel[-1] = (of_channel[-1][0], lost.last)
            else:
                of_channel.append((lost.first, lost.last))
    rows: list[list[str | int]] = [
        [*key, *(end for span in of for end in span)] for key, of in sorted(numbers.items())
    ]
    count = sum(known) if len(known) == len(counts) else None
    return Drop(drops[0].reason, drops[0].first, drops[-1].last, count, _packed(rows))


def _packed(rows: Sequence[Sequence[str | int]]) -> bytes:
    return zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 6)


def ranges(summary: bytes) -> tuple[Range, ...]:
    """What a summary says; nothing where it is empty or damaged."""
    if not summary:
        return ()
    try:
        rows = json.loads(zlib.decompressobj().decompress(summary, _MAX_BYTES))
        return tuple(
            Range(str(gateway), str(run), str(channel), int(first), int(last))
            for gateway, run, channel, *numbers in rows
            for first, last in zip(numbers[::2], numbers[1::2], strict=True)
        )
    except (zlib.error, ValueError, TypeError):
        return ()
