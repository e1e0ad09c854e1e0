"""The rules file: TOML to rules; all problems together, each with its line, its key and what to write."""

from __future__ import annotations

from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from typing import ClassVar, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from cloud.toml_problems import KeyPath, explain
from cloud.toml_source import TomlSource
from spark_jobs.alerting.rules import KINDS, CommandRule, Rule, Rules
from spark_jobs.errors import SettingsError

DEFAULT_RULES: Final = files("spark_jobs.alerting") / "default_rules.toml"
"""The rules in use where no file is named: on a cluster they are inside the package's archive."""


class _Source(TomlSource):
    missing: ClassVar = "name a rules' file with --rules"
    named: ClassVar = "rule"


def load_rules(path: Traversable) -> Rules:
    """The rules in a file. Raises SettingsError with all its problems, each on a line of its own."""
    with as_file(path) as file:
        source = _Source(file)
    tables = source.tables("rule")
    understood = not source.problems
    source.check_names(tables)
    rules: Rules | None = None
    try:
        rules = Rules.model_validate(source.raw if understood else {})
    except ValidationError as error:
        for each in error.errors():
            _note(source, each)
    if rules is None or source.problems:
        problems = sorted(source.problems, key=lambda problem: (problem.line or 0, problem.key))
        raise SettingsError("\n".join(map(str, problems)))
    return rules


def _note(source: TomlSource, error: ErrorDetails) -> None:
    """Add what pydantic has found to the problems."""
    path: KeyPath = error["loc"]
    model: type[BaseModel] = Rules
    if len(path) > 2:
        # Behind the rule's position stands its kind, which is no key.
        kind = KINDS.get(str(path[2]), Rule)
        path = (*path[:2], *path[3:])
        model = CommandRule if "command" in path else kind
    fields = model.model_fields.items()
    source.error(path, *explain(error, [str(each.validation_alias or name) for name, each in fields]))
