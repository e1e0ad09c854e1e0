"""Where an export's files go: beside their place until all are whole, then there at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
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


class Files(AbstractContextManager["Files"]):
    """Files that are to come. Raises CloudError where one is there already and isn't to be replaced."""

    def __init__(self, paths: Sequence[Path], *, force: bool) -> None:
        if there := [str(path) for path in paths if path.exists() and not force]:
            raise CloudError(f"{', '.join(there)} exist{'s' * (len(there) == 1)}: --force replaces")
        self._parts = {path: path.with_name(f".{path.name}.part") for path in paths}

    def __enter__(self) -> Files:
        for path in self._parts:
            path.parent.mkdir(parents=True, exist_ok=True)
        return self

    def part(self, path: Path) -> Path:
        """Where it is written meanwhile."""
        return self._parts[path]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for path, part in self._parts.items():
            if kind is None:
                os.replace(part, path)  # noqa: PTH105 - Path.replace is the same
            else:
                with suppress(OSError):
                    part.unlink()
