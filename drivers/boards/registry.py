"""The boards by kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from drivers.board_options import PiOptions, ReplayOptions, SimulatedOptions
from drivers.interface import Board, FittedSensor, Located

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

    A replayed file's path is relative to ``base_dir`` (the configuration's directory). ``site`` places the
    simulated weather. A board is imported here, where it is opened: a mast needs neither the weather nor the
    emulated chips, a simulation no driver of the Pi's hardware.
    """
    match options:
        case ReplayOptions():
            from drivers.boards.replay import open_replay

            return open_replay(options, sensors, base_dir)
        case SimulatedOptions():
            from drivers.boards.simulated import open_simulated

            return open_simulated(options, sensors, base_dir, site)
        case _:
            from drivers.boards.pi import PiBoard

            return PiBoard(options)
