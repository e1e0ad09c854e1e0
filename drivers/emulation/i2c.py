"""An I2C bus with emulated devices, as busio.I2C offers it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from drivers.driver_type import I2cDevice


class EmulatedI2c:
    """A bus over devices by address; an address without a device raises OSError like Linux does."""

    def __init__(self, devices: Mapping[int, I2cDevice]) -> None:
        self.devices = dict(devices)
        self._lock = threading.Lock()

    def try_lock(self) -> bool:
        """Lock the bus, if it is free."""
        return self._lock.acquire(blocking=False)

    def unlock(self) -> None:
        """Unlock the bus."""
        self._lock.release()

    def writeto(self, address: int, buffer: Any, *, start: int = 0, end: int | None = None) -> None:
        """Write bytes to a device."""
        self._device(address).write(bytes(buffer[start:end]))

    def readfrom_into(self, address: int, buffer: Any, *, start: int = 0, end: int | None = None) -> None:
        """Read bytes from a device."""
        stop = len(buffer) if end is None else end
        buffer[start:stop] = self._device(address).read(stop - start)

    def writeto_then_readfrom(
        self,
        address: int,
        out_buffer: Any,
        in_buffer: Any,
        *,
        out_start: int = 0,
        out_end: int | None = None,
        in_start: int = 0,
        in_end: int | None = None,
    ) -> None:
        """Write, then read, in one go."""
        self.writeto(address, out_buffer, start=out_start, end=out_end)
        self.readfrom_into(address, in_buffer, start=in_start, end=in_end)

    def _device(self, address: int) -> I2cDevice:
        device = self.devices.get(address)
        if device is None:
            raise OSError(121, f"no device answers at 0x{address:02x}")
        return device
