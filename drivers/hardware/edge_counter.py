"""Falling edges counted through the RPi.GPIO interface: one callback for each, from the library's own thread.

RPi.GPIO 0.7.1 and rpi-lgpio 0.6 report neither when an edge came nor whether one was lost. Debouncing is off:
rpi-lgpio's ``bouncetime`` suppresses whole trains of quick pulses.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from drivers.interface import BoardError, Edges, ReadError


class CallbackCounter:
    """Counts one pin by callbacks. The count only grows; ``take`` returns the difference of two snapshots.

    Resetting the count after reading it would lose an edge between the two. ``gpio`` is the module RPi.GPIO;
    ``errors`` are what it raises beside RuntimeError, ValueError and OSError.
    """

    method = "RPi.GPIO callbacks"
    timed = False

    def __init__(self, gpio: Any, pin: int, errors: tuple[type[Exception], ...]) -> None:
        """Claim the pin. Raises BoardError."""
        self._gpio: Any = None
        self._pin = pin
        self._errors: tuple[type[Exception], ...] = (RuntimeError, ValueError, OSError, *errors)
        self._count = 0
        self._taken = 0
        try:
            gpio.setmode(gpio.BCM)
            gpio.setup(pin, gpio.IN, pull_up_down=gpio.PUD_UP)
            gpio.add_event_detect(pin, gpio.FALLING, callback=self._count_edge)
        except self._errors as error:
            self._release(gpio)
            raise BoardError(
                f"BCM pin {pin} can't be watched for edges ({error}): on kernels from 6.6 on and on a Pi 5 "
                'RPi.GPIO fails so: [board] counting = "auto" counts without it, or rpi-lgpio in its place; '
                "else another program has the pin"
            ) from error
        self._gpio = gpio

    def take(self) -> Edges:
        """The edges since the call before."""
        count, before = self._count, self._taken
        self._taken = count
        return Edges(count - before)

    def total(self) -> int:
        """All edges since the pin was claimed."""
        return self._count

    def is_high(self) -> bool:
        """The pin's level now. Raises ReadError."""
        if self._gpio is None:
            raise ReadError(f"BCM pin {self._pin} has been released")
        try:
            return bool(self._gpio.input(self._pin))
        except self._errors as error:
            raise ReadError(f"the level of BCM pin {self._pin} can't be read ({error})") from error

    def close(self) -> None:
        """Release the pin."""
        gpio, self._gpio = self._gpio, None
        if gpio is not None:
            self._release(gpio)

    def _release(self, gpio: Any) -> None:
        # A library that never had the pin complains; there is nothing left to do about it.
        with suppress(*self._errors):
            gpio.remove_event_detect(self._pin)
            gpio.cleanup(self._pin)

    def _count_edge(self, _pin: int) -> None:
        # Only the library's one callback thread writes this.
        self._count += 1
