"""The alerts job's state, kept in a file per batch beside the checkpoint of its query.

Written before a batch's alerts are produced and before Spark counts the batch as done, so after a kill the
same batch finds its records and produces them again, byte for byte, and the next one goes on from its state.
Each file has the gateways that changed and a part of the others, so that what a batch writes doesn't grow
with the fleet, and the last PARTS files together have all of them. Files are numbered, never written twice
nor renamed: object stores have no rename. Each begins with the SHA-256 of what follows, so that one that was
cut short is passed over: Spark then repeats its batch.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Any, Final

import msgspec
from pyspark.sql import SparkSession

from spark_jobs.alerting.engine import PARTS
from spark_jobs.platform.errors import JobError
from spark_jobs.platform.files import Files

_VERSION: Final = 2
_KEPT: Final = 2 * PARTS
"""The first ones after a restart divide the gateways again."""
_DIGEST_BYTES: Final = 32


class StateFiles:
    """Numbered files in a directory at any URI Spark can write. One writer."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._files = Files(spark)
        self._location = location
        self._numbers = self._files.numbers(location)

    @property
    def next(self) -> int:
        """The number of the next file."""
        return self._numbers[-1] + 1 if self._numbers else 1

    def load(self) -> dict[str, Any] | None:
        """The newest state that is whole, with ``gateways`` by name, each as it was last.

        None where there is none. Raises JobError for one of another version.
        """
        newest: dict[str, Any] | None = None
        for number in reversed(self._numbers):
            content = self._files.read_bytes(f"{self._location}/{number:020d}") or b""
            if hashlib.sha256(content[_DIGEST_BYTES:]).digest() != content[:_DIGEST_BYTES]:
                continue
            state: dict[str, Any] = msgspec.json.decode(zlib.decompress(content[_DIGEST_BYTES:]))
            if state["v"] != _VERSION:
                raise JobError(
                    f"{self._location}: the state is of version {state['v']}, not {_VERSION}: remove the "
                    "directory to start over (alerts that are open go on, by the table)"
                )
            gateways = state.pop("gateways", {})
            newest = newest or {**state, "gateways": {}}
            newest["gateways"] = {**gateways, **newest["gateways"]}
        return newest

    def save(self, state: dict[str, Any]) -> None:
        """Makes a state the newest one; it is on the disk when this returns."""
        number = self.next
        packed = zlib.compress(msgspec.json.encode({"v": _VERSION, **state}), 1)
        self._files.write(
            f"{self._location}/{number:020d}", hashlib.sha256(packed).digest() + packed, sync=True
        )
        self._numbers.append(number)
        while len(self._numbers) > _KEPT:
            self._files.delete(f"{self._location}/{self._numbers.pop(0):020d}")
