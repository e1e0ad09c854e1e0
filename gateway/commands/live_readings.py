"""New readings while sensors are handled: of the running daemon, or of the board where none runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Final, Literal, NamedTuple

from cloud.wire.reading_records import Reading
from gateway.commands.reading_rows import Row, row_of_reading, rows_of_status
from gateway.config import Config, SensorConfig
from gateway.sampling.one_shot import OneShotRead
from gateway.sampling.sensors import open_fitted_board
from gateway.status.client import NoStatus, daemon_status

_PERIOD_S: Final = 1.0


class Source(NamedTuple):
    """``poll`` gives the readings since the last poll, each once, oldest first. It raises NoStatus."""

    kind: Literal["daemon", "board"]
    poll: Callable[[], list[Row]]


@contextmanager
def open_source(config: Config, sensors: Sequence[SensorConfig]) -> Iterator[Source]:
    """The daemon where one runs, else the board, opened for as long. Raises NoStatus, DriverError."""
    if daemon_status(config) is not None:
        shown: dict[str, tuple[str, int]] = {}
        yield Source("daemon", lambda: _daemons(config, sensors, shown))
        return
    queue: SimpleQueue[tuple[Reading, str]] = SimpleQueue()
    board = open_fitted_board(config)
    try:
        read = OneShotRead(config.gateway.id, sensors, board, _PERIOD_S, lambda *reading: queue.put(reading))
        read.start()
        try:
            yield Source("board", lambda: _boards(queue, read.troubles))
        finally:
            read.stop()
    finally:
        board.close()


def _daemons(config: Config, sensors: Sequence[SensorConfig], shown: dict[str, tuple[str, int]]) -> list[Row]:
    """The last readings in the daemon's status that are new: of several between two polls the last one."""
    status = daemon_status(config)
    if status is None:
        raise NoStatus("the daemon has ended: sudo systemctl start fieldgate, then repeat the command")
    run, new = status.run, []
    for row in rows_of_status(status, sensors):
        if not row.pending and shown.get(row.channel) != (run, row.seq):
            shown[row.channel] = (run, row.seq)
            new.append(row)
    return new


def _boards(queue: SimpleQueue[tuple[Reading, str]], troubles: Mapping[str, str]) -> list[Row]:
    """The readings of the sensors' threads, once a second where they can be."""
    found = [queue.get() for _ in range(queue.qsize())]
    return [row_of_reading(reading, sensor, troubles.get(sensor)) for reading, sensor in found]
