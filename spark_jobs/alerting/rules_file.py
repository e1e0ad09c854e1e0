"""The rules' file: TOML to rules, every problem at once, each with its line, its key and what to write."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cloud.toml_lines import KeyPath, Lines
from spark_jobs.alerting.rule_values import (
    Reader,
    WrongValueError,
    args,
    count,
    duration,
    message,
    nearest,
    number,
    pairs,
    patterns,
    rule_name,
    severity,
    span,
    version,
    word,
)
from spark_jobs.alerting.rules import (
    Anomaly,
    CommandRule,
    Kind,
    Pair,
    Recovery,
    Rule,
    Rules,
    Silent,
    Stuck,
    Threshold,
)
from spark_jobs.errors import SettingsError

DEFAULT_RULES: Final = Path(__file__).with_name("default_rules.toml")
"""What is judged where no file is named."""

_SYNTAX_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)$")
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """One thing that is wrong with a rules' file."""

    file: str
    line: int
    key: str
    message: str
    guess: str | None = None

    def __str__(self) -> str:
        key = f" {self.key}:" if self.key else ""
        hint = f' (did you mean "{self.guess}"?)' if self.guess is not None else ""
        return f"{self.file}:{self.line}:{key} {self.message}{hint}"


class RulesError(SettingsError):
    """A rules' file that can't be used; ``problems`` are all of them, in the order of their lines."""

    def __init__(self, problems: Iterable[RuleProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.line, problem.key)))
        super().__init__("\n".join(map(str, self.problems)))


def _joined(owner: str, key: str) -> str:
    return f"{owner}.{key}" if owner else key


Shape = Mapping[str, tuple[Reader, Any]]
"""The keys of a table: how each is read, and what stands for it where it is absent."""

_REQUIRED: Final = object()
_COMMON: Final[Shape] = {
    "name": (rule_name, _REQUIRED),
    "version": (version, "1"),
    "kind": (lambda value: value, _REQUIRED),
    "gateway": (patterns, ("*",)),
    "channel": (patterns, ("*",)),
    "quantity": (patterns, ("*",)),
    "severity": (severity, "warning"),
    "message": (message, "{rule}: {channel} {value:g}"),
    "command": (lambda value: value, None),
}
_HOLD: Final[Shape] = {"for": (duration, 0)}
_KINDS: Final[Mapping[str, Shape]] = {
    "threshold": {
        **_HOLD,
        "above": (number(), None),
        "below": (number(), None),
        "clear": (number(), None),
    },
    "stuck": {
        "for": (span, _REQUIRED),
        "tolerance": (number(0), 0.0),
        "moving_above": (number(), None),
    },
    "silent": {"periods": (number(1, above=True), 10.0), "gateway_after": (span, None)},
    "pair": {
        **_HOLD,
        "difference": (number(0, above=True), _REQUIRED),
        "clear": (number(0), None),
        "window": (span, 60_000_000),
        "pairs": (pairs, ()),
    },
    "recovery": {**_HOLD, "below": (number(0, 1, above=True), _REQUIRED), "clear": (number(0, 1), None)},
    "anomaly": {**_HOLD, "factor": (number(0, above=True), 1.0)},
}
_COMMAND: Final[Shape] = {
    "action": (word, _REQUIRED),
    "target": (word, _REQUIRED),
    "args": (args, {}),
    "expires_after": (span, 600_000_000),
    "min_interval": (duration, 900_000_000),
    "per_hour": (count, 2),
}
_TOP: Final[Shape] = {"max_age": (span, Rules.max_age_us), "rule": (lambda value: value, [])}


@dataclass
class _Reading:
    """One file being read."""

    file: str
    lines: Lines
    problems: list[RuleProblem] = field(default_factory=list)

    def wrong(self, path: KeyPath, key: str, message: str, guess: str | None = None) -> None:
        self.problems.append(RuleProblem(self.file, self.lines.of(path)[0], key, message, guess))

    def table(self, given: Mapping[str, Any], shape: Shape, path: KeyPath, owner: str) -> dict[str, Any]:
        """The keys' values; every key that is unknown, missing or wrong is a problem."""
        for key in given.keys() - shape.keys():
            guess = nearest(key, shape)
            names = "" if guess is not None else f"; there are {', '.join(shape)}"
            self.wrong((*path, key), _joined(owner, key), f"is not a known key{names}", guess)
        values: dict[str, Any] = {}
        for key, (read, default) in shape.items():
            value = given.get(key, _ABSENT)
            if value is _ABSENT:
                if default is _REQUIRED:
                    self.wrong(path, _joined(owner, key), "is missing")
                else:
                    values[key] = default
                continue
            try:
                values[key] = read(value)
            except WrongValueError as error:
                self.wrong((*path, key), _joined(owner, key), str(error), error.guess)
        return values

    def rule(self, given: Any, position: int) -> Rule | None:
        path: KeyPath = ("rule", position)
        owner = f"rule[{position + 1}]"
        if not isinstance(given, dict):
            self.wrong(path, owner, "must be a table: [[rule]]")
            return None
        if isinstance(given.get("name"), str):
            owner = f'rule["{given["name"][:63]}"]'
        before = len(self.problems)
        kind = given.get("kind")
        known = kind if isinstance(kind, str) and kind in _KINDS else None
        if "kind" in given and known is None:
            self.wrong(
                (*path, "kind"),
                f"{owner}.kind",
                f"must be one of {', '.join(_KINDS)}",
                nearest(str(kind), _KINDS),
            )
        # Without a kind nobody knows which further keys belong.
        own = {key: given[key] for key in given if known or key in _COMMON}
        values = self.table(own, {**_COMMON, **_KINDS.get(known or "", {})}, path, owner)
        command = self.command(values.get("command"), path, owner)
        judged = self.judged(known, values, path, owner) if known else None
        if judged is None or len(self.problems) > before:
            return None
        return Rule(
            name=values["name"],
            version=values["version"],
            kind=judged,
            severity=values["severity"],
            message=values["message"],
            gateway=values["gateway"],
            channel=values["channel"],
            quantity=values["quantity"],
            hold_us=values.get("for", 0),
            command=command,
        )

    def command(self, given: Any, path: KeyPath, owner: str) -> CommandRule | None:
        if given is None:
            return None
        if not isinstance(given, dict):
            self.wrong((*path, "command"), f"{owner}.command", "must be a table: [rule.command]")
            return None
        before = len(self.problems)
        values = self.table(given, _COMMAND, (*path, "command"), f"{owner}.command")
        if len(self.problems) > before:
            return None
        return CommandRule(
            values["action"],
            values["target"],
            values["args"],
            values["expires_after"],
            values["min_interval"],
            values["per_hour"],
        )

    def judged(self, kind: str, values: Mapping[str, Any], path: KeyPath, owner: str) -> Kind | None:
        """What the kind's own keys say together."""
        get = values.get
        if kind == "threshold":
            return self.threshold(get("above"), get("below"), get("clear"), path, owner)
        if kind == "stuck":
            return Stuck(get("tolerance", 0.0), get("moving_above"))
        if kind == "silent":
            return Silent(get("periods", 10.0), get("gateway_after"))
        if kind == "anomaly":
            return Anomaly(get("factor", 1.0))
        limit = get("difference") if kind == "pair" else get("below")
        if limit is None:
            return None
        clear = limit if get("clear") is None else values["clear"]
        if clear > limit if kind == "pair" else clear < limit:
            side = "at most the difference" if kind == "pair" else "at least below"
            self.wrong((*path, "clear"), f"{owner}.clear", f"must be {side}, {limit:g}")
            return None
        if kind == "pair":
            return Pair(limit, clear, get("window", 0), get("pairs", ()))
        return Recovery(limit, clear)

    def threshold(
        self, above: float | None, below: float | None, clear: float | None, path: KeyPath, owner: str
    ) -> Threshold | None:
        limit = below if above is None else above
        if limit is None or (above is not None and below is not None):
            self.wrong(path, owner, "needs above or below: one of them")
            return None
        back = limit if clear is None else clear
        if back > limit if above is not None else back < limit:
            side = "at most above" if above is not None else "at least below"
            self.wrong(
                (*path, "clear"),
                f"{owner}.clear",
                f"must be {side}, {limit:g}: it is where values are well again",
            )
            return None
        return Threshold(above, below, back)


def parse_rules(text: str, file: str) -> Rules:
    """The rules in a file's text. Raises RulesError with all its problems."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _SYNTAX_LINE.search(str(error))
        line = int(place[1]) if place else text.count("\n") + 1
        message = _SYNTAX_LINE.sub("", str(error))
        raise RulesError([RuleProblem(file, line, "", f"is not TOML: {message}")]) from error
    reading = _Reading(file, Lines(text))
    top = reading.table(given, _TOP, (), "")
    tables = top["rule"]
    if not isinstance(tables, list):
        reading.wrong(("rule",), "rule", "must be tables: [[rule]], with two brackets")
        tables = []
    rules: list[Rule] = []
    places: dict[str, int] = {}
    for position, table in enumerate(tables):
        if (rule := reading.rule(table, position)) is not None:
            rules.append(rule)
        name = table.get("name") if isinstance(table, dict) else None
        if isinstance(name, str):
            line = reading.lines.of(("rule", position, "name"))[0]
            if name in places:
                reading.wrong(
                    ("rule", position, "name"),
                    f'rule["{name[:63]}"].name',
                    f"is the name of the rule on line {places[name]} too: give each its own",
                )
            places.setdefault(name, line)
    if reading.problems:
        raise RulesError(reading.problems)
    return Rules(tuple(rules), top["max_age"])


def load_rules(path: Path) -> Rules:
    """The rules in a file. Raises RulesError, SettingsError where it can't be read."""
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise SettingsError(
            f"{path}: can't be read: {error.strerror}; name a rules' file with --rules"
        ) from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: byte {error.start} is not UTF-8") from error
    return parse_rules(text, str(path))
