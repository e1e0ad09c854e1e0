"""Models on a disk or in an object store: one directory per version, never changed; ``current`` names them.

``MODEL_DIR/VERSION/`` holds ``GATEWAY.json`` and ``GATEWAY.onnx`` and ``card.md``. It is written under
another name and renamed when it is complete. ``MODEL_DIR/current`` is JSON, ``{"GATEWAY": "VERSION"}``, and
is replaced as a whole: who reads sees the old or the new. Going back is editing that file. Works on every
file system that Spark can write (Hadoop's FileContext); one training at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark_jobs.anomaly.model import ModelError, Packed

_CURRENT: Final = "current"


@dataclass
class ModelStore:
    """The models under one URI. Owned by one thread."""

    spark: SparkSession
    root: str
    _jvm: Any = field(init=False)
    _files: Any = field(init=False)

    def __post_init__(self) -> None:
        self._jvm = self.spark._jvm
        hadoop = self.spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr, unused-ignore]
        uri = self._jvm.org.apache.hadoop.fs.Path(self.root).toUri()
        contexts = self._jvm.org.apache.hadoop.fs.FileContext
        self._files = (
            contexts.getFileContext(uri, hadoop) if uri.getScheme() else contexts.getFileContext(hadoop)
        )

    def current(self) -> dict[str, str]:
        """The version in use by gateway; nothing where nothing was trained. Raises ModelError."""
        where = f"{self.root.rstrip('/')}/{_CURRENT}"
        if not self._exists(_CURRENT):
            return {}
        try:
            fields = json.loads(self._read(_CURRENT))
        except ValueError as error:
            raise ModelError(f"{where} is no JSON object of gateways and versions: {error}") from error
        if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
            raise ModelError(f"{where} is no JSON object of gateways and versions")
        return fields

    def load(self, gateway: str, version: str) -> Packed:
        """The bytes of a model. Raises ModelError when they aren't there."""
        contents = []
        for suffix in ("json", "onnx"):
            name = f"{version}/{gateway}.{suffix}"
            if not self._exists(name):
                raise ModelError(
                    f"{self.root.rstrip('/')}/{name} is missing, which {_CURRENT} names: train anew, or name "
                    f"a version that is there in {_CURRENT}"
                )
            contents.append(self._read(name))
        return Packed(gateway, version, *contents)

    def publish(self, version: str, models: Iterable[Packed], card: str) -> None:
        """Stores a version and makes it the current one of its gateways; those of others stay."""
        models = list(models)
        hidden = f".{version}.partial"
        for model in models:
            self._write(f"{hidden}/{model.gateway}.json", model.document)
            self._write(f"{hidden}/{model.gateway}.onnx", model.network)
        self._write(f"{hidden}/card.md", card.encode())
        self._rename(hidden, version)
        self.activate({model.gateway: version for model in models})

    def activate(self, versions: Mapping[str, str]) -> None:
        """Makes these versions the current ones of their gateways."""
        content = json.dumps({**self.current(), **versions}, indent=1, sort_keys=True)
        self._write(f".{_CURRENT}.partial", content.encode())
        self._rename(f".{_CURRENT}.partial", _CURRENT)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.root.rstrip('/')}/{name}")

    def _exists(self, name: str) -> bool:
        return bool(self._files.util().exists(self._path(name)))

    def _read(self, name: str) -> bytes:
        try:
            stream = self._files.open(self._path(name))
        except Py4JJavaError as error:
            raise ModelError(f"{self.root}/{name} can't be read: {error.java_exception}") from error
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def _write(self, name: str, content: bytes) -> None:
        """Replaces a file, its directory included."""
        jvm = self._jvm
        flags = jvm.java.util.EnumSet.of(
            jvm.org.apache.hadoop.fs.CreateFlag.CREATE, jvm.org.apache.hadoop.fs.CreateFlag.OVERWRITE
        )
        options = self.spark.sparkContext._gateway.new_array(  # type: ignore[union-attr, unused-ignore]
            getattr(jvm.org.apache.hadoop.fs, "Options$CreateOpts"), 1
        )
        options[0] = getattr(jvm.org.apache.hadoop.fs, "Options$CreateOpts").createParent()
        stream = self._files.create(self._path(name), flags, options)
        try:
            stream.write(content)
        finally:
            stream.close()

    def _rename(self, source: str, target: str) -> None:
        kinds = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
        options = self.spark.sparkContext._gateway.new_array(kinds, 1)  # type: ignore[union-attr, unused-ignore]
        options[0] = kinds.OVERWRITE
        self._files.rename(self._path(source), self._path(target), options)
