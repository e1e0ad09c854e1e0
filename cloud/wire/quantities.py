"""What is measured: name, unit and kind of each quantity, once for configs, records, statistics and exports.

A gateway's config may add quantities of its own (``[[quantity]]``): their unit and kind travel with their
readings and channels' records.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["linear", "direction", "accumulated", "state", "position"]
"""How values are put together: by their mean; as angles; by their sum; by share of time; by distance."""

NAME: Final = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity; ``lower`` and ``upper`` are what can occur on Earth, in ``unit`` (UCUM where it has one).

    ``measurement_type`` and ``measurement_unit`` are those of IEA Wind Task 43's WRA data model (the enums
    ``measurement_type_id`` and ``measurement_units_id``); None where it has no such unit.
    """

    name: str
    unit: str
    kind: Kind
    lower: float
    upper: float
    measurement_type: str = "other"
    measurement_unit: str | None = None


Quantities = Mapping[str, Quantity]
"""Quantities by name."""

QUANTITIES: Final[Quantities] = {
    each.name: each
    for each in (
        Quantity("temperature", "Cel", "linear", -90.0, 60.0, "air_temperature", "deg_C"),
        Quantity("humidity", "%RH", "linear", 0.0, 105.0, "relative_humidity", "%"),
        Quantity("pressure", "kPa", "linear", 30.0, 110.0, "air_pressure"),
        Quantity("wind_speed", "m/s", "linear", 0.0, 115.0, "wind_speed", "m/s"),
        Quantity("irradiance", "W/m2", "linear", -20.0, 2000.0, "global_horizontal_irradiance", "W/m^2"),
        Quantity("co2", "ppm", "linear", 0.0, 40_000.0),
        Quantity("location", "m", "position", 0.0, 21_000_000.0, "gps_coordinates"),
        Quantity("wind_direction", "deg", "direction", 0.0, 360.0, "wind_direction", "deg"),
        Quantity("precipitation", "mm", "accumulated", 0.0, 500.0, "precipitation", "mm"),
        Quantity("voltage", "V", "linear", -2000.0, 2000.0, "voltage", "V"),
        Quantity("current", "A", "linear", -5000.0, 5000.0, "current", "A"),
        Quantity("power", "W", "linear", -1e9, 1e9, "power", "W"),
        Quantity("energy", "kW.h", "accumulated", -1e6, 1e6, "energy", "kWh"),
        Quantity("module_temperature", "Cel", "linear", -90.0, 120.0, "temperature", "deg_C"),
        Quantity("soil_moisture", "%", "linear", 0.0, 100.0, "other", "%"),
        Quantity("illuminance", "lx", "linear", 0.0, 200_000.0, "illuminance", "lux"),
        Quantity("battery_level", "%", "linear", 0.0, 100.0, "other", "%"),
        Quantity("state", "1", "state", 0.0, 1.0, "status", "-"),
    )
}
"""Those that are built in. A name is never given another unit or kind: readings of it are kept for years."""


_WIDEST: Final = 1e15
"""The bound of a quantity that isn't built in: the cubes and sums of what is within this can't overflow."""


def plausible_range(name: str) -> tuple[float, float]:
    """What may enter statistics as good; what lies outside is the fault of a device or of a config.

    Bounds are the records on Earth with some room: wind 113 m/s (Barrow Island 1996, a gust of 3 s),
    temperature -89 to 57 Cel (Vostok, Furnace Creek), pressure 34 kPa on Everest and 108.5 at Tosontsengel.
    A zero may drift by a hundredth of what the quantity can be. Directions may be written as -180 to 180, and
    a state may be any number: neither's size is averaged.
    """
    known = QUANTITIES.get(name)
    if known is None or known.kind == "state":
        return -_WIDEST, _WIDEST
    if known.kind == "direction":
        return -known.upper, known.upper
    return known.lower or -known.upper / 100.0, known.upper


KIND: Final = "quantity_kind"
"""Field of a reading whose quantity isn't built in, and not linear."""


def kind_field(quantity: Quantity) -> dict[str, str]:
    """What a reading of a quantity has beside the usual fields: its kind, unless readers take it for that."""
    return {} if quantity.name in QUANTITIES or quantity.kind == "linear" else {KIND: quantity.kind}


def unit_problem(quantity: str, unit: str) -> str | None:
    """What is wrong with a unit; None where it is right, or the quantity isn't one that is built in."""
    known = QUANTITIES.get(quantity)
    return None if known is None or known.unit == unit else f"{quantity} is in {known.unit}, not {unit}"
