"""A mast from a CSV file: a row holds for the period that begins at its timestamp; event time is the file's.

A cell that is empty or ``NaN`` is a missing value, and so are rows left out: the sensor doesn't answer then,
and a cup's pulses count as lost, so that a gap is never read as a calm.
"""

from __future__ import annotations

import csv
import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from drivers.boards.registry import ReplayColumn, ReplayOptions
from drivers.emulation.board import EmulatedBoard
from drivers.emulation.environment import SECOND_NS
from drivers.interface import BoardError, FittedSensor

_HOLD_FACTOR: Final = 1.5
"""A row holds until the next one unless that is later than this many usual periods: then rows are missing."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class RecordedEnvironment:
    """A file's rows, in memory: times in ns, and one column of figures for each channel (NaN: no value)."""

    def __init__(self, times_ns: array[int], values: Mapping[str, array[float]]) -> None:
        self._times_ns = times_ns
        self._values = values
        steps_ns = sorted(later - earlier for earlier, later in pairwise(times_ns))
        self._period_ns = steps_ns[len(steps_ns) // 2] if steps_ns else SECOND_NS
        self.start_ns = times_ns[0]
        self.end_ns: int | None = times_ns[-1] + self._period_ns

    def piece(self, time_ns: int) -> tuple[int, int]:
        """The row's time, or the gap after it."""
        row = max(0, bisect_right(self._times_ns, time_ns) - 1)
        start_ns, held_until_ns, next_ns = self._times_ns[row], self._held_until_ns(row), self._next_ns(row)
        return (start_ns, held_until_ns) if time_ns < held_until_ns else (held_until_ns, next_ns)

    def value(self, channel: str, time_ns: int) -> float | None:
        """The figure of the row that holds; None in a gap, at an empty cell and outside the file."""
        row = bisect_right(self._times_ns, time_ns) - 1
        if row < 0 or time_ns >= self._held_until_ns(row):
            return None
        value = self._values[channel][row]
        return None if math.isnan(value) else value

    def refit(self, sensors: Sequence[FittedSensor]) -> Callable[[], None]:
        """Accepts only channels whose columns were read at the start. Raises BoardError for others."""
        unread = [
            name
            for sensor in sensors
            for name in (f"{sensor.name}.{channel.quantity}" for channel in sensor.channels)
            if name not in self._values
        ]
        if unread:
            raise BoardError(
                f"a replayed file's columns are read once, at the start, and {', '.join(unread)} had none"
            )
        return lambda: None

    def _next_ns(self, row: int) -> int:
        following = row + 1 < len(self._times_ns)
        return self._times_ns[row + 1] if following else self._times_ns[row] + self._period_ns

    def _held_until_ns(self, row: int) -> int:
        next_ns = self._next_ns(row)
        whole = next_ns - self._times_ns[row] <= self._period_ns * _HOLD_FACTOR
        return next_ns if whole else self._times_ns[row] + self._period_ns


def channel_columns(options: ReplayOptions, sensors: Sequence[FittedSensor]) -> dict[str, ReplayColumn]:
    """The column of each channel, its own or its sensor's: the config's check has seen that there is one."""
    columns = columns_of(options)
    return {
        name: columns.get(name) or columns[sensor.name]
        for sensor in sensors
        for name in (f"{sensor.name}.{channel.quantity}" for channel in sensor.channels)
    }


def columns_of(options: ReplayOptions) -> dict[str, ReplayColumn]:
    """The columns as they are given, by sensor or channel."""
    return {
        name: ReplayColumn(column) if isinstance(column, str) else column
        for name, column in options.columns.items()
    }


def check_header(path: Path, options: ReplayOptions, columns: Mapping[str, ReplayColumn]) -> None:
    """Raise BoardError where a file lacks one of the columns. Reads its first line only."""
    with _rows(path, options, columns):
        pass


def read_recording(
    path: Path, options: ReplayOptions, columns: Mapping[str, ReplayColumn]
) -> RecordedEnvironment:
    """Read a file. Raises BoardError naming file, line and column of the first thing wrong."""
    values = {channel: array("d") for channel in columns}
    times_ns = array("q")
    with _rows(path, options, columns) as (rows, header):
        timestamps = options.timestamp_column or header[0]
        for row in rows:
            where = f"{path}: line {rows.line_num}"
            cells = len(header) + len(row.get(None, ())) - list(row.values()).count(None)
            if cells != len(header):
                raise BoardError(f"{where}: {cells} cells where the header has {len(header)}")
            time_ns = _time_ns(row[timestamps], options.utc_offset_h, f"{where}: column {timestamps!r}")
            if times_ns and time_ns <= times_ns[-1]:
                raise BoardError(
                    f"{where}: column {timestamps!r}: {row[timestamps]!r} isn't after the row before"
                )
            times_ns.append(time_ns)
            for channel, column in columns.items():
                values[channel].append(_figure(row[column.column], column, where))
    if not times_ns:
        raise BoardError(f"{path}: no rows")
    return RecordedEnvironment(times_ns, values)


@contextmanager
def _rows(
    path: Path, options: ReplayOptions, columns: Mapping[str, ReplayColumn]
) -> Iterator[tuple[csv.DictReader[Any], list[str]]]:
    """The rows by column, and the header, which has all the columns."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows: csv.DictReader[Any] = csv.DictReader(file)
            header = rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
            if not header:
                raise BoardError(f"{path}: line 1: no header")
            for name in (options.timestamp_column, *(column.column for column in columns.values())):
                if name is not None and name not in header:
                    raise BoardError(f"{path}: line 1: no column {name!r}; there are {', '.join(header)}")
            yield rows, header
    except OSError as error:
        raise BoardError(f"{path}: can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BoardError(f"{path}: isn't UTF-8 text: {error}") from error
    except csv.Error as error:
        raise BoardError(f"{path}: isn't a CSV file: {error}") from error


def _time_ns(cell: str, utc_offset_h: float | None, where: str) -> int:
    try:
        moment = datetime.fromisoformat(cell.strip())
    except ValueError as error:
        raise BoardError(f"{where}: {cell!r} isn't an RFC 3339 time") from error
    if moment.tzinfo is None:
        if utc_offset_h is None:
            raise BoardError(f"{where}: {cell!r} has no time zone: set [board] utc_offset_h")
        moment = moment.replace(tzinfo=timezone(timedelta(hours=utc_offset_h)))
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * SECOND_NS + since.microseconds * 1000


def _figure(cell: str, column: ReplayColumn, where: str) -> float:
    text = cell.strip()
    if not text:
        return math.nan
    try:
        figure = float(text)
    except ValueError as error:
        raise BoardError(f"{where}: column {column.column!r}: {cell!r} is no number") from error
    # NaN is a missing value. A finite figure may be infinite once it is scaled.
    value = column.scale * figure + column.offset
    if math.isinf(figure) or not (math.isfinite(value) or math.isnan(figure)):
        raise BoardError(
            f"{where}: column {column.column!r}: {cell!r} isn't finite, or its scaled value isn't"
        )
    return value


def open_replay(options: ReplayOptions, sensors: Sequence[FittedSensor], base_dir: Path) -> EmulatedBoard:
    """A board that replays a file (relative to ``base_dir``). Raises BoardError."""
    columns = channel_columns(options, sensors)
    recording = read_recording(base_dir / options.file, options, columns)
    return EmulatedBoard(recording, sensors, options.speed)
