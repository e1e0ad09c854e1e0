"""A pin driven through the kernel's GPIO character device (Linux 5.10 and later).

What a line does once it is released, a killed process's too, is its chip's: of a Raspberry Pi some kernels
keep the level, others make it an input, which the pull that is set here draws to the level wanted then.

Source: linux/gpio.h of Linux 6.12. Tried over an emulated kernel, not on a Pi.
"""

from __future__ import annotations

import struct
from typing import Final

from drivers.hardware.gpio_chip import (
    FLAG_PULL_UP,
    LINE_VALUES,
    Kernel,
    ioctl_number,
    line_user,
    open_header,
    request_line,
)
from drivers.interface import BoardError

FLAG_OUTPUT: Final = 1 << 3
FLAG_PULL_DOWN: Final = 1 << 9
OUTPUT_VALUES: Final = struct.Struct("IIQQ")
"""An attribute of the request: its id, padding, the lines' levels, which lines."""
OUTPUT_VALUES_ID: Final = 2
SET_VALUES: Final = ioctl_number(0x0F, LINE_VALUES)


def pin_user(kernel: Kernel, pin: int) -> str | None:
    """Who has claimed a pin; None where it is free. Nothing is claimed. Raises BoardError."""
    chip = open_header(kernel)
    try:
        return line_user(kernel, chip, pin)
    except OSError as error:
        raise BoardError(f"BCM pin {pin} can't be driven by this kernel, before 5.10 ({error})") from error
    finally:
        kernel.close(chip)


class ChipOutput:
    """One pin as an output."""

    def __init__(self, kernel: Kernel, pin: int, *, high: bool, pull_up: bool) -> None:
        """Claim the pin at a level. Raises BoardError."""
        self._kernel = kernel
        self._pin = pin
        chip = open_header(kernel)
        try:
            level = OUTPUT_VALUES.pack(OUTPUT_VALUES_ID, 0, int(high), 1)
            flags = FLAG_OUTPUT | (FLAG_PULL_UP if pull_up else FLAG_PULL_DOWN)
            self._fd: int | None = request_line(kernel, chip, pin, flags, level)
        finally:
            # A line outlives the chip it was requested from.
            kernel.close(chip)

    def set(self, *, high: bool) -> None:
        """Drive a level. Raises BoardError."""
        if self._fd is None:
            raise BoardError(f"BCM pin {self._pin} has been released")
        try:
            self._kernel.ioctl(self._fd, SET_VALUES, bytearray(LINE_VALUES.pack(int(high), 1)))
        except OSError as error:
            raise BoardError(f"the level of BCM pin {self._pin} can't be set ({error})") from error

    def close(self) -> None:
        """Release the pin."""
        fd, self._fd = self._fd, None
        if fd is not None:
            self._kernel.close(fd)
