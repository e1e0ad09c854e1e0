"""Models on a disk or in an object store: one directory per version, never changed; ``current`` names them.

``MODEL_DIR/VERSION/`` holds ``GATEWAY.json`` and ``GATEWAY.onnx`` and ``card.md``. It is written under
another name and renamed when it is complete. ``MODEL_DIR/current`` is JSON, ``{"GATEWAY": "VERSION"}``, and
is replaced as a whole: who reads sees the old or the new. Going back is editing that file. Works on every
file system that Spark can write (Hadoop's FileContext); one training at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from py4j.protocol import Py4JJavaError

from spark_jobs.anomaly.model import ModelError, Packed
from spark_jobs.files import Files

_CURRENT: Final = "current"


class ModelStore:
    """The models under one URI. Owned by one thread."""

    def __init__(self, files: Files, root: str) -> None:
        self.root = root.rstrip("/")
        self._files = files

    def current(self) -> dict[str, str]:
        """The version in use by gateway; nothing where nothing was trained. Raises ModelError."""
        content = self._read(_CURRENT)
        try:
            fields = {} if content is None else json.loads(content)
        except ValueError as error:
            raise ModelError(f"{self.root}/{_CURRENT} is no JSON object: {error}") from error
        if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
            raise ModelError(f"{self.root}/{_CURRENT} is no JSON object of gateways and versions")
        return fields

    def load(self, gateway: str, version: str) -> Packed:
        """The bytes of a model. Raises ModelError when they aren't there."""
        contents = []
        for suffix in ("json", "onnx"):
            name = f"{version}/{gateway}.{suffix}"
            if (content := self._read(name)) is None:
                raise ModelError(
                    f"{self.root}/{name} is missing, which {_CURRENT} names: train again, or name "
                    f"a version that is there in {_CURRENT}"
                )
            contents.append(content)
        return Packed(gateway, version, *contents)

    def publish(self, version: str, models: Iterable[Packed], card: str) -> None:
        """Stores a version and makes it the current one of its gateways; those of others stay."""
        models = list(models)
        partial = f"{self.root}/.{version}.partial"
        for model in models:
            self._files.write(f"{partial}/{model.gateway}.json", model.document)
            self._files.write(f"{partial}/{model.gateway}.onnx", model.network)
        self._files.write(f"{partial}/card.md", card)
        self._files.replace(partial, f"{self.root}/{version}")
        self.activate({model.gateway: version for model in models})

    def activate(self, versions: Mapping[str, str]) -> None:
        """Makes these versions the current ones of their gateways."""
        content = json.dumps({**self.current(), **versions}, indent=1, sort_keys=True)
        self._files.write(f"{self.root}/.{_CURRENT}.partial", content)
        self._files.replace(f"{self.root}/.{_CURRENT}.partial", f"{self.root}/{_CURRENT}")

    def _read(self, name: str) -> bytes | None:
        try:
            return self._files.read_bytes(f"{self.root}/{name}")
        except Py4JJavaError as error:
            raise ModelError(f"{self.root}/{name} can't be read: {error.java_exception}") from error
