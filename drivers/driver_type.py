"""What the gateway knows about a driver before any sensor is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drivers.interface import Board, Channel, Driver


@dataclass(frozen=True, slots=True)
class DriverType:
    """A driver by name: its configuration keys, what it measures and how to make one.

    ``options`` is a frozen dataclass whose annotations carry the bounds; ``min_interval_s`` is the shortest
    interval the sensor can be read at; ``make`` touches no hardware and takes an instance of ``options``.
    """

    name: str
    options: type[Any]
    channels: tuple[Channel, ...]
    min_interval_s: float
    make: Callable[[Board, Any], Driver]
