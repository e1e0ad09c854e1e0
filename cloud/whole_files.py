"""Files that are beside their place until all are whole, then there at once."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
