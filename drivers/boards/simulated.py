"""A mast in simulated weather, with the real drivers on emulated chips."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Gt, Le

from drivers.emulation.board import EmulatedBoard
from drivers.emulation.environment import SECOND_NS, Site
from drivers.emulation.faults import Fault
from drivers.emulation.weather import SimulatedEnvironment, Weather
from drivers.interface import FittedSensor
from drivers.option_docs import Meaning


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


def open_simulated(
    options: SimulatedOptions, sensors: Sequence[FittedSensor], base_dir: Path, site: Site
) -> EmulatedBoard:
    """A board in simulated weather; ``pins_file`` is relative to ``base_dir``. Raises BoardError."""
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
