"""A mast in simulated weather, with the real drivers on emulated chips."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from drivers.board_options import SimulatedOptions
from drivers.emulation.board import EmulatedBoard
from drivers.emulation.environment import SECOND_NS, Site
from drivers.emulation.weather import SimulatedEnvironment, Weather
from drivers.interface import FittedSensor, Located


def open_simulated(
    options: SimulatedOptions, sensors: Sequence[FittedSensor], base_dir: Path, site: Located | None
) -> EmulatedBoard:
    """A board in simulated weather; ``pins_file`` is relative to ``base_dir``. Raises BoardError."""
    start_s = time.time() if options.start is None else datetime.fromisoformat(options.start).timestamp()
    start_ns = int(start_s) * SECOND_NS
    return EmulatedBoard(
        SimulatedEnvironment(Weather(options.seed, Site.of(site)), start_ns, sensors),
        sensors,
        options.speed,
        options.faults,
        now_ns=time.time_ns,
        anchor_s=time.monotonic() if options.start is None else None,
        pins_file=None if options.pins_file is None else base_dir / options.pins_file,
    )
