"""A bus whose one user hangs: the others get an error at once, and no thread spins."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from drivers.ads1115 import AdcOptions
from drivers.bp20 import Bp20, Bp20Options
from drivers.emulation.board import EmulatedBoard
from drivers.hardware.bus_lock import TimedLock
from drivers.interface import FittedSensor, ReadError
from drivers.scd4x import Scd4x, Scd4xOptions
from tests.support.masts import simulated
from tests.support.servers import eventually


class Frozen:
    """A chip that stretches the clock for ever once it is frozen."""

    def __init__(self) -> None:
        self.thawed = threading.Event()
        self.thawed.set()
        self.waiting = 0

    def write(self, sent: bytes) -> None:
        self.waiting += not self.thawed.is_set()
        self.thawed.wait()

    def read(self, count: int) -> bytes:
        return bytes(count)


def test_a_lock_is_waited_for_and_refused_once_it_is_held_too_long() -> None:
    lock = TimedLock(1.0)
    assert lock.acquire()
    begin_s = time.monotonic()
    assert not lock.acquire()
    first_s = time.monotonic() - begin_s
    begin_s = time.monotonic()
    assert not lock.acquire()
    assert first_s > 0.9
    # Its time is over: no other thread waits for it again.
    assert time.monotonic() - begin_s < first_s
    lock.release()
    assert lock.acquire()


def test_a_lock_that_is_given_back_is_had() -> None:
    lock = TimedLock(60.0)
    assert lock.acquire()
    threading.Timer(0.1, lock.release).start()
    assert lock.acquire()


@pytest.fixture
def frozen_mast() -> Iterator[tuple[EmulatedBoard, Frozen]]:
    """A barometer and a CO2 sensor on the real libraries, and a chip at 0x49 that can freeze the bus."""
    board = simulated(
        [
            FittedSensor("baro", "bp20", Bp20Options()),
            FittedSensor("air", "scd4x", Scd4xOptions()),
            FittedSensor("other", "bp20", Bp20Options(adc=AdcOptions(address=0x49))),
        ]
    )
    chip = Frozen()
    board._i2c.devices[0x49] = chip
    yield board, chip
    chip.thawed.set()


def test_sensors_on_a_frozen_bus_fail_and_don_t_hang(frozen_mast: tuple[EmulatedBoard, Frozen]) -> None:
    board, chip = frozen_mast
    baro, air, other = (
        Bp20(board, Bp20Options()),
        Scd4x(board, Scd4xOptions()),
        Bp20(board, Bp20Options(adc=AdcOptions(address=0x49))),
    )
    for driver in (baro, air, other):
        driver.start()
    assert baro.read()
    chip.thawed.clear()

    def hang() -> None:
        with contextlib.suppress(ReadError):
            other.read()

    thread = threading.Thread(target=hang, daemon=True)
    thread.start()
    eventually(lambda: chip.waiting)
    begin_s, cpu_s = time.monotonic(), time.thread_time()
    for _ in range(5):
        for driver in (baro, air):
            # Sensirion's library has words of its own for any OSError.
            with pytest.raises(ReadError, match=r"transaction that doesn't end|communicate via I2C"):
                driver.read()
    # One patience (2 s) for all ten, and no spinning while it lasts.
    assert time.monotonic() - begin_s < 15.0
    assert time.thread_time() - cpu_s < 0.2
    with pytest.raises(ReadError, match="another input's conversion"):
        Bp20(board, Bp20Options(adc=AdcOptions(address=0x49, input=1))).start()
    chip.thawed.set()
    thread.join(5)
    assert baro.read()
    assert air.read()
