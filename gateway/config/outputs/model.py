"""Relays and interlocks as the file has them: their keys, and how conditions are written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from annotated_types import Ge, Le

from cloud.toml_models import checked
from cloud.toml_problems import WrongValue, nearest, quote
from cloud.wire.command_records import ACTIONS, TARGET, WITH_TARGET
from drivers.option_docs import Meaning
from drivers.relay import OnOff, RelayOptions
from gateway.config.values import SensorName

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
