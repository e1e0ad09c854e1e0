"""What a rule says. Times and durations are microseconds, values are in the channel's unit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

FIELDS: Final = ("rule", "gateway", "channel", "value")
"""What a message may name in braces."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Values above (or below) a limit; well again at ``clear``, between the two what was stays."""

    above: float | None
    below: float | None
    clear: float


@dataclass(frozen=True, slots=True)
class Stuck:
    """Values that don't move by more than ``tolerance``, judged ``moving_above`` only (a calm stands)."""

    tolerance: float
    moving_above: float | None


@dataclass(frozen=True, slots=True)
class Silent:
    """A channel without a reading for so many of its periods while its gateway's other channels go on.

    ``gateway_us``: how long nothing at all may come from the gateway, by the wall clock; None: not judged.
    """

    periods: float
    gateway_us: int | None


@dataclass(frozen=True, slots=True)
class Pair:
    """Twins whose means over ``window_us`` differ by more; well again at ``clear``.

    ``pairs`` are channels; empty: what the table ``channels`` calls a pair.
    """

    difference: float
    clear: float
    window_us: int
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Recovery:
    """Closed intervals of ``statistics`` with a recovery below a limit; well again at ``clear``."""

    below: float
    clear: float


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Intervals of ``anomalies`` whose score is above ``factor`` times the model's threshold."""

    factor: float


Kind = Threshold | Stuck | Silent | Pair | Recovery | Anomaly
NAMES: Final[Mapping[type[Any], str]] = {
    Threshold: "threshold",
    Stuck: "stuck",
    Silent: "silent",
    Pair: "pair",
    Recovery: "recovery",
    Anomaly: "anomaly",
}


def alert_id(rule: tuple[str, str], gateway: str, channel: str | None, since_us: int) -> str:
    """The same for the same violation of a rule (name, version), however often it is computed."""
    told = "\0".join((*rule, gateway, channel or "", str(since_us)))
    return hashlib.sha256(told.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class CommandRule:
    """What a live alert sends to its gateway.

    At most ``per_hour`` in any hour of this rule in the whole fleet, and not within ``min_interval_us`` of
    the last one to the same gateway.
    """

    action: str
    target: str
    args: Mapping[str, Any]
    expires_us: int
    min_interval_us: int
    per_hour: int


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. ``hold_us``: how long a violation must last, in event time, before the alert is raised."""

    name: str
    version: str
    kind: Kind
    severity: str
    message: str
    gateway: tuple[str, ...] = ("*",)
    channel: tuple[str, ...] = ("*",)
    quantity: tuple[str, ...] = ("*",)
    hold_us: int = 0
    command: CommandRule | None = None

    @property
    def id(self) -> tuple[str, str]:
        """Name and version: with another version a rule is another rule."""
        return self.name, self.version

    def is_of(self, gateway: str, channel: str | None) -> bool:
        """Whether the rule speaks of a channel; with None, of the gateway as a whole."""

        def fits(word: str, patterns: tuple[str, ...]) -> bool:
            return any(fnmatchcase(word, pattern) for pattern in patterns)

        if channel is None:
            return fits(gateway, self.gateway)
        quantity = channel.rpartition(".")[2]
        return fits(gateway, self.gateway) and fits(channel, self.channel) and fits(quantity, self.quantity)

    def says(self, gateway: str, channel: str | None, value: float) -> str:
        """The message filled in."""
        return self.message.format(rule=self.name, gateway=gateway, channel=channel or "gateway", value=value)


@dataclass(frozen=True)
class Rules:
    """All rules of a file. Readings older than ``max_age_us`` when they are judged raise no live alert."""

    rules: tuple[Rule, ...] = field(default=())
    max_age_us: int = 300_000_000

    def of_kind(self, *kinds: type[Any]) -> tuple[Rule, ...]:
        """The rules of some kinds, in the file's order."""
        return tuple(rule for rule in self.rules if isinstance(rule.kind, kinds))
