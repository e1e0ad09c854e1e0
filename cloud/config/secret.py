"""What a config names and doesn't hold: passwords, keys, certificates.

Read at each use, so that a renewed one counts from the next use on; in no ``repr``, problem or log line.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from cloud.errors import CloudError
from cloud.toml_problems import KeyPath
from cloud.toml_source import CREDENTIALS, LONGEST_SECRET, secret_text

Kind = Literal["given", "file", "environment", "credential"]

KINDS: Final = ("file", "environment", "credential")
"""How a secret is named: ``{ file = "…" }``, ``{ environment = "NAME" }``, ``{ credential = "name" }``."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret by reference; ``kind`` "given" where the config holds it.

    ``where`` is the place of its key as problems have it (``cloud.toml:7: kafka.sasl.password``).
    """

    kind: Kind
    name: str = field(repr=False)
    key: KeyPath
    where: str

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
