"""The kernel's IIO devices, emulated: attributes whose texts are made from the environment's values."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping

from drivers.interface import IioDevice

Attribute = Callable[[], str | None]
"""An attribute's text now; None where the sensor behind it is dead."""


class EmulatedIio:
    """Devices that come and go, each with its last attribute: one for each name and place."""

    def __init__(self) -> None:
        self._attributes: Mapping[tuple[IioDevice, str], Attribute] = {}

    def add(self, name: str, place: str | None, attributes: Mapping[str, Attribute]) -> Callable[[], None]:
        """Attributes of a device; calling the result removes them."""
        node = f"iio:{name}" if place is None else f"iio:{name}@{place}"
        device = IioDevice(node, name, (node,) if place is None else (place, node))
        added = {(device, attribute): text for attribute, text in attributes.items()}
        # A new mapping each time: a sampler may be iterating over the old one.
        self._attributes = {**self._attributes, **added}

        def remove() -> None:
            self._attributes = {key: text for key, text in self._attributes.items() if key not in added}

        return remove

    def devices(self) -> tuple[IioDevice, ...]:
        """The devices there are now."""
        return tuple(dict.fromkeys(device for device, _ in self._attributes))

    def attributes(self, node: str) -> tuple[str, ...]:
        """The names of a device's attributes. Raises OSError where it has gone."""
        found = sorted(attribute for device, attribute in self._attributes if device.node == node)
        if not found:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", node)
        return tuple(found)

    def read(self, node: str, attribute: str) -> str:
        """An attribute's text. Raises OSError as the kernel does: EIO where the sensor is dead."""
        for (device, name), text in self._attributes.items():
            if (device.node, name) == (node, attribute):
                found = text()
                if found is None:
                    raise OSError(errno.EIO, "Input/output error", f"{node}/{attribute}")
                return found
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", f"{node}/{attribute}")
