"""Disks that fail."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def full_disk() -> Iterator[None]:
    """No small file can be written meanwhile."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gateway.system.atomic_file.replacing", refuse)
        yield
