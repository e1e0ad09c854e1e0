"""Modbus devices of another project, modbus-tk, in a process of its own: ``simulated`` starts one.

Unit 1 has holding and input registers 0 to 99, and coils and discrete inputs of which each third is on. The
program's arguments are a serial port, or a TCP port on this machine, and the words from register 0 on; each
line on its standard input sets them anew.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.servers import eventually

UNIT = 1
REGISTERS = 100
_DEADLINE_S = 30.0


def main(where: str, words: str) -> None:
    import serial
    from modbus_tk import defines, modbus_rtu, modbus_tcp

    if where.isdigit():
        server = modbus_tcp.TcpServer(port=int(where), address="127.0.0.1")
    else:
        server = modbus_rtu.RtuServer(serial.Serial(where, 19_200), error_on_missing_slave=False)
    unit = server.add_slave(UNIT)
    unit.add_block("holding", defines.HOLDING_REGISTERS, 0, REGISTERS)
    unit.add_block("input", defines.ANALOG_INPUTS, 0, REGISTERS)
    unit.set_values("holding", 0, [int(word) for word in words.split(",")])
    unit.set_values("input", 0, [REGISTERS - at for at in range(REGISTERS)])
    for name, kind in (("coil", defines.COILS), ("discrete", defines.DISCRETE_INPUTS)):
        unit.add_block(name, kind, 0, REGISTERS)
        unit.set_values(name, 0, [int(at % 3 == 0) for at in range(REGISTERS)])
    server.start()
    if where.isdigit():
        eventually(lambda: socket.create_connection(("127.0.0.1", int(where)))).close()
    print("ready", flush=True)  # noqa: T201 - the other side waits for it
    for line in sys.stdin:
        unit.set_values("holding", 0, [int(word) for word in line.split(",")])
        print("set", flush=True)  # noqa: T201
    server.stop()


class Simulator:
    """The running process."""

    def __init__(self, where: str, words: Sequence[int]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, where, ",".join(map(str, words))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self._expect("ready")

    def set(self, words: Sequence[int]) -> None:
        """Change its holding registers from 0 on."""
        assert self._process.stdin is not None
        self._process.stdin.write(",".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        self._expect("set")

    def stop(self) -> None:
        """Kill it: its connections end."""
        self._process.kill()
        self._process.communicate()

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], _DEADLINE_S)[0], f"no {word!r}"
        assert self._process.stdout.readline().strip() == word


@contextmanager
def simulated(where: str, words: Sequence[int] = tuple(range(REGISTERS))) -> Iterator[Simulator]:
    """A simulator on a serial port or a TCP port."""
    simulator = Simulator(where, words)
    try:
        yield simulator
    finally:
        simulator.stop()


class Cable:
    """Two pseudo-terminals, joined: ``ends`` are their paths; ``damage`` changes what the second sends."""

    def __init__(self) -> None:
        self._masters: list[int] = []
        self._slaves: list[int] = []
        self.ends: list[str] = []
        self.requests = bytearray()
        self.damage: Callable[[bytes], bytes] = lambda answer: answer
        self.echoes = False
        for _ in range(2):
            master, slave = os.openpty()
            self._masters.append(master)
            # Held open, or the master has errors until a program opens it.
            self._slaves.append(slave)
            self.ends.append(os.ttyname(slave))
        self._wake, self._woken = os.pipe()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.close(self._woken)
        self._thread.join()
        for each in (*self._masters, *self._slaves, self._wake):
            os.close(each)

    def _carry(self) -> None:
        first, second = self._masters
        while True:
            ready, _, _ = select.select([first, second, self._wake], [], [])
            if self._wake in ready:
                return
            if first in ready:
                request = os.read(first, 512)
                self.requests += request
                if self.echoes:
                    os.write(first, request)
                os.write(second, request)
            if second in ready:
                os.write(first, self.damage(os.read(second, 512)))


if __name__ == "__main__":
    main(*sys.argv[1:])
