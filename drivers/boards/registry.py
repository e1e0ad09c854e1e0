"""The boards by kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from drivers.boards.pi import PiBoard, PiOptions
from drivers.boards.replay import ReplayOptions, open_replay
from drivers.boards.simulated import SimulatedOptions, open_simulated
from drivers.emulation.environment import Site
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
    simulated weather.
    """
    match options:
        case ReplayOptions():
            return open_replay(options, sensors, base_dir)
        case SimulatedOptions():
            return open_simulated(options, sensors, base_dir, Site.of(site))
        case _:
            return PiBoard(options)
