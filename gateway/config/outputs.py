"""Relays and interlocks in the config, and what the cloud may command: keys, conditions, checks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from annotated_types import Ge, Le

from cloud.toml_models import checked
from cloud.toml_problems import KeyPath, WrongValue, nearest, quote
from cloud.wire.command_records import ACTIONS, TARGET, WITH_TARGET
from drivers.option_docs import Meaning
from drivers.relay import OnOff, RelayOptions
from gateway.config.source import Source
from gateway.config.values import SensorName

if TYPE_CHECKING:
    from gateway.config.model import SensorConfig

_CONDITION: Final = re.compile(
    r"([\w-]+\.\w+)\s*([<>]=?)\s*([+-]?\d{1,9}(?:\.\d{1,9})?)(?:\s+for\s+(\d{1,5}(?:\.\d{1,3})?)\s*s)?",
    re.ASCII,
)
_THEN: Final = re.compile(r"relay\.(\S+)\s+(on|off)")
_EXAMPLE: Final = '"enclosure.temperature > 70 for 30 s"'


@dataclass(frozen=True, slots=True)
class Condition:
    """A channel's value above or below a limit, in the channel's unit, in each reading of ``for_s``."""

    channel: str
    comparison: str
    limit: float
    for_s: float

    @property
    def above(self) -> bool:
        """Whether it is fulfilled above the limit."""
        return self.comparison.startswith(">")

    def fulfilled(self, value: float) -> bool:
        """Whether a value fulfils it."""
        if value == self.limit:
            return self.comparison.endswith("=")
        return (value > self.limit) == self.above


def condition(text: str) -> Condition:
    """A condition as the file has it. Raises WrongValue."""
    match = _CONDITION.fullmatch(text.strip())
    if match is None:
        raise WrongValue(f"must be as in {_EXAMPLE}, or with <, <= or >=, not {quote(text)}")
    channel, comparison, limit, for_s = match.groups()
    return Condition(channel, comparison, float(limit), float(for_s or 0))


def consequence(text: str) -> tuple[str, bool]:
    """The relay's name, and whether it is switched on. Raises WrongValue."""
    match = _THEN.fullmatch(text.strip())
    if match is None:
        raise WrongValue(f'must be a relay and its state, as in "relay.heater off", not {quote(text)}')
    return match[1], match[2] == "on"


def _allowed(text: str) -> str:
    action, _, target = text.partition(" ")
    if action not in ACTIONS:
        guess = nearest(action, ACTIONS)
        raise WrongValue(
            f"must be one of {', '.join(ACTIONS)}, or one of its targets, not {quote(text)}", guess
        )
    if target and action not in WITH_TARGET:
        raise WrongValue(f"{action} has no target: write {quote(action)}, not {quote(text)}")
    if action == "publish" and TARGET.fullmatch(target) is None:
        raise WrongValue(f'needs one topic, as in "publish devices/fan/set", not {quote(text)}')
    return text


def _condition(text: str) -> str:
    condition(text)
    return text


def _consequence(text: str) -> str:
    consequence(text)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ActuatorConfig(RelayOptions):
    """A relay on a pin."""

    name: Annotated[SensorName, Meaning("unique among actuators; interlocks call it relay.name")]
    normal: Annotated[
        OnOff | None, Meaning("its state while no interlock holds; the safe one unless given")
    ] = None

    @property
    def normally_on(self) -> bool:
        """Its state while no interlock holds."""
        return (self.normal or self.safe) == "on"


@dataclass(frozen=True, slots=True)
class InterlockConfig:
    """What switches a relay, in the gateway itself."""

    when: Annotated[str, checked(_condition), Meaning(f"channel, comparison, number: as in {_EXAMPLE}")]
    then: Annotated[str, checked(_consequence), Meaning('as in "relay.heater off"')]
    until: Annotated[
        Annotated[str, checked(_condition)] | None,
        Meaning('when it ends, as in "enclosure.temperature < 60"; unless given, with "when"'),
    ] = None
    stale_s: Annotated[
        float, Ge(1), Le(86400), Meaning("after so long without a good reading: the relay's safe state", "s")
    ] = 60.0


@dataclass(frozen=True, slots=True)
class CommandsConfig:
    """What the cloud may have this gateway do: nothing but what is listed."""

    allow: Annotated[
        tuple[Annotated[str, checked(_allowed)], ...],
        Meaning('switch, read, interval, reload, self-test, publish; of one relay as in "switch heater"'),
    ] = ()
    min_interval_s: Annotated[
        float, Ge(0.1), Le(3600), Meaning("the shortest interval that may be commanded", "s")
    ] = 1.0
    max_interval_s: Annotated[
        float, Ge(0.1), Le(3600), Meaning("the longest interval that may be commanded", "s")
    ] = 3600.0

    def allows(self, action: str, target: str) -> bool:
        """Whether a command may be carried out."""
        return action in self.allow or f"{action} {target}" in self.allow


NO_COMMANDS: Final = CommandsConfig()


def read_actuators(source: Source) -> tuple[ActuatorConfig, ...]:
    """The actuators as far as they could be read."""
    tables = source.tables("actuator")
    source.check_names(tables, "actuator")
    found = (source.model(ActuatorConfig, raw, path) for path, raw in tables)
    return tuple(each for each in found if each is not None)


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
