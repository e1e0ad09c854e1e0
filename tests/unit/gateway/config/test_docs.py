"""The pages on the config have for each key what holds: its default and its bounds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from cloud.toml_models import Key, keys_of
from cloud.wire.quantities import QUANTITIES, Kind
from drivers.ads1115 import AdcOptions
from drivers.boards.registry import ReplayOptions, SimulatedOptions
from drivers.registry import DRIVERS, driver_type
from gateway.config import model
from gateway.config.bridges.model import DownlinkConfig, DropIf, ForwardConfig
from gateway.config.model import SECTIONS
from gateway.config.outputs import ActuatorConfig, InterlockConfig
from gateway.config.quantities import QuantityConfig
from gateway.config.template import bounds, toml

DOCS = Path(__file__).parents[4] / "docs"
TEXT = "\n".join(
    (DOCS / page).read_text(encoding="utf-8")
    for page in ("configure.md", "sensors.md", "forward.md", "simulate.md")
)

PLACES: dict[str, tuple[str, type[Any]]] = {
    **{f"[{name}]": (rf"## \[{name}\]", kind) for name, kind in SECTIONS.items()},
    "simulated": (r"## Board `simulated`", SimulatedOptions),
    "replay": (r"## Board `replay`", ReplayOptions),
    "[[sensor]]": (r"## \[\[sensor\]\]", model.SensorCommon),
    "[[forward]]": (r"## \[\[forward\]\]", ForwardConfig),
    "[[downlink]]": (r"## \[\[downlink\]\]", DownlinkConfig),
    "[[quantity]]": (r"## \[\[quantity\]\]", QuantityConfig),
    "[[actuator]]": (r"## \[\[actuator\]\]", ActuatorConfig),
    "[[interlock]]": (r"## \[\[interlock\]\]", InterlockConfig),
    "drop_if": (r"## \[\[forward\]\]", DropIf),
    "adc": (r"## `adc`", AdcOptions),
    **{name: (rf"## Driver `{name}`", driver_type(name).options) for name in DRIVERS},
}

# Defaults that depend on something else, and how the table has it.
DEFAULTS = {
    ("[clock]", "trust"): '`"kernel"` on a Raspberry Pi, else `"always"`',
    ("[[sensor]]", "interval_s"): "`1`, or the driver's shortest where that is longer",
    ("bp20", "adc"): "input 0, 6.144 V",
    ("pyranometer", "adc"): 'input `"2-3"`, 0.256 V',
    ("analog", "adc"): "input 0, 6.144 V",
    ("wind-vane", "adc"): "input 0, 4.096 V, 3.3 V",
    ("analog", "slope"): "none: 1, where the quantity is in the signal's unit",
    ("analog", "signal_range"): "none; with a shunt `[3.6, 21]`",
    ("w1", "device"): "none: the only one there is",
}


def _rows(heading: str) -> dict[str, list[str]]:
    """The tables' rows below a heading, by key: default, and unit and bounds."""
    found = re.search(rf"^{heading}.*?(?=^##+ |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    rows: dict[str, list[str]] = {}
    for name, rest in re.findall(r"^\| `(\w+)` \|(.*)\|$", found[0], re.MULTILINE):
        # The section's own table comes before those of the tables within.
        rows.setdefault(name, [cell.strip() for cell in rest.split("|")])
    return rows


def _default(place: str, key: Key, given: str) -> set[str]:
    if (place, key.name) in DEFAULTS:
        return {DEFAULTS[place, key.name]}
    if key.default is None:
        # In words, where something else stands in for it.
        return {given} if "`" not in given and given != "required" else {"none"}
    if key.required:
        return {"required"}
    if key.default in ({}, ()):
        return {"none"}
    if isinstance(key.default, str | Path):
        return {f"`{toml(key.default)}`"}
    size = key.default if isinstance(key.default, int) else 0
    return {
        f"`{toml(key.default)}`",
        f"`{key.default:g}`" if isinstance(key.default, float) else "",
        f"`{hex(size)}`",
        f'`"{size >> 30}GiB"`',
        f'`"{size >> 20}MiB"`',
    }


def test_the_docs_have_the_quantities_that_are_built_in() -> None:
    rows = (
        f"| `{each.name}` | {each.unit} | {each.kind} | {each.lower:,.0f} to {each.upper:,.0f} |"
        for each in QUANTITIES.values()
    )
    assert "\n" + "\n".join(rows) + "\n\n" in TEXT
    assert all(f"| `{kind}` |" in TEXT for kind in get_args(Kind))


CASES = [(place, key.name) for place, (_, kind) in PLACES.items() for key in keys_of(kind)]


@pytest.mark.parametrize(("place", "name"), CASES)
def test_default_and_bounds_in_the_docs_are_the_codes(place: str, name: str) -> None:
    heading, kind = PLACES[place]
    key = next(key for key in keys_of(kind) if key.name == name)
    rows = _rows(heading)
    assert name in rows, f"no row for {name} below {heading} in the pages of keys"
    default, unit, _ = rows[name]
    if (place, name) not in {("[[forward]]", "quantity"), ("[[forward]]", "unit"), ("[[forward]]", "path"),
                             ("[[forward]]", "channel"), ("[[forward]]", "raw_unit")}:  # fmt: skip
        assert default in _default(place, key, default)
    if '"' not in bounds(key):
        for figure in re.findall(r"0x[0-9a-f]+|-?\d+(?:\.\d+)?(?: [MP]iB)?", bounds(key)):
            assert figure in unit.replace(",", ""), f"{name}: {bounds(key)}"
    else:
        for choice in bounds(key).split(" or "):
            assert choice in unit or choice.strip('"') in unit, f"{name}: {bounds(key)}"
