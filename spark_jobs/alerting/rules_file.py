"""The rules file: TOML to rules; all problems together, each with its line, its key and what to write."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from typing import Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, ValidationError

from cloud.toml_problems import KeyPath, explain
from cloud.toml_source import TomlSource
from spark_jobs.alerting.rules import KINDS, CommandRule, Rules, UnknownKind
from spark_jobs.errors import SettingsError

_T = TypeVar("_T", bound=BaseModel)

DEFAULT_RULES: Final = files("spark_jobs.alerting") / "default_rules.toml"
"""The rules in use where no file is named: on a cluster they are inside the package's archive."""


class _Source(TomlSource):
    missing: ClassVar = "name a rules' file with --rules"
    named: ClassVar = "rule"


def load_rules(path: Traversable) -> Rules:
    """The rules in a file. Raises SettingsError with all its problems, each on a line of its own."""
    with as_file(path) as file:
        source = _Source(file)
    raw, tables = (source.raw, source.tables("rule")) if source.usable else ({}, [])
    source.check_names(tables)
    found = [_read(source, KINDS.get(str(table.get("kind")), UnknownKind), table, at) for at, table in tables]
    rules = _read(source, Rules, {**raw, "rule": [rule for rule in found if rule is not None]}, ())
    if rules is None or source.problems:
        problems = sorted(source.problems, key=lambda problem: (problem.line or 0, problem.key))
        raise SettingsError("\n".join(map(str, problems)))
    return rules


def _read(source: TomlSource, kind: type[_T], table: Mapping[str, Any], place: KeyPath) -> _T | None:
    """A table's model; None after its problems were noted."""
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        for each in error.errors():
            path = each["loc"]
            fields = (CommandRule if "command" in path else kind).model_fields.items()
            names = [str(field.validation_alias or name) for name, field in fields]
            source.error((*place, *path), *explain(each, names))
    return None
