"""What the installer is led through, by config: questions about papers, then steps with phases. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from drivers.interface import Channel
from drivers.registry import driver_type
from gateway.commands.commissioning import checks
from gateway.commands.commissioning.checks import BREATH, Result, Window, at_rest
from gateway.config import Config, SensorConfig
from gateway.config.calibration import expiry_date, of_channel

_PAPERS: Final = ("serial", "certificate", "calibrated", "lab")
"""A sensor with none of these goes by its data sheet's figures."""
_PATIENCE_S: Final = 30.0
_BREATH_S: Final = 90.0
"""A DHT11 takes 6 to 30 s to follow the air, an SCD4x a minute (their datasheets)."""
_TURN_S: Final = 90.0
_TWIN_READINGS: Final = 10


@dataclass(frozen=True, slots=True)
class Question:
    """A value to be compared: ``remedy`` is for where it isn't so."""

    check: str
    text: str
    remedy: str


def questions(sensor: SensorConfig) -> Iterator[Question]:
    """What stands in the config, to be answered with yes or no."""
    swap = f"fieldgate commission swap {sensor.name} --serial …"
    if sensor.serial is not None:
        of = f"{sensor.model}, serial" if sensor.model else "serial"
        yield Question("serial", f"Does the label say {of} {sensor.serial}?", swap)
    individual = driver_type(sensor.driver).individual is not None
    papers = individual or any(getattr(sensor, key) is not None for key in _PAPERS)
    slope, offset = (getattr(sensor.options, key, None) for key in ("slope", "offset"))
    if papers and slope is not None:
        of = f" {sensor.certificate}" if sensor.certificate else ""
        figures = f"slope {slope:g}" + (f", offset {offset:g}" if offset is not None else "")
        dated = f" of {sensor.calibrated}" if sensor.calibrated else ""
        yield Question("certificate", f"Does its certificate{of}{dated} say {figures}?", swap)
    if sensor.height_m is not None:
        boom = f", its boom to {sensor.boom_deg:g}° from north" if sensor.boom_deg is not None else ""
        yield Question("place", f"Is it {sensor.height_m:g} m above ground{boom}?", "height_m, boom_deg")


def shortcomings(sensor: SensorConfig, today: date | None) -> Iterator[tuple[str, str]]:
    """What the config lacks: check and words. ``today`` is None while the clock isn't set."""
    individual = driver_type(sensor.driver).individual
    if individual is not None:
        absent = [key for key in ("serial", "calibrated") if getattr(sensor, key) is None]
        if absent:
            yield "papers", f"the config has no {' and no '.join(absent)}: {individual.why}"
    expires = expiry_date(sensor)
    if expires is not None and today is not None and expires < today:
        yield "expiry", f"its calibration expired on {expires}"


@dataclass(frozen=True, slots=True)
class Phase:
    """One thing to do. Readings are collected until ``enough`` of all phases' so far, or for ``limit_s``.

    ``fresh``: only readings that come after it has begun count; else the last known ones do too.
    """

    instruction: str
    shows: tuple[str, ...]
    enough: Callable[[Sequence[Window]], bool]
    limit_s: float
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """One check of a sensor. ``evaluate`` takes one window for each phase."""

    sensor: str
    check: str
    phases: tuple[Phase, ...]
    evaluate: Callable[[Sequence[Window]], Result]


def steps_of(config: Config, sensor: SensorConfig) -> tuple[Step, ...]:
    """What is done with one sensor, its twin not yet compared."""
    if _counts(sensor):
        return (_cup(config, sensor),)
    breath, others, steps = [], [], []
    for channel in sensor.channels:
        name = f"{sensor.name}.{channel.quantity}"
        if channel.quantity in BREATH:
            breath.append(name)
        elif channel.quantity == "irradiance":
            steps.append(_cover(sensor, name))
        elif channel.quantity == "wind_direction":
            steps.append(_vane(sensor, name))
        elif channel.quantity == "pressure":
            steps.append(_pressure(config, sensor, channel))
        elif channel.quantity == "location":
            steps.append(_position(sensor, name))
        else:
            others.append(name)
    if breath:
        steps.append(_breath(sensor, tuple(breath)))
    if others:
        steps.append(_values(sensor, tuple(others)))
    return tuple(steps)


def twin_steps(sensors: Iterable[SensorConfig]) -> tuple[Step, ...]:
    """A comparison of each pair of which both are here, once, for what both measure."""
    by_name = {sensor.name: sensor for sensor in sensors}
    steps: list[Step] = []
    compared: set[frozenset[str]] = set()
    for sensor in by_name.values():
        twin = by_name.get(sensor.pair or "")
        if twin is None or frozenset((sensor.name, twin.name)) in compared:
            continue
        compared.add(frozenset((sensor.name, twin.name)))
        theirs = {channel.quantity: channel for channel in twin.channels}
        steps += [
            _twins(sensor, twin, channel, theirs[channel.quantity])
            for channel in sensor.channels
            if channel.quantity in theirs
        ]
    return tuple(steps)


def _cup(config: Config, sensor: SensorConfig) -> Step:
    own = f"{sensor.name}.wind_speed"
    intervals_s = {f"{each.name}.wind_speed": each.interval_s for each in config.sensors if _counts(each)}

    def all_seen(window: Window) -> bool:
        return all(len(window.get(each, ())) > 1 for each in intervals_s)

    def held(seen: Sequence[Window]) -> bool:
        return at_rest(seen[-1].get(own, ())) and all_seen(seen[-1])

    def spun(seen: Sequence[Window]) -> bool:
        """The cup itself; or another one, which then is at its input."""
        return all_seen(seen[-1]) and bool(checks.spun_cups(intervals_s, *seen))

    hold = Phase(f"Hold {sensor.name} still.", (own,), held, _limit_s(sensor))
    spin = Phase(f"Now spin {sensor.name} by hand.", (own,), spun, _limit_s(sensor))
    return Step(sensor.name, "pulses", (hold, spin), lambda seen: checks.check_cup(own, intervals_s, *seen))


def _breath(sensor: SensorConfig, names: tuple[str, ...]) -> Step:
    def evaluate(seen: Sequence[Window]) -> Result:
        return checks.check_breath(names, *seen)

    instruction = f"Breathe on {sensor.name}, slowly, a few times."
    phase = Phase(instruction, names, _passes(evaluate), _BREATH_S + 4 * sensor.interval_s)
    return Step(sensor.name, "breath", (phase,), evaluate)


def _cover(sensor: SensorConfig, name: str) -> Step:
    def evaluate(seen: Sequence[Window]) -> Result:
        return checks.check_cover(name, *seen)

    instruction = f"Leave {sensor.name} open to the sky."
    uncovered = Phase(instruction, (name,), _readings(sensor, (name,)), _limit_s(sensor))
    instruction = f"Now cover {sensor.name} with your hand; in the dark shine a lamp on it."
    covered = Phase(instruction, (name,), _passes(evaluate), _limit_s(sensor))
    return Step(sensor.name, "light", (uncovered, covered), evaluate)


def _vane(sensor: SensorConfig, name: str) -> Step:
    aim_deg = sensor.boom_deg or 0.0
    where = "to the north" if sensor.boom_deg is None else "along its boom, away from the tower"

    def evaluate(seen: Sequence[Window]) -> Result:
        return checks.check_vane(name, aim_deg, seen[0], seen[-1])

    def aimed(seen: Sequence[Window]) -> bool:
        return checks.aimed(seen[-1].get(name, ()), aim_deg)

    aim = Phase(f"Point {sensor.name} {where}, and hold it.", (name,), aimed, _limit_s(sensor))
    instruction = f"Now turn {sensor.name} slowly clockwise (seen from above), once all the way round."
    turn = Phase(instruction, (name,), _passes(evaluate), _TURN_S)
    return Step(sensor.name, "direction", (aim, turn), evaluate)


def _pressure(config: Config, sensor: SensorConfig, channel: Channel) -> Step:
    name = f"{sensor.name}.{channel.quantity}"
    elevation_m = config.gateway.elevation_m
    place_m = None if elevation_m is None else elevation_m + (sensor.height_m or 0.0)
    accuracy = _accuracy(sensor, channel)
    phase = _hands_off(
        sensor, "Nothing to do: the pressure is compared with the standard atmosphere.", (name,)
    )

    def evaluate(seen: Sequence[Window]) -> Result:
        return checks.check_pressure(name, seen[0], place_m, accuracy)

    return Step(sensor.name, "pressure", (phase,), evaluate)


def _position(sensor: SensorConfig, name: str) -> Step:
    instruction = "Nothing to do: the position is compared with the configured one."
    phase = _hands_off(sensor, instruction, (name,), count=1)
    return Step(sensor.name, "position", (phase,), lambda seen: checks.check_location(name, *seen))


def _values(sensor: SensorConfig, names: tuple[str, ...]) -> Step:
    phase = _hands_off(sensor, "Look at the values: can that be?", names)
    return Step(sensor.name, "values", (phase,), lambda seen: checks.check_values(names, *seen))


def _twins(sensor: SensorConfig, twin: SensorConfig, channel: Channel, theirs: Channel) -> Step:
    names = f"{sensor.name}.{channel.quantity}", f"{twin.name}.{channel.quantity}"
    accuracies = _accuracy(sensor, channel), _accuracy(twin, theirs)

    def evaluate(seen: Sequence[Window]) -> Result:
        one, other = (seen[0].get(each, ()) for each in names)
        return checks.check_twins(channel.quantity, one, other, accuracies)

    phase = Phase(
        f"Leave {sensor.name} and {twin.name} alone: they are compared.",
        names,
        lambda seen: all(len(seen[0].get(each, ())) >= _TWIN_READINGS for each in names),
        2 * _TWIN_READINGS * max(sensor.interval_s, twin.interval_s) + _PATIENCE_S,
    )
    return Step(sensor.name, f"twin-{channel.quantity}", (phase,), evaluate)


def _passes(evaluate: Callable[[Sequence[Window]], Result]) -> Callable[[Sequence[Window]], bool]:
    """Readings are enough once the step has passed."""
    return lambda seen: evaluate(seen).outcome == "passed"


def _hands_off(sensor: SensorConfig, instruction: str, names: tuple[str, ...], count: int = 2) -> Phase:
    """A phase in which the installer does nothing: the last known readings serve."""
    return Phase(instruction, names, _readings(sensor, names, count), _limit_s(sensor), fresh=False)


def _readings(
    sensor: SensorConfig, names: Sequence[str], count: int = 2
) -> Callable[[Sequence[Window]], bool]:
    """Waits for so many readings with a value; for one of a slow sensor."""
    wanted = count if sensor.interval_s <= _PATIENCE_S else 1
    return lambda seen: all(
        sum(row.value is not None for row in seen[-1].get(name, ())) >= wanted for name in names
    )


def _limit_s(sensor: SensorConfig) -> float:
    return max(_PATIENCE_S, 4 * sensor.interval_s)


def _counts(sensor: SensorConfig) -> bool:
    """Whether it is a cup, whose pulses a hand can make."""
    return any((each.quantity, each.raw_unit) == ("wind_speed", "Hz") for each in sensor.channels)


def _accuracy(sensor: SensorConfig, channel: Channel) -> float:
    """± in the unit, as far as it is a fixed one."""
    given = of_channel(sensor.accuracy, channel.quantity)
    return (given.absolute if given is not None else channel.accuracy) or 0.0
