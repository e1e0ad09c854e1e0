"""A Raspberry Pi: RPi.GPIO (or rpi-lgpio, which offers the same module), Blinka's I2C, gpsd over TCP.

Nothing is imported or opened before a driver starts, so a configuration can be checked on any machine.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from drivers.interface import BoardError, Clock, FittedSensor, Gpio, I2cBus, LineStream
from drivers.line_stream import TcpLines
from drivers.quiet_import import quiet_import

_GPIO_REMEDY: Final = (
    "pins need a Raspberry Pi and fieldgate's extra 'pi' (rpi-lgpio) or, on kernels before 6.6, 'pi-legacy'; "
    'elsewhere use [board] kind = "simulated" or "replay"'
)
_I2C_REMEDY: Final = (
    "I2C needs a Raspberry Pi with dtparam=i2c_arm=on in config.txt, the group 'i2c' and the extra 'pi'; "
    'elsewhere use [board] kind = "simulated" or "replay"'
)


@dataclass(frozen=True, slots=True)
class PiOptions:
    """A Raspberry Pi needs no settings: pins are BCM numbers, the bus is the header's (SDA and SCL)."""


class PiBoard:
    """The real hardware; time is the machine's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._i2c: Any = None

    @property
    def clock(self) -> Clock | None:
        """None: the machine's own."""
        return None

    def monotonic(self) -> float:
        """The machine's monotonic seconds."""
        return time.monotonic()

    def gpio(self) -> Gpio:
        """The RPi.GPIO module. Raises BoardError away from a Pi."""
        return cast(Gpio, quiet_import("RPi.GPIO", _GPIO_REMEDY))

    def i2c(self) -> I2cBus:
        """The header's I2C bus, opened once. Raises BoardError."""
        with self._lock:
            if self._i2c is None:
                pins, busio = quiet_import("board", _I2C_REMEDY), quiet_import("busio", _I2C_REMEDY)
                try:
                    self._i2c = busio.I2C(pins.SCL, pins.SDA)
                except (ImportError, AttributeError, ValueError, RuntimeError, OSError) as error:
                    raise BoardError(f"the I2C bus can't be opened ({error}): {_I2C_REMEDY}") from error
            return cast(I2cBus, self._i2c)

    def dht_edges(self, pin: int) -> Callable[[], array[int]] | None:
        """None: Adafruit's library times the real line."""
        return None

    def connect_gpsd(self, host: str, port: int) -> LineStream:
        """A connection to gpsd. Raises ReadError."""
        return TcpLines(host, port)

    def refit(self, sensors: Sequence[FittedSensor]) -> Callable[[], None]:
        """Nothing to prepare: each driver claims its own pin or chip when it starts."""
        return lambda: None

    def close(self) -> None:
        """Release the bus."""
        with self._lock:
            bus, self._i2c = self._i2c, None
        if bus is not None:
            bus.deinit()
