"""From a file to a CloudConfig: every problem at once, in the order of the lines.

Secrets and certificates are not read here, but where they are used: who queries the lake needs no password of
Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from cloud.config.kafka import KafkaConfig
from cloud.config.model import (
    CloudConfig,
    DashboardConfig,
    DashboardUser,
    IdentityConfig,
    JobsConfig,
    Lake,
    LakeConfig,
    OtherLake,
    RegistryConfig,
    StoreConfig,
    TargetConfig,
    UsersConfig,
)
from cloud.config.secret import KINDS, Secret, UnreadableError
from cloud.toml_problems import ConfigError, KeyPath, Problem, explain, quote, unknown_key
from cloud.toml_source import TomlSource, leaves
from cloud.values import location

_T = TypeVar("_T", bound=BaseModel)
_L = TypeVar("_L", bound=Lake)

_SECTIONS: Final = tuple(CloudConfig.model_fields)
_PROPERTIES: Final[KeyPath] = ("kafka", "properties")
_S3: Final = ("s3://", "s3a://")


class _Source(TomlSource):
    missing: ClassVar = "docs/examples/cloud.toml is one to begin with"
    empty: ClassVar = "docs/examples/cloud.toml is one to begin with"

    def reference(self, path: KeyPath, given: object, *, file: bool) -> Secret | None:
        """A secret, or a ``file``, that a key names; None after its problem was noted."""
        name, kind = given, "file" if file else "given"
        if isinstance(given, Mapping) and not file:
            wrong = next((key for key in given if key not in KINDS), None)
            if wrong is not None:
                self.error((*path, wrong), *unknown_key(wrong, KINDS))
                return None
            if len(given) != 1:
                self.error(path, f'must name one of {", ".join(KINDS)}, as in {{ file = "…" }}')
                return None
            ((kind, name),) = given.items()
        if not isinstance(name, str) or not name:
            self.error(path, 'must be a string, in "quotes"' + ("" if file else ', or { file = "…" }'))
            return None
        if kind == "given":
            self.warn_of_readers(path, self.path)
        if kind == "file":
            name = str(self.path.absolute().parent / name)
        return Secret(kind, name, path, f"{self._file}:{self.line(path)}: {self.key(path)}")  # type: ignore[arg-type] # one of KINDS


def load(path: Path) -> CloudConfig:
    """The config of a file. Raises ConfigError with all its problems."""
    source, config = _read(path)
    if config is None:
        raise ConfigError(_sorted(source))
    return config


def check(path: Path) -> tuple[CloudConfig | None, tuple[Problem, ...]]:
    """The config of a file, None where it has errors; and its problems, warnings included. Never raises.

    What it names is read too. What only a service has (environment, credentials) is a warning.
    """
    source, config = _read(path)
    if config is None:
        return None, _sorted(source)
    lakes: tuple[Lake, ...] = config.lake, *config.lakes.values()
    uses: list[Callable[[], object]] = [config.kafka.java_options, config.identity.master]
    uses += [
        each.reveal
        for table in (
            config.kafka,
            config.schema_registry,
            *(lake.storage for lake in lakes),
            *config.notify.values(),
        )
        for each in vars(table).values()
        if isinstance(each, Secret)
    ]
    for use in uses:
        try:
            use()
        except UnreadableError as error:
            if error.secret.kind == "file":
                source.error(error.secret.key, error.reason)
            else:
                # The service's, which this process may not be.
                source.warn(error.secret.key, f"{error.reason}; not examined here")
    problems = _sorted(source)
    return (None if source.errors() else config), problems


def _sorted(source: TomlSource) -> tuple[Problem, ...]:
    return tuple(sorted(dict.fromkeys(source.problems), key=lambda problem: problem.line or 0))


def _read(path: Path) -> tuple[_Source, CloudConfig | None]:
    source = _Source(path)
    if not source.usable:
        return source, None
    for name in source.raw:
        if name not in _SECTIONS:
            source.error((name,), *unknown_key(name, _SECTIONS, what="section"))
    base = path.absolute().parent
    kafka = _section(source, KafkaConfig, ("kafka",), _properties)
    lake = _lake(source, LakeConfig, ("lake",), base)
    lakes = {name: _lake(source, OtherLake, ("lakes", name), base) for name in _names(source, "lakes")}
    notify = {name: _section(source, TargetConfig, ("notify", name)) for name in _names(source, "notify")}
    jobs = _section(source, JobsConfig, ("jobs",), partial(_job_options, base=base))
    found: dict[str, Any] = {
        "kafka": kafka,
        "lake": lake,
        "jobs": jobs,
        "users": _section(source, UsersConfig, ("users",)),
        "identity": _section(source, IdentityConfig, ("identity",)),
        "schema_registry": _section(
            source, RegistryConfig, ("schema_registry",), partial(_registry_files, base=base)
        ),
        "dashboard": _dashboard(source, base),
    }
    for key, message in () if kafka is None else kafka.problems():
        source.error((*_PROPERTIES, *key.split(".")), message)
    if None in found.values() or source.errors():
        return source, None
    return source, CloudConfig(**found, lakes=_there(lakes), notify=_there(notify))


def _there(found: Mapping[str, _T | None]) -> dict[str, _T]:
    return {name: each for name, each in found.items() if each is not None}


def _names(source: _Source, *section: str) -> list[str]:
    """The tables of ``[section.NAME]``."""
    tables: Any = source.raw
    for part in section:
        tables = tables.get(part, {})
        if not isinstance(tables, dict):
            source.error(section, f"must be tables: [{'.'.join(section)}.NAME]")
            return []
    return list(tables)


def _dashboard(source: _Source, base: Path) -> DashboardConfig | None:
    """The pages' section with its users; None after its problems were noted."""

    def prepare(_: _Source, raw: dict[str, Any]) -> dict[str, KeyPath]:
        raw.pop("users", None)
        for key in ("certificate", "key"):
            if isinstance(raw.get(key), str):
                raw[key] = str(base / raw[key])
        return {}

    path = ("dashboard", "users")
    users = {name: _section(source, DashboardUser, (*path, name)) for name in _names(source, *path)}
    section = _section(source, DashboardConfig, path[:1], prepare)
    if section is None:
        return None
    if (section.certificate is None) != (section.key is None):
        source.error(path[:1], "needs both certificate and key, or neither")
    return section.model_copy(update={"users": _there(users)})


def _lake(source: _Source, kind: type[_L], path: KeyPath, base: Path) -> _L | None:
    """A lake's section with its store; None after its problems were noted."""
    place = (*path, "storage")
    lake = _section(source, kind, path, partial(_locations, base=base))
    store = _section(source, StoreConfig, place)
    if lake is None or store is None:
        return None
    if (store.access_key is None) != (store.secret_key is None):
        missing = "secret_key" if store.secret_key is None else "access_key"
        source.error(place, f"needs {missing} too: both, or neither and the environment's")
    if store != StoreConfig() and lake.path is not None and not lake.path.startswith(_S3):
        name = ".".join(map(str, path))
        source.warn(place, f"has no effect: [{name}] path is no s3a:// but {quote(lake.path)}")
    return lake.model_copy(update={"storage": store})


_Prepare = Callable[[_Source, dict[str, Any]], dict[str, KeyPath]]
"""Puts a table's values as its model takes them; the paths of keys that stand elsewhere than in the table."""


def _section(source: _Source, kind: type[_T], path: KeyPath, prepare: _Prepare | None = None) -> _T | None:
    """A section's model; None after its problems were noted."""
    raw: Any = source.raw
    for depth, part in enumerate(path, 1):
        raw = raw.get(part, {})
        if not isinstance(raw, dict):
            source.error(path[:depth], f"must be a table: [{'.'.join(map(str, path))}]")
            return None
    given = dict(raw)
    paths = prepare(source, given) if prepare is not None else {}
    before = source.errors()
    for name, field in kind.model_fields.items():
        alias = _alias(name, field)
        if alias in given and Secret in (field.annotation, *getattr(field.annotation, "__args__", ())):
            place = paths.get(alias, (*path, alias))
            given[alias] = source.reference(place, given[alias], file=alias.endswith(".location"))
    model = None
    try:
        model = kind.model_validate(given)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            name = str(each["loc"][0])
            place = (*paths.get(name, (*path, name)), *map(str, each["loc"][1:]))
            source.error(place, *explain(each, [_alias(*field) for field in kind.model_fields.items()]))
    return model if source.errors() == before else None


def _alias(name: str, field: FieldInfo) -> str:
    return str(field.validation_alias or name)


def _flat(
    source: _Source, table: Mapping[str, Any], path: KeyPath
) -> tuple[dict[str, Any], dict[str, KeyPath]]:
    """A table's values by dotted key, as dotted and quoted keys are equal; and the place of each."""
    flat: dict[str, Any] = {}
    paths: dict[str, KeyPath] = {}
    for place, value in leaves(table, path, KINDS):
        name = ".".join(map(str, place[len(path) :]))
        if name in flat:
            source.error(place, f"{name} is given twice, dotted and quoted")
        flat[name], paths[name] = value, place
    return flat, paths


def _properties(source: _Source, raw: dict[str, Any]) -> dict[str, KeyPath]:
    """Librdkafka's properties beside the section's own keys; properties elsewhere are errors."""
    known = {str(field.validation_alias) for field in KafkaConfig.model_fields.values()}
    properties = raw.pop("properties", {})
    if not isinstance(properties, dict):
        source.error(_PROPERTIES, "must be a table: [kafka.properties]")
        properties = {}
    for name, place in _flat(source, raw, ("kafka",))[1].items():
        if "." in name and name in known:
            source.error(place, "belongs in [kafka.properties]")
            raw.pop(str(place[1]), None)
    flat, paths = _flat(source, properties, _PROPERTIES)
    for name in [name for name in flat if name.startswith(("bootstrap", "prefix"))]:
        own = "prefix" if name == "prefix" else "bootstrap_servers"
        source.error(paths[name], f"belongs in kafka.{own}")
        del flat[name]
    raw.update(flat)
    return paths


def _locations(_: _Source, raw: dict[str, Any], *, base: Path) -> dict[str, KeyPath]:
    raw.pop("storage", None)
    raw.update({key: location(value, base) for key, value in raw.items() if isinstance(value, str)})
    return {}


def _registry_files(source: _Source, raw: dict[str, Any], *, base: Path) -> dict[str, KeyPath]:
    if isinstance(raw.get("ca"), str):
        raw["ca"] = str(base / raw["ca"])
    if str(raw.get("url")).startswith("http:") and "password" in raw:
        source.warn(("schema_registry", "url"), "sends the password in the clear: better https")
    return {}


def _job_options(source: _Source, raw: dict[str, Any], *, base: Path) -> dict[str, KeyPath]:
    if isinstance(raw.get("rules"), str):
        raw["rules"] = str(base / raw["rules"])
    if isinstance(raw.get("conf"), dict):
        flat = _flat(source, raw["conf"], ("jobs", "conf"))[0]
        raw["conf"] = {key: _conf_text(value) for key, value in flat.items()}
    return {}


def _conf_text(value: object) -> object:
    """A value of Spark's configuration, which are texts; what can't be one stays."""
    return str(value).lower() if isinstance(value, bool | int | float) else value
