"""From a file to a CloudConfig: every problem at once, in the order of the lines.

Secrets and certificates are not read here, but where they are used: who queries the lake needs no password of
Kafka's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from cloud.config.model import CloudConfig, Lake, StoreConfig
from cloud.config.secret import Secret, UnreadableError
from cloud.toml_models import Table, located
from cloud.toml_problems import ConfigError, KeyPath, Problem, quote
from cloud.toml_source import TomlSource


class _Source(TomlSource):
    missing: ClassVar = "docs/examples/cloud.toml is one to begin with"
    empty: ClassVar = "docs/examples/cloud.toml is one to begin with"
    named: ClassVar = "stream"


def load(path: Path) -> CloudConfig:
    """The config of a file. Raises ConfigError with all its problems."""
    source, config = _read(path)
    if config is None:
        raise ConfigError(source.in_order())
    return config


def check(path: Path) -> tuple[CloudConfig | None, tuple[Problem, ...]]:
    """The config of a file, None where it has errors; and its problems, warnings included. Never raises.

    What it names is read too. What only a service has (environment, credentials) is a warning.
    """
    source, config = _read(path)
    if config is None:
        return None, source.in_order()
    uses: list[Callable[[], object]] = [config.kafka.java_options, config.identity.master]
    uses += [secret.reveal for _, secret in _secrets(config)]
    for use in uses:
        try:
            use()
        except UnreadableError as error:
            if error.secret.kind == "file":
                source.error(error.secret.key, error.reason)
            else:
                # The service's, which this process may not be.
                source.warn(error.secret.key, f"{error.reason}; not examined here")
    return (None if source.errors() else config), source.in_order()


def _read(path: Path) -> tuple[_Source, CloudConfig | None]:
    source = _Source(path)
    config = source.model(CloudConfig, source.raw) if source.usable else None
    if config is None or source.errors():
        return source, None
    for location, secret in _secrets(config):
        secret.key = located(source.raw, location)
        secret.where = source.place(secret.key)
        if secret.kind == "given":
            source.warn_of_readers(secret.key, path)
    lakes: dict[KeyPath, Lake] = {("lake",): config.lake}
    lakes |= {("lakes", name): lake for name, lake in config.lakes.items()}
    for key, lake in lakes.items():
        if lake.storage != StoreConfig() and not (lake.path or "s3://").startswith(("s3://", "s3a://")):
            why = f"has no effect: [{source.key(key)}] path is no s3a:// but {quote(lake.path)}"
            source.warn((*key, "storage"), why)
    source.check_names(source.tables("stream"))
    for position, stream in enumerate(config.streams):
        stream.is_at(source.place(("stream", position, "sql")))
        # What Python doesn't understand is a pattern of Java's.
        with suppress(re.error):
            if re.fullmatch(config.jobs.topic_pattern or "", stream.topic):
                why = "matches topics of [jobs]: ingest would read it again; take another, as derived.wind"
                source.error(("stream", position, "topic"), why)
    registry = config.schema_registry
    if registry.url is not None and registry.url.startswith("http:") and registry.password is not None:
        source.warn(("schema_registry", "url"), "sends the password in the clear: better https")
    return source, config


def _secrets(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Secret]]:
    """The secrets in a model and the models within it, each with its keys."""
    if isinstance(value, Secret):
        yield path, value
    elif isinstance(value, Table):
        for name, field in type(value).model_fields.items():
            yield from _secrets(getattr(value, name), (*path, str(field.validation_alias or name)))
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _secrets(each, (*path, name))
