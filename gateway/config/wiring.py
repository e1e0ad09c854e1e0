"""The board and what is wired to it: pins, converter inputs, bus addresses, and which sensors are twins."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cloud.toml_problems import ConfigError, KeyPath, nearest, quote
from drivers.boards.registry import BOARDS, I2C_PINS, RESERVED, PiOptions, ReplayOptions, SimulatedOptions
from drivers.driver_type import Claim
from drivers.emulation.environment import FITS, amount_problem
from drivers.interface import BoardError
from drivers.registry import driver_type
from drivers.relay import RelayOptions
from gateway.config.model import BoardConfig, SensorConfig
from gateway.config.outputs import ActuatorConfig, read_actuators
from gateway.config.quality import BIN_S
from gateway.config.source import Source

DEFAULT_KIND = "raspberry-pi"


def read_board(source: Source) -> BoardConfig | None:
    """The board and its options. None on errors."""
    raw = source.table("board")
    if raw is None:
        return None
    kind = raw.get("kind", DEFAULT_KIND)
    if not isinstance(kind, str) or kind not in BOARDS:
        guess = nearest(kind, BOARDS) if isinstance(kind, str) else None
        words = ", ".join(quote(word) for word in BOARDS)
        source.error(("board", "kind"), f"must be one of {words}, not {quote(kind)}", guess)
        return None
    given = {key: value for key, value in raw.items() if key != "kind"}
    options = source.model(BOARDS[kind], given, ("board",))
    start = options.start if isinstance(options, SimulatedOptions) else None
    if start is not None and (problem := _start_problem(start)) is not None:
        source.error(("board", "start"), problem)
        return None
    return BoardConfig(kind, options) if options is not None else None


def check_emulated(source: Source, board: BoardConfig, sensors: Sequence[SensorConfig]) -> None:
    """A board that isn't real can have only sensors whose driver has an emulation."""
    if isinstance(board.options, PiOptions):
        return
    for position, sensor in enumerate(sensors):
        if driver_type(sensor.driver).emulate is None:
            message = f"driver {quote(sensor.driver)} has no emulation: it needs a real board"
            source.error(("sensor", position, "driver"), message)


def check_replay(source: Source, board: BoardConfig, sensors: Sequence[SensorConfig], base_dir: Path) -> None:
    """A replayed file is there and has a column for every channel."""
    options = board.options
    if not isinstance(options, ReplayOptions):
        return
    # Other boards don't load it.
    from drivers.boards.replay import check_header as check_columns, columns_of

    file = base_dir / options.file
    if not file.is_file():
        source.warn(("board", "file"), f"there is no file {file}")
    unused = dict.fromkeys(options.columns)
    missing: list[str] = []
    for sensor in sensors:
        names = [f"{sensor.name}.{channel.quantity}" for channel in sensor.channels]
        alone = len(names) == 1 and sensor.name in options.columns
        missing += [name for name in names if name not in options.columns and not alone]
        for name in [*names, sensor.name] if alone else names:
            unused.pop(name, None)
    for name in missing:
        guess = nearest(name, unused) or nearest(name.partition(".")[0], unused)
        hint = f"; {quote(guess)} is no channel" if guess is not None else ""
        source.error(("board", "columns"), f"no column is mapped to {name}{hint}")
    if not missing:
        for name in unused:
            source.warn(("board", "columns", name), "no sensor has this channel; the column isn't used")
    if not missing and file.is_file():
        used = {name: column for name, column in columns_of(options).items() if name not in unused}
        try:
            check_columns(file, options, used)
        except BoardError as error:
            source.error(("board", "columns"), str(error))


def check_faults(source: Source, board: BoardConfig, sensors: Sequence[SensorConfig]) -> None:
    """A simulated fault is one that its sensor's hardware can have."""
    options = board.options
    if not isinstance(options, SimulatedOptions):
        return
    drivers = {sensor.name: sensor.driver for sensor in sensors}
    for position, fault in enumerate(options.faults):
        path = ("board", "faults", position)
        driver = drivers.get(fault.sensor)
        if driver is None:
            guess = nearest(fault.sensor, drivers)
            source.error((*path, "sensor"), f"there is no sensor {quote(fault.sensor)}", guess)
        elif driver not in FITS[fault.kind]:
            kinds = ", ".join(quote(kind) for kind, fitting in FITS.items() if driver in fitting)
            source.error(
                (*path, "kind"),
                f"a {driver} can't have the fault {quote(fault.kind)}; there are {kinds or 'none'}",
            )
        if fault.every_s is not None and fault.kind != "spike":
            source.error((*path, "every_s"), 'counts only for kind = "spike"')
        if fault.amount is not None and (problem := amount_problem(fault)) is not None:
            source.error((*path, "amount"), problem)


def _start_problem(start: str) -> str | None:
    try:
        moment = datetime.fromisoformat(start)
        if moment.tzinfo is None:
            return f"needs a time zone, as in 2026-06-01T00:00:00Z, not {quote(start)}"
    except ValueError:
        return f"must be an RFC 3339 time, as in 2026-06-01T00:00:00Z, not {quote(start)}"
    return f"must not lie in the future: {quote(start)}" if moment > datetime.now(UTC) else None


Fitted = Sequence[tuple[KeyPath, SensorConfig]]


def check_pairs(source: Source, sensors: Fitted, names: Collection[str]) -> None:
    """A pair names another sensor that is there."""
    for path, sensor in sensors:
        if sensor.pair is None:
            continue
        if sensor.pair == sensor.name:
            source.error((*path, "pair"), "names the sensor itself; it must name its redundant twin")
        elif sensor.pair not in names:
            guess = nearest(sensor.pair, [name for name in names if name != sensor.name])
            source.error((*path, "pair"), f"there is no sensor {quote(sensor.pair)}", guess)


def _check_twin(source: Source, path: KeyPath, sensor: SensorConfig, other: SensorConfig) -> None:
    """Twins name each other and measure the same at the same height."""
    key, twin = (*path, "pair"), quote(other.name)
    if other.pair != sensor.name:
        theirs = "has no pair" if other.pair is None else f"has the pair {quote(other.pair)}"
        source.warn(
            key, f"{twin} {theirs}: twins name each other, so write pair = {quote(sensor.name)} there"
        )
    elif None not in (sensor.height_m, other.height_m) and sensor.height_m != other.height_m:
        source.warn(
            key, f"{twin} is at {other.height_m:g} m, this is at {sensor.height_m:g} m: twins belong together"
        )


def check_header(
    source: Source, board: BoardConfig, sensors: Sequence[SensorConfig], relays: Sequence[RelayOptions] = ()
) -> None:
    """Pins that a Raspberry Pi needs for something else."""
    if not isinstance(board.options, PiOptions):
        return
    claims: list[tuple[KeyPath, str, Claim]] = [
        (("sensor", position, *claim.key), sensor.name, claim)
        for position, sensor in enumerate(sensors)
        for claim in driver_type(sensor.driver).claims(sensor.options)
    ]
    claims += [
        (("actuator", position, "pin"), "", Claim(f"BCM pin {relay.pin}", ("pin",)))
        for position, relay in enumerate(relays)
    ]
    on_bus = next((name for _, name, claim in claims if claim.part.startswith("I2C address ")), None)
    for key, _, claim in claims:
        for pin, purpose in RESERVED.items():
            if claim.part == f"BCM pin {pin}":
                source.warn(key, f"BCM {pin} is the Raspberry Pi's pin for {purpose}: use another one")
        for pin, line in I2C_PINS.items():
            if on_bus is not None and claim.part == f"BCM pin {pin}":
                source.warn(
                    key, f"BCM {pin} is {line} of the I2C bus that {quote(on_bus)} is on: use another one"
                )


def check_twins(source: Source, sensors: Fitted) -> None:
    """A twin measures what the sensor measures, as often where that is seldom: else nothing is compared."""
    by_name = {sensor.name: sensor for _, sensor in sensors}
    positions = {name: position for position, name in enumerate(by_name)}
    for path, sensor in sensors:
        twin = by_name.get(sensor.pair or "")
        if twin is None or twin is sensor:
            continue
        own = [channel.quantity for channel in sensor.channels]
        if not any(channel.quantity in own for channel in twin.channels):
            source.error(
                (*path, "pair"), f"{quote(twin.name)} ({twin.driver}) measures no {' or '.join(own)}: no twin"
            )
        elif max(BIN_S, sensor.interval_s) != max(BIN_S, twin.interval_s):
            source.warn(
                (*path, "pair"),
                f"{quote(twin.name)} is read every {twin.interval_s:g} s, this sensor every"
                f" {sensor.interval_s:g}: beyond {BIN_S:g} s only equal intervals are compared",
            )
        elif twin.pair != sensor.name or positions[sensor.name] < positions[twin.name]:
            # What concerns both is reported once.
            _check_twin(source, path, sensor, twin)


def check_needs(source: Source, sensors: Fitted, names: Collection[str]) -> None:
    """A sensor that is compensated by another's readings names one that measures them."""
    measured = {sensor.name: [channel.quantity for channel in sensor.channels] for _, sensor in sensors}
    for path, sensor in sensors:
        for need in driver_type(sensor.driver).needs(sensor.options):
            key = (*path, *need.key)
            if need.sensor not in names:
                able = [name for name, quantities in measured.items() if need.quantity in quantities]
                source.error(key, f"there is no sensor {quote(need.sensor)}", nearest(need.sensor, able))
            elif need.quantity not in measured.get(need.sensor, [need.quantity]):
                has = ", ".join(measured[need.sensor])
                source.error(key, f"{quote(need.sensor)} measures {has}, not {need.quantity}")


def check_wiring(
    source: Source, tables: Iterable[tuple[KeyPath, Mapping[str, Any]]], sensors: Fitted
) -> None:
    """No part of the board twice; the second's problem names the first's line.

    Pins also where the rest of a sensor's table is wrong or not written yet.
    """
    fitted = dict(sensors)
    taken: dict[str, list[tuple[Claim, str]]] = {}
    for position, (path, table) in enumerate(tables, 1):
        pin, sensor = table.get("pin"), fitted.get(path)
        claims = [Claim(f"BCM pin {pin}", ("pin",))] if type(pin) is int else []
        if sensor is not None:
            claims += driver_type(sensor.driver).claims(sensor.options)
        own = {claim.part: claim for claim in claims}
        reported: set[tuple[str, ...]] = set()
        for part, claim in own.items():
            clashing = [(other, owner) for other, owner in taken.get(part, ()) if claim.clashes(other)]
            if clashing and claim.key not in reported:
                reported.add(claim.key)
                other, owner = clashing[0]
                differ = f": {other.shared}, not {claim.shared}; set both alike"
                why = differ if claim.shared and other.shared else ": each needs its own"
                source.error((*path, *claim.key), f"{part} is {owner} already{why}")
        for part, claim in own.items():
            line = source.line((*path, *claim.key))
            place = "" if line is None else f" (line {line})"
            taken.setdefault(part, []).append((claim, f"{quote(table.get('name', position))}'s{place}"))


def relays_of(path: Path) -> tuple[BoardConfig, tuple[ActuatorConfig, ...]]:
    """The board and its actuators, whatever is wrong with the rest of the file. Raises ConfigError."""
    source = Source(path)
    if source.usable:
        board, actuators = read_board(source), read_actuators(source)
        if board is not None and not source.errors():
            return board, actuators
    raise ConfigError(tuple(source.problems))
