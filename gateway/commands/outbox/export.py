"""``fieldgate outbox export``: a copy of the outbox in one file.

Exporting removes nothing: what is exported goes out again when the mast has signal, and is counted once.
"""

from __future__ import annotations

import sys
from pathlib import Path

from buffer.reader import OutboxReader
from gateway.commands.arguments import OK, CommandError, os_problem
from gateway.commands.tables import progress_bar
from gateway.config import Config
from gateway.system.atomic_file import replacing


def export(config: Config, target: Path) -> int:
    """Copy it to a file, which has its name only when all of it is on the disk.

    Raises CommandError, OutboxError.
    """
    if target == Path("-"):
        raise CommandError("an outbox can't be written to standard output: name a file")
    if target.exists():
        raise CommandError(f"{target} is there already; choose another name")
    try:
        with (
            progress_bar("pages copied") as progress,
            OutboxReader(config.outbox.path) as reader,
            replacing(target) as file,
        ):
            reader.copy_to(Path(file.name), progress)
    except OSError as error:
        raise CommandError(os_problem(error, target)) from error
    sys.stderr.write(f"{config.outbox.path} copied to {target}: {target.stat().st_size:,} bytes\n")
    return OK
