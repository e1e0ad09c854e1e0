"""CPU time of counting six cups' pulses: by rpi-lgpio's callbacks, and by the kernel's interrupt count.

``make bench BENCH=pulses``. What an interrupt takes in the kernel, and lgpio's thread in C that passes it on,
are in none of the figures: only this process' own part is there to be measured away from a Pi.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import deque
from pathlib import Path

import pytest

from drivers.boards.pi import PiBoard
from drivers.boards.registry import PiOptions
from drivers.hall_anemometer import HallAnemometer, HallAnemometerOptions
from drivers.hardware.gpio_chip import LINE_EVENT, Kernel
from tests.unit.drivers.hardware.emulated_kernel import EmulatedKernel
from tests.unit.drivers.hardware.patched_lgpio import PatchedLgpio, patched_lgpio

PINS = (17, 27, 22, 5, 6, 13)
HZ, SECONDS, ROUNDS = 1082, 50, 5


class ReadyEvents(EmulatedKernel):
    """Has each second's events ready in one piece: only what the driver does with them is timed."""

    def __init__(self, seconds: int) -> None:
        super().__init__()
        self._ready: deque[bytes] = deque()
        self.due = self.reported = 0
        # Any real interrupt will do: it is the reading of its file that costs.
        self._files = sorted(Path("/sys/kernel/irq").glob("*/per_cpu_count"))[:1]
        for second in range(seconds):
            # The buffer holds 1,024 at the second's end.
            numbers = range(second * HZ + HZ - 1024, second * HZ + HZ)
            self._ready.append(
                b"".join(
                    LINE_EVENT.pack(number * 924_000, 2, 17, number + 1, number + 1, *(0,) * 6)
                    for number in numbers
                )
            )

    def interrupts(self, number: int) -> list[int]:
        if self._files:
            Kernel().interrupts(int(self._files[0].parent.name))
        return [self.reported * HZ]

    def read(self, fd: int, size: int) -> bytes:
        if self.due == 0:
            raise BlockingIOError
        self.due -= 1
        return self._ready.popleft()


def callbacks_us(per_s: int) -> float:
    """Microseconds an edge of lgpio's callback thread; edges come at this rate, or (0) all at once."""
    with pytest.MonkeyPatch.context() as patch, patched_lgpio(patch) as chip:
        board = PiBoard(PiOptions("rpi-gpio"))
        cups = [HallAnemometer(board, HallAnemometerOptions(pin, 0.0462, 0.21)) for pin in PINS]
        for cup in cups:
            cup.start()
        edges = len(PINS) * HZ * 3
        begun_ns = _run_ns(chip)
        begun = time.monotonic()
        for number in range(edges):
            chip.fall(PINS[number % len(PINS)])
            while per_s and time.monotonic() < begun + number / per_s:
                time.sleep(0)
        chip.settle()
        took_ns = _run_ns(chip) - begun_ns
        counted = sum(cup._counter.take().count for cup in cups if cup._counter is not None)
        assert counted == edges, counted
        for cup in cups:
            cup.stop()
    return took_ns / edges / 1000


def _run_ns(chip: PatchedLgpio) -> int:
    """What the scheduler has given lgpio's thread so far, in nanoseconds."""
    thread = chip.lgpio._notify_thread.native_id
    return int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[0])


def numbers_us() -> float:
    """Microseconds an edge for reading one pin each second."""
    kernel = ReadyEvents(SECONDS)
    clock = [0.0]
    board = PiBoard(PiOptions("kernel"), kernel, lambda: clock[0])
    cup = HallAnemometer(board, HallAnemometerOptions(17, 0.0462, 0.21))
    cup.start()
    begun = time.process_time()
    for _ in range(SECONDS):
        kernel.due, kernel.reported, clock[0] = 1, kernel.reported + 1, clock[0] + 1.0
        assert cup.read()[0].raw == HZ
    took = time.process_time() - begun
    return took / SECONDS / HZ * 1e6


def main() -> None:
    """Print the medians of some rounds, and the rounds."""
    total = len(PINS) * HZ
    for what, rounds in (
        ("rpi-lgpio's callbacks, edges one by one", [callbacks_us(total) for _ in range(ROUNDS)]),
        ("rpi-lgpio's callbacks, edges in one go", [callbacks_us(0) for _ in range(ROUNDS)]),
        ("the kernel's count, read each second", [numbers_us() for _ in range(ROUNDS)]),
    ):
        us = statistics.median(rounds)
        sys.stdout.write(
            f"{what}: {us:.2f} us an edge ({', '.join(f'{one:.2f}' for one in rounds)}); "
            f"six cups at {HZ} Hz: {us * total / 1e4:.2f} % of a core\n"
        )


if __name__ == "__main__":
    main()
