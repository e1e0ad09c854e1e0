"""The one thing a daemon remembers of its predecessor: its run. Written once per start.

A file written without fsync comes back full of zeros after a power cut, so: temporary file, fsync, rename,
fsync of the directory.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The kernel's id of this boot (random(4))."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"


def replace_run(path: Path, run: str) -> str | None:
    """Write this run's id over the previous one's, which is returned; None without one.

    A state that can't be read or written is logged: it is no reason not to sample.
    """
    previous: str | None = None
    try:
        found = json.loads(path.read_text()).get("run")
        previous = found if isinstance(found, str) else None
    except FileNotFoundError:
        pass
    except (OSError, ValueError, AttributeError) as error:
        log.warning("event=state.unreadable path=%s error=%s", path, error)
    try:
        _write_durably(path, json.dumps({"run": run, "boot": boot_id()}))
    except OSError as error:
        log.error("event=state.not_written path=%s error=%s", path, error)
    return previous


def _write_durably(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
