"""The alerts job's state, kept in a file per batch.

Written before a batch's alerts are produced and before Spark counts the batch as done, so after a kill the
same batch finds what it said and says it again, byte for byte, and the next one goes on from its state.
Files are numbered and never written twice; each begins with the SHA-256 of what follows, so that one that
was cut short is passed over: Spark then repeats its batch.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import Any, Final

from pyspark.sql import SparkSession

from spark_jobs.errors import JobError

_KEPT: Final = 3
_DIGEST_BYTES: Final = 32


class StateFiles:
    """Numbered files in a directory at any URI Spark can write. One writer."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        jvm: Any = spark._jvm
        self._hadoop: Any = jvm.org.apache.hadoop.fs
        path = self._path(location)
        # An instance of our own: without checksum files beside each file, ours carry their own.
        context: Any = spark._jsc
        self._files = self._hadoop.FileSystem.newInstance(path.toUri(), context.hadoopConfiguration())
        self._files.setWriteChecksum(False)
        self._location = location.rstrip("/")
        self._files.mkdirs(path)
        self._numbers = sorted(
            int(status.getPath().getName())
            for status in self._files.listStatus(path)
            if status.getPath().getName().isdigit()
        )

    def load(self) -> dict[str, Any] | None:
        """The newest state that is whole; None where there is none. Raises JobError for one of the future."""
        for number in reversed(self._numbers):
            told = self._read(number)
            if hashlib.sha256(told[_DIGEST_BYTES:]).digest() != told[:_DIGEST_BYTES]:
                continue
            state: dict[str, Any] = json.loads(zlib.decompress(told[_DIGEST_BYTES:]))
            if state["v"] != 1:
                raise JobError(
                    f"{self._location}: the state is of a newer version ({state['v']}): run that version, or "
                    "remove the directory to begin anew (open alerts are told again, as historical)"
                )
            return state
        return None

    def save(self, state: dict[str, Any]) -> None:
        """Makes a state the newest one; it is on the disk when this returns."""
        number = self._numbers[-1] + 1 if self._numbers else 1
        packed = zlib.compress(json.dumps(state, separators=(",", ":"), allow_nan=False).encode(), 1)
        stream = self._files.create(self._path(f"{self._location}/{number:020d}"), True)
        try:
            stream.write(hashlib.sha256(packed).digest() + packed)
            stream.hsync()
        finally:
            stream.close()
        self._numbers.append(number)
        while len(self._numbers) > _KEPT:
            self._files.delete(self._path(f"{self._location}/{self._numbers.pop(0):020d}"), False)

    def _path(self, location: str) -> Any:
        return self._hadoop.Path(location)

    def _read(self, number: int) -> bytes:
        path = self._path(f"{self._location}/{number:020d}")
        stream = self._files.open(path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()
