"""A logger's file, line by line: its columns, and each line as time and numbers or as what is wrong with it.

CSV with a header line, or Campbell's TOA5 with its four; gzip where the name ends in ``.gz``. Nothing that a
file may hold ends the reading of it.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import math
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import BinaryIO, Final

from cloud.errors import CloudError
from cloud.importing.mapping import Channel, File, Mapping
from cloud.wire.fields import format_time
from cloud.wire.reading_records import DEAD_LETTER_PAYLOAD_BYTES, MAX_AHEAD_US, OLDEST_TIME_US

MISSING: Final = math.nan
"""A figure that the file doesn't have."""
_LONGEST: Final = 1 << 16
_TOA5_NAMES: Final = 2
_TOA5_HEADERS: Final = 4
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MANY: Final = 100
"""Bad lines above which a file whose most lines are bad is refused: its mapping is another file's."""

Figure = tuple[int, str]
"""A channel's position in the mapping, and which figure of it."""
Judge = Callable[[Channel, dict[str, float]], tuple[str, str] | None]
"""What is wrong with a channel's figures: a word and a sentence."""


class FileError(CloudError):
    """A file can't be imported at all."""


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no row: ``reason`` is a word for tables, ``detail`` for people."""

    number: int
    reason: str
    detail: str
    payload: bytes
    payload_bytes: int


class _Wrong(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        self.reason, self.detail = reason, detail


@dataclass
class Rows:
    """What a file holds: times (start of the interval or sample, microseconds) and figures as written.

    ``numbers`` are the lines' numbers; ``repeated`` lines were there before with the same figures.
    """

    name: str
    digest: str
    times_us: array[int] = field(default_factory=lambda: array("q"))
    numbers: array[int] = field(default_factory=lambda: array("q"))
    figures: dict[Figure, array[float]] = field(default_factory=dict)
    bad: list[BadLine] = field(default_factory=list)
    lines: int = 0
    repeated: int = 0


def read_rows(path: Path, mapping: Mapping, judge: Judge, now_us: int) -> Rows:
    """The rows of a file. Raises FileError, and ConfigError where it lacks columns that the mapping names.

    A line in which ``judge`` finds figures of a channel that can't be is a row and a bad line too.
    """
    try:
        with path.open("rb") as raw:
            digest = hashlib.file_digest(raw, "sha256").hexdigest()
            raw.seek(0)
            with gzip.open(raw) if path.suffix == ".gz" else raw as content:
                rows = _read(content, Rows(path.name, digest), mapping, judge, now_us)  # type: ignore[arg-type] # both read bytes
    except (OSError, EOFError, gzip.BadGzipFile, gzip.zlib.error) as error:  # type: ignore[attr-defined] # it is there
        raise FileError(f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from error
    if rows.bad and (not rows.times_us or len(rows.bad) > max(_MANY, rows.lines // 2)):
        first = rows.bad[0]
        raise FileError(
            f"{path}:{first.number}: {first.reason}: {first.detail}; so or so are {len(rows.bad)} of "
            f"{rows.lines} lines: the mapping is not this file's, and nothing was imported"
        )
    if not rows.times_us:
        raise FileError(f"{path}: has no rows")
    return rows


def _read(content: BinaryIO, rows: Rows, mapping: Mapping, judge: Judge, now_us: int) -> Rows:
    file = mapping.file
    lines = _Lines(content, file)
    columns = _columns(lines, file, rows.name)
    mapping.check_columns(rows.name, columns)
    reader = _Reader(file, mapping, columns, now_us)
    rows.figures = {figure: array("d") for figure in reader.places}
    there: dict[int, int] = {}
    for number, line, size in lines.rest():
        if not line.strip() and size <= _LONGEST:
            continue
        rows.lines += 1
        try:
            time_us, values = reader.row(line, size)
            slot = reader.slot(time_us)
            at = there.setdefault(slot, len(rows.times_us))
            if at < len(rows.times_us):
                _check_same(rows, at, values)
                rows.repeated += 1
                continue
        except _Wrong as wrong:
            rows.bad.append(bad_line(number, wrong.reason, wrong.detail, line, size))
            continue
        if found := next(filter(None, reader.judged(judge, values)), None):
            rows.bad.append(bad_line(number, *found, line))
        rows.times_us.append(time_us)
        rows.numbers.append(number)
        for figure, value in zip(reader.places, values, strict=True):
            rows.figures[figure].append(value)
    return rows


def bad_line(number: int, reason: str, detail: str, line: bytes, size: int | None = None) -> BadLine:
    """A line that goes to quarantine, as much of it as is kept there."""
    return BadLine(number, reason, detail, line[:DEAD_LETTER_PAYLOAD_BYTES], size or len(line))


def _check_same(rows: Rows, at: int, values: list[float]) -> None:
    for before, value in zip(rows.figures.values(), values, strict=True):
        if before[at] != value and not (math.isnan(before[at]) and math.isnan(value)):
            when = format_time(rows.times_us[at])
            raise _Wrong("DUPLICATE_TIME", f"{when} has other values in line {rows.numbers[at]}")


class _Lines:
    """Numbered lines without their ends; of one that is too long the beginning, and its whole size."""

    def __init__(self, content: BinaryIO, file: File) -> None:
        self._content, self._file = content, file
        self._number = 0

    def next(self) -> tuple[int, bytes, int] | None:
        line = self._content.readline(_LONGEST + 2)
        if not line:
            return None
        self._number += 1
        size = len(line)
        part = line
        while not part.endswith(b"\n") and (part := self._content.readline(1 << 20)):
            size += len(part)
        if size > len(line):
            return self._number, line, size
        line = line.rstrip(b"\r\n")
        return self._number, line, len(line)

    def rest(self) -> Iterator[tuple[int, bytes, int]]:
        while (found := self.next()) is not None:
            yield found

    def header(self, name: str) -> list[str]:
        found = self.next()
        if found is None:
            raise FileError(f"{name}: ends before its header does")
        number, line, size = found
        try:
            # Editors on Windows begin a file with a byte order mark.
            text = line.decode(self._file.encoding).removeprefix("\ufeff")
            if size <= _LONGEST:
                return [field.strip() for field in split(text, self._file.delimiter)]
        except (UnicodeDecodeError, csv.Error):
            pass
        raise FileError(f"{name}:{number}: is no header line of text")


def split(text: str, delimiter: str) -> list[str]:
    """The fields of one line. Raises csv.Error."""
    return next(csv.reader([text], delimiter=delimiter, strict=True), [])


def _columns(lines: _Lines, file: File, name: str) -> list[str]:
    if file.format == "csv":
        for _ in range(file.skip_lines):
            lines.next()
        return lines.header(name)
    if (kind := lines.header(name)[:1]) != ["TOA5"]:
        raise FileError(f"{name}:1: begins with {kind[0][:20] if kind else ''!r}, not with TOA5")
    headers = [lines.header(name) for _ in range(_TOA5_HEADERS - 1)]
    return headers[_TOA5_NAMES - 2]


class _Reader:
    """Lines to rows, of files with these columns."""

    def __init__(self, file: File, mapping: Mapping, columns: list[str], now_us: int) -> None:
        self._file, self._mapping = file, mapping
        self._columns = columns
        self._times = [columns.index(column) for column in file.times]
        self.places: dict[Figure, int] = {
            (number, name): columns.index(column)
            for number, channel in enumerate(mapping.channels)
            for name, column in channel.columns().items()
        }
        self._missing = {text.strip() for text in file.missing}
        self._missing_numbers = set()
        for text in self._missing:
            with suppress(ValueError):
                self._missing_numbers.add(float(text))
        self._zone = timezone(timedelta(minutes=file.utc_offset))
        self._latest_us = now_us + MAX_AHEAD_US
        self._length_us = round(file.interval * 1e6)

    def judged(self, judge: Judge, values: list[float]) -> Iterator[tuple[str, str] | None]:
        """What is wrong with each channel's figures of a row."""
        given: dict[int, dict[str, float]] = {}
        for (channel, name), value in zip(self.places, values, strict=True):
            given.setdefault(channel, {})[name] = value
        return (judge(self._mapping.channels[channel], figures) for channel, figures in given.items())

    def slot(self, time_us: int) -> int:
        """Which interval or sample of the file's grid a time is."""
        return time_us // self._length_us

    def row(self, line: bytes, size: int) -> tuple[int, list[float]]:
        """Time and figures, in the order of ``places``."""
        if size > _LONGEST:
            raise _Wrong("TOO_LARGE", f"{size} bytes, at most {_LONGEST}")
        try:
            text = line.decode(self._file.encoding)
        except UnicodeDecodeError as error:
            raise _Wrong("NOT_UTF8", f"byte {error.start + 1} is not {self._file.encoding}") from None
        try:
            fields = split(text, self._file.delimiter)
        except csv.Error as error:
            raise _Wrong("NOT_CSV", str(error)) from None
        if len(fields) != len(self._columns):
            raise _Wrong("WRONG_COLUMNS", f"{len(fields)} fields, the header has {len(self._columns)}")
        time_us = self._time(" ".join(fields[at].strip() for at in self._times))
        return time_us, [self._number(fields[at], at) for at in self.places.values()]

    def _time(self, text: str) -> int:
        try:
            if self._file.time_format is None:
                moment = datetime.fromisoformat(text)
            else:
                moment = datetime.strptime(text, self._file.time_format)  # noqa: DTZ007 - its zone follows
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=self._zone)
            time_us = (moment - _EPOCH) // _MICROSECOND
        except (ValueError, OverflowError):
            how = self._file.time_format or "2016-02-01 00:10:00"
            raise _Wrong("BAD_TIME", f"{text[:40]!r} is no time such as {how}") from None
        if self._file.stamps == "end":
            time_us -= self._length_us
        if time_us < OLDEST_TIME_US:
            raise _Wrong("TIME_TOO_OLD", f"{text} is before 2000")
        if time_us > self._latest_us:
            raise _Wrong("TIME_IN_FUTURE", f"{text} is yet to come")
        if not self._file.has_readings and time_us % self._length_us:
            every = f"{self._file.interval:g} s"
            raise _Wrong("OFF_INTERVAL", f"{text} is no beginning or end of an interval of {every}")
        return time_us

    def _number(self, text: str, at: int) -> float:
        text = text.strip()
        if text in self._missing:
            return MISSING
        if self._file.decimal == ",":
            text = text.replace(",", ".") if "." not in text else "?"
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if value in self._missing_numbers:
            return MISSING
        # Python takes more for numbers than loggers write.
        if not math.isfinite(value) or "_" in text or not text.isascii():
            raise _Wrong("NOT_A_NUMBER", f"{self._columns[at]} is {text[:40]!r}")
        return value
