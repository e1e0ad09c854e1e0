"""How far the jobs are behind Kafka: one look for all pages, by the jobs' checkpoints and Kafka's ends."""

from __future__ import annotations

import json
import threading
import time
from asyncio import to_thread
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from nicegui import ui
from pyarrow import fs

from cloud.config import CloudConfig, KafkaConfig, StoreConfig
from cloud.dashboard.frame import is_open, table_card
from cloud.errors import CloudError
from cloud.kafka.topic_scan import Unread, unread
from cloud.lake.object_store import for_delta, for_delta_rs, in_words, is_s3
from cloud.lake.reader import Frame
from cloud.lake.tables import LakeError, Lakes

Positions = Mapping[str, Mapping[int, int]]
"""The first offset that hasn't been read, by topic and partition."""


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
    names = _names(files, f"{place}/commits", fs.FileType.File)
    batches = [int(name) for name in names if name.isdecimal()]
    if not batches:
        return None
    # Spark removes it a hundred batches later.
    with files.open_input_file(f"{place}/offsets/{max(batches)}") as file:
        return _parsed(query, file.read().decode())


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


EVERY_S: Final = 10.0
"""How often it is looked at, while anybody has the page open."""
_COLUMNS: Final = ("job", "records_behind", "oldest_s", "last_batch_at", "note")


class Behind:
    """What the jobs have still to read. Any thread may ask; one at a time looks.

    ``kafka`` is where they read it, or why it isn't asked.
    """

    def __init__(self, checkpoints: str, store: StoreConfig | None, kafka: KafkaConfig | str) -> None:
        self._checkpoints, self._store, self._kafka = checkpoints, store, kafka
        self._lock = threading.Lock()
        self._seen: Frame | str = ""
        self._seen_s: float | None = None

    def read(self) -> Frame | str:
        """A row a query, or why there are none, as of ``EVERY_S`` ago at most."""
        with self._lock:
            # Half of it: the next look is due when somebody has just opened the page.
            if self._seen_s is None or time.monotonic() - self._seen_s > EVERY_S / 2:
                try:
                    self._seen = self._look()
                except CloudError as error:
                    self._seen = str(error)
                self._seen_s = time.monotonic()
            return self._seen

    def _look(self) -> Frame | str:
        if isinstance(self._kafka, str):
            return self._kafka
        # The checkpoints first: what is read meanwhile is then behind, never ahead.
        queries = read_progress(self._checkpoints, self._store)
        positions = {each.query: each.positions for each in queries if each.positions is not None}
        answers = unread(self._kafka.servers, self._kafka.properties(), positions)
        return Frame(_COLUMNS, [_row(each, answers.get(each.query)) for each in queries])


def _row(query: Progress, answer: Unread | None) -> tuple[Any, ...]:
    if answer is None:
        return query.query, None, None, query.batch_at_ms, "follows tables of the lake"
    notes = [f"Kafka doesn't show {', '.join(answer.unseen)}"] * bool(answer.unseen)
    notes += ["there may be older ones: Kafka was slow"] * (not answer.is_oldest)
    oldest_s = None if answer.oldest_s is None else round(answer.oldest_s, 1)
    return query.query, answer.records, oldest_s, query.batch_at_ms, "; ".join(notes)


def behind_of(config: CloudConfig, lakes: Lakes, checkpoints: str | None) -> Behind:
    """The jobs' of the first lake; without ``checkpoints`` where the config or the jobs have them."""
    uri, store = next(iter(lakes.values()))
    own = config.lake.checkpoints if uri == config.lake.path else None
    place = checkpoints or own or f"{uri.rstrip('/')}-checkpoints"
    if "servers" not in config.kafka.model_fields_set:
        return Behind(place, store, "No Kafka is given: --bootstrap-servers, or [kafka] in cloud.toml.")
    if not config.dashboard.live:
        return Behind(place, store, "Kafka is left alone: live = false in [dashboard].")
    return Behind(place, store, config.kafka)


async def behind_card(behind: Behind, looked: Any) -> None:
    """Builds the card, and renews it after each look."""
    body = ui.element("div")

    async def renew() -> None:
        found = await to_thread(behind.read)
        if not is_open(body):
            return
        body.clear()
        with body:
            table_card("Behind Kafka", found, "No query has ended a batch yet.")

    await renew()
    looked.subscribe(renew)
