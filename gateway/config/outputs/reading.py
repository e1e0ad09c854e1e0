"""The ``[[actuator]]`` and ``[[interlock]]`` tables: relays, and what switches them without a cloud."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cloud.toml_problems import ConfigError, KeyPath, nearest, quote
from gateway.config.board import read_board
from gateway.config.model import BoardConfig, SensorConfig
from gateway.config.outputs.model import (
    ActuatorConfig,
    CommandsConfig,
    InterlockConfig,
    condition,
    consequence,
)
from gateway.config.source import Source


def read_actuators(source: Source) -> tuple[ActuatorConfig, ...]:
    """The actuators as far as they could be read."""
    first: dict[str, KeyPath] = {}
    found = []
    for path, raw in source.tables("actuator"):
        given = source.model(ActuatorConfig, raw, path)
        if given is None:
            continue
        key = (*path, "name")
        if (known := first.setdefault(given.name, key)) != key:
            there = f"the first: line {source.line(known)}"
            source.error(key, f"{quote(given.name)} is a second actuator's name ({there}): give each its own")
        found.append(given)
    return tuple(found)


def read_interlocks(
    source: Source, actuators: Sequence[ActuatorConfig], sensors: Sequence[SensorConfig] | None
) -> tuple[InterlockConfig, ...]:
    """The interlocks as far as they could be read; ``sensors`` is None where those have errors."""
    # The names include those with an error of their own.
    names = [str(raw.get("name")) for _, raw in source.tables("actuator")]
    found = []
    for path, raw in source.tables("interlock"):
        before = source.errors()
        given = source.model(InterlockConfig, raw, path)
        if given is None or source.errors() != before:
            continue
        _check_interlock(source, path, given, names, sensors)
        found.append(given)
    switched = {consequence(each.then)[0] for each in found}
    for position, each in enumerate(actuators):
        if each.name not in switched and each.normal in (None, each.safe):
            source.warn(
                ("actuator", position), "nothing switches it: give it an [[interlock]], or another normal"
            )
    return tuple(found)


def check_commands(
    source: Source,
    given: CommandsConfig,
    actuators: Sequence[ActuatorConfig],
    sensors: Sequence[SensorConfig],
) -> None:
    """Targets that aren't there, and bounds that leave nothing."""
    for each in given.allow:
        action, _, target = each.partition(" ")
        kind, known = ("actuator", actuators) if action == "switch" else ("sensor", sensors)
        names = [one.name for one in known]
        if target and action != "publish" and target not in names:
            source.error(("commands", "allow"), f"there is no {kind} {quote(target)}", nearest(target, names))
    if given.min_interval_s > given.max_interval_s:
        source.error(("commands", "min_interval_s"), "must not be above max_interval_s")


def _check_interlock(
    source: Source,
    path: KeyPath,
    given: InterlockConfig,
    relays: Sequence[str],
    sensors: Sequence[SensorConfig] | None,
) -> None:
    when, (relay, _on) = condition(given.when), consequence(given.then)
    if relay not in relays:
        source.error((*path, "then"), f"there is no actuator {quote(relay)}", nearest(relay, relays))
    if given.until is not None:
        until = condition(given.until)
        apart = until.limit < when.limit if when.above else until.limit > when.limit
        if until.channel != when.channel:
            source.error((*path, "until"), f"must be about {when.channel}, as when is")
        elif until.above == when.above or not apart:
            beyond = "below" if when.above else "above"
            source.error(
                (*path, "until"), f"must be fulfilled {beyond} {when.limit:g} only: both held at once"
            )
    if sensors is None:
        return
    channels = {
        f"{each.name}.{channel.quantity}": (each, channel) for each in sensors for channel in each.channels
    }
    if when.channel not in channels:
        source.error(
            (*path, "when"), f"no sensor here measures {quote(when.channel)}", nearest(when.channel, channels)
        )
        return
    sensor, channel = channels[when.channel]
    if given.stale_s <= sensor.interval_s:
        source.error(
            (*path, "stale_s"),
            f"must be above {quote(sensor.name)}'s interval_s, {sensor.interval_s:g}, not {given.stale_s:g}",
        )
    if when.limit >= channel.upper if when.above else when.limit <= channel.lower:
        source.warn(
            (*path, "when"),
            f"{quote(sensor.name)} measures {channel.lower:g} to {channel.upper:g} {channel.unit}, and"
            " readings beyond aren't good ones: it would never hold",
        )


def relays_of(path: Path) -> tuple[BoardConfig, tuple[ActuatorConfig, ...]]:
    """The board and its actuators, whatever is wrong with the rest of the file. Raises ConfigError."""
    source = Source(path)
    if source.usable:
        board, actuators = read_board(source), read_actuators(source)
        if board is not None and not source.errors():
            return board, actuators
    raise ConfigError(tuple(source.problems))
