"""Calibration in a ``[[sensor]]`` table: accuracy, range and dates, errors in them and likely mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

from drivers.driver_type import IndividualCalibration
from drivers.interface import Channel
from drivers.registry import driver_type
from gateway.config.keys import unknown_key
from gateway.config.model import BoardConfig, SensorCommon, SensorConfig
from gateway.config.problems import KeyPath, quote
from gateway.config.source import Source

_NUMBER: Final = r"(\d{1,9}(?:\.\d{1,9})?)"
_ABSOLUTE: Final = re.compile(_NUMBER, re.ASCII)
_PERCENT: Final = re.compile(_NUMBER + r"\s*%", re.ASCII)
_BOTH: Final = re.compile(_NUMBER + r"\s*\+\s*" + _NUMBER + r"\s*%", re.ASCII)

_SOON_DAYS: Final = 60
# Before that the machine's clock was never set, and it can't judge a date.
_CLOCK_WAS_SET: Final = date(2025, 1, 1)
_TALL_MAST_M: Final = 180.0


@dataclass(frozen=True, slots=True)
class Accuracy:
    """±(``absolute`` in the channel's unit + ``percent`` of the value); at least one of them."""

    absolute: float | None
    percent: float | None


def today() -> date:
    """The day in UTC, by this machine's clock."""
    return datetime.now(UTC).date()


def parse_accuracy(given: object) -> Accuracy:
    """An accuracy: 0.1 (in the unit), "2%" (of the value) or "40 + 5%". Raises ValueError."""
    absolute = percent = None
    if isinstance(given, int | float) and not isinstance(given, bool):
        absolute = float(given)
    elif isinstance(given, str):
        text = given.strip()
        if match := _ABSOLUTE.fullmatch(text):
            absolute = float(match[1])
        elif match := _PERCENT.fullmatch(text):
            percent = float(match[1])
        elif match := _BOTH.fullmatch(text):
            absolute, percent = float(match[1]), float(match[2])
    if absolute is None and percent is None:
        raise ValueError(f'must be ± in the unit, or as "2%" or "40 + 5%", not {quote(given)}')
    if any(part is not None and part <= 0 for part in (absolute, percent)):
        raise ValueError(f"must be above 0, not {quote(given)}")
    if percent is not None and percent > 100:
        raise ValueError(f"must be at most 100%, not {quote(given)}")
    return Accuracy(absolute, percent)


def parse_range(given: object) -> tuple[float, float]:
    """A range: [lower, upper] in the unit. Raises ValueError."""
    ends = given if isinstance(given, list | tuple) else ()
    if len(ends) != 2 or not all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
        raise ValueError(f"must be the lower and the upper end, as in [0, 75], not {quote(given)}")
    lower, upper = float(ends[0]), float(ends[1])
    if not lower < upper:
        raise ValueError(f"must begin below its end, not {quote(given)}")
    return lower, upper


def accuracy_of(sensor: SensorCommon, quantity: str) -> Accuracy | None:
    """A channel's accuracy in the config, or None."""
    given = _of_channel(sensor.accuracy, quantity)
    return None if given is None else parse_accuracy(given)


def range_of(sensor: SensorCommon, quantity: str) -> tuple[float, float] | None:
    """A channel's range in the config, or None."""
    given = _of_channel(sensor.range, quantity)
    return None if given is None else parse_range(given)


def expiry_date(sensor: SensorCommon) -> date | None:
    """The last day of a sensor's calibration, or None where it has no end."""
    if sensor.expires is not None or sensor.calibrated is None or sensor.recalibrate_months is None:
        return sensor.expires
    return _months_later(sensor.calibrated, sensor.recalibrate_months)


def _of_channel(given: Any, quantity: str) -> Any:
    return given.get(quantity) if isinstance(given, Mapping) else given


def _months_later(day: date, months: int) -> date:
    years, month = divmod(day.month - 1 + months, 12)
    for last in (day.day, 30, 29, 28):
        try:
            return date(day.year + years, month + 1, min(day.day, last))
        except ValueError:
            continue
    raise ValueError(f"{day} and {months} months is no date")


def read_by_channel(
    source: Source, path: KeyPath, raw: Mapping[str, Any], quantities: Sequence[str]
) -> set[str]:
    """Check ``accuracy`` and ``range``, of one channel or by quantity; the keys that are wrong."""
    wrong = set()
    parsers: tuple[tuple[str, Callable[[object], object]], ...] = (
        ("accuracy", parse_accuracy),
        ("range", parse_range),
    )
    for key, parse in parsers:
        if key in raw and not _read_by_channel(source, (*path, key), raw[key], quantities, parse):
            wrong.add(key)
    return wrong


def _read_by_channel(
    source: Source, path: KeyPath, given: object, quantities: Sequence[str], parse: Callable[[object], object]
) -> bool:
    before = len(source.problems)
    if isinstance(given, Mapping):
        for quantity, value in given.items():
            if quantity not in quantities:
                source.error((*path, quantity), *unknown_key(quantity, quantities))
                continue
            _try(source, (*path, quantity), value, parse)
    elif len(quantities) > 1:
        each = ", ".join(f"{quantity} = …" for quantity in quantities)
        source.error(path, f"must say of which channel: {{ {each} }}")
    else:
        _try(source, path, given, parse)
    return len(source.problems) == before


def _try(source: Source, path: KeyPath, value: object, parse: Callable[[object], object]) -> None:
    try:
        parse(value)
    except ValueError as error:
        source.error(path, str(error))


def check_calibration(source: Source, path: KeyPath, sensor: SensorCommon) -> None:
    """Errors: dates that contradict one another."""
    if sensor.expires is not None and sensor.calibrated is not None and sensor.expires <= sensor.calibrated:
        source.error((*path, "expires"), f"must come after calibrated, {sensor.calibrated}")
    if sensor.recalibrate_months is not None:
        if sensor.expires is not None:
            source.error((*path, "recalibrate_months"), "says the same as expires: give one of them")
        elif sensor.calibrated is None:
            source.error((*path, "recalibrate_months"), "needs calibrated, the date it counts from")


def warn_of_calibration(
    source: Source, sensors: Iterable[tuple[KeyPath, SensorConfig]], board: BoardConfig | None, day: date
) -> None:
    """Likely mistakes. Dates are judged on a real board only: an emulated one has its own time."""
    sensors = tuple(sensors)
    first: dict[tuple[str | None, str], str] = {}
    by_name = {sensor.name: sensor for _, sensor in sensors}
    for path, sensor in sensors:
        if sensor.serial is not None:
            owner = first.setdefault((sensor.model, sensor.serial), sensor.name)
            if owner != sensor.name:
                source.warn(
                    (*path, "serial"), f"is {quote(owner)}'s as well: two instruments with one number"
                )
        _warn_of_swap(source, path, sensor, by_name.get(sensor.pair or ""))
        if board is not None and board.kind == "raspberry-pi":
            _warn_of_dates(source, path, sensor, day)
            individual = driver_type(sensor.driver).individual
            if individual is not None:
                _warn_of_individual(source, path, sensor, individual, day)


def _warn_of_swap(source: Source, path: KeyPath, sensor: SensorConfig, twin: SensorConfig | None) -> None:
    height, boom = sensor.height_m, sensor.boom_deg
    if height is None or boom is None:
        return
    of_twin = twin is not None and twin.height_m == boom != height
    if of_twin or (height > _TALL_MAST_M >= boom):
        source.warn(
            (*path, "height_m"), f"{height:g} m and boom_deg {boom:g}: have height and boom been swapped?"
        )


def _warn_of_dates(source: Source, path: KeyPath, sensor: SensorConfig, day: date) -> None:
    if day < _CLOCK_WAS_SET:
        return
    if sensor.calibrated is not None and sensor.calibrated > day:
        source.warn((*path, "calibrated"), f"{sensor.calibrated} lies in the future")
    expires = expiry_date(sensor)
    if expires is None:
        return
    key = "expires" if sensor.expires is not None else "recalibrate_months"
    left = (expires - day).days
    if left < 0:
        source.warn((*path, key), f"the calibration expired on {expires}: readings are flagged suspect")
    elif left <= _SOON_DAYS:
        source.warn((*path, key), f"the calibration expires on {expires}, in {left} days")


def _warn_of_individual(
    source: Source, path: KeyPath, sensor: SensorConfig, individual: IndividualCalibration, day: date
) -> None:
    absent = [key for key in ("serial", "calibrated") if getattr(sensor, key) is None]
    if absent:
        source.warn((*path, "name"), f"has no {' and no '.join(absent)}: {individual.why}")
        return
    if sensor.calibrated is None or expiry_date(sensor) is not None or day < _CLOCK_WAS_SET:
        return
    if _months_later(sensor.calibrated, individual.months) < day:
        source.warn(
            (*path, "calibrated"),
            f"is over {individual.months} months ago: {individual.why}; "
            "expires or recalibrate_months say how long this one counts",
        )


def check_datasheet(source: Source, sensors: Sequence[tuple[KeyPath, SensorConfig]]) -> None:
    """Warn of an accuracy that the sensor hasn't by its datasheet, and of a range beyond its own."""
    for path, sensor in sensors:
        for channel in driver_type(sensor.driver).channels_of(sensor.options):
            # A certificate is of this instrument, the datasheet of all.
            if sensor.certificate is None and sensor.lab is None:
                _check_accuracy(source, path, sensor, channel)
            _check_range(source, path, sensor, channel)


def _check_accuracy(source: Source, path: KeyPath, sensor: SensorConfig, channel: Channel) -> None:
    given = accuracy_of(sensor, channel.quantity)
    if channel.accuracy is None or given is None or _widest(given, channel) >= channel.accuracy:
        return
    source.warn(
        _key(path, "accuracy", sensor.accuracy, channel),
        f"±{_widest(given, channel):g} {channel.unit} is better than the datasheet's ±{channel.accuracy:g}:"
        " name lab or certificate if this one was measured",
    )


def _check_range(source: Source, path: KeyPath, sensor: SensorConfig, channel: Channel) -> None:
    given = range_of(sensor, channel.quantity)
    if given is None or (given[0] >= channel.lower and given[1] <= channel.upper):
        return
    source.warn(
        _key(path, "range", sensor.range, channel),
        f"{given[0]:g} to {given[1]:g} {channel.unit} is wider than the sensor's own range,"
        f" {channel.lower:g} to {channel.upper:g}",
    )


def _widest(accuracy: Accuracy, channel: Channel) -> float:
    """The ± at the end of the range, in the channel's unit."""
    largest = max(abs(channel.lower), abs(channel.upper))
    return (accuracy.absolute or 0.0) + (accuracy.percent or 0.0) / 100 * largest


def _key(path: KeyPath, key: str, given: object, channel: Channel) -> KeyPath:
    return (*path, key, channel.quantity) if isinstance(given, dict) else (*path, key)
