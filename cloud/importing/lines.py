"""A logger's file as lines and their cells, no more bytes of it than a logger writes."""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import io
import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from cloud.errors import CloudError
from cloud.importing.mapping import File, column_of

LONGEST: Final = 1 << 16
"""Bytes of a line."""
_MOST_BEFORE: Final = 1000
"""Lines before a header."""
CAMPBELL: Final = ("TOA5", "TOACI1")
"""Words by which files of Campbell's loggers begin."""
_MOST_TIMES: Final = 200
"""A packed file may unpack to so many times its size: lines of NAN alone to 30, deflate's end is 1,032."""
_SMALL: Final = 64 << 10
"""A packed file that is taken for as large: a few lines that are alike are packed better."""


class FileError(CloudError):
    """A file can't be imported at all."""


class _Recoded:
    """Lines of another encoding, or with old Macs' ends, as those of a mapping's."""

    def __init__(self, content: BinaryIO, encoding: str, wanted: str) -> None:
        self._text = io.TextIOWrapper(content, encoding, errors="replace")
        self._wanted = wanted

    def readline(self, most: int) -> bytes:
        return self._text.readline(most).encode(self._wanted, "replace")


@contextmanager
def opened(path: Path, file: File) -> Iterator[tuple[Lines, str]]:
    """A file's lines, and its hash. Raises FileError where it can't be read, at once or later."""
    try:
        with path.open("rb") as raw:
            digest = hashlib.file_digest(raw, "sha256").hexdigest()
            raw.seek(0)
            is_packed = path.suffix in (".gz", ".zip")
            most = _MOST_TIMES * max(path.stat().st_size, _SMALL) if is_packed else math.inf
            with _unpacked(raw, path) as content:
                yield Lines(content, file, most), digest
    except (OSError, EOFError, zipfile.BadZipFile, RuntimeError, zlib.error) as error:
        raise FileError(f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from error


def header_of(path: Path, file: File) -> list[str]:
    """The columns of a file. Raises FileError."""
    with opened(path, file) as (lines, _):
        return columns_of(lines, file, path.name).names


def _unpacked(raw: BinaryIO, path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return gzip.open(raw)  # type: ignore[return-value] # it reads bytes
    if path.suffix != ".zip":
        return raw
    archive = zipfile.ZipFile(raw)
    names = [
        each for each in archive.namelist() if not each.endswith("/") and not each.startswith("__MACOSX")
    ]
    if len(names) != 1:
        raise FileError(f"{path}: has {len(names)} files: unpack it")
    return archive.open(names[0])  # type: ignore[return-value] # it reads bytes


class Lines:
    """Numbered lines without their ends; of one that is too long the beginning, and its whole size."""

    def __init__(self, content: BinaryIO, file: File, most: float) -> None:
        """``most``: bytes after which it is no logger's file any more."""
        head = content.read(LONGEST)
        content.seek(0)
        self._file = file
        self._content: BinaryIO | _Recoded = content
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self._content = _Recoded(content, "utf-16", file.encoding)
        elif b"\r" in head and b"\n" not in head:
            self._content = _Recoded(content, "latin-1", "latin-1")
        self._number = 0
        self._room = most
        self.is_cut = False
        """Whether the line has no end: the file's last one."""

    def next(self) -> tuple[int, bytes, int] | None:
        """The next line; None at the end."""
        line = self._part(LONGEST + 2)
        if not line:
            return None
        self._number += 1
        size = len(line)
        part = line
        while not part.endswith(b"\n") and (part := self._part(1 << 20)):
            size += len(part)
        if size > len(line):
            return self._number, line, size
        self.is_cut = not line.endswith(b"\n")
        line = line.rstrip(b"\r\n")
        return self._number, line, len(line)

    def _part(self, most: int) -> bytes:
        part = self._content.readline(most)
        self._room -= len(part)
        if self._room < 0:
            raise FileError(
                f"line {self._number + 1}: the file unpacks to over {_MOST_TIMES} times its size; if that is "
                "a logger's, gunzip it first: nothing was imported"
            )
        return part

    def header(self, name: str) -> list[str]:
        """The next line's cells. Raises FileError where it is no text."""
        found = self.next()
        if found is None:
            raise FileError(f"{name}: ends before its header does")
        number, line, size = found
        try:
            # Editors on Windows begin a file with a byte order mark.
            text = line.decode(self._file.encoding).removeprefix("\ufeff")
            if size <= LONGEST:
                return [field.strip() for field in split(text, self._file.delimiter)]
        except (UnicodeDecodeError, csv.Error):
            pass
        raise FileError(f"{name}:{number}: is no header line of text")


def split(text: str, delimiter: str) -> list[str]:
    """The fields of one line. Raises csv.Error."""
    has_runs = delimiter == " "
    text = text.strip(" ") if has_runs else text
    return next(csv.reader([text], delimiter=delimiter, strict=True, skipinitialspace=has_runs), [])


class Header(NamedTuple):
    """The columns of a file; ``units`` is empty where it has none."""

    names: list[str]
    units: list[str]


def columns_of(lines: Lines, file: File, name: str) -> Header:
    """Reads a file's header. Raises FileError."""
    if file.format == "csv":
        for _ in range(file.skip_lines):
            lines.next()
        return Header(file.names or _names(lines, file, name), [])
    kind = lines.header(name)[:1]
    if kind not in ([each] for each in CAMPBELL):
        raise FileError(f"{name}:1: begins with {kind[0][:20] if kind else ''!r}, not with TOA5 or TOACI1")
    return rest_of_campbell(lines, file, name, kind[0])


def _names(lines: Lines, file: File, name: str) -> list[str]:
    """The first line that has the time's columns; where none has, the first one."""
    first: list[str] | FileError | None = None
    for _ in range(_MOST_BEFORE):
        try:
            cells: list[str] | FileError = lines.header(name)
        except FileError as error:
            cells = error
        if isinstance(cells, list) and {column_of(each, cells) for each in file.times} <= set(cells):
            return cells
        first = first or cells
    if isinstance(first, FileError):
        raise first
    return first or []


def rest_of_campbell(lines: Lines, file: File, name: str, kind: str) -> Header:
    """Reads what follows the first line: names, and of TOA5 units and kinds too."""
    if kind == "TOA5":
        names, units, _ = (lines.header(name) for _ in range(3))
        return Header(names, units)
    names = lines.header(name)
    if file.time is None and names[:1] == ["TMSTAMP"]:
        names[:1] = file.times
    return Header(names, [])
