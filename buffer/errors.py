"""Errors of an outbox, by what the caller can do about them, and reports of dropped records.

After OutboxLocked, OutboxDiskFull and OutboxUnusable the store is as it was before the call, and the same
call may succeed later.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class OutboxError(Exception):
    """Root of everything an outbox raises on purpose; the message includes the remedy."""


class OutboxLocked(OutboxError):
    """Another process, or another outbox of this one, uses the file."""


class OutboxDiskFull(OutboxError):
    """The file system has no room for what was to be written; nothing was."""


class OutboxTooLarge(OutboxDiskFull):
    """One block is larger than the outbox's cap allows; room on the disk would not help."""


class OutboxUnusable(OutboxError):
    """The disk or directory can't be read or written now (missing, read-only, failing); never corrupt."""


class OutboxForeign(OutboxUnusable):
    """The file is another program's database. It is left as it is."""


class OutboxCorrupt(OutboxError):
    """The file is damaged, or no outbox at all. It is left as it is."""


class OutboxVersionError(OutboxError):
    """The file was written by another version of this program. It is left as it is."""


class OutboxClosed(OutboxError):
    """The outbox was used after ``close``."""


def wants_room(error: OSError) -> bool:
    """Whether an error of the file system is one to raise OutboxDiskFull for."""
    return error.errno in _NO_ROOM


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
