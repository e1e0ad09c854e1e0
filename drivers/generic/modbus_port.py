"""Where Modbus devices are, and what a board offers of them; beneath the boards' interface, which uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class ByteStream(Protocol):
    """A connection that carries frames (Modbus). All raise OSError once it has ended."""

    def write(self, sent: bytes) -> None:
        """Send a frame; what was received before it is dropped."""

    def read(self, timeout_s: float) -> bytes:
        """What has come, or comes within the time; else empty."""

    def close(self) -> None:
        """End the connection."""


@dataclass(frozen=True, slots=True)
class ModbusPort:
    """Where Modbus devices are: a serial ``device`` with its line settings, or a ``host`` and TCP port."""

    device: str | None
    host: str | None = None
    port: int = 502
    rtu_over_tcp: bool = False
    baudrate: int = 19_200
    parity: str = "even"
    stop_bits: int = 1
    any_ids: bool = False

    @property
    def rtu(self) -> bool:
        """Whether frames have a CRC, and not the header of Modbus TCP."""
        return self.device is not None or self.rtu_over_tcp

    @property
    def name(self) -> str:
        """The device's path, or host:port."""
        return self.device or f"{self.host}:{self.port}"

    @property
    def character_s(self) -> float:
        """Seconds that a byte takes on a serial line, 0 over TCP: start, eight, parity and stop bits."""
        bits = 9 + (self.parity != "none") + self.stop_bits
        return 0.0 if self.device is None else bits / self.baudrate


class ModbusRegisters(Protocol):
    """The devices on one line."""

    def read_registers(
        self, unit_id: int, table: str, address: int, count: int, timeout_s: float
    ) -> tuple[int, ...]:
        """The words of adjacent registers, of the table "holding" or "input", addresses from 0.

        Words of "coil" and "discrete" are single bits.

        Raises SilentError, ChecksumError, ReadError.
        """

    def close(self) -> None:
        """End the connection; the next request makes a new one."""
