"""Pins through the kernel's GPIO character device, second version (Linux 5.10 and later): counted and driven.

A line has two counts. Its interrupt's (``/sys/kernel/irq``) grows with each edge the hardware reports. Its
events have numbers (``line_seqno``) and times, in a buffer of at most 1,024 that drops its oldest; edges that
come before the interrupt's thread has run are one event. So the pulse count is the interrupt's, or else the
newest event's number. Where the two drift apart, edges came closer than the kernel can separate.

What an output does once it is released, a killed process's too, is its chip's: of a Raspberry Pi some kernels
keep the level, others make it an input, which the pull that is set here draws to the level wanted then.

Source: linux/gpio.h, drivers/gpio/gpiolib-cdev.c and kernel/irq/irqdesc.c of Linux 6.12; layouts and files
are the kernel's promise to programs. Tried on such a kernel with its GPIO simulator, not on a Pi.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import Final

from drivers.interface import BoardError, Edges, ReadError

HEADER_LABELS: Final = ("pinctrl-bcm2835", "pinctrl-bcm2711", "pinctrl-rp1")
"""Labels of the chip with the header's pins: up to Pi 3 and Zero, Pi 4, Pi 5. Its lines are BCM pins."""
HEADER_COMPATIBLE: Final = frozenset({"brcm,bcm2835-gpio", "brcm,bcm2711-gpio", "raspberrypi,rp1-gpio"})
"""The same chips as the device tree names them (Linux, Documentation/devicetree/bindings/pinctrl)."""

CHIPINFO: Final = struct.Struct("32s32sI")
LINE_INFO: Final = struct.Struct("32s32sIIQ160s4I")
LINE_REQUEST: Final = struct.Struct("64I32sQI5I240sII5Ii")
LINE_VALUES: Final = struct.Struct("QQ")
LINE_EVENT: Final = struct.Struct("QIIII6I")


def ioctl_number(number: int, layout: struct.Struct, *, writes: bool = True) -> int:
    """The number of a request whose argument has a layout."""
    return ((3 if writes else 2) << 30) | (layout.size << 16) | (0xB4 << 8) | number


GET_CHIPINFO: Final = ioctl_number(0x01, CHIPINFO, writes=False)
GET_LINE_INFO: Final = ioctl_number(0x05, LINE_INFO)
GET_LINE: Final = ioctl_number(0x07, LINE_REQUEST)
GET_VALUES: Final = ioctl_number(0x0E, LINE_VALUES)

FLAG_USED: Final = 1 << 0
FLAG_INPUT: Final = 1 << 2
FLAG_EDGE_FALLING: Final = 1 << 5
FLAG_PULL_UP: Final = 1 << 8

BUFFERED_EVENTS: Final = 1024
"""The most the kernel allows for one request (16 for each of 64 lines)."""

_MASK: Final = 0xFFFF_FFFF
"""Events' numbers and each processor's count of an interrupt have 32 bits."""
_UNDER_WAY: Final = 1
"""An edge whose interrupt has been taken and whose event isn't there yet."""
# The buffer can be full so often within one take; noise may bring edges quicker than they are read.
_READS: Final = 4
_INTERRUPTS: Final = Path("/sys/kernel/irq")


class Kernel:
    """The system calls a chip is used by."""

    def chips(self) -> list[str]:
        """The paths of all chips."""
        return sorted(str(path) for path in Path("/dev").glob("gpiochip*"))

    def open(self, path: str) -> int:
        """A file descriptor of a chip. Raises OSError."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def ioctl(self, fd: int, request: int, argument: bytearray) -> None:
        """One request, answered in ``argument``; a line it returns never blocks. Raises OSError."""
        fcntl.ioctl(fd, request, argument, True)
        if request == GET_LINE:
            os.set_blocking(LINE_REQUEST.unpack(argument)[-1], False)

    def read(self, fd: int, size: int) -> bytes:
        """Events, as many as there are and fit. Raises BlockingIOError where there is none, OSError."""
        return os.read(fd, size)

    def close(self, fd: int) -> None:
        """Close a chip or a line."""
        os.close(fd)

    def interrupt(self, consumer: str) -> int | None:
        """The interrupt of a consumer's line; None where this kernel doesn't show it."""
        for actions in _INTERRUPTS.glob("*/actions"):
            try:
                if consumer in actions.read_text().strip().split(","):
                    return int(actions.parent.name)
            except OSError:
                # Interrupts come and go while they are listed.
                continue
        return None

    def interrupts(self, number: int) -> list[int]:
        """How often each processor has taken an interrupt. Raises OSError, ValueError."""
        return [int(count) for count in (_INTERRUPTS / str(number) / "per_cpu_count").read_text().split(",")]


class _Line:
    """One pin's line, claimed from its construction on."""

    def __init__(self, kernel: Kernel, pin: int, flags: int, attribute: bytes = b"", events: int = 0) -> None:
        """Claim the pin. Raises BoardError."""
        self._kernel = kernel
        self._pin = pin
        chip = open_header(kernel)
        try:
            self._fd: int | None = request_line(kernel, chip, pin, flags, attribute, events)
        finally:
            # A line outlives the chip it was requested from.
            kernel.close(chip)

    def close(self) -> None:
        """Release the pin; safe to call twice."""
        fd, self._fd = self._fd, None
        if fd is not None:
            self._kernel.close(fd)


class ChipCounter(_Line):
    """Counts one pin's falling edges by its interrupts, or else by its events' numbers."""

    timed = True

    def __init__(self, kernel: Kernel, pin: int) -> None:
        """Claim the pin. Raises BoardError."""
        super().__init__(kernel, pin, FLAG_INPUT | FLAG_EDGE_FALLING | FLAG_PULL_UP, events=BUFFERED_EVENTS)
        self._newest = 0
        self._numbered = self._deficit = 0
        self._taken = 0
        self._interrupt = kernel.interrupt(_consumer(pin))
        self._before: list[int] = []
        self._first: list[int] = []
        if self._interrupt is not None:
            try:
                self._first = self._before = kernel.interrupts(self._interrupt)
            except (OSError, ValueError):
                self._interrupt = None
        counted = "edge numbers" if self._interrupt is None else "interrupt count"
        self.method = f"the kernel's {counted}"

    def take(self) -> Edges:
        """The edges since the call before, also those that became no event of their own. Raises ReadError."""
        if self._fd is None:
            return Edges(0)
        # The interrupts first: of those, all but one under way have their event by now.
        now = self._interrupts()
        events = self._read_events(self._fd)
        interrupts = None
        if now is not None:
            interrupts = sum((new - old) & _MASK for new, old in zip(now, self._before, strict=True))
            self._before = now
            self._taken += interrupts
        if not events:
            return Edges(interrupts or 0, crowded=self._drifted())
        # Numpy reads columns, not events: at 1,082 Hz this is the difference between 0.2 and 5 ms.
        numbers = memoryview(events).cast("I")[5 :: LINE_EVENT.size // 4].tolist()
        times_ns = memoryview(events).cast("Q")[:: LINE_EVENT.size // 8].tolist()
        count = (numbers[-1] - self._newest) & _MASK
        self._newest = numbers[-1]
        self._numbered += count
        return Edges(
            count if interrupts is None else interrupts,
            # More events than numbers: the kernel counts otherwise than it promises.
            lost=count < len(numbers),
            times_ns=times_ns[-_gapless_tail(numbers) :],
            crowded=self._drifted(),
        )

    def total(self) -> int:
        """All edges since the pin was claimed; without its interrupt as of the last ``take``."""
        now = self._interrupts() if self._fd is not None else None
        if now is None:
            return self._numbered
        return sum((new - old) & _MASK for new, old in zip(now, self._first, strict=True))

    def _interrupts(self) -> list[int] | None:
        if self._interrupt is None:
            return None
        try:
            return self._kernel.interrupts(self._interrupt)
        except (OSError, ValueError) as error:
            raise ReadError(f"the interrupts of BCM pin {self._pin} can't be read ({error})") from error

    def _drifted(self) -> bool:
        """Whether more interrupts than before have no event of their own."""
        deficit = self._taken - self._numbered
        if self._interrupt is None or deficit <= self._deficit + _UNDER_WAY:
            return False
        self._deficit = deficit
        return True

    def _read_events(self, fd: int) -> bytearray:
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
        return events

    def is_high(self) -> bool:
        """The pin's level now. Raises ReadError."""
        if self._fd is None:
            raise ReadError(f"BCM pin {self._pin} has been released")
        values = bytearray(LINE_VALUES.pack(0, 1))
        try:
            self._kernel.ioctl(self._fd, GET_VALUES, values)
        except OSError as error:
            raise ReadError(f"the level of BCM pin {self._pin} can't be read ({error})") from error
        return bool(LINE_VALUES.unpack(values)[0] & 1)


def _gapless_tail(numbers: list[int]) -> int:
    """How many of the newest events follow each other without a gap."""
    if (numbers[-1] - numbers[0]) & _MASK == len(numbers) - 1:
        return len(numbers)
    whole = 1
    while (numbers[-whole] - numbers[-whole - 1]) & _MASK == 1:
        whole += 1
    return whole


def open_header(kernel: Kernel) -> int:
    """A file descriptor of the chip with the header's pins. Raises BoardError."""
    refused = []
    for path in kernel.chips():
        try:
            fd = kernel.open(path)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                refused.append(path)
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
        header = header_chip()
        path = header if header in refused else refused[0]
        raise BoardError(
            f"{path} may not be opened: this program's user must be in its group 'gpio', which the package's "
            "60-fieldgate.rules gives it (fieldgate doctor)"
        )
    raise BoardError("there is no /dev/gpiochip* with a Raspberry Pi's header pins")


def header_chip(root: Path = Path("/")) -> str | None:
    """Returns the path of the chip with the header's pins, by its node in the device tree; None without one.

    Nothing is opened, so it works without any rights.
    """
    for chip in sorted(root.glob("sys/bus/gpio/devices/gpiochip*")):
        try:
            compatible = (chip / "of_node/compatible").read_text()
        except OSError:
            continue
        if not HEADER_COMPATIBLE.isdisjoint(compatible.split("\0")):
            return f"/dev/{chip.name}"
    return None


def _consumer(pin: int) -> str:
    # An interrupt has its consumer's name, so each line needs one of its own.
    return f"fieldgate-{pin}"


def request_line(kernel: Kernel, chip: int, pin: int, flags: int, attribute: bytes, events: int) -> int:
    """A line's file descriptor; at most one attribute. Raises BoardError."""
    offsets, attributes = (pin, *(0,) * 63), int(bool(attribute))
    request = bytearray(
        LINE_REQUEST.pack(
            *offsets,
            _consumer(pin).encode(),
            flags,
            attributes,
            *(0,) * 5,
            attribute,
            1,
            events,
            *(0,) * 5,
            0,
        )
    )
    try:
        kernel.ioctl(chip, GET_LINE, request)
    except OSError as error:
        if error.errno in (errno.ENOTTY, errno.EINVAL):
            raise BoardError(
                "this kernel is older than 5.10 and offers no such pins; pulses are counted without it by"
                ' [board] counting = "rpi-gpio"'
            ) from error
        if error.errno == errno.EBUSY:
            raise BoardError(
                f"BCM pin {pin} is in use by {_owner(kernel, chip, pin)}: use another pin, stop "
                "that program, or switch the function off in config.txt"
            ) from error
        raise BoardError(f"BCM pin {pin} can't be claimed ({error})") from error
    fd: int = LINE_REQUEST.unpack(request)[-1]
    return fd


def line_user(kernel: Kernel, chip: int, pin: int) -> str | None:
    """Who has claimed a line; None where it is free. Raises OSError, on a kernel before 5.10 too."""
    answer = bytearray(LINE_INFO.pack(b"", b"", pin, 0, 0, b"", 0, 0, 0, 0))
    kernel.ioctl(chip, GET_LINE_INFO, answer)
    _name, consumer, _offset, _attributes, flags, *_rest = LINE_INFO.unpack(answer)
    if not flags & FLAG_USED:
        return None
    return repr(_text(consumer)) if _text(consumer) else "another program"


def _owner(kernel: Kernel, chip: int, pin: int) -> str:
    try:
        return line_user(kernel, chip, pin) or "another program"
    except OSError:
        return "another program"


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="replace")


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


class ChipOutput(_Line):
    """One pin as an output."""

    def __init__(self, kernel: Kernel, pin: int, *, high: bool, pull_up: bool) -> None:
        """Claim the pin at a level. Raises BoardError."""
        level = OUTPUT_VALUES.pack(OUTPUT_VALUES_ID, 0, int(high), 1)
        super().__init__(kernel, pin, FLAG_OUTPUT | (FLAG_PULL_UP if pull_up else FLAG_PULL_DOWN), level)

    def set(self, *, high: bool) -> None:
        """Drive a level. Raises BoardError."""
        if self._fd is None:
            raise BoardError(f"BCM pin {self._pin} has been released")
        try:
            self._kernel.ioctl(self._fd, SET_VALUES, bytearray(LINE_VALUES.pack(int(high), 1)))
        except OSError as error:
            raise BoardError(f"the level of BCM pin {self._pin} can't be set ({error})") from error
