"""What ``doctor`` examines, in order. Nothing is created, sent or locked.

It needs no more rights than the daemon has. Sensors are read only where no daemon has them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from drivers.interface import Board, DriverError
from gateway.clock.system_clock import kernel_synchronised
from gateway.commands.doctor import devices, i2c, network, pi, registry, relays, storage, traffic
from gateway.commands.doctor.findings import RESTART, SITE_MOVED, SITE_REMEDY, Finding
from gateway.commands.doctor.host import Host
from gateway.commands.reading_rows import Row, number_text, reason_words, row_of_reading, rows_of_status
from gateway.config import Config, check
from gateway.forwarding import capacity
from gateway.sampling.one_shot import OneShotRead
from gateway.sampling.sampler import open_fitted_board
from gateway.status.client import NoStatus, daemon_status

_SENSORS_S: Final = 20.0


def examine(path: Path, timeout_s: float, host: Host | None = None) -> Iterator[Finding]:
    """Everything, one after the other, as it is found. ``timeout_s`` is for Kafka's response."""
    config, problems = check(path)
    for problem in problems:
        yield Finding("config", "error" if problem.severity == "error" else "warning", str(problem))
    if config is None:
        return
    rate = capacity.readings_per_s(config)
    if not config.problems:
        yield Finding("config", "ok", f"{path}: {capacity.channels(config)} channels, {rate:.3g} readings/s")
    yield identity(config)
    yield from storage.outbox(config)
    yield from hardware(config, host or Host(), daemon=daemon_status)
    yield network.broker(config)
    yield from network.kafka(config, timeout_s)
    yield from registry.findings(config, timeout_s)
    # That it can't be reached is a finding already.
    with suppress(NoStatus):
        if (status := daemon_status(config)) is not None:
            yield from traffic.findings(config, status)
    yield clock(config)
    yield storage.volume(config)


def hardware(
    config: Config,
    host: Host,
    open_board: Callable[[Config], Board] = open_fitted_board,
    daemon: Callable[[Config], dict[str, Any] | None] = lambda config: None,
) -> Iterator[Finding]:
    """The board, its pins and buses, and the sensors on them."""
    wired = devices.needs(config.sensors)
    explained: set[str] = set()
    if config.board.kind == "raspberry-pi":
        yield from pi.findings(host)
        if host.is_pi:
            counting = getattr(config.board.options, "counting", "kernel")
            switches = bool(config.actuators)
            found = list(devices.findings(host, wired, counting=counting, relays=switches))
            yield from found
            if any(each.subject == "i2c" and each.state == "error" for each in found):
                explained = wired.on_bus
        else:
            explained = wired.on_bus | wired.on_pins
    if not (config.sensors or config.actuators):
        return
    try:
        status = daemon(config)
    except NoStatus as error:
        yield Finding("sensor", "warning", f"not examined: {error}")
        return
    if status is not None:
        yield from _from_daemon(config, status)
        yield from relays.switched(status.get("relays") or {})
        return
    try:
        board = open_board(config)
    except DriverError as error:
        yield Finding("board", "error", str(error))
        return
    try:
        if wired.on_bus - explained:
            try:
                found, silent = i2c.findings(board.i2c(), wired)
            except DriverError as error:
                found, silent = [Finding("i2c", "error", str(error))], wired.on_bus
            yield from found
            explained |= silent
        yield from _from_board(config, board, explained)
        if config.board.kind != "raspberry-pi" or host.is_pi:
            yield from relays.claimable(config.actuators, board)
    finally:
        board.close()


def _from_daemon(config: Config, status: Mapping[str, Any]) -> Iterator[Finding]:
    """The daemon's last readings, and whether they are of this place."""
    if (away_m := status.get("site_moved_m")) is not None:
        yield Finding("site", "warning", SITE_MOVED.format(away_m), SITE_REMEDY)
    if config.gateway.identity_key is not None and not status.get("run_proves_itself"):
        found = "the running daemon's run began before this gateway.identity_key, and isn't proven by it"
        yield Finding("identity", "warning", found, RESTART)
    for sensor in config.sensors:
        rows = rows_of_status(status, [sensor])
        if any(row.pending for row in rows):
            yield Finding("sensor", "warning", f"{sensor.name}: {rows[0].words}")
        else:
            yield _finding(sensor.name, rows)


def _from_board(config: Config, board: Board, explained: Collection[str]) -> Iterator[Finding]:
    """Each sensor but those ``explained``: its readings, and its driver's diagnosis of the wiring."""
    wanted = [sensor for sensor in config.sensors if sensor.name not in explained]
    for result in OneShotRead(config.gateway.id, wanted, board).run(_SENSORS_S):
        rows = [row_of_reading(reading, result.sensor, result.trouble) for reading in result.readings]
        if rows:
            finding = _finding(result.sensor, rows)
            # The diagnosis has the same at greater length.
            if finding.state != "error" or not result.diagnosis:
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
    """Whether the cloud can tell that readings are this gateway's."""
    if config.gateway.identity_key is None:
        return Finding("identity", "ok", "its runs don't prove themselves: there is no gateway.identity_key")
    return Finding("identity", "ok", "its runs prove themselves by gateway.identity_key")


def clock(config: Config) -> Finding:
    """Whether the time can be trusted."""
    if config.board.kind in ("simulated", "replay"):
        return Finding("clock", "ok", f"the {config.board.kind} board has its own")
    if kernel_synchronised():
        return Finding("clock", "ok", "synchronised, by the kernel")
    if config.clock.trust == "kernel":
        found = "not synchronised: readings wait in the outbox"
    else:
        found = 'not synchronised, and trusted: clock.trust = "always"'
    remedy = (
        "see timedatectl, chronyc tracking; a mast without a time server needs GPS or a clock chip, or until"
        " the next boot your phone's time: sudo fieldgate phone"
    )
    return Finding("clock", "warning", found, remedy)
