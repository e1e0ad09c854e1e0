"""A station of many instruments: the examples' rain, river, vane and inverter, and a second vane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tomlkit

from drivers.emulation.environment import FaultKind

EXAMPLES: Final = Path(__file__).parents[2] / "docs" / "examples"
_SECOND_VANE: Final = {
    "name": "wind-b",
    "driver": "wind-vane",
    "adc": {"address": 0x49, "input": 0},
    "supply_input": 1,
    "height_m": 6,
    "north_offset_deg": 0,
    "pair": "wind",
}


@dataclass(frozen=True)
class Unplugged:
    """A sensor whose plug is out: doctor's state and words, its readings' quality and reasons."""

    state: str
    words: str
    quality: int
    reasons: tuple[str, ...]


_OPEN_WIPER: Final = Unplugged("warning", "the vane points into its dead band", 3, ("DEAD_BAND",))
_SILENT: Final = Unplugged("error", "unit 126 at 192.168.1.50:502 doesn't answer", 9, ("READ_ERROR",))
UNPLUGGED: Final[Mapping[str, Unplugged]] = {
    # A contact that is never closed is dry weather, to all that can be measured.
    "rain": Unplugged("ok", "", 1, ()),
    "level": Unplugged(
        "error", "0 mA is less than 3.6: the loop is broken or has no supply", 9, ("READ_ERROR",)
    ),
    "water": Unplugged("error", "check its wires", 9, ("READ_ERROR",)),
    "wind": _OPEN_WIPER,
    "wind-b": _OPEN_WIPER,
    "battery": Unplugged("error", "0.000 V: below the range", 4, ("UNDER_RANGE",)),
    "inverter": _SILENT,
    "inverter-energy": _SILENT,
}
DEVICES: Final = dict.fromkeys(("inverter", "inverter-energy"), ("inverter", "inverter-energy"))
"""Sensors of one device, with one plug."""


def off(sensor: str) -> FaultKind:
    """The fault that unplugs a sensor."""
    return "stuck" if sensor == "rain" else "open-input"


def station_text(board: Mapping[str, Any], intervals_s: Sequence[int] = ()) -> str:
    """The config file; sensors with one of these intervals (s) get their driver's own."""
    config = _example("river")
    sensors = config["sensor"] + [_SECOND_VANE]
    sensors += [each for each in _example("solar")["sensor"] if each["name"].startswith("inverter")]
    for sensor in sensors:
        if sensor["name"] == "wind":
            sensor["pair"] = "wind-b"
        if sensor.get("interval_s") in intervals_s:
            del sensor["interval_s"]
    return tomlkit.dumps(config | {"sensor": sensors, "board": {"kind": "simulated", **board}})


def _example(name: str) -> dict[str, Any]:
    return tomlkit.parse((EXAMPLES / f"{name}.toml").read_text()).unwrap()
