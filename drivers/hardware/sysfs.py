"""The kernel's IIO and 1-Wire devices through sysfs; a read blocks without holding the interpreter.

Sources: Linux, Documentation/ABI/testing/sysfs-bus-iio and Documentation/w1/slaves/w1_therm.rst.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from drivers.interface import IioDevice

IIO_DEVICES: Final = Path("/sys/bus/iio/devices")
_MAX_BYTES: Final = 4096
"""A sysfs attribute is at most a page."""


class SysfsIio:
    """Devices and their attributes as files below ``root``; a read blocks without holding the interpreter."""

    def __init__(self, root: Path = IIO_DEVICES) -> None:
        self._root = root

    def devices(self) -> tuple[IioDevice, ...]:
        """The devices there are now; none where the kernel has no IIO, or none that is readable."""
        try:
            nodes = sorted(each for each in self._root.iterdir() if each.name.startswith("iio:device"))
        except OSError:
            return ()
        found = []
        for node in nodes:
            name = self._text(node / "name")
            if name is not None:
                found.append(IioDevice(node.name, name, self._places(node)))
        return tuple(found)

    def attributes(self, node: str) -> tuple[str, ...]:
        """The names of a device's files. Raises OSError where it has gone."""
        return tuple(sorted(each.name for each in (self._root / node).iterdir() if each.is_file()))

    def read(self, node: str, attribute: str) -> str:
        """An attribute's text. Raises OSError with the kernel driver's error."""
        descriptor = os.open(self._root / node / attribute, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _MAX_BYTES).decode("utf-8", "replace").strip()
        finally:
            os.close(descriptor)

    def _places(self, node: Path) -> tuple[str, ...]:
        """What distinguishes this device from another of its name, the most stable first."""
        label = self._text(node / "label")
        # …/i2c-1/1-0048/iio:device0: the parent is the chip on its bus.
        chip = node.resolve().parent.name
        tree = (node / "of_node").resolve().name if (node / "of_node").exists() else None
        return tuple(dict.fromkeys(place for place in (label, chip, tree, node.name) if place))

    @staticmethod
    def _text(path: Path) -> str | None:
        try:
            return path.read_text(errors="replace").strip()
        except OSError:
            return None


W1_DEVICES: Final = Path("/sys/bus/w1/devices")


class SysfsW1:
    """Devices as directories below ``root``; a read blocks without holding the interpreter."""

    def __init__(self, root: Path = W1_DEVICES) -> None:
        self._root = root

    def devices(self) -> tuple[str, ...]:
        """The devices there are now; none where the kernel has no bus."""
        try:
            return tuple(sorted(each.name for each in self._root.iterdir()))
        except OSError:
            return ()

    def read(self, device: str) -> str:
        """What a thermometer's ``w1_slave`` prints, measured now. Raises OSError."""
        return (self._root / device / "w1_slave").read_text(errors="replace")
