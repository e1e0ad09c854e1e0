"""A logger's file, line by line: its columns, and each line as time and numbers or as what is wrong with it.

CSV with a header line, or Campbell's TOA5 with its four; gzip and zip where the name ends so. Nothing that a
file may hold ends the reading of it.
"""

from __future__ import annotations

import csv
import math
import os
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Final

from cloud.importing import times
from cloud.importing.lines import (
    CAMPBELL,
    LONGEST,
    FileError,
    Header,
    Lines,
    columns_of,
    opened,
    rest_of_campbell,
    split,
)
from cloud.importing.mapping import Channel, File, Mapping
from cloud.wire.bounds import is_within
from cloud.wire.fields import format_time
from cloud.wire.reading_records import DEAD_LETTER_PAYLOAD_BYTES, MAX_AHEAD_US, OLDEST_TIME_US

MISSING: Final = math.nan
"""A figure that the file doesn't have."""
_GROUPS: Final = ",.' \u00a0\u202f"
"""Marks between thousands."""


class Numbers:
    """Reads the cells of files that are written so."""

    def __init__(self, file: File) -> None:
        self._decimal, self._thousands = file.decimal, file.thousands
        self._missing = {text.strip() for text in file.missing}
        self._missing_numbers = set()
        for text in self._missing:
            with suppress(ValueError):
                self._missing_numbers.add(float(text))
        digits = rf"[-+]?[1-9]\d{{0,2}}([{_GROUPS}])\d{{3}}(?:\1\d{{3}})*({re.escape(file.decimal)}\d*)?"
        self._grouped = re.compile(digits)

    def read(self, cell: str) -> float:
        """A cell's number, MISSING where there is none. Raises ValueError, with a hint if there is one."""
        text = cell.strip()
        if text in self._missing:
            return MISSING
        plain = text
        if self._decimal == ",":
            plain = text.replace(",", ".") if "." not in text else "?"
        try:
            value = float(plain)
        except ValueError:
            plain = self._without_groups(text)
            value = float(plain)
        if value in self._missing_numbers:
            return MISSING
        # Python takes more for numbers than loggers write.
        if not is_within(value) or "_" in plain or not plain.isascii():
            raise ValueError
        return value

    def _without_groups(self, text: str) -> str:
        """A number without its thousands' marks, unless they may be decimal signs."""
        found = self._grouped.fullmatch(text)
        mark = "" if found is None else found[1].replace("\u00a0", " ").replace("\u202f", " ")
        if found is None or mark == self._decimal:
            raise ValueError
        if not found[2] and mark != self._thousands:
            raise ValueError(f": write thousands = {mark!r} if that is no decimal sign")
        return text.replace(found[1], "").replace(self._decimal, ".")


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MANY: Final = 100
"""Bad lines above which a file whose most lines are bad is refused: its mapping is another file's."""

_MOST_BAD_BYTES: Final = 64 << 20
"""Of bad lines held in memory, some 300 each and what is kept of their text."""
_MOST_SENTENCES: Final = 1000
"""Different ones that are counted."""

_NUMBER: Final = re.compile(r"[-+]?\d[\d.,]*")
"""What no header has for a name."""

Figure = tuple[int, str]
"""A channel's position in the mapping, and which figure of it."""
Trouble = tuple[str, str]
"""What is wrong: a word and a sentence."""
Judge = Callable[[Channel, dict[str, float]], Trouble | None]
"""What is wrong with a channel's figures."""


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line with something wrong in it: ``reason`` is a word for tables, ``detail`` for people."""

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

    ``numbers`` are the lines' numbers; ``repeated`` lines were there before with the same figures, ``lost``
    ones are no rows, ``short`` ones end before a column of the mapping, and in ``useless`` ones no channel
    has a value. ``reasons`` counts the lines that have something wrong, ``bad`` has as many of them as are
    kept; ``impossible`` counts the sentences about values that can't be.
    """

    name: str
    digest: str
    times_us: array[int] = field(init=False, default_factory=lambda: array("q"))
    numbers: array[int] = field(init=False, default_factory=lambda: array("q"))
    figures: dict[Figure, array[float]] = field(init=False, default_factory=dict)
    bad: list[BadLine] = field(init=False, default_factory=list)
    lines: int = field(init=False, default=0)
    repeated: int = field(init=False, default=0)
    lost: int = field(init=False, default=0)
    short: int = field(init=False, default=0)
    useless: int = field(init=False, default=0)
    reasons: Counter[str] = field(init=False, default_factory=Counter)
    impossible: Counter[str] = field(init=False, default_factory=Counter)

    def often_impossible(self) -> dict[str, int]:
        """The problems of so many lines that the value is a sensor's mark of an error."""
        least = min(_MANY, max(self.lines // 2, 3))
        return {sentence: number for sentence, number in self.impossible.most_common() if number >= least}


def read_rows(path: Path, mapping: Mapping, judge: Judge, now_us: int) -> Rows:
    """The rows of a file. Raises FileError, and ConfigError where it lacks columns that the mapping names.

    A line in which ``judge`` finds figures of a channel that can't be is a row and a bad line too, as is one
    of which a part can't be read: each channel stands for itself.
    """
    with opened(path, mapping.file) as (lines, digest):
        rows = Rows(os.fsencode(path.name).decode(errors="replace"), digest)
        rows = _read(lines, rows, mapping, judge, now_us)
    is_a_mark = rows.impossible.total() and rows.impossible.most_common(1)[0][1] >= rows.useless
    if rows.bad and (
        not any(value == value for figures in rows.figures.values() for value in figures)
        or (rows.useless > max(_MANY, rows.lines // 2) and not is_a_mark)
    ):
        first = rows.bad[0]
        raise FileError(
            f"{path}:{first.number}: {first.reason}: {first.detail}; so or so are {rows.useless} of "
            f"{rows.lines} lines: the mapping is not this file's, or lacks a mark in missing, and nothing "
            "was imported"
        )
    if not rows.times_us:
        raise FileError(f"{path}: has no rows")
    return rows


def _read(lines: Lines, rows: Rows, mapping: Mapping, judge: Judge, now_us: int) -> Rows:
    file = mapping.file
    columns = columns_of(lines, file, rows.name)
    mapping.check_columns(rows.name, columns.names)
    reader = _Reader(file, mapping, columns, now_us)
    rows.figures = {figure: array("d") for figure in reader.places}
    there: dict[int, int] = {}
    room = _MOST_BAD_BYTES

    def set_aside(reason: str, detail: str, *, is_row: bool) -> None:
        nonlocal room
        payload = line[:DEAD_LETTER_PAYLOAD_BYTES]
        rows.reasons[reason] += 1
        room -= 300 + len(payload)
        if room >= 0:
            rows.bad.append(BadLine(number, reason, detail, payload, size))
        elif not is_row:
            raise FileError(
                f"{rows.name}:{number}: {reason}: {detail}; so or so are {rows.reasons.total()} of the first "
                f"{rows.lines} lines, over {_MOST_BAD_BYTES >> 20} MiB: nothing was imported"
            )

    for number, line, size in iter(lines.next, None):
        if not line.strip() and size <= LONGEST:
            continue
        rows.lines += 1
        try:
            time_us, values, wrong, is_short = reader.row(line, size, lines.is_cut)
        except _Wrong as trouble:
            if (header := reader.header_again(lines, line, rows.name)) is not None:
                rows.lines -= 1
                if gone := reader.follow(header, f"{rows.name}:{number}"):
                    detail = f"a header without {', '.join(gone)}: nothing of it from here on"
                    set_aside("WRONG_COLUMNS", detail, is_row=True)
                continue
            rows.lost, rows.useless = rows.lost + 1, rows.useless + 1
            set_aside(trouble.reason, trouble.detail, is_row=False)
            continue
        rows.short += is_short
        at = there.setdefault(time_us // file.length_us, len(rows.times_us))
        if at < len(rows.times_us):
            conflict = _completed(rows, at, values)
            wrong += conflict
            rows.repeated += not conflict
            rows.lost += len(conflict)
        else:
            rows.times_us.append(time_us)
            rows.numbers.append(number)
            for figure, value in zip(reader.places, values, strict=True):
                rows.figures[figure].append(value)
            judged = list(reader.judged(judge, values))
            impossible = [each for each in judged if each is not None]
            for _, sentence in impossible:
                if sentence in rows.impossible or len(rows.impossible) < _MOST_SENTENCES:
                    rows.impossible[sentence] += 1
            wrong += impossible
            rows.useless += bool(wrong) and not reader.has_any(values, judged)
        if wrong:
            set_aside(wrong[0][0], "; ".join(detail for _, detail in wrong), is_row=True)
    return rows


def _completed(rows: Rows, at: int, values: list[float]) -> list[Trouble]:
    """Gives a row what it lacks of whole channels; what is wrong where the others are not the same."""
    lacking = {channel for channel, _ in rows.figures}
    lacking -= {channel for (channel, _), before in rows.figures.items() if not math.isnan(before[at])}
    is_other = False
    for (channel, name), value in zip(rows.figures, values, strict=True):
        before = rows.figures[channel, name]
        if channel in lacking:
            before[at] = value
        elif not math.isnan(value):
            is_other |= before[at] != value
    when = format_time(rows.times_us[at])
    return [("DUPLICATE_TIME", f"{when} has other values in line {rows.numbers[at]}")] * is_other


class _Reader:
    """Lines to rows, of files with these columns."""

    def __init__(self, file: File, mapping: Mapping, header: Header, now_us: int) -> None:
        self._file, self._mapping = file, mapping
        self._named = {
            (number, name): column
            for number, channel in enumerate(mapping.channels)
            for name, column in channel.columns().items()
        }
        self._units: dict[str, str] = {}
        self.follow(header, "")
        self._cell_numbers = Numbers(file)
        self._absent = next(iter(file.missing), "")
        self._cells = re.compile(r'(?:"(?:[^"]|"")*"|[^"{0}][^{0}]*|){0}'.format(re.escape(file.delimiter)))
        self._zone = timezone(timedelta(minutes=file.utc_offset))
        self._parse = times.reader(file.time_format)
        self._latest_us = now_us + MAX_AHEAD_US
        self._length_us, self._phase_us = file.length_us, file.phase_us

    def follow(self, header: Header, place: str) -> list[str]:
        """Takes cells by this header from now on; the mapping's columns it lacks. Raises FileError."""
        names, wanted = header.names, list(dict.fromkeys([*self._file.times, *self._named.values()]))
        twice = [column for column in wanted if names.count(column) > 1]
        gone = [column for column in wanted if column not in names]
        if twice or set(gone) & set(self._file.times) or gone == wanted[len(self._file.times) :]:
            wrong = f"with {twice[0]} twice" if twice else f"without {gone[0]}"
            raise FileError(f"{place}: is a header {wrong}: nothing was imported")
        for column, unit in zip(names, header.units, strict=False):
            if column in wanted and self._units.setdefault(column, unit) != unit:
                before = f"{column} in {unit}, not in {self._units[column]} as before"
                raise FileError(
                    f"{place}: is a header with {before}: import that part by a mapping of its own"
                )
        self._columns = names
        self._times = [names.index(column) for column in self._file.times]
        self.places: dict[Figure, int] = {
            figure: -1 if column in gone else names.index(column) for figure, column in self._named.items()
        }
        self._last_time, self._last_place = max(self._times), max(self.places.values())
        return gone

    def header_again(self, lines: Lines, line: bytes, name: str) -> Header | None:
        """The header that a line is, or begins, in the middle of a file; None where it is none."""
        text = line.decode(self._file.encoding, "replace").removeprefix("\ufeff")
        cells = csv.reader([text.replace("\r", " ")], delimiter=self._file.delimiter, skipinitialspace=True)
        names = [cell.strip() for cell in next(cells, [])]
        if self._file.format == "toa5" and names[:1] in ([each] for each in CAMPBELL):
            # The file may end within it.
            with suppress(FileError):
                return rest_of_campbell(lines, self._file, name, names[0])
        wanted = {column.casefold() for column in (*self._file.times, *self._named.values())}
        common = wanted & {each.casefold() for each in names}
        is_text = set(self._file.times) <= set(names) or not any(map(_NUMBER.fullmatch, names))
        return Header(names, []) if is_text and 2 * len(common) >= len(wanted) else None

    def judged(self, judge: Judge, values: list[float]) -> Iterator[Trouble | None]:
        """What is wrong with each channel's figures of a row."""
        given: dict[int, dict[str, float]] = {}
        for (channel, name), value in zip(self.places, values, strict=True):
            given.setdefault(channel, {})[name] = value
        return (judge(self._mapping.channels[channel], figures) for channel, figures in given.items())

    def has_any(self, values: list[float], judged: list[Trouble | None]) -> bool:
        """Whether a row has a figure of a channel in which nothing is wrong."""
        good = [trouble is None for trouble in judged]
        return any(
            value == value and good[channel] for (channel, _), value in zip(self.places, values, strict=True)
        )

    def row(self, line: bytes, size: int, is_cut: bool) -> tuple[int, list[float], list[Trouble], bool]:
        """Time and figures, in the order of ``places``, what is wrong, and whether a figure's cell is absent.

        Cells after the first that is no CSV are none. A line of too few cells is believed only where those
        it has are numbers: a lost delimiter moves all that follow.
        """
        text = line.decode(self._file.encoding, "replace")
        wrong: list[Trouble] = []
        try:
            fields = split(text, self._file.delimiter)
        except csv.Error as error:
            wrong.append(("NOT_CSV", str(error)))
            fields = self._before_error(text)
        wanted, number = len(self._columns), len(fields)
        is_short = number < wanted and not wrong
        is_lost = size > LONGEST or (number > wanted and any(map(str.strip, fields[wanted:])))
        counted = "" if number == wanted else f"{number} fields, the header has {wanted}"
        if size > LONGEST:
            wrong = [("TOO_LARGE", f"{size} bytes, at most {LONGEST}")]
        elif is_short and is_cut:
            wrong.append(("WRONG_COLUMNS", f"ends within {self._columns[number - 1]}: {counted}"))
            fields.pop()
        elif is_lost:
            wrong = [("WRONG_COLUMNS", counted)]
        if len(fields) <= self._last_time:
            raise _Wrong(*(wrong or [("WRONG_COLUMNS", counted)])[0])
        time_us = self._time(" ".join(fields[at].strip() for at in self._times))
        fields += [self._absent] * (wanted - len(fields))
        values = [] if is_lost else self._numbers(fields, wrong)
        if is_short and wrong and not is_cut and not is_lost:
            is_lost, wrong = True, [("WRONG_COLUMNS", f"{counted}, and {wrong[0][1]}")]
        if is_lost:
            values = [MISSING] * len(self.places)
        return time_us, values, wrong, is_short and not wrong and number <= self._last_place

    def _before_error(self, text: str) -> list[str]:
        """The cells before the first that is no CSV."""
        end = 0
        while (found := self._cells.match(text, end)) is not None:
            end = found.end()
        return split(text[:end], self._file.delimiter)[:-1] if end else []

    def _time(self, text: str) -> int:
        try:
            if self._file.time_format is None and "/" in text:
                # Begin and end in one, as ISO 8601 has them.
                text = text.split("/")[self._file.stamps == "end"]
            moment = self._parse(text)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=self._zone)
            time_us = (moment - _EPOCH) // _MICROSECOND
        except (ValueError, OverflowError):
            how = self._file.time_format or "2016-02-01 00:10:00"
            raise _Wrong("BAD_TIME", f"{text[:40]!r} is no time such as {how}") from None
        if self._file.stamps == "end":
            time_us -= self._length_us
        elif self._file.stamps == "within":
            time_us -= (time_us - self._phase_us) % self._length_us
        if time_us < OLDEST_TIME_US:
            raise _Wrong("TIME_TOO_OLD", f"{text} is before 2000")
        if time_us > self._latest_us:
            raise _Wrong("TIME_IN_FUTURE", f"{text} is yet to come")
        if not self._file.has_readings and (time_us - self._phase_us) % self._length_us:
            every = f"{self._file.interval:g} s"
            raise _Wrong("OFF_INTERVAL", f"{text} is no beginning or end of an interval of {every}")
        return time_us

    def _numbers(self, fields: list[str], wrong: list[Trouble]) -> list[float]:
        return [MISSING if at < 0 else self._number(fields[at], at, wrong) for at in self.places.values()]

    def _number(self, cell: str, at: int, wrong: list[Trouble]) -> float:
        try:
            return self._cell_numbers.read(cell)
        except ValueError as hint:
            wrong.append(("NOT_A_NUMBER", f"{self._columns[at]} is {cell.strip()[:40]!r}{hint}"))
            return MISSING
