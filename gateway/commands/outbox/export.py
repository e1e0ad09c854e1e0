"""``fieldgate outbox export``: an outbox's records in a file.

Exporting removes nothing: what is exported goes out again when the mast has signal, and is counted once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from buffer.reader import OutboxReader
from gateway.clock.repair import UNREPAIRED
from gateway.commands.arguments import FAILED, OK, CommandError
from gateway.commands.outbox import export_format
from gateway.commands.progress import progress_bar
from gateway.config import Config
from gateway.forwarding.record_codec import from_bytes
from gateway.system.atomic_file import replacing
from gateway.system.times import now_text


def export(config: Config, target: str) -> int:
    """Write all records to a file, ``-`` for standard output: 0, or 1 where not all could be.

    Raises CommandError, OutboxError.
    """
    try:
        with (
            progress_bar("records written") as progress,
            OutboxReader(config.outbox.path) as reader,
            _opened(target) as file,
        ):
            file.write(export_format.head(config.gateway.id, now_text("seconds")))
            written = held = unreadable = 0
            for _, stored in reader.records():
                try:
                    record = from_bytes(stored)
                except ValueError:
                    unreadable += 1
                    continue
                if any(name == UNREPAIRED for name, _ in record.headers):
                    held += 1
                    continue
                file.write(export_format.encode(record))
                written += 1
                progress(written)
            file.write(export_format.end(written))
    except OSError as error:
        raise CommandError(error) from error
    sys.stderr.write(f"{written:,} records written to {'standard output' if target == '-' else target}\n")
    if held:
        sys.stderr.write(f"{held:,} records wait for the clock: only the daemon can send them\n")
    if unreadable or reader.damaged:
        sys.stderr.write(
            f"not exported: {reader.damaged:,} damaged blocks, {unreadable:,} rows that are no records\n"
        )
        return FAILED
    return OK


@contextmanager
def _opened(target: str) -> Iterator[BinaryIO]:
    """A file that has its name only when all of it is on the disk."""
    if target == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(target)
    if path.exists():
        raise CommandError(f"{path} is there already; choose another name")
    with replacing(path) as file:
        yield file
