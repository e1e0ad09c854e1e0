"""The kernel's IIO devices, emulated: attributes whose texts are made from the environment's values."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from drivers.interface import IioDevice

Attribute = Callable[[], str | None]
"""An attribute's text now; None where the sensor behind it is dead."""


@dataclass(frozen=True, slots=True)
class _Chip:
    device: IioDevice
    attributes: dict[str, Attribute]


class EmulatedIio:
    """Devices that come and go: one for each name and place, whoever reads its attributes."""

    def __init__(self) -> None:
        self._chips: dict[tuple[str, str | None], _Chip] = {}
        self._nodes = 0

    def add(self, name: str, place: str | None, attributes: Mapping[str, Attribute]) -> Callable[[], None]:
        """Attributes of a device; calling the result removes them, the device with its last one."""
        chips = dict(self._chips)
        chip = chips.get((name, place))
        if chip is None:
            node = f"iio:device{self._nodes}"
            self._nodes += 1
            places = (place, node) if place is not None else (node,)
            chip = chips[name, place] = _Chip(IioDevice(node, name, places), {})
        chip.attributes.update(attributes)
        self._chips = chips

        def remove() -> None:
            for attribute in attributes:
                del chip.attributes[attribute]
            if not chip.attributes:
                self._chips = {key: other for key, other in self._chips.items() if other is not chip}

        return remove

    def devices(self) -> tuple[IioDevice, ...]:
        """The devices there are now."""
        return tuple(chip.device for chip in self._chips.values())

    def attributes(self, node: str) -> tuple[str, ...]:
        """The names of a device's attributes. Raises OSError where it has gone."""
        return tuple(sorted(self._at(node)))

    def read(self, node: str, attribute: str) -> str:
        """An attribute's text. Raises OSError as the kernel does: EIO where the sensor is dead."""
        source = self._at(node).get(attribute)
        if source is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", f"{node}/{attribute}")
        text = source()
        if text is None:
            raise OSError(errno.EIO, "Input/output error", f"{node}/{attribute}")
        return text

    def _at(self, node: str) -> Mapping[str, Attribute]:
        for chip in self._chips.values():
            if chip.device.node == node:
                return chip.attributes
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", node)
