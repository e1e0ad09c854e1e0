"""A gateway on a machine whose clock a test sets.

``python -m tests.faults.unset_clock FILE -c CONFIG --set KEY=VALUE …``

The sensors are those of the simulated board, which stand still; time is the machine's, and FILE has what its
kernel answers.
"""

from __future__ import annotations

import logging
import mmap
import struct
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from cloud.command_line import override
from drivers.interface import (
    W1,
    Board,
    Clock,
    EdgeCounter,
    FittedSensor,
    I2cBus,
    Iio,
    LineStream,
    ModbusPort,
    ModbusRegisters,
    OutputPin,
)
from gateway.clock.system_clock import Machine, since_boot_ns
from gateway.config import Config, load
from gateway.daemon.build import build
from gateway.sampling import sampler as sampling

_STATE: Final = struct.Struct("<q?16s")


class MachineFile:
    """By how much the clock is wrong (ns), whether the kernel calls it synchronised, and the boot's id."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            path.write_bytes(bytes(_STATE.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _STATE.size)

    def read(self) -> tuple[int, bool, str]:
        wrong_ns, synchronised, boot = _STATE.unpack_from(self._memory)
        return wrong_ns, synchronised, boot.rstrip(b"\0").decode()

    def write(
        self, *, wrong_s: float | None = None, synchronised: bool | None = None, boot: str | None = None
    ) -> None:
        before = self.read()
        _STATE.pack_into(
            self._memory,
            0,
            before[0] if wrong_s is None else round(wrong_s * 1e9),
            before[1] if synchronised is None else synchronised,
            (before[2] if boot is None else boot).encode(),
        )

    def machine(self) -> Machine:
        return Machine(
            boot=self.read()[2],
            synchronised=lambda: self.read()[1],
            wall_ns=lambda: time.time_ns() + self.read()[0],
            boot_ns=since_boot_ns,
        )


class MachineTime:
    """A board whose time is the machine's, as a Pi's is."""

    clock: Clock | None = None

    def __init__(self, board: Board) -> None:
        self._board = board

    def monotonic(self) -> float:
        return time.monotonic()

    def count_edges(self, pin: int) -> EdgeCounter:
        return self._board.count_edges(pin)

    def drive(self, pin: int, *, high: bool, pull_up: bool) -> OutputPin:
        return self._board.drive(pin, high=high, pull_up=pull_up)

    def pin_user(self, pin: int) -> str | None:
        return self._board.pin_user(pin)

    def i2c(self) -> I2cBus:
        return self._board.i2c()

    def dht_edges(self, pin: int) -> Callable[[], array[int]] | None:
        return self._board.dht_edges(pin)

    def connect_gpsd(self, host: str, port: int) -> LineStream:
        return self._board.connect_gpsd(host, port)

    def iio(self) -> Iio:
        return self._board.iio()

    def w1(self) -> W1:
        return self._board.w1()

    def modbus(self, port: ModbusPort) -> ModbusRegisters:
        return self._board.modbus(port)

    def refit(self, sensors: Sequence[FittedSensor]) -> Callable[[], None]:
        return self._board.refit(sensors)

    def close(self) -> None:
        self._board.close()


def main(state: Path, config: Path, overrides: Mapping[str, object]) -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    open_simulated = sampling.open_fitted_board

    def open_fitted_board(config: Config) -> Board:
        return MachineTime(open_simulated(config))

    sampling.open_fitted_board = open_fitted_board
    return build(load(config, overrides), config, overrides, MachineFile(state).machine()).run(None)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[3]), dict(map(override, sys.argv[5::2]))))
