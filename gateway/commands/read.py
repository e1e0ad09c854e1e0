"""``fieldgate read`` shows the present reading of each sensor, raw and value, and why its quality is so.

They come from the daemon where one runs: it has the sensors' pins and buses. Else they are opened for a
moment.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from queue import SimpleQueue
from typing import Final, Literal, NamedTuple

from rich.console import Console

from cloud.command_line import (
    FAILED,
    OK,
    CommandError,
    add_config,
    add_json,
    add_timeout,
    positive,
    without_logs,
)
from cloud.toml_problems import nearest
from cloud.wire.reading_records import Reading
from gateway.commands.reading_rows import (
    Row,
    line,
    print_rows,
    row_of_reading,
    row_without_reading,
    rows_of_status,
)
from gateway.config import Config, SensorConfig, load
from gateway.sampling.one_shot import OneShotRead
from gateway.sampling.sampler import open_fitted_board
from gateway.status.client import NoStatus, daemon_status
from gateway.status.status import Status

_FOLLOW_S: Final = 0.3
_AGAIN_S: Final = 0.2
_PERIOD_S: Final = 1.0
NOT_YET: Final = 75
"""Exit code: nothing is wrong, but some sensor has no reading yet (EX_TEMPFAIL of sysexits.h: try again)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which sensors, once or again and again."""
    parser.add_argument("sensors", nargs="*", metavar="SENSOR", help="these only")
    add_config(parser)
    add_json(parser)
    parser.add_argument(
        "--follow", action="store_true", help="each second, until Ctrl-C: spin a cup and see it"
    )
    parser.add_argument("--seconds", type=positive, metavar="N", help="follow for N seconds")
    add_timeout(parser, 20.0, "seconds to wait for a sensor")


def run(arguments: argparse.Namespace) -> int:
    """Prints it; returns 0, or 1 where a sensor has no value or a failed one.

    NOT_YET where nothing has failed and the running daemon has no reading of a sensor yet, after
    ``--timeout`` or because it isn't due within that.
    Raises ConfigError, CommandError, NoStatus, DriverError.
    """
    # What goes wrong stands in the table.
    without_logs("gateway", "drivers")
    config = load(arguments.config)
    sensors = chosen_sensors(config, arguments.sensors)
    if arguments.follow or arguments.seconds is not None:
        _follow(config, sensors, arguments.seconds, as_json=arguments.json)
        return OK
    status, now = daemon_status(config), None
    if status is not None:
        status = _with_first_readings(config, sensors, status, arguments.timeout)
        rows, now = rows_of_status(status, sensors), datetime.fromisoformat(status.now)
    else:
        rows = _rows_of_board(config, sensors, arguments.timeout)
    failed, pending = any(row.failed for row in rows), any(row.pending for row in rows)
    if arguments.json:
        result = {
            "ok": not failed and not pending,
            "source": "board" if status is None else "daemon",
            "readings": [row.as_json() for row in rows],
        }
        print(json.dumps(result, indent=2))
    else:
        print_rows(rows, Console(highlight=False), now)
    return FAILED if failed else NOT_YET if pending else OK


def chosen_sensors(config: Config, names: Sequence[str]) -> list[SensorConfig]:
    """Returns the sensors of these names, all for no name. Raises CommandError."""
    by_name = {sensor.name: sensor for sensor in config.sensors}
    for name in names:
        if name not in by_name:
            near = nearest(name, by_name)
            hint = f" (did you mean {near}?)" if near else f"; there are {', '.join(by_name)}"
            raise CommandError(f"no sensor {name!r}{hint}")
    if not by_name:
        raise CommandError("the config has no sensors")
    return [by_name[name] for name in dict.fromkeys(names)] or list(config.sensors)


def _with_first_readings(
    config: Config, sensors: Sequence[SensorConfig], status: Status, timeout_s: float
) -> Status:
    """Returns the daemon's status; it waits for first readings that should come within the time."""
    end_s = time.monotonic() + timeout_s
    soon = [sensor for sensor in sensors if 2 * sensor.interval_s <= timeout_s]
    while any(row.pending for row in rows_of_status(status, soon)) and time.monotonic() < end_s:
        time.sleep(_AGAIN_S)
        status = daemon_status(config) or status
    return status


def _rows_of_board(config: Config, sensors: Sequence[SensorConfig], timeout_s: float) -> list[Row]:
    rows = []
    with closing(open_fitted_board(config)) as board:
        for result in OneShotRead(config.gateway.id, sensors, board).run(timeout_s):
            rows += [row_of_reading(reading, result.sensor, result.trouble) for reading in result.readings]
            if not result.readings:
                rows.append(row_without_reading(result.sensor, result.trouble))
    return rows


def _follow(config: Config, sensors: Sequence[SensorConfig], seconds: float | None, *, as_json: bool) -> None:
    """Prints a line for each reading until Ctrl-C or the time is over: spin a cup by hand and see its Hz."""
    console = Console(highlight=False, soft_wrap=True)
    end_s = time.monotonic() + (float("inf") if seconds is None else seconds)
    with suppress(KeyboardInterrupt), open_source(config, sensors) as source:
        while (left_s := end_s - time.monotonic()) > 0:
            for row in source.poll():
                if as_json:
                    print(json.dumps(row.as_json()), flush=True)
                else:
                    console.print(line(row))
            time.sleep(min(_FOLLOW_S, left_s))


class Source(NamedTuple):
    """Gives readings by ``poll``: those since the last poll, each once, oldest first. It raises NoStatus."""

    kind: Literal["daemon", "board"]
    poll: Callable[[], list[Row]]


@contextmanager
def open_source(config: Config, sensors: Sequence[SensorConfig]) -> Iterator[Source]:
    """Opens the daemon where one runs, else the board. Raises NoStatus, DriverError."""
    if daemon_status(config) is not None:
        shown: dict[str, tuple[str, int]] = {}
        yield Source("daemon", lambda: _daemons(config, sensors, shown))
        return
    queue: SimpleQueue[tuple[Reading, str]] = SimpleQueue()
    with closing(open_fitted_board(config)) as board:
        read = OneShotRead(config.gateway.id, sensors, board, _PERIOD_S, lambda *reading: queue.put(reading))
        read.start()
        try:
            yield Source("board", lambda: _boards(queue, read.troubles))
        finally:
            read.stop()


def _daemons(config: Config, sensors: Sequence[SensorConfig], shown: dict[str, tuple[str, int]]) -> list[Row]:
    """Returns the new last readings in the daemon's status: the last one of several between two polls."""
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
    """Returns the readings of the sensors' threads, once a second where they can be."""
    found = [queue.get() for _ in range(queue.qsize())]
    return [row_of_reading(reading, sensor, troubles.get(sensor)) for reading, sensor in found]
