"""New readings while sensors are handled: of the running daemon, or of the board where none runs."""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue
from typing import Final, Literal, Protocol

from cloud.wire.reading_records import Reading
from gateway.commands.reading_rows import Row, row_of_reading, rows_of_status
from gateway.config import Config, SensorConfig
from gateway.sampling.one_shot import OneShotRead
from gateway.sampling.sensors import open_fitted_board
from gateway.status.client import NoStatus, daemon_status

_PERIOD_S: Final = 1.0


class Source(Protocol):
    """New readings, each once."""

    @property
    def kind(self) -> Literal["daemon", "board"]:
        """Which of the two has the sensors."""

    def poll(self) -> list[Row]:
        """The readings since the last poll, oldest first. Raises NoStatus."""

    def close(self) -> None:
        """Release the hardware."""


class DaemonSource:
    """The last readings in the daemon's status: of several between two polls the last one."""

    kind: Final = "daemon"

    def __init__(self, config: Config, sensors: Sequence[SensorConfig]) -> None:
        self._config, self._sensors = config, sensors
        self._shown: dict[str, tuple[str, int]] = {}

    def poll(self) -> list[Row]:
        """The last readings that are new. Raises NoStatus."""
        status = daemon_status(self._config)
        if status is None:
            raise NoStatus("the daemon has ended: sudo systemctl start fieldgate, then repeat the command")
        run, new = str(status.get("run")), []
        for row in rows_of_status(status, self._sensors):
            if not row.pending and self._shown.get(row.channel) != (run, row.seq):
                self._shown[row.channel] = (run, row.seq)
                new.append(row)
        return new

    def close(self) -> None:
        """It holds no hardware."""


class BoardSource:
    """Sensors opened here, read once a second where they can be."""

    kind: Final = "board"

    def __init__(self, config: Config, sensors: Sequence[SensorConfig]) -> None:
        self._readings: SimpleQueue[tuple[Reading, str]] = SimpleQueue()
        self._board = open_fitted_board(config)
        self._read = OneShotRead(
            config.gateway.id, sensors, self._board, _PERIOD_S, lambda *reading: self._readings.put(reading)
        )
        self._read.start()

    def poll(self) -> list[Row]:
        """The readings since the last poll."""
        found = [self._readings.get() for _ in range(self._readings.qsize())]
        troubles = self._read.troubles
        return [row_of_reading(reading, sensor, troubles.get(sensor)) for reading, sensor in found]

    def close(self) -> None:
        """Release pins and buses."""
        self._read.stop()
        self._board.close()


def open_source(config: Config, sensors: Sequence[SensorConfig]) -> Source:
    """The daemon where one runs, else the board. Raises NoStatus, DriverError."""
    if daemon_status(config) is None:
        return BoardSource(config, sensors)
    return DaemonSource(config, sensors)
