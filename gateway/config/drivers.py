"""A sensor's driver, as far as the gateway can use it: loaded, and asked for all that is asked of it later.

A package's driver is anybody's code, so what goes wrong in it is a problem of the sensor that names it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cloud.wire.schema import UNITS
from drivers.driver_type import DriverType, Nameplate, OptionError
from drivers.interface import DriverError
from drivers.registry import DRIVERS, driver_type, guarded
from gateway.config.keys import field_names, nearest
from gateway.config.model import GatewayConfig, SensorCommon
from gateway.config.problems import KeyPath, quote
from gateway.config.source import Source
from gateway.config.validate import validate


def known_driver(
    source: Source, path: KeyPath, name: str, names: Callable[[], tuple[str, ...]]
) -> DriverType | None:
    """A driver by name; None after its problem was noted. ``names`` are those of all drivers there are."""
    if name not in DRIVERS and name not in names():
        message = f"{quote(name)} is no driver; there are {', '.join(names())}"
        source.error((*path, "driver"), message, nearest(name, names()))
        return None
    try:
        known = driver_type(name)
    except DriverError as error:
        source.error((*path, "driver"), str(error))
        return None
    taken = set(field_names(known.options)) & set(field_names(SensorCommon))
    if taken:
        message = f"driver {quote(name)} has options that every sensor has: {', '.join(sorted(taken))}"
        source.error((*path, "driver"), message)
        return None
    return known


def driver_options(
    source: Source, path: KeyPath, known: DriverType, own: dict[str, Any], gateway: GatewayConfig | None
) -> Any:
    """A sensor's options from its own keys; None after their problems were noted."""
    try:
        with guarded(known.name):
            options = validate(known.options, own, path, source.error)
            if options is None:
                return None
            options = known.settle(options, gateway)
            # All that is asked of the driver later; here it can still be refused.
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
    ranges = [(each.lower, each.upper) for each in channels]
    if not all(math.isfinite(lower) and math.isfinite(upper) and lower < upper for lower, upper in ranges):
        message = f"driver {quote(known.name)} has a channel whose range isn't a lower and a higher number"
        source.error((*path, "driver"), message)
        return None
    foreign = [each for each in channels if UNITS.get(each.quantity) != each.unit]
    for channel in foreign:
        source.error(
            (*path, "driver"),
            f"driver {quote(known.name)} measures {quote(channel.quantity)} in {quote(channel.unit)};"
            f" there are {', '.join(f'{quantity} ({unit})' for quantity, unit in UNITS.items())}",
        )
    return None if foreign else options
