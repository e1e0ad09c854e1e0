"""What the installer is led through, by config: each sensor's steps, their phases and their judge. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from drivers.interface import Channel
from drivers.registry import driver_type
from gateway.commands.commissioning.checks import (
    BREATH,
    Verdict,
    Window,
    at_rest,
    judge_breath,
    judge_cover,
    judge_cup,
    judge_location,
    judge_pressure,
    judge_steady,
    judge_twins,
    rise,
    turning,
)
from gateway.config import Config, SensorConfig
from gateway.config.calibration import accuracy_of

_PATIENCE_S: Final = 30.0
_BREATH_S: Final = 90.0
"""A DHT11 takes 6 to 30 s to follow the air, an SCD4x a minute (their datasheets)."""
_TWIN_READINGS: Final = 10


@dataclass(frozen=True, slots=True)
class Phase:
    """One thing to do, and until when it is watched: ``enough`` of the windows so far, or ``limit_s``.

    ``fresh``: only readings that come after it has begun count; else the last known ones do too.
    """

    tell: str
    shows: tuple[str, ...]
    enough: Callable[[Sequence[Window]], bool]
    limit_s: float
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """One check of a sensor. ``judge`` takes one window for each phase."""

    sensor: str
    check: str
    phases: tuple[Phase, ...]
    judge: Callable[[Sequence[Window]], Verdict]

    @property
    def name(self) -> str:
        """Unique within a config."""
        return f"{self.sensor}.{self.check}"


def steps_of(config: Config, sensor: SensorConfig) -> tuple[Step, ...]:
    """What is done with one sensor, its twin not yet compared."""
    if _counts(sensor):
        return (_cup(config, sensor),)
    breath, left, steps = [], [], []
    for channel in _channels(sensor):
        name = f"{sensor.name}.{channel.quantity}"
        if channel.quantity in BREATH:
            breath.append(name)
        elif channel.quantity == "irradiance":
            steps.append(_cover(sensor, name))
        elif channel.quantity == "pressure":
            steps.append(_pressure(config, sensor, channel))
        elif channel.quantity == "location":
            steps.append(_position(sensor, name))
        else:
            left.append(name)
    if breath:
        steps.append(_breath(sensor, tuple(breath)))
    if left:
        steps.append(_values(sensor, tuple(left)))
    return tuple(steps)


def twin_steps(sensors: Iterable[SensorConfig]) -> tuple[Step, ...]:
    """A comparison of each pair of which both are here, once, for what both measure."""
    by_name = {sensor.name: sensor for sensor in sensors}
    steps: list[Step] = []
    compared: set[tuple[str, str]] = set()
    for sensor in by_name.values():
        twin = by_name.get(sensor.pair or "")
        if twin is None or (sensor.name, twin.name) in compared:
            continue
        compared |= {(sensor.name, twin.name), (twin.name, sensor.name)}
        theirs = {channel.quantity for channel in _channels(twin)}
        steps += [
            _twins(sensor, twin, channel) for channel in _channels(sensor) if channel.quantity in theirs
        ]
    return tuple(steps)


def _cup(config: Config, sensor: SensorConfig) -> Step:
    own = f"{sensor.name}.wind_speed"
    intervals_s = {f"{each.name}.wind_speed": each.interval_s for each in config.sensors if _counts(each)}

    def all_seen(window: Window) -> bool:
        return all(len(window.get(each, ())) > 1 for each in intervals_s)

    def somebody_moved(seen: Sequence[Window]) -> bool:
        """The cup itself; or another one that stood while it was held, which then is at its input."""
        now = seen[-1]
        moved = [each for each, interval_s in intervals_s.items() if turning(now.get(each, ()), interval_s)]
        return own in moved or any(at_rest(seen[0].get(each, ())) for each in moved)

    hold = Phase(
        f"Hold {sensor.name} still.",
        (own,),
        lambda seen: at_rest(seen[-1].get(own, ())) and all_seen(seen[-1]),
        _limit_s(sensor),
    )
    spin = Phase(
        f"Now spin {sensor.name} by hand.",
        (own,),
        lambda seen: somebody_moved(seen) and all_seen(seen[-1]),
        _limit_s(sensor),
    )
    return Step(
        sensor.name, "pulses", (hold, spin), lambda seen: judge_cup(own, intervals_s, seen[0], seen[1])
    )


def _breath(sensor: SensorConfig, names: tuple[str, ...]) -> Step:
    def risen(seen: Sequence[Window]) -> bool:
        window = seen[-1]
        there = all(len(window.get(name, ())) > 1 for name in names)
        return there and any(rise(window[name]) >= BREATH[name.rpartition(".")[2]] for name in names)

    phase = Phase(
        f"Breathe on {sensor.name}, slowly, a few times.", names, risen, _BREATH_S + 4 * sensor.interval_s
    )
    return Step(sensor.name, "breath", (phase,), lambda seen: judge_breath(names, seen[0]))


def _cover(sensor: SensorConfig, name: str) -> Step:
    uncovered = Phase(
        f"Leave {sensor.name} open to the sky.", (name,), _readings(sensor, (name,), 2), _limit_s(sensor)
    )
    covered = Phase(
        f"Now cover {sensor.name} with your hand; in the dark shine a lamp on it.",
        (name,),
        lambda seen: judge_cover(name, seen[0], seen[1]).outcome == "passed",
        _limit_s(sensor),
    )
    return Step(sensor.name, "light", (uncovered, covered), lambda seen: judge_cover(name, seen[0], seen[1]))


def _pressure(config: Config, sensor: SensorConfig, channel: Channel) -> Step:
    name = f"{sensor.name}.{channel.quantity}"
    elevation_m = config.gateway.elevation_m
    place_m = None if elevation_m is None else elevation_m + (sensor.height_m or 0.0)
    phase = Phase(
        "Nothing to do: the pressure is compared with the standard atmosphere.",
        (name,),
        _readings(sensor, (name,), 2),
        _limit_s(sensor),
        fresh=False,
    )
    accuracy = _accuracy(sensor, channel)
    return Step(
        sensor.name, "pressure", (phase,), lambda seen: judge_pressure(name, seen[0], place_m, accuracy)
    )


def _position(sensor: SensorConfig, name: str) -> Step:
    tell = "Nothing to do: the position is compared with the configured one."
    phase = Phase(tell, (name,), _readings(sensor, (name,), 1), _limit_s(sensor), fresh=False)
    return Step(sensor.name, "position", (phase,), lambda seen: judge_location(name, seen[0]))


def _values(sensor: SensorConfig, names: tuple[str, ...]) -> Step:
    tell = "Look at the values: can that be?"
    phase = Phase(tell, names, _readings(sensor, names, 2), _limit_s(sensor), fresh=False)
    return Step(sensor.name, "values", (phase,), lambda seen: judge_steady(names, seen[0]))


def _twins(sensor: SensorConfig, twin: SensorConfig, channel: Channel) -> Step:
    one, other = f"{sensor.name}.{channel.quantity}", f"{twin.name}.{channel.quantity}"
    slower_s = max(sensor.interval_s, twin.interval_s)
    theirs = next(each for each in _channels(twin) if each.quantity == channel.quantity)
    accuracies = (_accuracy(sensor, channel), _accuracy(twin, theirs))
    phase = Phase(
        f"Leave {sensor.name} and {twin.name} alone: they are compared.",
        (one, other),
        lambda seen: all(len(seen[0].get(each, ())) >= _TWIN_READINGS for each in (one, other)),
        2 * _TWIN_READINGS * slower_s + _PATIENCE_S,
    )
    return Step(
        sensor.name,
        f"twin-{channel.quantity}",
        (phase,),
        lambda seen: judge_twins(channel.quantity, seen[0].get(one, ()), seen[0].get(other, ()), accuracies),
    )


def _readings(sensor: SensorConfig, names: Sequence[str], count: int) -> Callable[[Sequence[Window]], bool]:
    """So many readings with a value are there; of a slow sensor one."""
    wanted = count if sensor.interval_s <= _PATIENCE_S else 1
    return lambda seen: all(
        sum(row.value is not None for row in seen[-1].get(name, ())) >= wanted for name in names
    )


def _limit_s(sensor: SensorConfig) -> float:
    return max(_PATIENCE_S, 4 * sensor.interval_s)


def _counts(sensor: SensorConfig) -> bool:
    """Whether it counts pulses, that a hand can make."""
    return any(channel.raw_unit == "Hz" for channel in _channels(sensor))


def _channels(sensor: SensorConfig) -> tuple[Channel, ...]:
    return driver_type(sensor.driver).channels_of(sensor.options)


def _accuracy(sensor: SensorConfig, channel: Channel) -> float:
    """± in the unit, as far as it is a fixed one."""
    given = accuracy_of(sensor, channel.quantity)
    return (given.absolute if given is not None else channel.accuracy) or 0.0
