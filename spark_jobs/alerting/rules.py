"""Alert rules: the tables of a rules file. Durations are microseconds, values in the channel's unit.

Validators raise ValueError with what the value should have been; ``load_rules`` adds file, line and key.
"""

from __future__ import annotations

import hashlib
import json
import re
import string
from collections.abc import Callable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, WrapValidator, model_validator

from cloud.toml_models import Table
from cloud.toml_problems import WrongValue, nearest
from cloud.toml_source import TomlSource
from cloud.trends import KINDS as TRENDS
from cloud.values import duration_s, duration_text
from cloud.wire.command_records import NAME
from spark_jobs.platform.errors import SettingsError

FIELDS: Final = ("rule", "gateway", "channel", "value", "duration", "detail")
"""What a message may name in braces; ``detail`` is an event with its fields, ``duration`` seconds as 36 h."""
REPORTED: Final = {
    "recovery": "recovery",
    "outbox_share": "outbox_bytes / nullif(outbox_max_bytes, 0)",
    "waiting": "cast(outbox_records as double)",
    "kafka_confirmed_ago_s": "kafka_confirmed_ago_s",
    "dropped": "cast(dropped as double)",
    "disk_free_bytes": "cast(disk_free_bytes as double)",
    "under_voltage": "cast(under_voltage as double)",
    "throttled": "cast(throttled as double)",
    "cpu_celsius": "cpu_celsius",
    "load": "load",
    "site_moved_m": "if(daemon is null, coalesce(site_moved_m, 0d), null)",
    "troubles": "cast(size(troubles) as double)",
    "parked": "cast(size(parked) as double)",
    "bytes_sent": "cast(bytes_sent as double)",
}
"""What a rule on daily reports may be about, and how the table ``health`` has it; ``recovery`` by channel."""

_RULE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)


def _matching(pattern: re.Pattern[str], what: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if not isinstance(value, str) or pattern.fullmatch(value) is None:
            raise ValueError(f"must be {what}")
        return value

    return check


def _version(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str) or not 0 < len(str(value)) <= 64:
        raise ValueError("must be a whole number or a text of at most 64 characters")
    return str(value)


def _duration_us(value: object) -> int:
    with suppress(ValueError):
        if isinstance(value, str):
            return round(duration_s(value) * 1e6)
    raise ValueError('must be a duration such as "500ms", "30s", "10m", "1h" or "1d"')


def _patterns(value: object) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        raise ValueError('must be a name or a list of names; * and ? stand for any characters, e.g. "mast-*"')
    return tuple(words)


def _pairs(value: object) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = []
    for pair in value if isinstance(value, list) else [None]:
        match pair:
            case [str(first), str(second)] if first != second and "." in first and "." in second:
                pairs.append((first, second))
            case _:
                raise ValueError('must be pairs of channels, e.g. [["cup-a.wind_speed", "cup-b.wind_speed"]]')
    return tuple(pairs)


def _message(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable() or len(value) > 300:
        raise ValueError("must be a text of 1 to 300 printable characters")
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(value) if name is not None]
        wrong = next((name for name in names if name not in FIELDS), None)
        if wrong is None:
            value.format(rule="", gateway="", channel="", value=1.5, duration="", detail="")
    except (ValueError, LookupError) as error:
        raise ValueError('is no message: braces name values, e.g. "{channel} at {value:.1f}"') from error
    if wrong is not None:
        there = ", ".join(f"{{{name}}}" for name in FIELDS)
        raise WrongValue(f"names {{{wrong}}}; there are {there}", nearest(wrong, FIELDS))
    return value


def _field(value: object) -> str:
    if not isinstance(value, str) or value not in REPORTED:
        there = f"must be one of {', '.join(REPORTED)}"
        raise WrongValue(there, nearest(value, REPORTED) if isinstance(value, str) else None)
    return value


def _args(value: object) -> Mapping[str, Any]:
    with suppress(TypeError, ValueError):
        if isinstance(value, dict) and json.dumps(value, allow_nan=False):
            return value
    raise ValueError("must be a table of texts, finite numbers, true and false")


_NORMAL_SIDE: Final = {
    "above": "at most above",
    "below": "at least below",
    "difference": "at most the difference",
    "factor": "at most the factor",
}
"""Where an alert may end, by the key of its limit."""
_ANOMALY_CLEAR: Final = 0.8


def _ending(given: object, check: Callable[[object], float], info: ValidationInfo) -> float:
    """Where an alert ends: at its limit, or at what is ``given``, which lies on the limit's normal side."""
    key = next((key for key in _NORMAL_SIDE if info.data.get(key) is not None), None)
    limit = 0.0 if key is None else info.data[key]
    if given is None:
        # A score wanders about its threshold; values and recoveries are measured.
        return limit * _ANOMALY_CLEAR if key == "factor" else limit
    clear = check(given)
    if key is not None and (clear < limit if key == "below" else clear > limit):
        raise ValueError(f"must be {_NORMAL_SIDE[key]}, {limit:g}: the alert ends there")
    return clear


Name = Annotated[
    str, BeforeValidator(_matching(_RULE_NAME, "1 to 63 of a-z, 0-9 and -, beginning with a letter or digit"))
]
Word = Annotated[str, BeforeValidator(_matching(NAME, "a word of letters, digits, '.', '_' and '-'"))]
Duration = Annotated[int, BeforeValidator(_duration_us)]
Span = Annotated[int, BeforeValidator(_duration_us), Field(gt=0)]
Count = Annotated[int, Field(strict=True, ge=1)]
Patterns = Annotated[tuple[str, ...], BeforeValidator(_patterns)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Ending = WrapValidator(_ending)


class CommandRule(Table):
    """What a live alert sends to its gateway.

    ``per_hour`` bounds the commands of this rule to the whole fleet in any hour; two to one gateway are at
    least ``min_interval_us`` apart.
    """

    action: Word
    target: Word
    args: Annotated[Mapping[str, Any], BeforeValidator(_args)] = Field(default_factory=dict)
    expires_us: Span = Field(600_000_000, validation_alias="expires_after")
    min_interval_us: Duration = Field(900_000_000, validation_alias="min_interval")
    per_hour: Count = 2


class Rule(Table):
    """What all rules have. A rule of another version is another rule."""

    name: Name
    version: Annotated[str, BeforeValidator(_version)] = "1"
    kind: str
    gateway: Patterns = ("*",)
    channel: Patterns = ("*",)
    quantity: Patterns = ("*",)
    severity: Literal["info", "warning", "critical"] = "warning"
    message: Annotated[str, BeforeValidator(_message)] = "{rule}: {channel} {value:g}"
    command: CommandRule | None = None

    @property
    def id(self) -> tuple[str, str]:
        """Name and version."""
        return self.name, self.version

    def applies_to(self, gateway: str, channel: str | None) -> bool:
        """Whether the rule is about a channel; with None, about the gateway as a whole."""

        def fits(word: str, patterns: tuple[str, ...]) -> bool:
            return any(fnmatchcase(word, pattern) for pattern in patterns)

        if channel is None:
            return fits(gateway, self.gateway)
        quantity = channel.rpartition(".")[2]
        return fits(gateway, self.gateway) and fits(channel, self.channel) and fits(quantity, self.quantity)

    def text(self, gateway: str, channel: str | None, value: float, detail: str = "") -> str:
        """The message filled in."""
        return self.message.format(
            rule=self.name, gateway=gateway, channel=channel or "the whole mast", value=value,
            duration=duration_text(value), detail=detail,
        )  # fmt: skip


class HeldRule(Rule):
    """``hold_us``: how long a violation must last, in event time, before the alert is raised."""

    hold_us: Duration = Field(0, validation_alias="for")


class Limited(HeldRule):
    """Values above (or below) a limit; the alert ends at ``clear``, between the two nothing changes."""

    above: Number | None = None
    below: Number | None = None
    clear: Annotated[Number, Ending] = Field(None, validate_default=True)

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if (self.above is None) == (self.below is None):
            raise ValueError("needs above or below: one of them")
        return self


class Threshold(Limited):
    """Readings beyond a limit."""

    kind: Literal["threshold"]


class Stuck(HeldRule):
    """Values that don't move by more than ``tolerance``, evaluated ``moving_above`` only (not in a calm)."""

    kind: Literal["stuck"]
    hold_us: Span = Field(validation_alias="for")
    tolerance: Annotated[Number, Field(ge=0)] = 0.0
    moving_above: Number | None = None


class Silent(Rule):
    """A channel without a reading for so many of its periods while its gateway's other channels go on.

    ``gateway_us``: how long nothing at all may come from the gateway, by the wall clock; None: no limit.
    """

    kind: Literal["silent"]
    periods: Annotated[Number, Field(gt=1)] = 10.0
    gateway_us: Span | None = Field(None, validation_alias="gateway_after")


class Pair(HeldRule):
    """Twins whose means over ``window_us`` differ by more; the alert ends at ``clear``.

    ``pairs`` are channels; empty: the pairs of the table ``channels``. Windows in which the wind comes from
    within ``shadow`` degrees of where the tower shades a twin, opposite its boom, don't count; 0: all do.
    """

    kind: Literal["pair"]
    difference: Annotated[Number, Field(gt=0)]
    clear: Annotated[Number, Field(ge=0), Ending] = Field(None, validate_default=True)
    window_us: Span = Field(60_000_000, validation_alias="window")
    pairs: Annotated[tuple[tuple[str, str], ...], BeforeValidator(_pairs)] = ()
    shadow: Annotated[Number, Field(ge=0, lt=90)] = 0.0


class Recovery(HeldRule):
    """Closed intervals of ``statistics`` with a recovery below a limit; the alert ends at ``clear``."""

    kind: Literal["recovery"]
    below: Annotated[Number, Field(gt=0, le=1)]
    clear: Annotated[Number, Field(ge=0, le=1), Ending] = Field(None, validate_default=True)


class Anomaly(HeldRule):
    """Intervals of ``anomalies`` whose score is above ``factor`` times the model's threshold.

    The alert ends at ``clear`` times the threshold: 0.8 of ``factor`` where none is given.
    """

    kind: Literal["anomaly"]
    factor: Annotated[Number, Field(gt=0)] = 1.0
    clear: Annotated[Number, Field(gt=0), Ending] = Field(None, validate_default=True)


class Cloned(HeldRule):
    """A gateway whose channels are ``cloned`` in ``presence``: two with its id run at once."""

    kind: Literal["cloned"]


def _no_command(value: object) -> None:
    raise ValueError("can't be given: what it is about may be days old when it comes")


class Reported(Rule):
    """Rules on what gateways report, which comes late where their uplink was away: they send no command."""

    command: Annotated[None, BeforeValidator(_no_command)] = None


class Event(Reported):
    """Events of a gateway, named by their kind.

    Those of ``cleared_by`` end the alert, ``run-started`` among them; where none are named it ends at once.
    """

    kind: Literal["event"]
    events: Patterns
    cleared_by: Annotated[tuple[str, ...], BeforeValidator(_patterns)] = ()
    message: Annotated[str, BeforeValidator(_message)] = "{gateway}: {detail}"
    hold_us: ClassVar = 0

    def is_named(self, event: str) -> bool:
        """Whether events of this kind raise the alert."""
        return any(fnmatchcase(event, pattern) for pattern in self.events)

    def is_cleared_by(self, event: str) -> bool:
        """Whether events of this kind end the alert."""
        return any(fnmatchcase(event, pattern) for pattern in self.cleared_by)


class Health(Reported, Limited):
    """A figure of the daily reports beyond a limit, or on its way there.

    The alert is raised where the trend of two weeks reaches the limit within ``within_us``, if that is given;
    its value is the days that are left then.
    """

    kind: Literal["health"]
    field: Annotated[str, BeforeValidator(_field)]
    within_us: Span | None = Field(None, validation_alias="within")


def _worn(value: object) -> tuple[str, ...]:
    named = _patterns(value)
    if wrong := next((each for each in named if not any(fnmatchcase(kind, each) for kind in TRENDS)), None):
        raise WrongValue(f"must be of {', '.join(TRENDS)}", nearest(wrong, TRENDS))
    return named


class Wear(Reported):
    """Trends of the table ``trends`` that get to their limit within a time, surely at 95 %."""

    kind: Literal["wear"]
    trends: Annotated[tuple[str, ...], BeforeValidator(_worn)] = ("*",)
    within_us: Span = Field(validation_alias="within")
    message: Annotated[str, BeforeValidator(_message)] = "{gateway}: {channel}: {detail}"
    hold_us: ClassVar = 0

    def is_about(self, trend: str) -> bool:
        """Whether trends of this kind raise the alert."""
        return any(fnmatchcase(trend, pattern) for pattern in self.trends)


class Calibration(Reported):
    """Calibrations that expire in fewer days; 0: those that have expired."""

    kind: Literal["calibration"]
    days: Annotated[int, Field(strict=True, ge=0)]
    hold_us: ClassVar = 0


AnyRule = Annotated[
    Threshold | Stuck | Silent | Pair | Recovery | Anomaly | Cloned | Event | Health | Wear | Calibration,
    Field(discriminator="kind"),
]
KINDS: Final[tuple[type[Rule], ...]] = get_args(get_args(AnyRule)[0])


class Rules(Table):
    """All rules of a file. Readings older than ``max_age_us`` when evaluated raise no live alert."""

    rules: tuple[AnyRule, ...] = Field((), validation_alias="rule")
    max_age_us: Span = Field(300_000_000, validation_alias="max_age")


def alert_id(rule: tuple[str, str], gateway: str, channel: str | None, since_us: int) -> str:
    """The same for the same violation of a rule (name, version), however often it is computed."""
    violation = "\0".join((*rule, gateway, channel or "", str(since_us)))
    return hashlib.sha256(violation.encode()).hexdigest()[:32]


DEFAULT_RULES: Final = files("spark_jobs.alerting") / "default_rules.toml"
"""The rules in use where no file is named: on a cluster they are inside the package's archive."""


class _Source(TomlSource):
    missing: ClassVar = "name a rules' file with --rules"
    named: ClassVar = "rule"


def load_rules(path: Traversable) -> Rules:
    """The rules in a file. Raises SettingsError with all its problems, each on a line of its own."""
    with as_file(path) as file:
        source = _Source(file)
    rules = None
    if source.usable:
        source.check_names(source.tables("rule"))
        rules = source.model(Rules, source.raw)
    if rules is None or source.problems:
        raise SettingsError("\n".join(map(str, source.in_order())))
    return rules
