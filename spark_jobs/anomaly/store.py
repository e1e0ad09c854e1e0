"""Models on a disk or in an object store: one directory per version, never changed; ``current`` names them.

``MODEL_DIR/VERSION/`` holds ``GATEWAY.json`` and ``GATEWAY.onnx`` and ``card.md``; until it is complete
nothing names it. ``MODEL_DIR/current-N.json`` is ``{"GATEWAY": "VERSION"}``: each change is a new file with
the next number, and the highest counts. So nothing is renamed or replaced, which object stores can't do at
once. One that was cut short is no JSON object and is passed over. Going back is one more file. One training
at a time.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from py4j.protocol import Py4JJavaError

from spark_jobs.anomaly.model import ModelError, Packed
from spark_jobs.platform.files import Files

log = logging.getLogger("fieldgate.jobs.models")

_CURRENT: Final = re.compile(r"current-(\d+)\.json")


class ModelStore:
    """The models under one URI. Owned by one thread."""

    def __init__(self, files: Files, root: str) -> None:
        self.root = root.rstrip("/")
        self._files = files
        self._passed_over: set[str] = set()

    def current(self) -> dict[str, str]:
        """The version in use by gateway; nothing where nothing was trained. Raises ModelError."""
        names = [name for _, name in sorted(self._pointers(), reverse=True)]
        for name in names:
            try:
                fields = json.loads(self._read(name) or b"")
            except ValueError:
                fields = None
            if isinstance(fields, dict) and all(isinstance(value, str) for value in fields.values()):
                return fields
            if name not in self._passed_over:
                self._passed_over.add(name)
                log.warning("event=models.passed_over file=%s/%s is no JSON object", self.root, name)
        if names:
            raise ModelError(f"{self.root}/{names[0]} is no JSON object of gateways and versions")
        return {}

    def load(self, gateway: str, version: str) -> Packed:
        """The bytes of a model. Raises ModelError when they aren't there."""
        contents = []
        for suffix in ("json", "onnx"):
            name = f"{version}/{gateway}.{suffix}"
            if (content := self._read(name)) is None:
                raise ModelError(
                    f"{self.root}/{name} is missing, though it is the current one: train again, or name a "
                    "version that is there in a further current-N.json"
                )
            contents.append(content)
        return Packed(gateway, version, *contents)

    def publish(self, version: str, models: Iterable[Packed], card: Callable[[], str]) -> None:
        """Stores a version and makes it the current one of its gateways; those of others stay.

        ``card`` gives the text of the card once all models are stored.
        """
        gateways = []
        for model in models:
            self._files.write(f"{self.root}/{version}/{model.gateway}.json", model.document)
            self._files.write(f"{self.root}/{version}/{model.gateway}.onnx", model.network)
            gateways.append(model.gateway)
        self._files.write(f"{self.root}/{version}/card.md", card())
        self.activate(dict.fromkeys(gateways, version))

    def activate(self, versions: Mapping[str, str]) -> None:
        """Makes these versions the current ones of their gateways."""
        content = json.dumps({**self.current(), **versions}, indent=1, sort_keys=True)
        number = max((number for number, _ in self._pointers()), default=0) + 1
        self._files.write(f"{self.root}/current-{number:06d}.json", content)

    def _pointers(self) -> list[tuple[int, str]]:
        """Number and name of each file that names current versions."""
        matches = (_CURRENT.fullmatch(entry.name) for entry in self._files.entries(self.root))
        return [(int(found[1]), found[0]) for found in matches if found]

    def _read(self, name: str) -> bytes | None:
        try:
            return self._files.read_bytes(f"{self.root}/{name}")
        except Py4JJavaError as error:
            raise ModelError(f"{self.root}/{name} can't be read: {error.java_exception}") from error
