"""A gateway's access to Kafka as one file: ``provision gateway`` writes it, ``init --access`` takes it.

It holds what librdkafka needs, secrets and certificates included. Each of these becomes a file of its own on
the mast, beside ``gateway.toml``, which names it: a new password replaces that file alone.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cloud.command_line import CommandError, os_problem
from cloud.toml_source import leaves
from cloud.whole_files import write_secret
from cloud.wire.identities import KEY

_HEAD: Final = (
    "# {id}'s access to Kafka. On the mast: fieldgate init --access FILE. It holds a secret: delete it then."
)
PLACES: Final = {
    "sasl.password": "kafka.password",
    "ssl.ca.location": "kafka-ca.pem",
    "ssl.certificate.location": "kafka-gateway.pem",
    "ssl.key.location": "kafka-gateway.key",
}
"""Properties whose value comes as a content, and the file that it becomes on the mast."""
IDENTITY: Final = "identity.key"
"""The file on the mast of what the gateway's runs prove themselves by."""
TOO_DEEP: Final = "is nested too deeply"
_SECRETS: Final = ("credential", "file")
"""The keys of a table that names a secret in a gateway's config."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.ASCII)
"""A property's, which stands in a config as it is, without quotes."""


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
            line_of("gateway", self.gateway_id),
            line_of("servers", self.servers),
        ]
        if self.prefix:
            lines.append(line_of("prefix", self.prefix))
        if self.identity_key is not None:
            lines.append(line_of("identity_key", self.identity_key))
        for name, table in tables.items():
            lines += [f"\n[{name}]", *(line_of(json.dumps(key), value) for key, value in table.items())]
        try:
            write_secret(path, "\n".join((*lines, "")))
        except OSError as error:
            raise CommandError(os_problem(error, path, "name another file with -o")) from error

    def identity(self, directory: Path) -> dict[str, str] | None:
        """``identity_key`` of the config's ``[gateway]``, which names the file; None without a key."""
        return None if self.identity_key is None else {"file": str(directory.absolute() / IDENTITY)}

    def section(self, directory: Path) -> str:
        """``[kafka.properties]`` of the gateway's config, which names the files."""
        lines = [line_of(name, value) for name, value in self.properties.items()]
        for name in self.files:
            place = json.dumps(str(directory.absolute() / PLACES[name]), ensure_ascii=False)
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
        if not all(isinstance(each, str) for each in texts) or not set(files) <= set(PLACES):
            raise ValueError("its values must be texts")
        if key is not None and KEY.fullmatch(key) is None:
            raise ValueError("identity_key must be the 64 hexadecimal digits of a key")
        if wrong := [name for name in properties if not _NAME.fullmatch(name)]:
            raise ValueError(f"{wrong[0]!r} is no property's name")
        # Init writes it so.
        properties_of(access.section(Path()))
    except RecursionError as error:
        raise CommandError(f"{name} is no file of `fieldgate provision gateway`: it {TOO_DEEP}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise CommandError(f"{name} is no file of `fieldgate provision gateway`: {error}") from error
    return access


def properties_of(text: str) -> dict[str, Any]:
    """``[kafka.properties]`` of a config. Raises ValueError, TypeError."""
    table = dict(dict(tomllib.loads(text).get("kafka", {})).get("properties", {}))
    return {".".join(map(str, path)): value for path, value in leaves(table, (), _SECRETS)}


def line_of(key: str, value: str) -> str:
    """A key with its text, as a line of TOML."""
    return f"{key} = {json.dumps(value, ensure_ascii=False)}"
