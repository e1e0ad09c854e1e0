"""Examines everything that ``doctor`` does, in order. Nothing is created, sent or locked.

It needs no more rights than the daemon has. Sensors are read only where no daemon has them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from drivers.interface import Board, DriverError
from gateway.clock.system_clock import kernel_synchronised
from gateway.commands.doctor import machine, services
from gateway.commands.doctor.host import Host
from gateway.commands.reading_rows import Row, number_text, reason_words, row_of_reading, rows_of_status
from gateway.config import Config, check
from gateway.forwarding import capacity
from gateway.sampling.one_shot import OneShotRead
from gateway.sampling.sensors import open_fitted_board
from gateway.status.client import NoStatus, daemon_status
from gateway.status.findings import CLOCK_REMEDY, RESTART
from gateway.status.status import Finding, Status

_SENSORS_S: Final = 20.0
_EXAMINED: Final = frozenset({"config", "disk", "heat", "power", "sensor"})
"""The areas that are examined on the machine itself: what the daemon has found there is the same."""


def examine(path: Path, timeout_s: float, host: Host | None = None) -> Iterator[Finding]:
    """Yields everything as it is found. ``timeout_s`` is for Kafka's response."""
    config, problems = check(path)
    for problem in problems:
        yield Finding("config", "error" if problem.severity == "error" else "warning", str(problem))
    if config is None:
        return
    rate = capacity.readings_per_s(config)
    if not config.problems:
        yield Finding("config", "ok", f"{path}: {capacity.channels(config)} channels, {rate:.3g} readings/s")
    yield identity(config)
    yield from services.outbox(config)
    status: Status | NoStatus | None
    try:
        status = daemon_status(config)
    except NoStatus as error:
        status = error
    yield from hardware(config, host or Host(), status=status)
    yield services.broker(config)
    yield from services.kafka(config, timeout_s)
    yield from services.registry(config, timeout_s)
    found = status.findings if isinstance(status, Status) else ()
    # A clock that the daemon trusts in any case is the kernel's to judge.
    judged = {each.area for each in found if each.area != "clock" or config.clock.trust == "kernel"}
    yield from (each for each in found if each.area in judged - _EXAMINED)
    if "clock" not in judged:
        yield clock(config)
    yield services.volume(config)


def hardware(
    config: Config,
    host: Host,
    open_board: Callable[[Config], Board] = open_fitted_board,
    status: Status | NoStatus | None = None,
) -> Iterator[Finding]:
    """Examines board, pins, buses and sensors; where the daemon runs, the sensors by its status."""
    wired = machine.needs(config.sensors)
    explained: set[str] = set()
    if config.board.kind == "raspberry-pi":
        yield from machine.pi(host)
        if host.is_pi:
            counting = getattr(config.board.options, "counting", "auto")
            switches = bool(config.actuators)
            found = list(machine.devices(host, wired, counting=counting, relays=switches))
            yield from found
            if any(each.area == "i2c" and each.severity == "error" for each in found):
                explained = wired.on_bus
        else:
            explained = wired.on_bus | wired.on_pins
    if not (config.sensors or config.actuators):
        return
    if isinstance(status, NoStatus):
        yield Finding("sensor", "warning", f"not examined: {status}")
        return
    if status is not None:
        yield from _from_daemon(config, status)
        return
    try:
        board = open_board(config)
    except DriverError as error:
        yield Finding("board", "error", str(error))
        return
    try:
        if wired.on_bus - explained:
            try:
                found, silent = machine.i2c_bus(board.i2c(), wired)
            except DriverError as error:
                found, silent = [Finding("i2c", "error", str(error))], wired.on_bus
            yield from found
            explained |= silent
        yield from _from_board(config, board, explained)
        if config.board.kind != "raspberry-pi" or host.is_pi:
            yield from machine.relay_pins(config.actuators, board)
    finally:
        board.close()


def _from_daemon(config: Config, status: Status) -> Iterator[Finding]:
    """Examines the daemon's last readings, and if they are proven."""
    if config.gateway.identity_key is not None and not status.run_proves_itself:
        found = "the running daemon's run began before this gateway.identity_key, and isn't proven by it"
        yield Finding("identity", "warning", found, RESTART)
    for sensor in config.sensors:
        rows = rows_of_status(status, [sensor])
        if any(row.pending for row in rows):
            yield Finding("sensor", "warning", f"{sensor.name}: {rows[0].words}")
        else:
            yield _finding(sensor.name, rows)


def _from_board(config: Config, board: Board, explained: Collection[str]) -> Iterator[Finding]:
    """Reads each sensor but those ``explained``: its readings, and its driver's diagnosis of the wiring."""
    wanted = [sensor for sensor in config.sensors if sensor.name not in explained]
    for result in OneShotRead(config.gateway.id, wanted, board).run(_SENSORS_S):
        rows = [row_of_reading(reading, result.sensor, result.trouble) for reading in result.readings]
        if rows:
            finding = _finding(result.sensor, rows)
            # The diagnosis has the same at greater length.
            if finding.severity != "error" or not result.diagnosis:
                yield finding
        else:
            yield Finding("sensor", "error", f"{result.sensor}: {result.trouble}")
        failed = any(row.failed for row in rows)
        for sentence in result.diagnosis:
            yield Finding("sensor", "error" if failed else "warning", f"{result.sensor}: {sentence}")


def _finding(sensor: str, rows: list[Row]) -> Finding:
    trouble = next((row.trouble for row in rows if row.trouble), None)
    if trouble is not None:
        return Finding("sensor", "error", f"{sensor}: {trouble}")
    values = ", ".join(number_text(row.value, row.unit) for row in rows)
    reasons = dict.fromkeys(reason for row in rows for reason in row.reasons)
    if not reasons:
        return Finding("sensor", "ok", f"{sensor}: {values}")
    words = "; ".join(map(reason_words, reasons))
    failed = any(row.failed for row in rows)
    return Finding("sensor", "error" if failed else "warning", f"{sensor}: {values}: {words}")


def identity(config: Config) -> Finding:
    """Examines if the cloud can prove that readings are this gateway's."""
    if config.gateway.identity_key is None:
        return Finding("identity", "ok", "its runs don't prove themselves: there is no gateway.identity_key")
    return Finding("identity", "ok", "its runs prove themselves by gateway.identity_key")


def clock(config: Config) -> Finding:
    """Examines if the time can be trusted, by the kernel."""
    if config.board.kind in ("simulated", "replay"):
        return Finding("clock", "ok", f"the {config.board.kind} board has its own")
    if kernel_synchronised():
        return Finding("clock", "ok", "synchronised, by the kernel")
    if config.clock.trust == "kernel":
        found = "not synchronised: readings wait in the outbox"
    else:
        found = 'not synchronised, and trusted: clock.trust = "always"'
    return Finding("clock", "warning", found, CLOCK_REMEDY)
