"""Files that are written beside their place until all are whole; and files for their owner alone."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from cloud.errors import CloudError


@contextmanager
def whole_files(paths: Sequence[Path], *, force: bool) -> Iterator[Mapping[Path, Path]]:
    """Where each of the files is written meanwhile; after an error none of them is there.

    Raises CloudError where one is there already and isn't to be replaced, OSError.
    """
    if there := [str(path) for path in paths if path.exists() and not force]:
        raise CloudError(f"{', '.join(there)} exist{'s' * (len(there) == 1)}: --force replaces")
    # The name is this call's alone: another one may write the same files at this moment.
    call = secrets.token_hex(4)
    parts = {path: path.with_name(f".{path.name}.{call}.part") for path in paths}
    try:
        yield parts
        for path, part in parts.items():
            part.replace(path)
    finally:
        for part in parts.values():
            with suppress(OSError):
                part.unlink()


def write_secret(path: Path, content: str) -> None:
    """Make a file, mode 0600. Raises OSError, also where anything has its name; then nothing changed."""
    with open(path, "x", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            path.unlink()
            raise
    sync_names(path.absolute().parent)


def sync_names(folder: Path) -> None:
    """Returns once new names in a folder are on the disk. Raises OSError."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
