"""What the server can be asked: each answer is safe to call from any thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.clock.manual_time import ManualTime


@dataclass(frozen=True, slots=True)
class Answers:
    """What the server tells.

    ``recent``: by channel the last readings, ``[time in ms since the epoch, value or null]`` each.
    ``pulses``: by sensor that counts pulses, how many have come since its driver was started.
    ``clock``: where a phone may leave its time; None where the board has a time of its own.
    """

    status: Callable[[], dict[str, Any]]
    recent: Callable[[], Mapping[str, list[list[Any]]]] = dict
    pulses: Callable[[], Mapping[str, int]] = dict
    clock: ManualTime | None = None
