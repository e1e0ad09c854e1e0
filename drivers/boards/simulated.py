"""A mast in simulated weather, with the real drivers on emulated chips."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from annotated_types import Ge, Gt, Le

from drivers.emulation.board import EmulatedBoard
from drivers.emulation.environment import SECOND_NS, Site
from drivers.emulation.faults import Fault
from drivers.emulation.weather import SimulatedEnvironment, Weather
from drivers.interface import BoardError, FittedSensor
from drivers.option_docs import Meaning


@dataclass(frozen=True, slots=True)
class SimulatedOptions:
    """Event time begins at ``start`` (RFC 3339; now without it) and never runs ahead of real time.

    So a ``speed`` above 1 takes effect until a ``start`` in the past has caught up.
    """

    seed: Annotated[int, Ge(0), Meaning("the same seed makes the same weather")] = 1
    speed: Annotated[float, Gt(0), Le(1_000_000), Meaning("at most; never beyond now", "times real time")] = (
        1.0
    )
    start: Annotated[str | None, Meaning("where event time begins: a time with a zone, in the past")] = None
    faults: Annotated[tuple[Fault, ...], Meaning("what goes wrong, to see what becomes of it")] = ()


def _start_ns(start: str | None) -> int:
    if start is None:
        return time.time_ns() // SECOND_NS * SECOND_NS
    try:
        moment = datetime.fromisoformat(start)
    except ValueError as error:
        raise BoardError(f"[board] start: {start!r} isn't an RFC 3339 time") from error
    if moment.tzinfo is None:
        raise BoardError(f"[board] start: {start!r} has no time zone")
    start_ns = int(moment.replace(microsecond=0).timestamp()) * SECOND_NS
    if start_ns > time.time_ns():
        raise BoardError(f"[board] start: {start!r} lies in the future")
    return start_ns


def open_simulated(options: SimulatedOptions, sensors: Sequence[FittedSensor], site: Site) -> EmulatedBoard:
    """A board in simulated weather. Raises BoardError."""
    start_ns = _start_ns(options.start)
    heights_m = {sensor.name: sensor.height_m for sensor in sensors}
    return EmulatedBoard(
        SimulatedEnvironment(Weather(options.seed, site), start_ns, heights_m),
        sensors,
        options.speed,
        options.faults,
        now_ns=time.time_ns,
        anchor_s=time.monotonic() if options.start is None else None,
    )
