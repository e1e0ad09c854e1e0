"""Where an export's files go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
