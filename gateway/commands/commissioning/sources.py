"""Where readings come from while sensors are looked at: the running daemon, or the board where none runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Final, Literal, Protocol

from cloud.wire.reading_records import Reading
from drivers.interface import Board
from gateway.commands.commissioning.checks import Window
from gateway.commands.commissioning.steps import Phase
from gateway.commands.reading_rows import Row, row_of_reading, rows_of_status
from gateway.config import Config
from gateway.sampling.one_shot import OneShotRead
from gateway.sampling.sensors import open_fitted_board
from gateway.status.client import NoStatus, daemon_status

_POLL_S: Final = 0.3
_PERIOD_S: Final = 1.0


class Source(Protocol):
    """New readings, each once."""

    @property
    def kind(self) -> Literal["daemon", "board"]:
        """Who has the sensors."""

    def poll(self) -> list[Row]:
        """What came since the last poll, oldest first. Raises NoStatus."""

    def close(self) -> None:
        """Give back what was taken."""


class DaemonSource:
    """The daemon's last readings, asked for again and again: some that come quickly aren't seen."""

    kind: Final = "daemon"

    def __init__(self, config: Config) -> None:
        self._config = config
        self._shown: dict[str, tuple[str, int]] = {}

    def poll(self) -> list[Row]:
        """The last readings that are new. Raises NoStatus."""
        status = daemon_status(self._config)
        if status is None:
            raise NoStatus("the daemon has ended: sudo systemctl start fieldgate, then go on")
        run, new = str(status.get("run")), []
        channels: dict[str, Any] = status.get("channels") or {}
        known = [
            sensor
            for sensor in self._config.sensors
            if any(channel.rpartition(".")[0] == sensor.name for channel in channels)
        ]
        for row in rows_of_status(status, known):
            if self._shown.get(row.channel) != (run, row.seq):
                self._shown[row.channel] = (run, row.seq)
                new.append(row)
        return new

    def close(self) -> None:
        """Nothing was taken."""


class BoardSource:
    """All sensors of a config, opened here, read once a second where they can be."""

    kind: Final = "board"

    def __init__(self, config: Config) -> None:
        self._rows: SimpleQueue[tuple[Reading, str]] = SimpleQueue()
        self._board: Board = open_fitted_board(config)
        self._look = OneShotRead(
            config.gateway.id, config.sensors, self._board, _PERIOD_S, lambda *told: self._rows.put(told)
        )
        self._look.start()

    def poll(self) -> list[Row]:
        """What the sensors said since."""
        told, troubles = [self._rows.get() for _ in range(self._rows.qsize())], self._look.troubles
        return [row_of_reading(reading, sensor, troubles.get(sensor)) for reading, sensor in told]

    def close(self) -> None:
        """Give pins and buses back."""
        self._look.stop()
        self._board.close()


def open_source(config: Config) -> Source:
    """The daemon where one runs, else the board. Raises NoStatus, DriverError."""
    return BoardSource(config) if daemon_status(config) is None else DaemonSource(config)


class Watch:
    """Remembers the last readings, so that what changes rarely need not be waited for."""

    def __init__(
        self,
        source: Source,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source = source
        self._clock = clock
        self._sleep = sleep
        self._last: dict[str, Row] = {}

    def phase(
        self,
        phase: Phase,
        before: Sequence[Window],
        show: Callable[[Row], None],
        interrupted: Callable[[], bool] = lambda: False,
    ) -> Window:
        """Watch until it is enough, time is over or the person ends it. Raises NoStatus."""
        window: dict[str, list[Row]] = {}

        def take(rows: Sequence[Row]) -> None:
            for row in rows:
                window.setdefault(row.channel, []).append(row)
                if row.channel in phase.shows:
                    show(row)

        self._poll()
        if not phase.fresh:
            take([row for row in self._last.values() if row.channel in phase.shows])
        end_s = self._clock() + phase.limit_s
        while not phase.enough((*before, window)) and self._clock() < end_s and not interrupted():
            self._sleep(_POLL_S)
            take(self._poll())
        return window

    def _poll(self) -> list[Row]:
        rows = self._source.poll()
        self._last.update((row.channel, row) for row in rows)
        return rows
