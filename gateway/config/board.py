"""The ``[board]`` section: what the sensors are wired to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from cloud.toml_problems import nearest, quote
from drivers.boards.registry import BOARDS, PiOptions, ReplayOptions, SimulatedOptions
from drivers.emulation.environment import FITS, amount_problem
from drivers.interface import BoardError
from drivers.registry import driver_type
from gateway.config.model import BoardConfig, SensorConfig
from gateway.config.source import Source
from gateway.config.validate import validate

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
    options = validate(BOARDS[kind], given, ("board",), source.error)
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
    from drivers.boards.replay import check_header, columns_of

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
            check_header(file, options, used)
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
