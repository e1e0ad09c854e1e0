"""Errors of an outbox, by what the caller can do about them.

After OutboxLocked, OutboxDiskFull and OutboxUnusable the store is as it was before the call, and the same
call may succeed later.
"""

from __future__ import annotations

import errno
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
