"""What root writes for the service, in directories that the service's user owns, it writes as that user.

A link in such a directory may lead anywhere: root that followed it, or changed its target's owner, would give
the user what only root has. A process of the user's reaches nothing more than the user does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
