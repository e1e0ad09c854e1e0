"""What a config says of a sensor against its datasheet: better than that is likely a mistake."""

from __future__ import annotations

from collections.abc import Sequence

from drivers.interface import Channel
from drivers.registry import driver_type
from gateway.config.calibration import Accuracy, accuracy_of, range_of
from gateway.config.model import SensorConfig
from gateway.config.problems import KeyPath
from gateway.config.source import Source


def check_datasheet(source: Source, sensors: Sequence[tuple[KeyPath, SensorConfig]]) -> None:
    """Warn of an accuracy that the sensor hasn't by its datasheet, and of a range beyond its own."""
    for path, sensor in sensors:
        for channel in driver_type(sensor.driver).channels_of(sensor.options):
            # A certificate knows more of a specimen than the datasheet does.
            if sensor.certificate is None and sensor.lab is None:
                _check_accuracy(source, path, sensor, channel)
            _check_range(source, path, sensor, channel)


def _check_accuracy(source: Source, path: KeyPath, sensor: SensorConfig, channel: Channel) -> None:
    said = accuracy_of(sensor, channel.quantity)
    if channel.accuracy is None or said is None or _widest(said, channel) >= channel.accuracy:
        return
    source.warn(
        _key(path, "accuracy", sensor.accuracy, channel),
        f"±{_widest(said, channel):g} {channel.unit} is better than the datasheet's ±{channel.accuracy:g}:"
        " name lab or certificate if this one was measured",
    )


def _check_range(source: Source, path: KeyPath, sensor: SensorConfig, channel: Channel) -> None:
    said = range_of(sensor, channel.quantity)
    if said is None or (said[0] >= channel.lower and said[1] <= channel.upper):
        return
    source.warn(
        _key(path, "range", sensor.range, channel),
        f"{said[0]:g} to {said[1]:g} {channel.unit} is wider than the sensor's own range,"
        f" {channel.lower:g} to {channel.upper:g}",
    )


def _widest(accuracy: Accuracy, channel: Channel) -> float:
    """The ± at the end of the range, in the channel's unit."""
    largest = max(abs(channel.lower), abs(channel.upper))
    return (accuracy.absolute or 0.0) + (accuracy.percent or 0.0) / 100 * largest


def _key(path: KeyPath, key: str, given: object, channel: Channel) -> KeyPath:
    return (*path, key, channel.quantity) if isinstance(given, dict) else (*path, key)
