"""A file's rows as those of ``statistics`` and ``readings``: pure.

What a logger has not counted is taken as complete: as many samples as the interval has. They are ``not
evaluated`` (QARTOD 2), for no test of ours has seen them; an interval whose figures can't be is ``fail``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from cloud.importing.logger_file import Rows
from cloud.importing.mapping import MEASURED, Channel, File
from cloud.wire.bounds import MAX_COUNT
from cloud.wire.reading_records import FAIL, MISSING, NOT_EVALUATED, OLDEST_TIME_US

OUT_OF_RANGE, INCONSISTENT = "OUT_OF_RANGE", "INCONSISTENT"
_MS_PER_HOUR: Final = 3_600_000
_NAN: Final = math.nan
_DIRECTIONS: Final = (-180.0, 540.0)
"""Degrees as loggers write them: about north, from it on, and on by half a turn without a jump."""


class Interval(NamedTuple):
    """A row of ``statistics``, whose ``count`` is ``valid``; its other columns are null or the file's."""

    channel: str
    interval_start: int
    quantity: str
    unit: str
    avg: float | None
    min: float | None
    max: float | None
    sd: float | None
    gust: float | None
    sum: float | None
    rate: float | None
    cube_mean: float | None
    valid: int
    expected: float
    recovery: float
    period_ms: int
    n_not_evaluated: int
    n_fail: int
    quality: int

    @property
    def at_us(self) -> int:
        """The interval's beginning."""
        return self.interval_start

    @property
    def has_readings(self) -> bool:
        """Whether it stands for samples, of whatever quality."""
        return self.n_not_evaluated + self.n_fail > 0


class Sample(NamedTuple):
    """A row of ``readings``; ``seq`` is its place on the grid of its period."""

    channel: str
    seq: int
    quantity: str
    unit: str
    time: int
    period_ms: int
    value: float
    raw: float
    raw_unit: str
    quality: int
    reasons: list[str]
    cal: str

    @property
    def at_us(self) -> int:
        """Its time."""
        return self.time

    @property
    def has_readings(self) -> bool:
        """A sample is a reading, whatever its quality."""
        return True


def converted(channel: Channel, figures: Mapping[str, float]) -> dict[str, float]:
    """A channel's figures in the lake's unit; ``nan`` where there is none."""
    slope, offset = channel.to_lake
    found = {name: figures.get(name, _NAN) * slope + offset for name in MEASURED}
    found["sd"] = figures.get("sd", _NAN) * abs(slope)
    if slope < 0:
        found["min"], found["max"] = found["max"], found["min"]
    if channel.is_a == "direction":
        # Twice: what is a little below 0 becomes 360.
        found["avg"] = found["avg"] % 360.0 % 360.0
    return found


def problem(channel: Channel, figures: Mapping[str, float]) -> tuple[str, str] | None:
    """Why figures can't be a mast's: a word, and a sentence; None where they can."""
    found = converted(channel, figures)
    lower, upper = channel.of.lower, channel.of.upper
    if channel.is_a == "direction":
        # A mounting's offset and the whole circle would make a direction of any error value.
        turned = abs(channel.to_lake[0]) * figures.get("avg", _NAN)
        if turned < _DIRECTIONS[0] or turned > _DIRECTIONS[1]:
            return _impossible(channel, "avg", turned, _DIRECTIONS, figures)
    for name in ("avg", "min", "max", "gust", "sum"):
        if found[name] < lower or found[name] > upper:
            return _impossible(channel, name, found[name], (lower, upper), figures)
    if found["sd"] < 0:
        return INCONSISTENT, f"{channel.name} sd is below 0"
    if found["min"] > found["max"]:
        return INCONSISTENT, f"{channel.name} min is above its max"
    count = figures.get("count", _NAN)
    if count < 0 or count % 1 > 0 or count > MAX_COUNT:
        return INCONSISTENT, f"{channel.name} count is {count:g}"
    return None


def _impossible(
    channel: Channel, name: str, value: float, limits: tuple[float, float], figures: Mapping[str, float]
) -> tuple[str, str]:
    there = f"{value:.6g} {channel.of.unit}, not {limits[0]:g} to {limits[1]:g}"
    # Those of one channel are extremes of each other after a negative scale.
    raw = f"{channel.columns().get(name)}: {figures[name]:.10g}" if name in figures else ""
    return OUT_OF_RANGE, f"{channel.name} {name} is {there} ({raw})"


def seq_of(time_us: int, period_ms: int) -> int:
    """The number of a sample: its place on the period's grid, from 2000 on."""
    return (time_us - OLDEST_TIME_US) // (period_ms * 1000) + 1


def figures_of(rows: Rows, number: int) -> Iterator[dict[str, float]]:
    """The figures of the mapping's channel ``number`` in each row, as written."""
    columns = {name: values for (of, name), values in rows.figures.items() if of == number}
    return (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))


def interval(file: File, channel: Channel, start_us: int, figures: Mapping[str, float]) -> Interval:
    """A channel's row of one interval."""
    found = converted(channel, figures)
    expected = file.interval * 1000.0 / file.period_ms
    count = figures.get("count", _NAN)
    samples = int(max(count, 0)) if count <= MAX_COUNT else round(expected)
    main = found["sum" if channel.is_a == "accumulated" else "avg"]
    if math.isnan(main):
        samples = 0
    is_wrong = samples > 0 and problem(channel, figures) is not None
    if not samples or is_wrong:
        found = dict.fromkeys(found, _NAN)
    average, added = found["avg"], found["sum"]
    rate = _NAN
    if channel.is_a == "accumulated" and samples:
        average, rate = added / samples, added * _MS_PER_HOUR / (samples * file.period_ms)
    valid = 0 if is_wrong else samples
    cube = cube_mean(average, found["sd"], valid) if channel.quantity == "wind_speed" else _NAN
    if valid < 2:
        # Loggers write 0.
        found["sd"] = _NAN
    return Interval(
        channel.name, start_us, channel.quantity, channel.of.unit, _or_none(average),
        _or_none(found["min"]), _or_none(found["max"]), _or_none(found["sd"]), _or_none(found["gust"]),
        _or_none(added), _or_none(rate), _or_none(cube), valid, expected, min(1.0, valid / expected),
        file.period_ms, valid, samples - valid, FAIL if is_wrong else NOT_EVALUATED if valid else MISSING,
    )  # fmt: skip


def cube_mean(mean: float, sd: float, samples: int) -> float:
    """The mean of v³ by mean and sample standard deviation, of speeds that are spread evenly about the mean.

    Loggers don't have it. The mean's cube alone is too small by 3 TI².
    """
    return mean**3 + 3.0 * mean * sd * sd * (samples - 1) / samples if samples else _NAN


def sample(file: File, channel: Channel, time_us: int, figures: Mapping[str, float]) -> Sample | None:
    """A channel's reading; None where the file has none."""
    name = "sum" if channel.is_a == "accumulated" else "avg"
    raw = figures[name]
    if math.isnan(raw):
        return None
    (slope, offset), wrong = channel.to_lake, problem(channel, figures)
    return Sample(
        channel.name, seq_of(time_us, file.period_ms), channel.quantity, channel.of.unit, time_us,
        file.period_ms, raw * slope + offset if wrong else converted(channel, figures)[name], raw,
        channel.unit or channel.of.unit, FAIL if wrong else NOT_EVALUATED, [wrong[0]] if wrong else [],
        channel.cal,
    )  # fmt: skip


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
