"""Passes events of commands to the daemon, which announces them as its own in ``gateway.events``.

Each event is a file in a directory beside the outbox, so it needs neither an uplink nor a running daemon: the
next start finds it. A file is deleted once its event has long been on the disk or confirmed; a daemon that
dies before announces it again, with the same ``id``.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from cloud.wire.fields import load_object
from gateway.ports import Record, Snapshot
from gateway.system.atomic_file import Ownership, as_owner_of, write_atomic
from gateway.system.times import utc_text

log = logging.getLogger(__name__)

MAX_BYTES: Final = 256 << 10
"""The limit of one event; Kafka takes 1 MiB by default."""
_DURABLE_AFTER_S: Final = 150.0
"""An event is as durable as a reading: after a commit interval, 60 s at most, and an fsync."""
_UNUSABLE: Final = "event=notice.unusable path=%s error=%s"
_REFUSED: Final = "event=notice.refused path=%s error=%s"
_RESERVED: Final = frozenset({"v", "gateway", "run", "seq", "time", "event", "self"})


class NotSpooled(Exception):
    """The event couldn't be written; the message has the cause and the remedy."""


def spool_directory(outbox: Path) -> Path:
    """Returns where the daemon that owns this outbox finds events."""
    return outbox.with_name(outbox.name + ".notices")


def spool_event(outbox: Path, event: str, fields: Mapping[str, Any]) -> Path:
    """Writes an event for the daemon; durable when it returns. Raises NotSpooled."""
    directory = spool_directory(outbox)
    moment, identity = datetime.now(UTC), secrets.token_hex(8)
    content = msgspec.json.encode({"event": event, "id": identity, "at": utc_text(moment), **fields})
    if len(content) > MAX_BYTES:
        raise NotSpooled(f"the event has {len(content):,} bytes, {MAX_BYTES:,} are allowed")
    path = directory / f"{moment:%Y%m%dT%H%M%S%f}-{identity}.json"
    try:
        with as_owner_of(outbox.parent):
            directory.mkdir(0o750, exist_ok=True)
            write_atomic(path, content, Ownership.own(0o640))
    except OSError as error:
        raise NotSpooled(
            f"the event can't be left for the daemon in {directory}: {error.strerror}"
        ) from error
    return path


class EventSpool:
    """Announces the events of the directory. Owned by the main thread.

    ``event`` makes the record of an event, ``announce`` takes it.
    """

    def __init__(
        self, outbox: Path, event: Callable[..., Record], announce: Callable[[Record], None]
    ) -> None:
        self._directory = spool_directory(outbox)
        self._event = event
        self._announce = announce
        self._announced_s: dict[Path, float] = {}
        self._logged: set[Path] = set()

    def tick(self, snapshot: Snapshot) -> None:
        """Announces new events and deletes durable ones: not while a disk fails or a part is stuck."""
        try:
            found = sorted(self._directory.glob("*.json"))
        except OSError as error:
            self._log(self._directory, _UNUSABLE, error)
            return
        for path in found:
            announced_s = self._announced_s.get(path)
            if announced_s is None:
                self._take(path, snapshot.at_s)
            elif snapshot.stores and snapshot.at_s >= announced_s + _DURABLE_AFTER_S:
                self._delete(path)
        self._announced_s = {path: at_s for path, at_s in self._announced_s.items() if path in found}

    def settle(self) -> None:
        """Deletes all announced events: the daemon has stored everything and ends."""
        for path in self._announced_s:
            self._delete(path)

    def _take(self, path: Path, now_s: float) -> None:
        try:
            try:
                record = self._read(path)
            except ValueError as error:
                self._log(path, _REFUSED, error)
                path.replace(path.with_suffix(".refused"))
                return
        except OSError as error:
            self._log(path, _UNUSABLE, error)
            return
        self._announce(record)
        self._announced_s[path] = now_s

    def _read(self, path: Path) -> Record:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        fields = load_object(content)
        if not isinstance(event := fields.pop("event", None), str):
            raise ValueError("no event's name")
        if taken := _RESERVED & fields.keys():
            raise ValueError(f"fields that the gateway sets itself: {', '.join(sorted(taken))}")
        return self._event(event, **fields)

    def _delete(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._log(path, _UNUSABLE, error)

    def _log(self, path: Path, template: str, error: Exception) -> None:
        """Logs a path's first trouble."""
        if path not in self._logged:
            self._logged.add(path)
            log.warning(template, path, error)
