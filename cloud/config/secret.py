"""What a config names and doesn't hold: passwords, keys, certificates.

Read at each use, so that a renewed one counts from the next use on; in no ``repr``, problem or log line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, PlainValidator, ValidationInfo

from cloud.errors import CloudError
from cloud.toml_problems import KeyPath
from cloud.toml_source import CREDENTIALS, LONGEST_SECRET, secret_text

Kind = Literal["given", "file", "environment", "credential"]

KINDS: Final = ("file", "environment", "credential")
"""How a secret is named: ``{ file = "…" }``, ``{ environment = "NAME" }``, ``{ credential = "name" }``."""


@dataclass(slots=True)
class Secret:
    """A secret by reference; ``kind`` "given" where the config holds it.

    ``where`` is the place of its key as problems have it (``cloud.toml:7: kafka.sasl.password``), which
    loading puts in.
    """

    kind: Kind
    name: str = field(repr=False)
    key: KeyPath = ()
    where: str = ""

    def reveal(self) -> str:
        """The secret as it is now, without a newline at its end. Raises UnreadableError."""
        if self.kind == "given":
            return self.name
        if self.kind == "environment":
            text = os.environ.get(self.name)
            return text or self._refuse(f"there is no {self.name} in this process's environment")
        directory = os.environ.get(CREDENTIALS)
        if self.kind == "credential" and directory is None:
            self._refuse(f"systemd gives {self.name} to a service with LoadCredential={self.name}:… only")
        file = Path(directory or "") / self.name if self.kind == "credential" else Path(self.name)
        try:
            with file.open("rb") as opened:
                content = opened.read(LONGEST_SECRET + 1)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self._refuse(f"{file}: {reason[:1].lower()}{reason[1:]}: put it there, or correct this line")
        return secret_text(content) or self._refuse(f"{file} must hold one secret as text, at most 64 KiB")

    def _refuse(self, reason: str) -> str:
        raise UnreadableError(self, reason)


class UnreadableError(CloudError):
    """What a config names can't be read or used."""

    def __init__(self, secret: Secret, reason: str) -> None:
        self.secret, self.reason = secret, reason
        super().__init__(f"{secret.where}: {reason}")


def _secret(given: Any, info: ValidationInfo) -> Secret:
    """The secret that a key holds or names."""
    if isinstance(given, Secret):
        return given
    kind, name = "given", given
    if isinstance(given, Mapping):
        if len(given) != 1 or not given.keys() <= set(KINDS):
            raise ValueError(f'must name one of {", ".join(KINDS)}, as in {{ file = "…" }}')
        ((kind, name),) = given.items()
    if not isinstance(name, str) or not name:
        raise ValueError('must be a string, in "quotes", or { file = "…" }')
    return Secret(kind, _beside(name, info) if kind == "file" else name)  # type: ignore[arg-type] # one of KINDS


def _file(given: Any, info: ValidationInfo) -> Secret:
    """A file that a key names, whose content is wanted."""
    if not isinstance(given, str) or not given:
        raise ValueError('must be a string, in "quotes"')
    return Secret("file", _beside(given, info))


def _beside(name: str, info: ValidationInfo) -> str:
    """A file's path, a relative one beginning at the config's directory."""
    return name if info.context is None else str(info.context.base / name)


SecretKey = Annotated[Secret, PlainValidator(_secret)]
ContentKey = Annotated[Secret, PlainValidator(_file)]
PathKey = Annotated[str, AfterValidator(_beside)]
