"""What the emulated sensors stand in: physical values, constant for a piece of event time, and faults.

Faults are beneath the real drivers: pulses, volts and edges go wrong, never readings. What goes wrong by
chance does so by hashing time and sensor: the same configuration fails the same way.
"""

from __future__ import annotations

import math
import zlib
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, Protocol

from annotated_types import Ge, Gt, Le

from drivers.driver_type import Volts
from drivers.interface import FittedSensor, Located
from drivers.option_docs import Meaning

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


FaultKind = Literal["stuck", "icing", "drift", "spike", "open-input", "bit-errors"]

_CUPS: Final = ("hall-anemometer", "pulse")
_VOLTS: Final = ("analog", "bp20", "pyranometer", "wind-vane")
FITS: Final[Mapping[FaultKind, tuple[str, ...]]] = {
    "stuck": _CUPS,
    "icing": _CUPS,
    "drift": (*_CUPS, "analog", "pyranometer"),
    "spike": (*_CUPS, *_VOLTS),
    "open-input": (*_VOLTS, "modbus", "w1"),
    "bit-errors": ("dht11", "modbus", "w1"),
}
"""The drivers whose hardware can fail each way."""

_DEFAULT_AMOUNT: Final[Mapping[FaultKind, float]] = {
    "stuck": 0.0, "icing": 10_800.0, "drift": 0.9, "spike": 0.0, "open-input": 0.0, "bit-errors": 0.05,
}  # fmt: skip
_SPIKE_PULSES: Final = 60.0
_SPIKE_V: Final = 0.02


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. Times are event time, in seconds."""

    sensor: Annotated[str, Meaning("whose hardware fails")]
    kind: Annotated[
        FaultKind,
        Meaning("no pulses; slower and slower; scaled pulses; one wrong reading; loose wire; flipped bits"),
    ]
    after_s: Annotated[float, Ge(0), Meaning("when it begins, counted from the board's start", "s")] = 0.0
    for_s: Annotated[
        Annotated[float, Gt(0)] | None, Meaning("how long it lasts; for ever if not given", "s")
    ] = None
    amount: Annotated[
        Annotated[float, Ge(-1e6), Le(1e6)] | None,
        Meaning(
            "icing: s until it stands; drift: a factor; spike: pulses or V more; bit-errors: share of reads"
        ),
    ] = None
    every_s: Annotated[
        Annotated[float, Gt(0)] | None, Meaning("spike: again and again while the fault lasts", "s")
    ] = None
    while_file: Annotated[
        str | None, Meaning("only while this file is there: what a hand does to a simulated sensor")
    ] = None

    @property
    def present(self) -> bool:
        """Whether the file that it waits for is there."""
        return self.while_file is None or Path(self.while_file).exists()

    def strength(self) -> float:
        """The amount, or what is usual for the kind."""
        return _DEFAULT_AMOUNT[self.kind] if self.amount is None else self.amount


def amount_problem(fault: Fault) -> str | None:
    """What is wrong with a fault's amount, or None."""
    amount = fault.strength()
    match fault.kind:
        case "stuck" | "open-input":
            return f'means nothing for kind = "{fault.kind}"'
        case "icing" if amount <= 0:
            return f"must be above 0 (seconds until the cup stands), not {amount:g}"
        case "drift" if amount < 0:
            return f"must be at least 0 (a factor on the pulses), not {amount:g}"
        case "bit-errors" if not 0 <= amount <= 1:
            return f"must be a share of the reads, 0 to 1, not {amount:g}"
    return None


class Faults:
    """All faults of a board whose event time begins at ``start_ns``."""

    def __init__(self, faults: Iterable[Fault] = (), start_ns: int = 0) -> None:
        self._faults = tuple(faults)
        self._start_ns = start_ns
        self._spiked: dict[int, int] = {}

    def turning(self, sensor: str, time_ns: int) -> float:
        """The share of its true frequency that a rotor turns with."""
        factor = 1.0
        for fault in self._of(sensor, ("stuck", "icing", "drift"), time_ns):
            match fault.kind:
                case "stuck":
                    factor = 0.0
                case "icing":
                    factor *= max(0.0, 1 - self._into_s(fault, time_ns) / fault.strength())
                case _:
                    factor *= fault.strength()
        return factor

    def stray_pulses(self, sensor: str, start_ns: int, end_ns: int) -> int:
        """Pulses in [start, end) that no turn made."""
        return max(0, sum(map(round, self._spikes(sensor, end_ns - 1, _SPIKE_PULSES))))

    def loose(self, sensor: str, now_ns: Callable[[], int]) -> Callable[[], bool]:
        """Whether a sensor's wires to its converter are off."""
        return lambda: bool(self._of(sensor, ("open-input",), now_ns()))

    def volts(self, sensor: str, volts: Volts, now_ns: Callable[[], int]) -> Volts:
        """What a converter's input sees of a source."""

        def faulty() -> float | None:
            true_v, time_ns = volts(), now_ns()
            if true_v is None:
                return None
            for fault in self._of(sensor, ("drift",), time_ns):
                true_v *= fault.strength()
            return true_v + sum(self._spikes(sensor, time_ns, _SPIKE_V))

        return faulty

    def errs(self, sensor: str, time_ns: int) -> bool:
        """Whether a frame on a data line at an instant arrives with an error."""
        chance = _chance(f"{sensor} errs", time_ns - self._start_ns)
        return any(chance < fault.strength() for fault in self._of(sensor, ("bit-errors",), time_ns))

    def scratchpad(
        self, sensor: str, scratchpad: Callable[[], bytes | None], now_ns: Callable[[], int]
    ) -> Callable[[], bytes | None]:
        """What arrives of a thermometer's bytes: none while its wire is off, now and then a wrong bit."""

        def faulty() -> bytes | None:
            found, time_ns = scratchpad(), now_ns()
            if found is None or self._of(sensor, ("open-input",), time_ns):
                return None
            flipped = 1 << int(_chance(f"{sensor} bit", time_ns) * 72) if self.errs(sensor, time_ns) else 0
            return (int.from_bytes(found, "big") ^ flipped).to_bytes(len(found), "big")

        return faulty

    def edges(
        self, sensor: str, edges: Callable[[], array[int]], now_ns: Callable[[], int]
    ) -> Callable[[], array[int]]:
        """What arrives of a data line's durations: now and then one bit is another."""

        def faulty() -> array[int]:
            durations, time_ns = edges(), now_ns()
            if self.errs(sensor, time_ns):
                _flip_bit(durations, _chance(f"{sensor} bit", time_ns))
            return durations

        return faulty

    def _of(self, sensor: str, kinds: Sequence[FaultKind], time_ns: int) -> list[Fault]:
        """A sensor's faults of these kinds that are present."""
        return [
            fault
            for fault in self._faults
            if fault.sensor == sensor
            and fault.kind in kinds
            and 0 <= self._into_s(fault, time_ns) < (math.inf if fault.for_s is None else fault.for_s)
            and fault.present
        ]

    def _into_s(self, fault: Fault, time_ns: int) -> float:
        return (time_ns - self._start_ns) / SECOND_NS - fault.after_s

    def _spikes(self, sensor: str, time_ns: int, usual: float) -> list[float]:
        """The amounts of a sensor's spikes that have become due since the last call."""
        return [
            usual if fault.amount is None else fault.amount
            for position, fault in enumerate(self._faults)
            if (fault.sensor, fault.kind) == (sensor, "spike") and self._is_due(position, fault, time_ns)
        ]

    def _is_due(self, position: int, fault: Fault, time_ns: int) -> bool:
        """Whether a spike has become due since the last call; one thread calls this for a sensor."""
        into_s = self._into_s(fault, time_ns)
        if into_s < 0 or not fault.present:
            return False
        if fault.every_s is not None and fault.for_s is not None:
            into_s = min(into_s, fault.for_s - 1e-9)
        due = 1 if fault.every_s is None else 1 + math.floor(into_s / fault.every_s)
        done, self._spiked[position] = self._spiked.get(position, 0), due
        return due > done


def _flip_bit(durations: array[int], where: float) -> None:
    """Make a short high a long one, or the other way round: highs stand at odd places."""
    highs = range(1, len(durations), 2)
    if highs:
        at = highs[int(where * len(highs))]
        durations[at] = 70 if durations[at] < 50 else 27


def _chance(stream: str, time_ns: int) -> float:
    """Evenly spread in [0, 1), by hashing: a CRC, mixed further since a CRC is linear in its bits."""
    mixed = zlib.crc32(f"{stream}/{time_ns}".encode()) * 0x9E3779B97F4A7C15 & (1 << 64) - 1
    mixed = ((mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9) & (1 << 64) - 1
    return (mixed >> 11) / (1 << 53)
