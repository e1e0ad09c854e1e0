"""What the emulated sensors stand in: physical values, constant for a piece of event time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from drivers.interface import FittedSensor, Located

SECOND_NS = 1_000_000_000


class Environment(Protocol):
    """Physical values over event time (nanoseconds since 1970-01-01T00:00Z).

    Values are constant within a piece; None where there is none: the sensor then doesn't answer.
    """

    start_ns: int
    """Where event time begins."""
    end_ns: int | None
    """Where the last piece ends; None without an end."""

    def piece(self, time_ns: int) -> tuple[int, int]:
        """Begin and end of the piece that holds this instant."""

    def value(self, channel: str, time_ns: int) -> float | None:
        """Physical value of ``sensor.quantity``, in the channel's unit."""

    def refit(self, sensors: Sequence[FittedSensor]) -> Callable[[], None]:
        """Check another set of sensors; calling the result makes the change. Raises BoardError."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a mast stands: degrees (WGS 84), metres above sea level."""

    latitude: float = 27.7
    longitude: float = 85.5
    elevation_m: float = 2100.0

    @classmethod
    def of(cls, located: Located | None) -> Site:
        """The configured place, at sea level unless it has an elevation; a hill site where there is none."""
        if located is None or located.latitude is None or located.longitude is None:
            return cls()
        return cls(located.latitude, located.longitude, located.elevation_m or 0.0)
