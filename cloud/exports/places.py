"""Where an export's files go: beside their place until all are whole, then there at once."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cloud.errors import CloudError

FORMATS: Final[Mapping[str, str]] = {
    "csv": ".csv", "toa5": ".dat", "parquet": ".parquet", "iea43": ".json",
}  # fmt: skip
"""How a file's name ends."""


def places_of(output: Path, formats: Sequence[str], mast: str) -> dict[str, Path]:
    """The path of each format: ``output`` itself, or MAST.csv … in it if it is a directory or for several."""
    if len(formats) == 1 and not output.is_dir():
        return {formats[0]: output}
    if output.exists() and not output.is_dir():
        raise CloudError(f"-o {output} is a file: several formats need a directory")
    return {each: output / f"{mast}{FORMATS[each]}" for each in formats}


@contextmanager
def whole_files(paths: Sequence[Path], *, force: bool) -> Iterator[Mapping[Path, Path]]:
    """Where each of the files is written meanwhile; after an error none of them is there.

    Raises CloudError where one is there already and isn't to be replaced, OSError.
    """
    if there := [str(path) for path in paths if path.exists() and not force]:
        raise CloudError(f"{', '.join(there)} exist{'s' * (len(there) == 1)}: --force replaces")
    # Of this call alone: another one may write the same files at this moment.
    call = secrets.token_hex(4)
    parts = {path: path.with_name(f".{path.name}.{call}.part") for path in paths}
    try:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield parts
        for path, part in parts.items():
            part.replace(path)
    finally:
        for part in parts.values():
            with suppress(OSError):
                part.unlink()
