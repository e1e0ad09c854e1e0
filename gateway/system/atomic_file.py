"""Writes a small file so that it is whole, or as it was before, whenever the power goes.

Temporary file, fsync, rename, fsync of the directory; the file belongs to whom it is for, not to who ran the
command.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Rights:
    """Whose a file is, and who may read it."""

    uid: int
    gid: int
    mode: int


def rights_of(path: Path) -> Rights:
    """A file's own, to be given to its successor. Raises OSError."""
    facts = path.stat()
    return Rights(facts.st_uid, facts.st_gid, facts.st_mode & 0o7777)


def rights_within(directory: Path, mode: int) -> Rights:
    """For a new file: the directory's owner, as the daemon must be able to use what root leaves there."""
    facts = directory.stat()
    return Rights(facts.st_uid, facts.st_gid, mode)


def write_whole(
    path: Path, content: bytes, rights: Rights, accept: Callable[[Path], None] = lambda written: None
) -> None:
    """Replace or make a file. Raises OSError; then it is as it was.

    ``accept`` looks at the new file, in its place's directory, before it takes the name; what it raises is
    raised, and the new file is gone.
    """
    written = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        with written.open("xb") as file:
            file.write(content)
            file.flush()
            if (rights.uid, rights.gid) != (os.geteuid(), os.getegid()):
                # Not permitted: then the file must not silently become another's.
                os.fchown(file.fileno(), rights.uid, rights.gid)
            os.fchmod(file.fileno(), rights.mode)
            os.fsync(file.fileno())
        accept(written)
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


def fsync_directory(directory: Path) -> None:
    """Make names in a directory durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, text: str) -> None:
    """Replace a small file; it is on disk, or as it was, whenever the power goes. Raises OSError."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    fsync_directory(path.parent)
