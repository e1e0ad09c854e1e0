"""A Kafka record in the outbox, which stores bytes, and which readings a block of them holds.

A record is the length of its head (4 bytes, big-endian), the head (JSON: topic, key, headers) and the value.
A block has a summary beside it, so that a lost one can be announced: JSON, deflated,
``[[gateway, run, channel, first, last, first, last, …], …]``.
"""

from __future__ import annotations

import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Final

import msgspec

from buffer.errors import DISK_LOW, MEMORY_FULL, OTHERS_SHARE, OUTBOX_FULL, Drop, OnDrop
from cloud.wire.fields import UNDECODABLE
from cloud.wire.number_set import NumberSet
from cloud.wire.reading_records import InvalidReading, parse_reading
from gateway.ports import Record

_LENGTH: Final = struct.Struct(">I")
_Text = Annotated[str, msgspec.Meta(min_length=1)]
_HEAD: Final = msgspec.json.Decoder(tuple[_Text, str, list[tuple[_Text, str]]])
_bytes: Final = bytes.fromhex


def to_bytes(record: Record) -> bytes:
    """The bytes of a record."""
    headers = [(name, value.hex()) for name, value in record.headers]
    head = msgspec.json.encode((record.topic, record.key.hex(), headers))
    return _LENGTH.pack(len(head)) + head + record.value


def from_bytes(stored: bytes) -> Record:
    """The record in stored bytes. Raises ValueError where they are not one."""
    try:
        (length,) = _LENGTH.unpack_from(stored)
        end = _LENGTH.size + length
        head = stored[_LENGTH.size : end]
        topic, key, coded = _HEAD.decode(head)
        # librdkafka would end the process over some other topics and names of headers.
        if not head.isascii() or (b"\\" in head and not _plain(topic, coded)):
            raise ValueError("its topic or a header's name is no plain text")
        headers = tuple([(name, _bytes(value)) for name, value in coded])
        return Record(topic, _bytes(key), stored[end:], headers)
    except (struct.error, *UNDECODABLE) as error:
        raise ValueError(f"not a stored record: {error}") from error


def _plain(topic: str, headers: list[tuple[str, str]]) -> bool:
    """Whether escaped characters, too, are ASCII."""
    return topic.isascii() and all(name.isascii() for name, _ in headers)


# None is larger; a damaged length must not fill the memory.
_MAX_BYTES = 1 << 20
_FOR_WANT_OF_ROOM = frozenset({OUTBOX_FULL, DISK_LOW, MEMORY_FULL, OTHERS_SHARE})


@dataclass(frozen=True, slots=True)
class Range:
    """The readings ``first`` to ``last`` (both included) of one channel and run."""

    gateway: str
    run: str
    channel: str
    first: int
    last: int


def summarise(records: Iterable[Record]) -> bytes:
    """The summary of a block; records that are no readings (dead letters, run records) are not in it."""
    seqs: defaultdict[tuple[str, str, str], NumberSet] = defaultdict(NumberSet)
    for record in records:
        try:
            # One that waits for the clock may be of 1970; it is a reading all the same.
            reading = parse_reading(record.value, unrepaired=True)
        except InvalidReading:
            continue
        seqs[reading.gateway, reading.run, reading.channel].add(reading.seq)
    return _packed(seqs)


def exactly(on_drop: OnDrop) -> OnDrop:
    """``on_drop``, given summaries without what had been removed from a block before the rest was lost."""

    def exact(drop: Drop) -> None:
        if drop.left:
            drop = replace(drop, summary=summarise(_records(drop.left)), left=())
        on_drop(drop)

    return exact


def _records(stored: Iterable[bytes]) -> Iterator[Record]:
    for each in stored:
        with suppress(ValueError):
            yield from_bytes(each)


def joined(drops: Iterable[Drop]) -> Iterator[Drop]:
    """Drops of one reason as one, with one summary: for want of room all, others where their numbers adjoin.

    Where blocks of two classes take turns, what goes of one never adjoins, and an event for each would fill
    the outbox with announcements.
    """
    groups: list[list[Drop]] = []
    of_reason: dict[str, list[Drop]] = {}
    for drop in drops:
        group = of_reason.get(drop.reason)
        if group is not None and (drop.reason in _FOR_WANT_OF_ROOM or group[-1].last + 1 == drop.first):
            group.append(drop)
        else:
            of_reason[drop.reason] = [drop]
            groups.append(of_reason[drop.reason])
    return map(join, groups)


def join(drops: list[Drop]) -> Drop:
    """Drops of one reason, at least one, as one."""
    if len(drops) == 1:
        return drops[0]
    counts = [drop.count for drop in drops if drop.count is not None]
    seqs: defaultdict[tuple[str, str, str], NumberSet] = defaultdict(NumberSet)
    for lost in chain.from_iterable(ranges(drop.summary) for drop in drops):
        seqs[lost.gateway, lost.run, lost.channel].add(lost.first, lost.last)
    count = sum(counts) if len(counts) == len(drops) else None
    first, last = min(drop.first for drop in drops), max(drop.last for drop in drops)
    return Drop(drops[0].reason, first, last, count, _packed(seqs))


def _packed(seqs: Mapping[tuple[str, str, str], NumberSet]) -> bytes:
    rows = [[*key, *chain.from_iterable(numbers.spans())] for key, numbers in sorted(seqs.items())]
    return zlib.compress(msgspec.json.encode(rows), 6)


def ranges(summary: bytes) -> tuple[Range, ...]:
    """What is in a summary; nothing where it is empty or damaged."""
    if not summary:
        return ()
    try:
        rows = msgspec.json.decode(zlib.decompressobj().decompress(summary, _MAX_BYTES))
        return tuple(
            Range(str(gateway), str(run), str(channel), int(first), int(last))
            for gateway, run, channel, *numbers in rows
            for first, last in zip(numbers[::2], numbers[1::2], strict=True)
        )
    except (zlib.error, ValueError, TypeError):
        return ()
