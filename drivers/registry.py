"""The drivers by name."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from drivers import bp20, dht11, gpsd, hall_anemometer, pyranometer, scd4x
from drivers.driver_type import DriverType
from drivers.interface import DriverError

__all__ = ["DRIVERS", "DriverType", "UnknownDriverError", "driver_type"]

DRIVERS: Final[dict[str, ModuleType]] = {
    "bp20": bp20,
    "dht11": dht11,
    "gpsd": gpsd,
    "hall-anemometer": hall_anemometer,
    "pyranometer": pyranometer,
    "scd4x": scd4x,
}
"""Each module describes its driver in ``TYPE``."""


class UnknownDriverError(DriverError):
    """No driver has this name."""


def driver_type(name: str) -> DriverType:
    """A driver by its name in the configuration. Raises UnknownDriverError, which lists the names."""
    if name not in DRIVERS:
        raise UnknownDriverError(f"no driver {name!r}; there are {', '.join(DRIVERS)}")
    found: DriverType = DRIVERS[name].TYPE
    return found
