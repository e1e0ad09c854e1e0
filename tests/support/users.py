"""Directories of another user, and what that user may do there. Root only."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

NOBODY: Final = 65534
ROOT_ONLY: Final = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@contextmanager
def nobodys_directory() -> Iterator[Path]:
    """A directory that belongs to nobody, in one that everybody may enter (pytest's own are closed)."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    os.chown(directory, NOBODY, NOBODY)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


@contextmanager
def as_nobody() -> Iterator[None]:
    """What is done within is done with that user's rights."""
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
