"""The rules file: TOML to rules; all problems together, each with its line, its key and what to write."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from cloud.toml_lines import KeyPath, Lines
from cloud.toml_problems import BOUNDS, Problem, show, unknown_key
from spark_jobs.alerting.rules import KINDS, CommandRule, Rules
from spark_jobs.errors import SettingsError

DEFAULT_RULES: Final = files("spark_jobs.alerting") / "default_rules.toml"
"""The rules in use where no file is named: on a cluster they are inside the package's archive."""

_SYNTAX_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)$")
_TEXTS: Final = {
    "missing": "is missing",
    "float_type": "must be a number, without quotes",
    "int_type": "must be a whole number, without quotes",
    "finite_number": "must be a finite number",
    "tuple_type": "must be tables: [[rule]], with two brackets",
}
"""What is printed for pydantic's types of errors."""


def _model_at(path: KeyPath, kind: str) -> type[BaseModel]:
    if path[0] != "rule":
        return Rules
    return CommandRule if "command" in path else KINDS[kind]


def _text(error: ErrorDetails, path: KeyPath, kind: str) -> tuple[str, str | None]:
    """What is wrong with a key, and the nearest right word."""
    what, context = error["type"], error.get("ctx", {})
    if what in _TEXTS:
        return _TEXTS[what], None
    if what in BOUNDS:
        return f"must be {BOUNDS[what]} {show(next(iter(context.values())))}", None
    if what == "value_error":
        return str(context["error"]), None
    if what == "extra_forbidden":
        fields = _model_at(path, kind).model_fields
        return unknown_key(
            str(path[-1]), [str(each.validation_alias or name) for name, each in fields.items()]
        )
    return f"must be a table: {'[rule.command]' if path[-1] == 'command' else '[[rule]]'}", None


def _key(path: KeyPath, given: Any) -> str:
    """The key as people write it, the rule by its name where it has one."""
    if len(path) < 2:
        return str(path[0])
    table = given["rule"][path[1]]
    name = table.get("name") if isinstance(table, dict) else None
    number = f'"{name[:63]}"' if isinstance(name, str) else int(path[1]) + 1
    return ".".join((f"rule[{number}]", *map(str, path[2:])))


def _repeated_names(given: Mapping[str, Any], lines: Lines) -> Iterable[tuple[KeyPath, str, None]]:
    first: dict[str, int] = {}
    tables = given.get("rule")
    for position, table in enumerate(tables if isinstance(tables, list) else ()):
        name = table.get("name") if isinstance(table, dict) else None
        if isinstance(name, str):
            path = ("rule", position, "name")
            if name in first:
                yield path, f"is the name of the rule on line {first[name]} too: give each its own", None
            first.setdefault(name, lines.of(path)[0])


def parse_rules(text: str, file: str) -> Rules:
    """The rules in a file's text. Raises SettingsError with all its problems, each on a line of its own."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _SYNTAX_LINE.search(str(error))
        line = int(place[1]) if place else text.count("\n") + 1
        message = _SYNTAX_LINE.sub("", str(error))
        raise SettingsError(f"{file}:{line}: is not TOML: {message}") from error
    lines = Lines(text)
    found: list[tuple[KeyPath, str, str | None]] = list(_repeated_names(given, lines))
    try:
        rules = Rules.model_validate(given)
    except ValidationError as error:
        for each in error.errors():
            # Behind the rule's position stands its kind, which is no key.
            path, kind = each["loc"], ""
            if len(path) > 2:
                path, kind = (*path[:2], *path[3:]), str(path[2])
            found.append((path, *_text(each, path, kind)))
    if found:
        problems = [
            Problem(file, lines.of(path)[0], _key(path, given), text, guess) for path, text, guess in found
        ]
        problems.sort(key=lambda problem: (problem.line or 0, problem.key))
        raise SettingsError("\n".join(map(str, problems)))
    return rules


def load_rules(path: Traversable) -> Rules:
    """The rules in a file. Raises SettingsError where it can't be read, or has problems."""
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise SettingsError(
            f"{path}: can't be read: {error.strerror}; name a rules' file with --rules"
        ) from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: byte {error.start} is not UTF-8") from error
    return parse_rules(text, str(path))
