"""Units of loggers' files in those of the lake's quantities."""

from __future__ import annotations

from typing import Final

Scale = tuple[float, float]
"""Slope and offset: a value in the lake's unit is slope · value + offset."""

_TO: Final[dict[str, dict[str, Scale]]] = {
    "m/s": {"km/h": (1 / 3.6, 0.0), "kn": (1852 / 3600, 0.0), "mph": (0.44704, 0.0)},
    "Cel": {
        "degC": (1.0, 0.0), "deg C": (1.0, 0.0), "°C": (1.0, 0.0), "C": (1.0, 0.0), "K": (1.0, -273.15),
        "degF": (5 / 9, -160 / 9), "°F": (5 / 9, -160 / 9),
    },
    "kPa": {
        "hPa": (0.1, 0.0), "mbar": (0.1, 0.0), "Pa": (0.001, 0.0), "bar": (100.0, 0.0),
        "mmHg": (0.133322387415, 0.0), "inHg": (3.386389, 0.0),
    },
    "%RH": {"%": (1.0, 0.0), "1": (100.0, 0.0)},
    "deg": {"°": (1.0, 0.0), "degree": (1.0, 0.0), "degrees": (1.0, 0.0)},
    "W/m2": {"W/m^2": (1.0, 0.0), "W/m²": (1.0, 0.0), "kW/m2": (1000.0, 0.0)},
    "mm": {"in": (25.4, 0.0), "inch": (25.4, 0.0)},
    "V": {"mV": (0.001, 0.0), "Volts": (1.0, 0.0)},
    "A": {"mA": (0.001, 0.0)},
    "W": {"kW": (1000.0, 0.0)},
    "kW.h": {"kWh": (1.0, 0.0), "Wh": (0.001, 0.0), "W.h": (0.001, 0.0), "MWh": (1000.0, 0.0)},
}  # fmt: skip
"""The scales by the lake's unit; both of two signs for one unit."""


def into(unit: str, given: str) -> Scale | None:
    """Returns the scale from ``given`` to ``unit``; None where it isn't known."""
    return (1.0, 0.0) if given == unit else _TO.get(unit, {}).get(given)


def known(unit: str) -> list[str]:
    """The units that become this one."""
    return [unit, *_TO.get(unit, {})]
