"""Events that a command leaves for the daemon, which announces them as its own: in ``gateway.events``.

Each is a file in a directory beside the outbox. So it needs neither an uplink nor a running daemon: who isn't
there now finds it at its start. A file goes when what it says has long been on the disk or confirmed; a
daemon that dies before tells it again, under the same ``id``.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from gateway.ports import Record, Snapshot
from gateway.system.atomic_file import make_directory, ownership_within, write_atomic
from gateway.system.times import utc_text

log = logging.getLogger(__name__)

MAX_BYTES: Final = 256 << 10
"""Of one event; Kafka takes 1 MiB by default."""
_DURABLE_AFTER_S: Final = 150.0
"""An event is as durable as a reading: after a commit interval, 60 s at most, and an fsync."""
_RESERVED: Final = frozenset({"v", "gateway", "run", "time", "event", "self"})


class NotLeft(Exception):
    """The event couldn't be left; the message says why and what to do."""


def notices_directory(outbox: Path) -> Path:
    """Where events for the daemon that owns this outbox are left."""
    return outbox.with_name(outbox.name + ".notices")


def leave(outbox: Path, event: str, fields: Mapping[str, Any]) -> Path:
    """Leave an event for the daemon; durable when it returns. Raises NotLeft."""
    directory = notices_directory(outbox)
    moment = datetime.now(UTC)
    told = {
        "event": event,
        "id": secrets.token_hex(8),
        "at": utc_text(moment),
        **fields,
    }
    content = json.dumps(told).encode()
    if len(content) > MAX_BYTES:
        raise NotLeft(f"the event has {len(content):,} bytes, {MAX_BYTES:,} are allowed")
    path = directory / f"{moment:%Y%m%dT%H%M%S%f}-{told['id']}.json"
    try:
        make_directory(directory)
        write_atomic(path, content, ownership_within(directory))
    except OSError as error:
        raise NotLeft(f"the event can't be left for the daemon in {directory}: {error.strerror}") from error
    return path


class EventSpool:
    """Announces what was left. Owned by the main thread.

    ``event`` makes the record of an event, ``announce`` takes it.
    """

    def __init__(
        self,
        outbox: Path,
        event: Callable[..., Record],
        announce: Callable[[Record], None],
    ) -> None:
        self._directory = notices_directory(outbox)
        self._event = event
        self._announce = announce
        self._told: dict[Path, float] = {}
        self._complained: set[Path] = set()

    def tick(self, snapshot: Snapshot) -> None:
        """Announce what is new, remove what is safe: not while a disk fails or a part is stuck."""
        try:
            found = sorted(self._directory.glob("*.json"))
        except OSError as error:
            self._complain(self._directory, error)
            return
        now_s = snapshot.at_s
        for path in found:
            if path not in self._told:
                self._tell(path, now_s)
        if self._told and snapshot.stores:
            self._remove([path for path, told_s in self._told.items() if now_s >= told_s + _DURABLE_AFTER_S])

    def settle(self) -> None:
        """All that was announced is safe: the daemon has stored everything and ends."""
        self._remove(list(self._told))

    def _tell(self, path: Path, now_s: float) -> None:
        try:
            record = self._read(path)
        except OSError as error:
            self._complain(path, error)
            return
        except ValueError as error:
            log.warning("event=notice.refused path=%s error=%s", path, error)
            self._set_aside(path)
            return
        self._announce(record)
        self._told[path] = now_s

    def _read(self, path: Path) -> Record:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        try:
            told = json.loads(content)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        if not isinstance(told, dict) or not isinstance(event := told.pop("event", None), str):
            raise ValueError("no object with an event's name")
        if taken := _RESERVED & told.keys():
            raise ValueError(f"says what the gateway says itself: {', '.join(sorted(taken))}")
        return self._event(event, **told)

    def _set_aside(self, path: Path) -> None:
        try:
            path.replace(path.with_suffix(".refused"))
        except OSError as error:
            self._complain(path, error)
            # Not again at each look.
            self._told[path] = float("inf")

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            if self._told[path] == float("inf"):
                continue
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self._complain(path, error)
                self._told[path] = float("inf")
            else:
                del self._told[path]

    def _complain(self, path: Path, error: OSError) -> None:
        if path not in self._complained:
            self._complained.add(path)
            log.warning("event=notice.unusable path=%s error=%s", path, error)
