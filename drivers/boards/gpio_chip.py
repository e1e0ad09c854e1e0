"""Falling edges counted by the kernel: its GPIO character device, second version (Linux 5.10 and later).

The kernel's interrupt thread numbers each edge of a line (``line_seqno``) and puts it into a buffer of at
most 1,024 events, which drops its oldest when it is full. So the number of the newest event *is* the count:
nothing runs for an edge in this process, and events that were dropped are counted all the same. What the
numbers can't show is an edge that never became one: two that fall before the interrupt thread has run are one
event.

Source: linux/gpio.h and drivers/gpio/gpiolib-cdev.c of Linux 6.6; the layout is the kernel's promise to
programs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import Final, Protocol

from drivers.interface import BoardError, Edges, ReadError

HEADER_LABELS: Final = ("pinctrl-bcm2835", "pinctrl-bcm2711", "pinctrl-rp1")
"""What the chip with the header's pins is called: up to Pi 3 and Zero, Pi 4, Pi 5. Its lines are BCM pins."""

CHIPINFO: Final = struct.Struct("32s32sI")
LINE_INFO: Final = struct.Struct("32s32sIIQ160s4I")
LINE_REQUEST: Final = struct.Struct("64I32sQI5I240sII5Ii")
LINE_VALUES: Final = struct.Struct("QQ")
LINE_EVENT: Final = struct.Struct("QIIII6I")


def _ioctl(number: int, layout: struct.Struct, *, writes: bool = True) -> int:
    return ((3 if writes else 2) << 30) | (layout.size << 16) | (0xB4 << 8) | number


GET_CHIPINFO: Final = _ioctl(0x01, CHIPINFO, writes=False)
GET_LINE_INFO: Final = _ioctl(0x05, LINE_INFO)
GET_LINE: Final = _ioctl(0x07, LINE_REQUEST)
GET_VALUES: Final = _ioctl(0x0E, LINE_VALUES)

FLAG_USED: Final = 1 << 0
FLAG_INPUT: Final = 1 << 2
FLAG_EDGE_FALLING: Final = 1 << 5
FLAG_PULL_UP: Final = 1 << 8

BUFFERED_EVENTS: Final = 1024
"""The most the kernel allows for one request (16 for each of 64 lines)."""

_CONSUMER: Final = b"fieldgate"
_SEQNO_MASK: Final = 0xFFFF_FFFF
# As often as the buffer can be full within one take; noise may bring edges quicker than they are read.
_READS: Final = 4


class NoHeaderChipError(BoardError):
    """The machine has no chip with a Raspberry Pi's header pins, or its kernel doesn't number edges."""


class Kernel(Protocol):
    """The system calls a chip is used by."""

    def chips(self) -> list[str]:
        """The paths of all chips."""

    def open(self, path: str) -> int:
        """A file descriptor. Raises OSError."""

    def ioctl(self, fd: int, request: int, argument: bytearray) -> None:
        """One request, answered in ``argument``. Raises OSError."""

    def read(self, fd: int, size: int) -> bytes:
        """Events, as many as there are and fit; never waits. Raises BlockingIOError for none, OSError."""

    def close(self, fd: int) -> None:
        """Give it back."""


class LinuxKernel:
    """The machine's own."""

    def chips(self) -> list[str]:
        """All of /dev/gpiochip*."""
        return sorted(str(path) for path in Path("/dev").glob("gpiochip*"))

    def open(self, path: str) -> int:
        """Open a chip."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def ioctl(self, fd: int, request: int, argument: bytearray) -> None:
        """Ask; a line that is answered doesn't block when it is read."""
        fcntl.ioctl(fd, request, argument, True)
        if request == GET_LINE:
            os.set_blocking(LINE_REQUEST.unpack(argument)[-1], False)

    def read(self, fd: int, size: int) -> bytes:
        """Read a line's events."""
        return os.read(fd, size)

    def close(self, fd: int) -> None:
        """Close a chip or a line."""
        os.close(fd)


class ChipCounter:
    """Counts one pin's falling edges by the kernel's numbers."""

    means = "the kernel's edge numbers"

    def __init__(self, kernel: Kernel, pin: int) -> None:
        """Claim the pin. Raises NoHeaderChipError, and BoardError where the pin can't be had."""
        self._kernel = kernel
        self._pin = pin
        self._newest = 0
        chip = _open_header(kernel)
        try:
            self._fd: int | None = _request(kernel, chip, pin)
        finally:
            # A line outlives the chip it was requested from.
            kernel.close(chip)

    def take(self) -> Edges:
        """The edges since the call before, those included that the buffer dropped. Raises ReadError."""
        fd = self._fd
        if fd is None:
            return Edges(0)
        events = bytearray()
        try:
            for _ in range(_READS):
                part = self._kernel.read(fd, BUFFERED_EVENTS * LINE_EVENT.size)
                events += part
                if len(part) < BUFFERED_EVENTS * LINE_EVENT.size:
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            raise ReadError(f"the events of BCM pin {self._pin} can't be read ({error})") from error
        if not events:
            return Edges(0)
        # By columns, not by events: at 1,082 Hz this is the difference between 0.1 and 5 ms.
        numbers = memoryview(events).cast("I")[5 :: LINE_EVENT.size // 4].tolist()
        times_ns = memoryview(events).cast("Q")[:: LINE_EVENT.size // 8].tolist()
        count = (numbers[-1] - self._newest) & _SEQNO_MASK
        self._newest = numbers[-1]
        whole = _gapless_tail(numbers)
        # More events than numbers: the kernel counts otherwise than it promises.
        return Edges(count, lost=count < len(numbers), times_ns=times_ns[-whole:])

    def is_high(self) -> bool:
        """The pin's level now. Raises ReadError."""
        if self._fd is None:
            raise ReadError(f"BCM pin {self._pin} has been given back")
        values = bytearray(LINE_VALUES.pack(0, 1))
        try:
            self._kernel.ioctl(self._fd, GET_VALUES, values)
        except OSError as error:
            raise ReadError(f"the level of BCM pin {self._pin} can't be read ({error})") from error
        return bool(LINE_VALUES.unpack(values)[0] & 1)

    def close(self) -> None:
        """Give the pin back."""
        fd, self._fd = self._fd, None
        if fd is not None:
            self._kernel.close(fd)


def _gapless_tail(numbers: list[int]) -> int:
    """How many of the newest events follow each other without a gap."""
    if (numbers[-1] - numbers[0]) & _SEQNO_MASK == len(numbers) - 1:
        return len(numbers)
    whole = 1
    while (numbers[-whole] - numbers[-whole - 1]) & _SEQNO_MASK == 1:
        whole += 1
    return whole


def _open_header(kernel: Kernel) -> int:
    refused = ""
    for path in kernel.chips():
        try:
            fd = kernel.open(path)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                refused = path
            continue
        answer = bytearray(CHIPINFO.size)
        try:
            kernel.ioctl(fd, GET_CHIPINFO, answer)
        except OSError:
            kernel.close(fd)
            continue
        if _text(CHIPINFO.unpack(answer)[1]) in HEADER_LABELS:
            return fd
        kernel.close(fd)
    if refused:
        raise BoardError(
            f"{refused} may not be opened: add this program's user to the group 'gpio' and start it again"
        )
    raise NoHeaderChipError("there is no /dev/gpiochip* with a Raspberry Pi's header pins")


def _request(kernel: Kernel, chip: int, pin: int) -> int:
    flags = FLAG_INPUT | FLAG_EDGE_FALLING | FLAG_PULL_UP
    offsets = (pin, *(0,) * 63)
    request = bytearray(
        LINE_REQUEST.pack(*offsets, _CONSUMER, flags, 0, *(0,) * 5, b"", 1, BUFFERED_EVENTS, *(0,) * 5, 0)
    )
    try:
        kernel.ioctl(chip, GET_LINE, request)
    except OSError as error:
        if error.errno in (errno.ENOTTY, errno.EINVAL):
            raise NoHeaderChipError("this kernel doesn't number edges: it is older than 5.10") from error
        if error.errno == errno.EBUSY:
            raise BoardError(
                f"BCM pin {pin} is in use by {_owner(kernel, chip, pin)}: give the sensor another pin, stop "
                "that program, or switch the function off in config.txt"
            ) from error
        raise BoardError(f"BCM pin {pin} can't be watched for edges ({error})") from error
    fd: int = LINE_REQUEST.unpack(request)[-1]
    return fd


def _owner(kernel: Kernel, chip: int, pin: int) -> str:
    answer = bytearray(LINE_INFO.pack(b"", b"", pin, 0, 0, b"", 0, 0, 0, 0))
    try:
        kernel.ioctl(chip, GET_LINE_INFO, answer)
    except OSError:
        return "another program"
    _name, consumer, _offset, _attributes, flags, *_rest = LINE_INFO.unpack(answer)
    return repr(_text(consumer)) if flags & FLAG_USED and _text(consumer) else "another program"


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="replace")
