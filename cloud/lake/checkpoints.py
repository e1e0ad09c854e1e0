"""How far the jobs' queries have read Kafka, from their checkpoints as Spark keeps them. Read only.

A query's checkpoint is ``<checkpoints>/<query>/v1``. In it ``offsets/B`` has where batch B ends, and
``commits/B`` is there once all of it is stored: what Kafka has after the newest such B is in no table yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from cloud.config.model import StoreConfig
from cloud.lake.object_store import for_delta, for_delta_rs, in_words, is_s3
from cloud.lake.tables import LakeError

Positions = Mapping[str, Mapping[int, int]]
"""The first offset that hasn't been read, by topic and partition."""
_ATTEMPTS: Final = 3


@dataclass(frozen=True)
class Progress:
    """A query: what it hasn't read of Kafka begins at ``positions``, None where it follows tables instead.

    ``batch_at_ms``: when its last whole batch began, milliseconds since 1970.
    """

    query: str
    positions: Positions | None
    batch_at_ms: int


def read_progress(checkpoints: str, store: StoreConfig | None = None) -> list[Progress]:
    """Each query that has ended a batch, by name. Raises LakeError where there are no checkpoints."""
    try:
        files, root = _opened(checkpoints, store)
        queries = sorted(_names(files, root, fs.FileType.Directory))
        found = [progress for query in queries if (progress := _newest(files, root, query)) is not None]
    except (OSError, DeltaError, ValueError) as error:
        reason = in_words(error, checkpoints, store) or str(error).partition("\n")[0]
        raise LakeError(f"checkpoints {checkpoints} can't be read: {reason}") from error
    if not found:
        raise LakeError(f"no checkpoints at {checkpoints}: name the jobs' own with --checkpoints")
    return found


def _opened(checkpoints: str, store: StoreConfig | None) -> tuple[fs.FileSystem, str]:
    if is_s3(checkpoints):
        handler = DeltaStorageHandler(for_delta(checkpoints), for_delta_rs(store))
        return fs.PyFileSystem(handler), ""
    return fs.LocalFileSystem(), f"{checkpoints.removeprefix('file://').rstrip('/')}/"


def _names(files: fs.FileSystem, folder: str, kind: fs.FileType) -> list[str]:
    selector = fs.FileSelector(folder, allow_not_found=True)
    return [str(each.base_name) for each in files.get_file_info(selector) if each.type == kind]


def _newest(files: fs.FileSystem, root: str, query: str) -> Progress | None:
    place = f"{root}{query}/v1"
    for attempt in range(1, _ATTEMPTS + 1):
        names = _names(files, f"{place}/commits", fs.FileType.File)
        batches = sorted(int(name) for name in names if name.isdecimal())
        if not batches:
            return None
        try:
            with files.open_input_file(f"{place}/offsets/{batches[-1]}") as file:
                return _parsed(query, file.read().decode())
        except FileNotFoundError:
            # Spark removes what is a hundred batches old: another look finds newer ones.
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError


def _parsed(query: str, text: str) -> Progress:
    _, about, *sources = text.splitlines()
    positions: dict[str, Mapping[int, int]] | None = None
    for line in sources:
        offsets: Any = json.loads(line) if line != "-" else None
        if isinstance(offsets, dict) and "reservoirId" not in offsets:
            positions = (positions or {}) | {
                topic: {int(number): offset for number, offset in partitions.items()}
                for topic, partitions in offsets.items()
            }
    return Progress(query, positions, int(json.loads(about)["batchTimestampMs"]))
