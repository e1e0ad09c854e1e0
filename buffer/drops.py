"""What an outbox gave up: said to its owner, never in silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

OUTBOX_FULL: Final = "OUTBOX_FULL"
"""The outbox reached its own cap; the oldest went first."""
DISK_LOW: Final = "DISK_LOW"
"""The disk has less free space than it must keep, or none; the oldest went first."""
CORRUPT: Final = "CORRUPT"
"""The file was damaged there."""
MEMORY_FULL: Final = "MEMORY_FULL"
"""The disk could not be used, and the memory for such times was full; the oldest in memory went."""
NOT_STORED: Final = "NOT_STORED"
"""In memory when the program ended, and the disk still could not be used."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Records ``first`` to ``last`` are gone.

    ``count`` is how many records that is at most (some of them may have been removed before the damage); None
    where nobody can know, and then ``last`` is the last number that can have been issued. ``summary`` is what
    the appender said of the block, empty where that is lost, too.
    """

    reason: str
    first: int
    last: int
    count: int | None
    summary: bytes


@dataclass(frozen=True, slots=True)
class InMemory:
    """What an outbox keeps in memory for want of a disk, and why.

    ``oldest`` is the number of the oldest such record (None: there is none): all below are on the disk or
    gone. ``problem`` is what is wrong with the disk, in words, None while nothing is known to be.
    """

    records: int
    size_bytes: int
    oldest: int | None
    problem: str | None


NOTHING_IN_MEMORY: Final = InMemory(0, 0, None, None)

OnDrop = Callable[[Drop], None]


def ignore(drop: Drop) -> None:
    """Tell nobody: for tools that only read."""
