"""Replaces a file so that it is whole, or as it was before, whenever the power goes.

Temporary file, fsync, rename, fsync of the directory. ``buffer/files.py`` has its own for the outbox.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from buffer.files import sync_directory

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ownership:
    """User, group and permissions of a file."""

    uid: int
    gid: int
    mode: int


def ownership_of(path: Path) -> Ownership:
    """A file's, for its successor. Raises OSError."""
    facts = path.stat()
    return Ownership(facts.st_uid, facts.st_gid, facts.st_mode & 0o7777)


def write_atomic(path: Path, content: str | bytes, ownership: Ownership | None = None) -> None:
    """Replace or make a file, this process's without ``ownership``. Raises OSError; then nothing changed."""
    with replacing(path, ownership) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path, ownership: Ownership | None = None) -> Iterator[BinaryIO]:
    """A new file in the same directory, which takes the place of ``path`` at the end.

    What is raised within leaves ``path`` as it was, and the new file is gone. Raises OSError.
    """
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        # Whoever opened it while it was anybody's to read would read what comes, too.
        mode = 0o666 if ownership is None else 0o600
        with open(new, "xb", opener=partial(os.open, mode=mode)) as file:
            if ownership is not None:
                if (ownership.uid, ownership.gid) != (os.geteuid(), os.getegid()):
                    # Not permitted: then the file must not silently become another's.
                    os.fchown(file.fileno(), ownership.uid, ownership.gid)
                os.fchmod(file.fileno(), ownership.mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    sync_directory(path.absolute().parent)


def read_state(path: Path, parse: Callable[[Any], T], default: T) -> T:
    """What ``parse`` makes of a JSON file; ``default`` without one, and, logged, where it can't be read."""
    try:
        return parse(msgspec.json.decode(path.read_bytes()))
    except FileNotFoundError:
        return default
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        log.warning("event=state.unreadable path=%s error=%s", path, error)
        return default


def write_state(path: Path, fields: Any, level: int = logging.ERROR) -> bool:
    """Replace or make a JSON file; False, logged at ``level``, where the disk refuses."""
    try:
        write_atomic(path, msgspec.json.encode(fields))
    except OSError as error:
        log.log(level, "event=state.not_written path=%s error=%s", path, error)
        return False
    return True
