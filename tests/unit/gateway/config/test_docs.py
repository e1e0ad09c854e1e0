"""Where the pages on the config have a key in a table, default and bounds are what holds.

All keys are printed by ``fieldgate schema --keys``, of the models themselves.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from cloud.toml_models import Key, keys_of
from cloud.wire.quantities import QUANTITIES, Kind
from drivers.ads1115 import AdcOptions
from drivers.registry import DRIVERS, driver_type
from gateway.config import model
from gateway.config.model import SECTIONS
from gateway.config.template import bounds, toml

DOCS = Path(__file__).parents[4] / "docs"
TEXT = "\n".join((DOCS / page).read_text(encoding="utf-8") for page in ("configure.md", "sensors.md"))

PLACES: dict[str, tuple[str, type[Any]]] = {
    **{f"[{name}]": (rf"## \[{name}\]", SECTIONS[name]) for name in ("outbox", "clock")},
    "[[sensor]]": (r"## \[\[sensor\]\]", model.SensorCommon),
    "adc": (r"## `adc`", AdcOptions),
    **{name: (rf"## Driver `{name}`", driver_type(name).options) for name in DRIVERS},
}

# Defaults that depend on something else, and how the table has it.
DEFAULTS = {
    ("[clock]", "trust"): '`"kernel"` on a Raspberry Pi, else `"always"`',
    ("[[sensor]]", "interval_s"): "`1`, or the driver's shortest where that is longer",
    ("analog", "slope"): "none: 1, where the quantity is in the signal's unit",
    ("analog", "signal_range"): "none; with a shunt `[3.6, 21]`",
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


ROWS = [
    (place, key, row)
    for place, (heading, kind) in PLACES.items()
    for row_name, row in _rows(heading).items()
    for key in keys_of(kind)
    if key.name == row_name and len(row) == 3
]


def test_tables_of_keys_are_found() -> None:
    assert len({place for place, _, _ in ROWS}) >= 7


@pytest.mark.parametrize(("place", "key", "row"), ROWS, ids=lambda each: getattr(each, "name", None))
def test_default_and_bounds_in_the_docs_are_the_codes(place: str, key: Key, row: list[str]) -> None:
    default, unit, _ = row
    assert default in _default(place, key, default)
    if '"' not in bounds(key):
        for figure in re.findall(r"0x[0-9a-f]+|-?\d+(?:\.\d+)?(?: [MP]iB)?", bounds(key)):
            assert figure in unit.replace(",", ""), f"{key.name}: {bounds(key)}"
    else:
        for choice in bounds(key).split(" or "):
            assert choice in unit or choice.strip('"') in unit, f"{key.name}: {bounds(key)}"
