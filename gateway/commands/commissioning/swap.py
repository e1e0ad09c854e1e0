"""Another instrument in a sensor's place: what changes in the config, and what stays. Pure.

What belongs to one instrument alone (its slope, its certificate) never stays by itself: the new one would
carry the old one's.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from drivers.registry import driver_type
from gateway.commands.arguments import CommandError
from gateway.commands.commissioning.toml_edit import CannotEdit, edited, sensor_table
from gateway.config.keys import field_names

OPTIONS: Final[Mapping[str, str]] = {
    "slope": "--slope",
    "offset": "--offset",
    "calibrated": "--date",
    "certificate": "--certificate",
    "expires": "--expires",
}
"""Keys of one instrument alone, and their options."""

_STAYS: Final = ("model", "lab", "accuracy", "range", "recalibrate_months")
_REPORTED: Final = ("model", "serial", "lab", "certificate", "calibrated", "expires", "slope", "offset")


class CannotSwap(CommandError):
    """The swap can't be made. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Swap:
    """A sensor's new figures, as TOML by key; ``keep`` and ``remove`` are of the old one's."""

    sensor: str
    values: Mapping[str, str]
    keep: Collection[str] = ()
    remove: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The file before and after; what stays of the old one; what the event reports."""

    before: bytes
    after: bytes
    stays: Mapping[str, Any]
    changes: Mapping[str, tuple[Any, Any]]

    @property
    def diff(self) -> str:
        """What changes, as ``diff -u`` shows it."""
        old, new = (
            each.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").splitlines()
            for each in (self.before, self.after)
        )
        lines = list(difflib.unified_diff(old, new, "before", "after", n=2, lineterm=""))
        return "\n".join(lines[2:])


def plan(content: bytes, swap: Swap) -> Plan:
    """What a swap does to a config's text. Raises CannotSwap, also where a figure is missing."""
    try:
        table = sensor_table(content, swap.sensor)
        _check(table, swap)
        after = edited(content, swap.sensor, swap.values, swap.remove)
        new = sensor_table(after, swap.sensor)
    except CannotEdit as error:
        raise CannotSwap(str(error)) from error
    changes = {key: (table.get(key), new.get(key)) for key in _REPORTED if table.get(key) != new.get(key)}
    stays = {key: table[key] for key in (*_STAYS, *swap.keep) if key in table and table[key] == new.get(key)}
    return Plan(content, after, stays, changes)


def _check(table: Mapping[str, Any], swap: Swap) -> None:
    known = driver_type(str(table.get("driver")))
    options = field_names(known.options)
    for key in ("slope", "offset"):
        if key in swap.values and key not in options:
            has = "has its slopes in channels" if "channels" in options else f"has no {key}"
            raise CannotSwap(f"{swap.sensor}: {known.name} {has}: leave {OPTIONS[key]} out, edit the file")
    for key in (*swap.keep, *swap.remove):
        if key not in OPTIONS and key not in _STAYS:
            those = ", ".join((*OPTIONS, *_STAYS))
            raise CannotSwap(f"{key} isn't one of a certificate ({those}): edit the file")
    for key in swap.remove:
        if key in swap.values or key in swap.keep:
            raise CannotSwap(f"{key} can't be removed and given or kept at once")
    open_ = [key for key in OPTIONS if key in table and key not in {*swap.values, *swap.keep, *swap.remove}]
    if open_:
        lines = "\n".join(f"  {key} = {table[key]}: {OPTIONS[key]} …" for key in open_)
        raise CannotSwap(
            f"{swap.sensor} still has the old one's:\n{lines}\n"
            f"give the new one's, or --keep {open_[0]} where it is the same, or --remove {open_[0]}"
        )
