"""The drivers by name: those built in, and those of installed packages.

A package offers drivers through the entry point group ``fieldgate.drivers``: name = a module with ``TYPE``.
A module is loaded when its driver is requested. A package can't replace a built-in driver, and every fault of
its code is a BrokenDriverError for the sensors that use it.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from drivers.driver_type import DriverType
from drivers.interface import DriverError

PLUG_INS: Final = "fieldgate.drivers"
"""The entry point group."""

DRIVERS: Final = (
    "analog", "bp20", "dht11", "gpsd", "hall-anemometer", "iio", "modbus", "pulse", "pyranometer",
    "scd4x", "w1", "wind-vane",
)  # fmt: skip
"""The built-in drivers; each is described in ``TYPE`` of its module."""
_GENERIC: Final = frozenset({"analog", "modbus", "pulse", "w1"})
"""Those whose module is in ``generic``."""

_loaded: dict[str, DriverType] = {}


class UnknownDriverError(DriverError):
    """No driver has this name."""


class BrokenDriverError(DriverError):
    """An installed package's driver can't be used; the message names the package and the fault."""


def driver_names() -> tuple[str, ...]:
    """All names: the built-in drivers', then those of installed packages."""
    return tuple(dict.fromkeys((*DRIVERS, *sorted(entry_points(group=PLUG_INS).names))))


def driver_type(name: str) -> DriverType:
    """A driver by its name in the configuration.

    Raises UnknownDriverError, which lists the names, and BrokenDriverError.
    """
    if name not in _loaded:
        module = f"drivers.{'generic.' if name in _GENERIC else ''}{name.replace('-', '_')}"
        _loaded[name] = importlib.import_module(module).TYPE if name in DRIVERS else _plug_in(name)
    return _loaded[name]


@contextmanager
def guarded(name: str) -> Iterator[None]:
    """Turn what a package's code raises into BrokenDriverError, except DriverErrors.

    Defects of built-in drivers are raised as they are.
    """
    try:
        yield
    except DriverError:
        raise
    # Third-party code: a mast must not stop because of a package it may not even use.
    except (Exception, SystemExit) as error:
        if name in DRIVERS:
            raise
        why = f"{type(error).__name__}: {error}".rstrip(": ")
        raise BrokenDriverError(f"driver {name!r} is broken: {why}") from error


def _plug_in(name: str) -> DriverType:
    entries = tuple(entry_points(group=PLUG_INS, name=name))
    if not entries:
        raise UnknownDriverError(f"no driver {name!r}; there are {', '.join(driver_names())}")
    if len(entries) > 1:
        owners = " and ".join(_origin(entry) for entry in entries)
        raise BrokenDriverError(f"driver {name!r} is offered by {owners}: uninstall one of them")
    [entry] = entries
    try:
        with guarded(name):
            found = getattr(entry.load(), "TYPE", None)
    except BrokenDriverError as error:
        raise BrokenDriverError(f"{error} ({_origin(entry)})") from error
    if not isinstance(found, DriverType):
        raise BrokenDriverError(f"{_origin(entry)} has no TYPE that is a DriverType")
    if found.name != name:
        raise BrokenDriverError(f"{_origin(entry)} calls itself {found.name!r}, its entry point {name!r}")
    if not dataclasses.is_dataclass(found.options):
        raise BrokenDriverError(f"{_origin(entry)}: its options must be a dataclass")
    return found


def _origin(entry: EntryPoint) -> str:
    package = f"package {entry.dist.name!r}" if entry.dist is not None else "a package"
    return f"{entry.value} of {package}"
