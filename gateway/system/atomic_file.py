"""Replaces a file so that it is whole, or as it was before, whenever the power goes.

Temporary file, fsync, rename, fsync of the directory. ``buffer/files.py`` has its own for the outbox.

What root writes for the service, in directories that the service's user owns, it writes as that user. A link
in such a directory may lead anywhere: root that followed it, or changed its target's owner, would give the
user what only root has. A process of the user's reaches nothing more than the user does.
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
from typing import Any, BinaryIO, Self, TypeVar

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

    @classmethod
    def own(cls, mode: int) -> Self:
        """Those of the process itself."""
        return cls(os.geteuid(), os.getegid(), mode)

    @classmethod
    def for_service(cls, directory: Path) -> Self:
        """A secret's: the directory's group may read what root writes. Raises OSError."""
        if os.geteuid() != 0:
            return cls.own(0o600)
        return cls(0, directory.stat().st_gid, 0o640)


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


@contextmanager
def as_owner_of(directory: Path) -> Iterator[None]:
    """Root acts as the user who owns the directory, or one that it is in. Others act as they are.

    The whole process does, all threads. Raises OSError.
    """
    owner = _owner(directory)
    if os.geteuid() != 0 or owner is None:
        yield
        return
    gid, groups = os.getegid(), os.getgroups()
    os.setgroups([])
    try:
        os.setegid(owner.st_gid)
        os.seteuid(owner.st_uid)
        yield
    finally:
        os.seteuid(0)
        os.setegid(gid)
        os.setgroups(groups)


def _owner(directory: Path) -> os.stat_result | None:
    """The first one on the way, from the root, that isn't root's: whoever has it may exchange all below."""
    path = directory.absolute()
    for place in (*reversed(path.parents), path):
        try:
            facts = place.lstat()
        except FileNotFoundError:
            return None
        if facts.st_uid != 0:
            return facts
    return None
