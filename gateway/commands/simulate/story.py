"""What happens to a simulated mast, by a seed: its runs, times without an uplink, sensors that fail."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

_DAY_S: Final = 86_400
_HOUR_S: Final = 3_600

Fault = Literal["stuck", "slow", "silent", "noisy"]
FAULTS: Final[tuple[Fault, ...]] = ("stuck", "slow", "silent", "noisy")


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a gateway: seconds since the epoch from and until; ``is_killed``: by a power cut."""

    id: str
    begin_s: int
    end_s: int
    is_killed: bool


@dataclass(frozen=True, slots=True)
class SensorFault:
    """A sensor that fails for a while."""

    sensor: str
    kind: Fault
    begin_s: int
    end_s: int


@dataclass(frozen=True, slots=True)
class Story:
    """A mast's days: its runs in order, the times without an uplink, and its faults."""

    runs: tuple[Run, ...]
    offline: tuple[tuple[int, int], ...]
    faults: tuple[SensorFault, ...]

    def is_offline(self, time_s: int) -> bool:
        """Whether what is sampled now waits for the uplink."""
        return any(begin <= time_s < end for begin, end in self.offline)

    def fault_of(self, sensor: str, time_s: int) -> SensorFault | None:
        """The fault of a sensor at this time."""
        found = (
            each for each in self.faults if each.sensor == sensor and each.begin_s <= time_s < each.end_s
        )
        return next(found, None)


def tell(seed: int, gateway: str, sensors: Sequence[str], begin_s: int, end_s: int) -> Story:
    """A mast's story: restarts every few days, half of them power cuts; outages of minutes to hours."""
    chance = random.Random(f"{seed}/{gateway}")  # noqa: S311 - no secret
    runs, at_s = [], begin_s
    while at_s < end_s:
        until_s = min(end_s, at_s + round(chance.expovariate(1 / (4 * _DAY_S))) + 600)
        name = f"{chance.getrandbits(48):012x}"
        runs.append(Run(name, at_s, until_s, is_killed=until_s < end_s and chance.random() < 0.5))
        at_s = until_s + round(chance.uniform(120, _HOUR_S))
    offline = _spells(chance, begin_s, end_s, every_s=2 * _DAY_S, shortest_s=600, longest_s=8 * _HOUR_S)
    faults = [
        SensorFault(chance.choice(sensors), chance.choice(FAULTS), *spell)
        for spell in _spells(chance, begin_s, end_s, every_s=4 * _DAY_S, shortest_s=_HOUR_S, longest_s=_DAY_S)
    ]
    return Story(tuple(runs), tuple(offline), tuple(faults))


def _spells(
    chance: random.Random, begin_s: int, end_s: int, *, every_s: float, shortest_s: float, longest_s: float
) -> list[tuple[int, int]]:
    """Times apart from each other, short ones more often than long ones."""
    found, at_s = [], begin_s + chance.expovariate(1 / every_s)
    while at_s < end_s:
        length_s = shortest_s * (longest_s / shortest_s) ** chance.random()
        found.append((round(at_s), round(at_s + length_s)))
        at_s += length_s + chance.expovariate(1 / every_s)
    return found
