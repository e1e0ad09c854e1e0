"""What a gateway's outbox holds, and outboxes for tests that have no directory."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

from buffer.errors import OnDrop, ignore
from buffer.outbox_file import Limits
from buffer.reader import OutboxReader
from buffer.sqlite_outbox import SqliteOutbox
from cloud.wire.reading_records import InvalidReading, parse_reading
from gateway.forwarding.records import from_bytes

_NO_LIMITS = Limits()

Identity = tuple[str, str, int]
"""Channel, run, seq of one gateway."""


def in_outbox(path: Path, gateway: str) -> set[Identity]:
    """Identities of a gateway's readings in the outbox, none where there is no file."""
    found: set[Identity] = set()
    if not path.exists():
        return found
    with OutboxReader(path) as reader:
        for _, stored in reader.records():
            try:
                reading = parse_reading(from_bytes(stored).value, unrepaired=True)
            except InvalidReading:
                # A run record or a dead letter.
                continue
            if reading.gateway == gateway:
                found.add((reading.channel, reading.run, reading.seq))
    return found


class TemporaryOutbox(SqliteOutbox):
    """One in a directory of its own, which goes when nothing uses it any more."""

    def __init__(self, limits: Limits = _NO_LIMITS, *, on_drop: OnDrop = ignore) -> None:
        directory = tempfile.mkdtemp(prefix="outbox-")
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        super().__init__(Path(directory) / "outbox.db", limits, on_drop=on_drop)
