"""The alerts job's state, kept in a file per batch.

Written before a batch's alerts are produced and before Spark counts the batch as done, so after a kill the
same batch finds its records and produces them again, byte for byte, and the next one goes on from its state.
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
from spark_jobs.files import Files

_KEPT: Final = 3
_DIGEST_BYTES: Final = 32


class StateFiles:
    """Numbered files in a directory at any URI Spark can write. One writer."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._files = Files(spark)
        self._location = location.rstrip("/")
        self._numbers = self._files.numbers(self._location)

    def load(self) -> dict[str, Any] | None:
        """The newest state that is whole; None where there is none. Raises JobError for one of the future."""
        for number in reversed(self._numbers):
            content = self._files.read_bytes(self._uri(number)) or b""
            if hashlib.sha256(content[_DIGEST_BYTES:]).digest() != content[:_DIGEST_BYTES]:
                continue
            state: dict[str, Any] = json.loads(zlib.decompress(content[_DIGEST_BYTES:]))
            if state["v"] != 1:
                raise JobError(
                    f"{self._location}: the state is of a newer version ({state['v']}): run that version, or "
                    "remove the directory to start over (open alerts are published again, as historical)"
                )
            return state
        return None

    def save(self, state: dict[str, Any]) -> None:
        """Makes a state the newest one; it is on the disk when this returns."""
        number = self._numbers[-1] + 1 if self._numbers else 1
        packed = zlib.compress(json.dumps(state, separators=(",", ":"), allow_nan=False).encode(), 1)
        self._files.write(self._uri(number), hashlib.sha256(packed).digest() + packed, sync=True)
        self._numbers.append(number)
        while len(self._numbers) > _KEPT:
            self._files.delete(self._uri(self._numbers.pop(0)))

    def _uri(self, number: int) -> str:
        return f"{self._location}/{number:020d}"
