"""The boards by kind: their options, and how one is opened; and the places on a Raspberry Pi's header.

A board's own module is loaded when it is opened: a mast that simulates nothing loads no emulation.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from annotated_types import Ge, Gt, Le

from drivers.emulation.environment import SECOND_NS, Fault, Site
from drivers.interface import Board, FittedSensor, Located
from drivers.option_docs import Meaning

Counting = Literal["kernel", "rpi-gpio"]


@dataclass(frozen=True, slots=True)
class PiOptions:
    """Pins are BCM numbers, the bus is the header's (SDA and SCL)."""

    counting: Annotated[
        Counting,
        Meaning("who counts pulses: the kernel, by their interrupts, or RPi.GPIO, by a callback for each"),
    ] = "kernel"


@dataclass(frozen=True, slots=True)
class SimulatedOptions:
    """Event time begins at ``start`` (RFC 3339; now without it) and never runs ahead of real time.

    A ``speed`` above 1 takes effect until a ``start`` in the past has caught up.
    """

    seed: Annotated[int, Ge(0), Meaning("the same seed makes the same weather")] = 1
    speed: Annotated[float, Gt(0), Le(1_000_000), Meaning("at most; never beyond now", "times real time")] = (
        1.0
    )
    start: Annotated[str | None, Meaning("where event time begins: a time with a zone, in the past")] = None
    faults: Annotated[tuple[Fault, ...], Meaning("what goes wrong, to see what becomes of it")] = ()
    pins_file: Annotated[
        str | None, Meaning("where driven pins' levels are kept (JSON); relative to this file's directory")
    ] = None


@dataclass(frozen=True, slots=True)
class ReplayColumn:
    """A CSV column and how its figures turn into the channel's unit: value = scale·figure + offset."""

    column: Annotated[str, Meaning("the column's name in the file's header")]
    scale: Annotated[float, Meaning("value = scale · figure + offset")] = 1.0
    offset: Annotated[float, Meaning("value = scale · figure + offset", "the channel's unit")] = 0.0


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The file, and its columns by sensor or ``sensor.quantity``."""

    file: Annotated[str, Meaning("the CSV file; a relative path starts at this file's directory")]
    columns: Annotated[
        Mapping[str, str | ReplayColumn], Meaning("the column of each sensor or channel, by its name")
    ] = field(default_factory=dict)
    speed: Annotated[float, Gt(0), Le(1_000_000), Meaning("at most", "times real time")] = 1.0
    timestamp_column: Annotated[
        str | None, Meaning("the column with the times (RFC 3339); the first unless given")
    ] = None
    utc_offset_h: Annotated[
        Annotated[float, Ge(-14), Le(14)] | None, Meaning("the zone of times that have none", "h")
    ] = None


BOARDS: Final[dict[str, type[Any]]] = {
    "raspberry-pi": PiOptions,
    "simulated": SimulatedOptions,
    "replay": ReplayOptions,
}
"""The options of each kind: frozen dataclasses whose annotations carry the bounds."""


def open_board(
    options: PiOptions | SimulatedOptions | ReplayOptions,
    sensors: Sequence[FittedSensor],
    base_dir: Path,
    site: Located | None = None,
) -> Board:
    """Open the board of these options for its sensors. Raises BoardError.

    Paths of a replayed file and of ``pins_file`` are relative to ``base_dir`` (the configuration's
    directory). ``site`` places the simulated weather.
    """
    match options:
        case ReplayOptions():
            from drivers.boards.replay import open_replay

            return open_replay(options, sensors, base_dir)
        case SimulatedOptions():
            return _simulated(options, sensors, base_dir, Site.of(site))
        case _:
            from drivers.boards.pi import PiBoard

            return PiBoard(options)


def _simulated(
    options: SimulatedOptions, sensors: Sequence[FittedSensor], base_dir: Path, site: Site
) -> Board:
    from drivers.emulation.board import EmulatedBoard
    from drivers.emulation.weather import SimulatedEnvironment, Weather

    start_s = time.time() if options.start is None else datetime.fromisoformat(options.start).timestamp()
    start_ns = int(start_s) * SECOND_NS
    return EmulatedBoard(
        SimulatedEnvironment(Weather(options.seed, site), start_ns, sensors),
        sensors,
        options.speed,
        options.faults,
        now_ns=time.time_ns,
        anchor_s=time.monotonic() if options.start is None else None,
        pins_file=None if options.pins_file is None else base_dir / options.pins_file,
    )


BCM_AT: Final = {
    3: 2, 5: 3, 7: 4, 8: 14, 10: 15, 11: 17, 12: 18, 13: 27, 15: 22, 16: 23, 18: 24, 19: 10, 21: 9, 22: 25,
    23: 11, 24: 8, 26: 7, 27: 0, 28: 1, 29: 5, 31: 6, 32: 12, 33: 13, 35: 19, 36: 16, 37: 26, 38: 20, 40: 21,
}  # fmt: skip
"""BCM number of each place on the header that has one; the others are power and ground."""

PLACES: Final = 40

I2C_PINS: Final = {2: "SDA", 3: "SCL"}
"""The bus that sensors with an I2C address hang on."""

RESERVED: Final = {
    0: "the EEPROM of add-on boards (ID_SD)",
    1: "the EEPROM of add-on boards (ID_SC)",
    14: "the serial console (TXD)",
    15: "the serial console (RXD)",
}
"""Pins that the Pi itself uses by default, and what for."""
