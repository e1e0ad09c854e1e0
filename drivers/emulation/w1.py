"""The kernel's 1-Wire bus, emulated: what w1_therm prints of each thermometer's nine bytes."""

from __future__ import annotations

import errno
from collections.abc import Callable

Scratchpad = Callable[[], bytes | None]
"""A thermometer's nine bytes now; None where it is dead, and doesn't answer."""


class EmulatedW1:
    """Thermometers by their id."""

    def __init__(self) -> None:
        self.slaves: dict[str, Scratchpad] = {}
        self._right: dict[str, bytes] = {}

    def devices(self) -> tuple[str, ...]:
        """Those that answer, and the bus's own master."""
        return (*(device for device, slave in self.slaves.items() if slave() is not None), "w1_bus_master1")

    def read(self, device: str) -> str:
        """What ``w1_slave`` prints. Raises OSError where no such thermometer answers."""
        found = self.slaves[device]() if device in self.slaves else None
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", f"{device}/w1_slave")
        good = _crc(found[:8]) == found[8]
        if good:
            self._right[device] = found
        # As the kernel does, which keeps the last bytes that were right.
        kept = self._right.get(device, bytes(9))
        millidegrees = int.from_bytes(kept[:2], "little", signed=True) * 1000 // 16
        words = f"{found.hex(' ')} : crc={_crc(found[:8]):02x} {'YES' if good else 'NO'}"
        return f"{words}\n{kept.hex(' ')} t={millidegrees}\n"


def _crc(data: bytes) -> int:
    crc = 0
    for bit in (byte >> place & 1 for byte in data for place in range(8)):
        crc = crc >> 1 ^ (0x8C if (crc ^ bit) & 1 else 0)
    return crc
