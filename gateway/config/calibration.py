"""Calibration in a ``[[sensor]]`` table: accuracy, range and dates, errors in them and likely mistakes."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Final, TypeVar

from cloud.toml_problems import KeyPath, quote, unknown_key
from cloud.wire.bounds import FIRST_YEAR, LAST_YEAR, is_day
from drivers.driver_type import IndividualCalibration
from drivers.interface import Channel
from drivers.registry import driver_type
from gateway.config.model import BoardConfig, SensorCommon, SensorConfig
from gateway.config.source import Source

_T = TypeVar("_T")

_SOON_DAYS: Final = 60
# Before that the machine's clock was never set, and it can't judge a date.
_CLOCK_WAS_SET: Final = date(2025, 1, 1)
_TALL_MAST_M: Final = 180.0


def today() -> date | None:
    """The day in UTC, by this machine's clock; None while that was never set."""
    day = datetime.now(UTC).date()
    return day if day >= _CLOCK_WAS_SET else None


def of_channel(given: _T | Mapping[str, _T] | None, quantity: str) -> _T | None:
    """A channel's accuracy or range, as its sensor's key has it for one channel or for each by quantity."""
    return given.get(quantity) if isinstance(given, Mapping) else given


def expiry_date(sensor: SensorCommon) -> date | None:
    """The last day of a sensor's calibration, or None where it has no end."""
    if sensor.expires is not None or sensor.calibrated is None or sensor.recalibrate_months is None:
        return sensor.expires
    return _months_later(sensor.calibrated, sensor.recalibrate_months)


def _months_later(day: date, months: int) -> date:
    years, month = divmod(day.month - 1 + months, 12)
    last = monthrange(day.year + years, month + 1)[1]
    return date(day.year + years, month + 1, min(day.day, last))


def check_calibration(
    source: Source, path: KeyPath, sensor: SensorCommon, channels: Sequence[str] | None
) -> None:
    """Errors: dates that contradict one another, an accuracy or a range of no channel of its."""
    for key, given in (("accuracy", sensor.accuracy), ("range", sensor.range)):
        if channels is None:
            break
        if isinstance(given, Mapping):
            for quantity in [quantity for quantity in given if quantity not in channels]:
                source.error((*path, key, quantity), *unknown_key(quantity, channels))
        elif given is not None and len(channels) > 1:
            each = ", ".join(f"{quantity} = …" for quantity in channels)
            source.error((*path, key), f"must be of one channel each: {{ {each} }}")
    for key in ("calibrated", "expires"):
        if not is_day(getattr(sensor, key)):
            source.error((*path, key), f"must be a day of the years {FIRST_YEAR} to {LAST_YEAR}")
    if sensor.expires is not None and sensor.calibrated is not None and sensor.expires <= sensor.calibrated:
        source.error((*path, "expires"), f"must come after calibrated, {sensor.calibrated}")
    if sensor.recalibrate_months is not None:
        if sensor.expires is not None:
            source.error((*path, "recalibrate_months"), "means the same as expires: give one of them")
        elif sensor.calibrated is None:
            source.error((*path, "recalibrate_months"), "needs calibrated, the date it counts from")


def warn_of_calibration(
    source: Source,
    sensors: Iterable[tuple[KeyPath, SensorConfig]],
    board: BoardConfig | None,
    day: date | None,
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


def _warn_of_dates(source: Source, path: KeyPath, sensor: SensorConfig, day: date | None) -> None:
    if day is None:
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
    source: Source, path: KeyPath, sensor: SensorConfig, individual: IndividualCalibration, day: date | None
) -> None:
    absent = [key for key in ("serial", "calibrated") if getattr(sensor, key) is None]
    if absent:
        source.warn((*path, "name"), f"has no {' and no '.join(absent)}: {individual.why}")
        return
    if sensor.calibrated is None or expiry_date(sensor) is not None or day is None:
        return
    if _months_later(sensor.calibrated, individual.months) < day:
        source.warn(
            (*path, "calibrated"),
            f"is over {individual.months} months ago: {individual.why}; "
            "expires or recalibrate_months set how long this one counts",
        )


def check_datasheet(source: Source, sensors: Sequence[tuple[KeyPath, SensorConfig]]) -> None:
    """Warn of an accuracy that the sensor hasn't by its datasheet, and of a range beyond its own."""
    for path, sensor in sensors:
        # A certificate is of this instrument, the datasheet of all.
        measured = sensor.certificate is not None or sensor.lab is not None
        for channel in sensor.channels:
            accuracy = of_channel(sensor.accuracy, channel.quantity)
            limits = of_channel(sensor.range, channel.quantity)
            lower, upper, unit = channel.lower, channel.upper, channel.unit
            if accuracy is not None and channel.accuracy is not None and not measured:
                largest = max(abs(lower), abs(upper))
                widest = (accuracy.absolute or 0.0) + (accuracy.percent or 0.0) / 100 * largest
                if widest < channel.accuracy:
                    source.warn(
                        _key(path, "accuracy", sensor.accuracy, channel),
                        f"±{widest:g} {unit} is better than the datasheet's ±{channel.accuracy:g}:"
                        " name lab or certificate if this one was measured",
                    )
            if limits is not None and (limits[0] < lower or limits[1] > upper):
                source.warn(
                    _key(path, "range", sensor.range, channel),
                    f"{limits[0]:g} to {limits[1]:g} {unit} is wider than the sensor's own range,"
                    f" {lower:g} to {upper:g}",
                )


def _key(path: KeyPath, key: str, given: object, channel: Channel) -> KeyPath:
    return (*path, key, channel.quantity) if isinstance(given, dict) else (*path, key)
