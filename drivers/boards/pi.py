"""A Raspberry Pi: its kernel's GPIO chip, RPi.GPIO or rpi-lgpio, Blinka's I2C, gpsd over TCP.

Nothing is imported or opened before a driver starts, so a configuration can be checked on any machine.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

from drivers.boards.registry import PiOptions
from drivers.hardware.bus_lock import SharedI2c
from drivers.hardware.gpio_chip import ChipCounter, ChipOutput, Kernel, pin_user
from drivers.hardware.lines import SocketLines
from drivers.hardware.modbus_line import ModbusLine, ModbusLines
from drivers.hardware.quiet_import import quiet_import
from drivers.hardware.rpi_gpio import CallbackCounter, gpio_errors, gpio_library
from drivers.hardware.sysfs import SysfsIio, SysfsW1
from drivers.interface import (
    BoardError,
    Clock,
    EdgeCounter,
    FittedSensor,
    I2cBus,
    Iio,
    LineStream,
    ModbusPort,
    OutputPin,
)

_I2C_REMEDY: Final = (
    "I2C needs a Raspberry Pi with dtparam=i2c_arm=on in config.txt, the group 'i2c' and the extra 'pi'; "
    'elsewhere use [board] kind = "simulated" or "replay"'
)


def raw_monotonic() -> float:
    """Seconds by the oscillator alone: a time server's client may slew CLOCK_MONOTONIC by 8 % (chrony)."""
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)


class PiBoard:
    """The real hardware; time is the machine's, ``monotonic`` as its oscillator counts."""

    clock: Clock | None = None

    def __init__(
        self,
        options: PiOptions | None = None,
        kernel: Kernel | None = None,
        monotonic: Callable[[], float] = raw_monotonic,
    ) -> None:
        self.monotonic = monotonic
        self._counting = (options or PiOptions()).counting
        self._kernel = kernel or Kernel()
        self._lock = threading.Lock()
        self._i2c: Any = None
        self._shared: SharedI2c | None = None
        self._modbus = ModbusLines()

    def count_edges(self, pin: int) -> EdgeCounter:
        """Count a pin's falling edges by the board's option ``counting``. Raises BoardError."""
        if self._counting == "kernel":
            return ChipCounter(self._kernel, pin)
        return CallbackCounter(gpio_library(), pin, gpio_errors())

    def drive(self, pin: int, *, high: bool, pull_up: bool) -> OutputPin:
        """Drive a pin by the kernel. Raises BoardError."""
        return ChipOutput(self._kernel, pin, high=high, pull_up=pull_up)

    def pin_user(self, pin: int) -> str | None:
        """Returns the program that holds the pin, as the kernel names it. Raises BoardError."""
        return pin_user(self._kernel, pin)

    def i2c(self) -> I2cBus:
        """The header's I2C bus, opened once. Raises BoardError."""
        with self._lock:
            if self._shared is None:
                pins, busio = quiet_import("board", _I2C_REMEDY), quiet_import("busio", _I2C_REMEDY)
                try:
                    self._i2c = busio.I2C(pins.SCL, pins.SDA)
                except (ImportError, AttributeError, ValueError, RuntimeError, OSError) as error:
                    raise BoardError(f"the I2C bus can't be opened ({error}): {_I2C_REMEDY}") from error
                self._shared = SharedI2c(self._i2c)
            return self._shared

    def dht_edges(self, pin: int) -> Callable[[], array[int]] | None:
        """None: Adafruit's library times the real line."""
        return None

    def w1(self) -> SysfsW1:
        """The kernel's 1-Wire bus, in sysfs."""
        return SysfsW1()

    def connect_gpsd(self, host: str, port: int) -> LineStream:
        """A connection to gpsd. Raises ReadError."""
        return SocketLines.connect(host, port)

    def iio(self) -> Iio:
        """The kernel's IIO devices, in sysfs."""
        return SysfsIio()

    def modbus(self, port: ModbusPort) -> ModbusLine:
        """The Modbus devices at a port. Raises BoardError where pymodbus isn't installed."""
        return self._modbus.line(port)

    def refit(self, sensors: Sequence[FittedSensor]) -> Callable[[], None]:
        """Nothing to prepare: each driver claims its own pin or chip when it starts."""
        return lambda: None

    def close(self) -> None:
        """Release the buses."""
        self._modbus.close()
        with self._lock:
            bus, self._i2c, self._shared = self._i2c, None, None
        if bus is not None:
            bus.deinit()
