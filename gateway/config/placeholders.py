"""What ``fieldgate init`` writes where only the installer knows the value: first it has to be filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gateway.config.problems import KeyPath
from gateway.config.source import Source

PLACEHOLDER: Final = "CHANGE-ME"


def report(source: Source) -> None:
    """An error for each value that is still to be filled in, and no other for it."""
    for path in list(_left(source.raw)):
        source.error(path, f"is still to be filled in: put the right value in place of {PLACEHOLDER}")
        source.told.add(path)


def _left(value: object, path: KeyPath = ()) -> Iterable[KeyPath]:
    if isinstance(value, str):
        if PLACEHOLDER in value.upper().replace("_", "-"):
            yield path
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _left(item, (*path, key))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _left(item, (*path, position))
