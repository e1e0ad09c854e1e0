"""The kernel's GPIO character device by its documented behaviour, byte for byte, over lines that don't exist.

Layouts are ctypes structures of this file's own, so that a mistake in the driver's can't cancel itself out; a
test holds both against the C compiler's view of linux/gpio.h. Buffers round up to a power of two and drop
their oldest event.
"""

from __future__ import annotations

import ctypes
import errno
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from drivers.hardware.gpio_chip import Kernel

GET_CHIPINFO, GET_LINE_INFO, GET_LINE, GET_VALUES = 0x8044B401, 0xC100B405, 0xC250B407, 0xC010B40E
SET_VALUES: Final = 0xC010B40F
OUTPUT: Final = 0x8
INPUT_FALLING_PULLED_UP: Final = 0x4 | 0x20 | 0x100
_U32, _U64 = ctypes.c_uint32, ctypes.c_uint64


class ChipInfo(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char * 32), ("label", ctypes.c_char * 32), ("lines", _U32))


class LineConfig(ctypes.Structure):
    _fields_ = (("flags", _U64), ("num_attrs", _U32), ("padding", _U32 * 5), ("attrs", _U64 * 30))


class LineRequest(ctypes.Structure):
    _fields_ = (
        ("offsets", _U32 * 64),
        ("consumer", ctypes.c_char * 32),
        ("config", LineConfig),
        ("num_lines", _U32),
        ("event_buffer_size", _U32),
        ("padding", _U32 * 5),
        ("fd", ctypes.c_int32),
    )


class LineInfo(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 32),
        ("consumer", ctypes.c_char * 32),
        ("offset", _U32),
        ("num_attrs", _U32),
        ("flags", _U64),
        ("attrs", _U64 * 20),
        ("padding", _U32 * 4),
    )


class LineValues(ctypes.Structure):
    _fields_ = (("bits", _U64), ("mask", _U64))


class LineEvent(ctypes.Structure):
    _fields_ = (
        ("timestamp_ns", _U64),
        ("id", _U32),
        ("offset", _U32),
        ("seqno", _U32),
        ("line_seqno", _U32),
        ("padding", _U32 * 6),
    )


class Line:
    def __init__(self, pin: int, buffered: int) -> None:
        self.pin = pin
        self.seqno = 0
        self.interrupts = [0, 0]
        # kfifo rounds up to a power of two.
        self.events: deque[bytes] = deque(maxlen=1 << (buffered - 1).bit_length())
        self.lock = threading.Lock()


class EmulatedKernel(Kernel):
    """Chips by path: label and consumers of lines that are taken. ``old`` is a kernel before 5.10."""

    def __init__(
        self,
        chips: dict[str, str] | None = None,
        *,
        taken: dict[int, str] | None = None,
        forbidden: Iterable[str] = (),
        old: bool = False,
        tells_interrupts: bool = True,
    ) -> None:
        self._labels = {"/dev/gpiochip0": "pinctrl-bcm2711"} if chips is None else chips
        self.taken = taken or {}
        self._forbidden = set(forbidden)
        self._old = old
        self._tells_interrupts = tells_interrupts
        self._next_fd = 3
        self.open_fds: dict[int, str | Line] = {}
        self.low: set[int] = set()
        self.driven: dict[int, list[bool]] = {}
        self.pulls: dict[int, int] = {}
        self.broken = False

    def chips(self) -> list[str]:
        return list(self._labels)

    def open(self, path: str) -> int:
        if path in self._forbidden:
            raise OSError(errno.EACCES, "Permission denied", path)
        return self._fd(path)

    def ioctl(self, fd: int, request: int, argument: bytearray) -> None:
        opened = self.open_fds[fd]
        if isinstance(opened, Line):
            values = LineValues.from_buffer(argument)
            assert values.mask == 1
            if self.broken:
                raise OSError(errno.ENODEV, "No such device")
            if request == SET_VALUES:
                self.driven[opened.pin].append(bool(values.bits))
                return
            assert request == GET_VALUES
            values.bits = 0 if opened.pin in self.low else 1
        elif request == GET_CHIPINFO:
            info = ChipInfo.from_buffer(argument)
            info.name, info.label, info.lines = (
                Path(opened).name.encode(),
                self._labels[opened].encode(),
                58,
            )
        elif self._old:
            raise OSError(errno.EINVAL, "Invalid argument")
        elif request == GET_LINE_INFO:
            line = LineInfo.from_buffer(argument)
            line.consumer = self.taken.get(line.offset, "").encode()
            line.flags = 1 if line.offset in self.taken else 0
        else:
            assert request == GET_LINE
            self._request(LineRequest.from_buffer(argument))

    def read(self, fd: int, size: int) -> bytes:
        line = self.open_fds[fd]
        assert isinstance(line, Line)
        if self.broken:
            raise OSError(errno.ENODEV, "No such device")
        with line.lock:
            if not line.events:
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
            fit = size // ctypes.sizeof(LineEvent)
            return b"".join(line.events.popleft() for _ in range(min(fit, len(line.events))))

    def close(self, fd: int) -> None:
        closed = self.open_fds.pop(fd)
        if isinstance(closed, Line):
            del self.taken[closed.pin]

    def fall(self, pin: int, times_ns: Iterable[int]) -> None:
        """Falling edges at these times; not numbered where the pin isn't watched."""
        line = self.line(pin)
        for time_ns in times_ns if line is not None else ():
            assert line is not None
            with line.lock:
                line.seqno = (line.seqno + 1) & 0xFFFF_FFFF
                cpu = line.seqno % 2
                line.interrupts[cpu] = (line.interrupts[cpu] + 1) & 0xFFFF_FFFF
                line.events.append(bytes(LineEvent(time_ns, 2, pin, line.seqno, line.seqno)))

    def interrupt(self, consumer: str) -> int | None:
        pins = (pin for pin, name in self.taken.items() if name == consumer and self._tells_interrupts)
        return next(pins, None)

    def interrupts(self, number: int) -> list[int]:
        line = self.line(number)
        if self.broken or line is None:
            raise OSError(errno.ENOENT, "No such file or directory")
        with line.lock:
            return list(line.interrupts)

    def crowd(self, pin: int, edges: int) -> None:
        """Edges that come before the interrupt's thread has run: none is an event of its own."""
        line = self.line(pin)
        if line is not None:
            with line.lock:
                line.interrupts[1] = (line.interrupts[1] + edges) & 0xFFFF_FFFF

    def line(self, pin: int) -> Line | None:
        """The watched line of a pin."""
        lines = (opened for opened in list(self.open_fds.values()) if isinstance(opened, Line))
        return next((line for line in lines if line.pin == pin), None)

    def _request(self, request: LineRequest) -> None:
        assert request.num_lines == 1
        assert not any(request.padding)
        assert not any(request.config.padding)
        pin = request.offsets[0]
        if pin in self.taken:
            raise OSError(errno.EBUSY, "Device or resource busy")
        if request.config.flags & OUTPUT:
            # An id with padding, the levels, the mask of lines: the first attribute of ten.
            assert (request.config.num_attrs, request.config.attrs[0]) == (1, 2)
            assert list(request.config.attrs[2:]) == [1, *(0,) * 27]
            self.driven.setdefault(pin, []).append(bool(request.config.attrs[1]))
            self.pulls[pin] = request.config.flags & ~OUTPUT
        else:
            assert request.config.flags == INPUT_FALLING_PULLED_UP
            assert request.config.num_attrs == 0
            assert not any(request.config.attrs)
        line = Line(pin, min(request.event_buffer_size or 16, 1024))
        self.taken[pin] = request.consumer.decode()
        request.fd = self._fd(line)

    def _fd(self, opened: str | Line) -> int:
        fd, self._next_fd = self._next_fd, self._next_fd + 1
        self.open_fds[fd] = opened
        return fd
