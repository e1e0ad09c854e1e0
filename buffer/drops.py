"""Reports of dropped records, and of what is in memory only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

OUTBOX_FULL: Final = "OUTBOX_FULL"
"""The outbox reached its own cap; the oldest records were dropped."""
DISK_LOW: Final = "DISK_LOW"
"""The disk has less free space than it must keep, or none; the oldest records were dropped."""
OTHERS_SHARE: Final = "OTHERS_SHARE"
"""Room was needed while other devices' records and dead letters held more than their share: their oldest."""
CORRUPT: Final = "CORRUPT"
"""The file was damaged there."""
MEMORY_FULL: Final = "MEMORY_FULL"
"""The disk could not be used and the memory was full; the oldest records in memory were dropped."""
NOT_STORED: Final = "NOT_STORED"
"""In memory when the program ended, and the disk could not be used."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Records ``first`` to ``last`` are lost.

    ``count`` is the most records that can be (some may have been removed before the damage); None where it
    is unknown, and then ``last`` is the last number that can have been issued. ``summary`` is the one that
    was appended with the block, empty where it is lost too. Where some of the block's records had been
    removed, ``left`` are the others, as far as they can be read: the summary names them all.
    """

    reason: str
    first: int
    last: int
    count: int | None
    summary: bytes
    left: tuple[bytes, ...] = ()


OnDrop = Callable[[Drop], None]


def ignore(drop: Drop) -> None:
    """Report nothing: for tools that only read."""
