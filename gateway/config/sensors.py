"""The ``[[sensor]]`` tables, each checked against its driver's options, then against one another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from drivers.driver_type import DriverType, Nameplate
from drivers.registry import driver_type
from gateway.config.calibration import check_calibration, read_by_channel, today, warn_of_calibration
from gateway.config.drivers import driver_options, known_driver
from gateway.config.model import BoardConfig, GatewayConfig, SensorCommon, SensorConfig
from gateway.config.problems import KeyPath, quote
from gateway.config.quality import Sections, read_channels
from gateway.config.quality_rules import QualityRules
from gateway.config.source import Source
from gateway.config.validate import field_names, unknown_key, validate
from gateway.config.wiring import check_needs, check_pairs, check_pins, check_twins, check_wiring

_GATEWAY_ID: Final = re.compile(r"[a-z0-9-]{1,63}", re.ASCII)
_SENSOR_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_DEFAULT_INTERVAL_S: Final = 1.0


def gateway_id_problem(name: str) -> str | None:
    """What is wrong with a gateway's id, or None."""
    if _GATEWAY_ID.fullmatch(name) is None:
        return f"must be 1 to 63 small letters, digits and hyphens, not {quote(name)}"
    return None


def read_sensors(
    source: Source, gateway: GatewayConfig | None, quality: Sections, board: BoardConfig | None = None
) -> tuple[SensorConfig, ...] | None:
    """The sensors in the file's order, or None where one has an error."""
    tables = source.raw.get("sensor", [])
    if not isinstance(tables, list):
        source.error(("sensor",), "must be an array of tables: [[sensor]]")
        return None
    before = len(source.problems)
    sensors: list[tuple[KeyPath, SensorConfig]] = []
    first_line: dict[str, int | None] = {}
    for position, raw in enumerate(tables):
        path: KeyPath = ("sensor", position)
        if not isinstance(raw, dict):
            source.error(path, "must be a table: [[sensor]]")
            continue
        _check_name(source, path, raw.get("name"), first_line)
        sensor = _read_sensor(source, path, raw, gateway, quality)
        if sensor is not None:
            sensors.append((path, sensor))
    check_pairs(source, sensors, list(first_line))
    check_needs(source, sensors, list(first_line))
    check_pins(source, tables)
    check_wiring(source, sensors)
    check_twins(source, sensors)
    errors = [problem for problem in source.problems[before:] if problem.severity == "error"]
    for path, sensor in sensors:
        nameplate = Nameplate(sensor.model, sensor.serial, sensor.interval_s)
        for concern in driver_type(sensor.driver).concerns(sensor.options, nameplate):
            source.warn((*path, *concern.key), concern.message)
    if not errors:
        warn_of_calibration(source, sensors, board, today())
    return None if errors else tuple(sensor for _, sensor in sensors)


def _check_name(source: Source, path: KeyPath, name: object, first_line: dict[str, int | None]) -> None:
    if not isinstance(name, str):
        return
    if _SENSOR_NAME.fullmatch(name) is None:
        source.error(
            (*path, "name"),
            f"must be 1 to 64 letters, digits, underscores and hyphens, not {quote(name)}",
        )
    if name in first_line:
        line = first_line[name]
        source.error((*path, "name"), f"{quote(name)} is a second sensor's name (the first: line {line})")
    first_line.setdefault(name, source.line((*path, "name")))


def _read_sensor(
    source: Source, path: KeyPath, raw: dict[str, Any], gateway: GatewayConfig | None, quality: Sections
) -> SensorConfig | None:
    driver = raw.get("driver")
    known = known_driver(source, path, driver) if isinstance(driver, str) else None
    if known is None:
        # Its own keys can't be judged; the common ones can.
        common = {key: value for key, value in raw.items() if key in field_names(SensorCommon)}
        validate(SensorCommon, common, path, source.error)
        return None
    common_names = field_names(SensorCommon)
    option_names = field_names(known.options)
    before = len(source.problems)
    for key in raw:
        if key not in common_names and key not in option_names and key != "quality":
            known_names = (*option_names, *common_names, "quality")
            source.error((*path, key), *unknown_key(key, known_names, known.name))
    common = {"interval_s": max(_DEFAULT_INTERVAL_S, known.min_interval_s)}
    common |= {key: value for key, value in raw.items() if key in common_names}
    own = {key: value for key, value in raw.items() if key in option_names}
    options = driver_options(source, path, known, own, gateway)
    quantities = () if options is None else [channel.quantity for channel in known.channels_of(options)]
    wrong = read_by_channel(source, path, common, quantities) if quantities else {"accuracy", "range"}
    judged = {key: value for key, value in common.items() if key not in wrong}
    base = validate(SensorCommon, judged, path, source.error)
    if base is not None:
        check_calibration(source, path, base)
        _check_interval(source, path, base, known.min_interval_s)
    tests = _read_tests(source, path, raw, known, options, gateway, quality)
    if base is None or options is None or tests is None or len(source.problems) != before:
        return None
    values = {name: getattr(base, name) for name in common_names}
    return SensorConfig(**values, options=options, quality=tests)


def _read_tests(
    source: Source,
    path: KeyPath,
    raw: dict[str, Any],
    known: DriverType,
    options: Any,
    gateway: GatewayConfig | None,
    quality: Sections,
) -> Mapping[str, QualityRules] | None:
    """The quality tests of a sensor's channels; None on errors, or where nobody knows the channels."""
    if options is None and callable(known.channels):
        return None
    channels = known.channels if not callable(known.channels) else known.channels_of(options)
    return read_channels(
        source,
        (*path, "quality"),
        raw.get("quality"),
        tuple(channel.quantity for channel in channels),
        quality,
        gateway.elevation_m if gateway is not None else None,
        paired="pair" in raw,
    )


def _check_interval(source: Source, path: KeyPath, sensor: SensorCommon, min_interval_s: float) -> None:
    key = (*path, "interval_s")
    if sensor.interval_s < min_interval_s:
        source.error(
            key, f"must be at least {min_interval_s:g} for {sensor.driver}, not {sensor.interval_s:g}"
        )
    # Readings carry their period in milliseconds.
    milliseconds = sensor.interval_s * 1000
    if abs(milliseconds - round(milliseconds)) > 1e-6:
        source.error(key, f"must be whole milliseconds, not {sensor.interval_s}")
