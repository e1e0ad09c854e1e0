"""``jobs package``: what a cluster needs of ours, as one file for ``spark-submit --py-files``."""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path
from typing import Final

from spark_jobs.platform.errors import SettingsError
from spark_jobs.platform.settings import Settings

DESCRIPTION: Final = "writes the packages as one file for spark-submit --py-files"

_PROJECT: Final = Path(__file__).resolve().parents[2]
_NAME: Final = "fieldgate.zip"
_PACKAGES: Final = ("spark_jobs", "cloud")


def write_package(folder: Path) -> Path:
    """Writes ``fieldgate.zip`` into a folder and gives its path; the same sources give the same bytes."""
    target = folder / _NAME
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            for file in sorted((_PROJECT / package).rglob("*")):
                if file.is_file() and file.suffix not in (".pyc", ".xml", ".java"):
                    entry = zipfile.ZipInfo(str(file.relative_to(_PROJECT)))
                    archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the folder's argument."""
    parser.add_argument("folder", type=Path, help=f"where {_NAME} is to be")


def main(options: argparse.Namespace, settings: Settings) -> None:
    """Writes the file. Raises SettingsError where it can't be written."""
    try:
        target = write_package(options.folder)
    except OSError as error:
        raise SettingsError(f"{options.folder}: {error.strerror}") from error
    print(target)
