"""A gateway's access to Kafka as one file: ``provision gateway`` writes it, ``init --access`` takes it.

It holds what librdkafka needs, secrets and certificates included. Each of these becomes a file of its own on
the mast, beside ``gateway.toml``, which names it: a new password replaces that file alone.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cloud.toml_source import leaves
from cloud.wire.identities import KEY
from gateway.commands.arguments import CommandError, os_problem
from gateway.config.named_files import KINDS
from gateway.system.atomic_file import Ownership, write_atomic, write_secret

_HEAD: Final = (
    "# {id}'s access to Kafka. On the mast: fieldgate init --access FILE. It holds a secret: delete it then."
)
_PLACES: Final = {
    "sasl.password": "kafka.password",
    "ssl.ca.location": "kafka-ca.pem",
    "ssl.certificate.location": "kafka-gateway.pem",
    "ssl.key.location": "kafka-gateway.key",
}
"""Properties whose value comes as a content, and the file that it becomes."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.ASCII)
"""A property's, which stands in a config as it is, without quotes."""
_DEEP: Final = "is nested too deeply"
_IDENTITY: Final = "identity.key"
"""The file of what the gateway's runs prove themselves by."""


@dataclass(frozen=True, slots=True)
class Access:
    """Whose, where Kafka is, properties as they are, and those that become files, by their content.

    ``prefix`` is that of its topics there. ``identity_key`` is what its runs prove themselves by, None where
    they needn't.
    """

    gateway_id: str
    servers: str
    properties: Mapping[str, str]
    files: Mapping[str, str]
    identity_key: str | None = field(default=None, repr=False)
    prefix: str = ""

    def write(self, path: Path) -> None:
        """Make the file, mode 0600. Raises CommandError, also where it is there already."""
        tables = {"properties": self.properties, "files": self.files}
        lines = [
            _HEAD.format(id=self.gateway_id),
            _line("gateway", self.gateway_id),
            _line("servers", self.servers),
        ]
        if self.prefix:
            lines.append(_line("prefix", self.prefix))
        if self.identity_key is not None:
            lines.append(_line("identity_key", self.identity_key))
        for name, table in tables.items():
            lines += [f"\n[{name}]", *(_line(json.dumps(key), value) for key, value in table.items())]
        try:
            write_secret(path, "\n".join((*lines, "")))
        except OSError as error:
            raise CommandError(os_problem(error, path, "name another file with -o")) from error

    def install(self, directory: Path) -> list[Path]:
        """Write what becomes files, for root and the service's group. Raises CommandError."""
        root = os.geteuid() == 0
        try:
            group = directory.stat().st_gid if root else os.getegid()
            ownership = Ownership(os.geteuid(), group, 0o640 if root else 0o600)
            places = {directory / _PLACES[name]: content for name, content in self.files.items()}
            if self.identity_key is not None:
                places[directory / _IDENTITY] = self.identity_key
            for place, content in places.items():
                write_atomic(place, f"{content.rstrip()}\n", ownership)
        except OSError as error:
            raise CommandError(os_problem(error, directory)) from error
        return list(places)

    def renew(self, config: Path) -> list[Path]:
        """Replace the files of a config that has this login already. Raises CommandError."""
        try:
            text = config.read_text(encoding="utf-8")
            raw = tomllib.loads(text)
            gateway, prefix = dict(raw.get("gateway", {})), dict(raw.get("kafka", {})).get("prefix", "")
            now, section = _properties(text), self.section(config.parent)
        except RecursionError as error:
            raise CommandError(f"{config} {_DEEP}: nothing written") from error
        except (OSError, ValueError, TypeError) as error:
            raise CommandError(f"{config}: {error}: nothing written") from error
        if (name := gateway.get("id")) != self.gateway_id:
            raise CommandError(f"{config} is {name}'s, the access {self.gateway_id}'s: nothing written")
        if any(now.get(path) != value for path, value in _properties(section).items()):
            advice = "nothing written. Put this in its place, then repeat"
            raise CommandError(f"{config} has another login: {advice}:\n\n{section}")
        if prefix != self.prefix:
            raise CommandError(
                f"{config} has another prefix of topics: nothing written. Put this into its [kafka], then "
                f"repeat:\n\n{_line('prefix', self.prefix)}"
            )
        reference = self.identity(config.parent)
        if reference is not None and gateway.get("identity_key") != reference:
            place = json.dumps(reference["file"], ensure_ascii=False)
            line = f"identity_key = {{ file = {place} }}"
            raise CommandError(
                f"{config} doesn't name the key that its runs prove themselves by: nothing written. Put this "
                f"into its [gateway], then repeat:\n\n{line}"
            )
        return self.install(config.parent)

    def identity(self, directory: Path) -> dict[str, str] | None:
        """``identity_key`` of the config's ``[gateway]``, which names the file; None without a key."""
        return None if self.identity_key is None else {"file": str(directory.absolute() / _IDENTITY)}

    def section(self, directory: Path) -> str:
        """``[kafka.properties]`` of the gateway's config, which names the files."""
        lines = [_line(name, value) for name, value in self.properties.items()]
        for name in self.files:
            place = json.dumps(str(directory.absolute() / _PLACES[name]), ensure_ascii=False)
            lines.append(f"{name} = {place if name.endswith('.location') else f'{{ file = {place} }}'}")
        return "\n".join(("# This gateway's login to Kafka.", "[kafka.properties]", *lines, ""))


def read_access(path: Path) -> Access:
    """The file's. Raises CommandError."""
    try:
        return parse_access(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise CommandError(os_problem(error, path)) from error
    except UnicodeError as error:
        raise CommandError(f"{path} is no file of `fieldgate provision gateway`: {error}") from error


def parse_access(text: str, name: str) -> Access:
    """Parses its text; ``name`` is the file's, for errors. Raises CommandError."""
    try:
        raw = tomllib.loads(text)
        properties, files = dict(raw["properties"]), dict(raw["files"])
        key = raw.get("identity_key")
        access = Access(raw["gateway"], raw["servers"], properties, files, key, raw.get("prefix", ""))
        texts = [access.gateway_id, access.servers, access.prefix, *properties.values(), *files.values()]
        texts += [] if key is None else [key]
        if not all(isinstance(each, str) for each in texts) or not set(files) <= set(_PLACES):
            raise ValueError("its values must be texts")
        if key is not None and KEY.fullmatch(key) is None:
            raise ValueError("identity_key must be the 64 hexadecimal digits of a key")
        if wrong := [name for name in properties if not _NAME.fullmatch(name)]:
            raise ValueError(f"{wrong[0]!r} is no property's name")
        # Init writes it so.
        _properties(access.section(Path()))
    except RecursionError as error:
        raise CommandError(f"{name} is no file of `fieldgate provision gateway`: it {_DEEP}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise CommandError(f"{name} is no file of `fieldgate provision gateway`: {error}") from error
    return access


def _properties(text: str) -> dict[str, Any]:
    """``[kafka.properties]`` of a config. Raises ValueError, TypeError."""
    table = dict(dict(tomllib.loads(text).get("kafka", {})).get("properties", {}))
    return {".".join(map(str, path)): value for path, value in leaves(table, (), KINDS)}


def _line(key: str, value: str) -> str:
    return f"{key} = {json.dumps(value, ensure_ascii=False)}"
