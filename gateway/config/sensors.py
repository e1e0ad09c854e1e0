"""The ``[[sensor]]`` tables, each checked against its driver's options, then against one another."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from cloud.toml_models import field_names
from cloud.toml_problems import KeyPath, nearest, quote, unknown_key
from cloud.values import host_alone
from cloud.wire.quantities import QUANTITIES
from drivers.driver_type import DriverType, Nameplate, OptionError
from drivers.interface import DriverError
from drivers.registry import DRIVERS, driver_names, driver_type, guarded
from gateway.config.calibration import check_calibration, check_datasheet, today, warn_of_calibration
from gateway.config.model import BoardConfig, GatewayConfig, SensorCommon, SensorConfig
from gateway.config.quality import QualityRules, Sections, read_channels
from gateway.config.source import Source
from gateway.config.wiring import check_needs, check_pairs, check_twins, check_wiring

_COMMON: Final = field_names(SensorCommon)
_DEFAULT_INTERVAL_S: Final = 1.0
_STATISTICS_MS: Final = 600_000
_DAY_MS: Final = 86_400_000


def read_sensors(
    source: Source, gateway: GatewayConfig | None, quality: Sections, board: BoardConfig | None = None
) -> tuple[SensorConfig, ...] | None:
    """The sensors in the file's order, or None where one has an error."""
    before = source.errors()
    tables = source.tables("sensor")
    sensors: list[tuple[KeyPath, SensorConfig]] = []
    names = source.check_names(tables)
    # Looking through the installed packages takes milliseconds: once for the whole file.
    drivers = functools.cache(driver_names)
    for path, raw in tables:
        sensor = _read_sensor(source, path, raw, gateway, quality, drivers)
        if sensor is not None:
            sensors.append((path, sensor))
    check_pairs(source, sensors, names)
    check_needs(source, sensors, names)
    check_wiring(source, [*tables, *source.tables("actuator")], sensors)
    check_twins(source, sensors)
    for path, sensor in sensors:
        nameplate = Nameplate(sensor.model, sensor.serial, sensor.interval_s, sensor.boom_deg)
        for concern in driver_type(sensor.driver).concerns(sensor.options, nameplate):
            source.warn((*path, *concern.key), concern.message)
    if source.errors() != before or len(sensors) != len(tables):
        return None
    check_datasheet(source, sensors)
    warn_of_calibration(source, sensors, board, today())
    return tuple(sensor for _, sensor in sensors)


def _read_sensor(
    source: Source,
    path: KeyPath,
    raw: dict[str, Any],
    gateway: GatewayConfig | None,
    quality: Sections,
    names: Callable[[], tuple[str, ...]],
) -> SensorConfig | None:
    driver = raw.get("driver")
    known = _driver(source, path, driver, names) if isinstance(driver, str) else None
    common = {key: value for key, value in raw.items() if key in _COMMON}
    if known is None:
        # Its own keys can't be judged; the common ones can.
        for key in [key for key in raw if key not in common]:
            message, guess = unknown_key(key, _COMMON)
            if guess is not None:
                source.error((*path, key), message, guess)
        source.model(SensorCommon, common, path)
        return None
    before = source.errors()
    own = {key: value for key, value in raw.items() if key not in common and key != "quality"}
    options = _options(source, path, known, own, gateway)
    channels = known.channels if options is None else known.channels_of(options)
    # They may depend on the options, which are wrong then.
    quantities = None if callable(channels) else tuple(channel.quantity for channel in channels)
    common.setdefault("interval_s", max(_DEFAULT_INTERVAL_S, known.min_interval_s))
    base = source.model(SensorCommon, common, path)
    if base is not None:
        check_calibration(source, path, base, quantities)
        _check_interval(source, path, base, known.min_interval_s)
    if quantities is None:
        return None
    site = gateway.elevation_m if gateway is not None else None
    place, given = (*path, "quality"), raw.get("quality", {})
    tests = read_channels(source, place, given, quantities, quality, site, paired="pair" in raw)
    if base is None or options is None or tests is None or source.errors() != before:
        return None
    _check_rest(source, path, known.rests_at(options), tests)
    values = {name: getattr(base, name) for name in _COMMON}
    measured = {name: source.quantities[name] for name in quantities if name not in QUANTITIES}
    return SensorConfig(**values, options=options, quality=tests, own=measured)


def _driver(
    source: Source, path: KeyPath, name: str, names: Callable[[], tuple[str, ...]]
) -> DriverType | None:
    """A driver by name; None after its problem was noted. ``names`` are those of all installed drivers."""
    if name not in DRIVERS and name not in names():
        message = f"{quote(name)} isn't one; there are {', '.join(names())}"
        source.error((*path, "driver"), message, nearest(name, names()))
        return None
    try:
        known = driver_type(name)
    except DriverError as error:
        source.error((*path, "driver"), str(error))
        return None
    taken = set(field_names(known.options)) & set(_COMMON)
    if taken:
        message = f"driver {quote(name)} has options that every sensor has: {', '.join(sorted(taken))}"
        source.error((*path, "driver"), message)
        return None
    return known


def _options(
    source: Source, path: KeyPath, known: DriverType, own: dict[str, Any], gateway: GatewayConfig | None
) -> Any:
    """A sensor's options from its own keys; None after their problems were noted.

    A package's driver isn't our code: what goes wrong in it is a problem of the sensor that names it. All
    that the gateway calls later is called here once, where it can still be refused.
    """

    def unknown(key: str) -> tuple[str, str | None]:
        names = (*field_names(known.options), *_COMMON, "quality")
        return unknown_key(key, names, known.name)

    try:
        with guarded(known.name):
            options = source.model(known.options, own, path, unknown)
            if options is None:
                return None
            options = known.settle(options, gateway)
            channels = known.channels_of(options)
            tuple(known.claims(options))
            tuple(known.concerns(options, Nameplate()))
            tuple(known.needs(options))
            known.rests_at(options)
            for channel in channels:
                tuple(known.shaping(options, channel.quantity))
    except OptionError as error:
        source.error((*path, *error.key), error.message)
        return None
    except DriverError as error:
        source.error((*path, "driver"), str(error))
        return None
    address = getattr(options, "host", None)
    if known.name in DRIVERS and isinstance(address, str):
        try:
            host_alone(address)
        except ValueError as error:
            source.error((*path, "host"), str(error))
            return None
    ranges = [(each.lower, each.upper) for each in channels]
    if not all(math.isfinite(lower) and math.isfinite(upper) and lower < upper for lower, upper in ranges):
        message = f"driver {quote(known.name)} has a channel whose range isn't a lower and a higher number"
        source.error((*path, "driver"), message)
        return None
    foreign = [each for each in channels if source.unit_of(each.quantity) != each.unit]
    for channel in foreign:
        here = source.unit_of(channel.quantity)
        remedy = (
            f"which is in {quote(here)}" if here else "which isn't built in: describe it in a [[quantity]]"
        )
        message = f"driver {quote(known.name)} measures {quote(channel.quantity)} in {quote(channel.unit)}"
        source.error((*path, "driver"), f"{message}, {remedy}")
    return None if foreign else options


def _check_rest(source: Source, path: KeyPath, rest: float | None, tests: Mapping[str, QualityRules]) -> None:
    """A sensor that reads more at rest than its tests take for rest is flagged in each calm."""
    for rules in tests.values():
        if rest is None or rules.flat_s is None or rules.rest_below is None:
            continue
        if rest > rules.rest_below:
            source.warn(
                (*path, "driver"),
                f"at rest it reads {rest:g}, and only up to {rules.rest_below:g} counts as rest: a calm is"
                f" flagged; set quality = {{ rest_below = {rest:g} }}",
            )


def _check_interval(source: Source, path: KeyPath, sensor: SensorCommon, min_interval_s: float) -> None:
    key = (*path, "interval_s")
    if sensor.interval_s < min_interval_s:
        source.error(
            key, f"must be at least {min_interval_s:g} s for {sensor.driver}, not {sensor.interval_s:g}"
        )
    if not fits_the_grid(sensor.interval_s):
        near = " or ".join(f"{each:g}" for each in _nearest_fits(sensor.interval_s))
        source.warn(
            key,
            f"10 minutes, as statistics have it, aren't a multiple of {sensor.interval_s:g} s: {near} fits",
        )


def fits_the_grid(interval_s: float) -> bool:
    """Whether ten minutes hold a whole number of readings; or a reading whole ten minutes, and a day them."""
    interval_ms = round(interval_s * 1000)
    return _STATISTICS_MS % interval_ms == 0 or (
        interval_ms % _STATISTICS_MS == 0 and _DAY_MS % interval_ms == 0
    )


def _nearest_fits(interval_s: float) -> list[float]:
    """The intervals next to one that fit, in tenths of a second."""
    tenths = [*range(1, 6001), 12_000, 18_000, 24_000, 36_000]
    fits = [each / 10 for each in tenths if fits_the_grid(each / 10)]
    below, above = [each for each in fits if each < interval_s], [each for each in fits if each > interval_s]
    return [*below[-1:], *above[:1]]
