"""Reads this gateway's commands from Kafka, in a thread of its own: neither sampling nor the main loop waits.

On a metered uplink it requests only while a batch is being sent. Without ``[commands] allow`` there is no
connection and no thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cloud.backoff import Backoff
from cloud.errors import CloudError
from cloud.kafka.key_reader import KeyReader
from cloud.wire.reading_records import COMMANDS_TOPIC
from gateway.config import Config
from gateway.ports import Clock, Snapshot
from gateway.remote.executor import Executor
from gateway.remote.history import History, HistoryError

log = logging.getLogger(__name__)

_TURN_S: Final = 0.5
_BATCH_S: Final = 10.0
# A look costs some 800 bytes: 35 MB a month.
_REQUEST_S: Final = 55.0
_AGAIN_S: Final = (2.0, 60.0)
_FOR_CLOCK_S: Final = 60.0
_STOP_S: Final = 3.0


def clock_wait(clock: Clock, stop: threading.Event) -> Callable[[], bool]:
    """Waits a minute for the clock, as after a boot; False where it isn't synchronised then."""

    def wait() -> bool:
        until_s = time.monotonic() + _FOR_CLOCK_S
        while not clock.synced and time.monotonic() < until_s and not stop.wait(_TURN_S):
            pass
        return clock.synced

    return wait


class CommandReceiver:
    """The thread. The main thread starts, changes and stops it; ``stopping`` ends it."""

    def __init__(
        self, config: Config, executor: Executor, clock: Clock, path: Path, stopping: threading.Event
    ) -> None:
        self._config = config
        self._executor = executor
        self._clock = clock
        self._path = path
        self._stopping = stopping
        self._changed = threading.Event()
        self._batch = threading.Event()
        self._stores = True
        self._thread: threading.Thread | None = None
        self._history: History | None = None
        self.problem: str | None = None
        """Why commands don't come; None while they do."""

    def start(self) -> None:
        """Read, where any command is allowed."""
        if self._config.commands.allow and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="commands", daemon=True)
            self._thread.start()

    def apply(self, config: Config) -> None:
        """Go on by another config."""
        before, self._config = self._config, config
        if (before.kafka, bool(before.commands.allow)) != (config.kafka, bool(config.commands.allow)):
            self._changed.set()
        self.start()

    def tick(self, snapshot: Snapshot) -> None:
        """Once a second."""
        self._stores = snapshot.stores
        if snapshot.confirmed_ago_s is not None and snapshot.confirmed_ago_s < 2:
            self._batch.set()

    def stop(self) -> None:
        """Begin nothing more; wait a little for what has begun."""
        self._stopping.set()
        self._batch.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    @property
    def status(self) -> dict[str, Any]:
        """Whether any is allowed, what keeps them away, results by outcome or reason."""
        counts: Mapping[str, int] = dict(self._executor.counts)
        return {"allow": list(self._config.commands.allow), "problem": self.problem, "results": counts}

    def _run(self) -> None:
        pause = Backoff(*_AGAIN_S)
        while not self._stopping.is_set():
            self._changed.clear()
            if not self._config.commands.allow:
                self.problem = None
                self._stopping.wait(_TURN_S)
                continue
            try:
                history = self._opened()
                reader = self._reader(history)
                try:
                    pause.reset()
                    self._settled()
                    self._read(reader, history)
                finally:
                    reader.close()
            except CloudError as error:
                self._settled(str(error))
            except HistoryError as error:
                # Opened again: then what was cut off is answered.
                self._history = None
                self._settled(str(error))
            except Exception as error:
                # Never the end of all commands, nor of the gateway.
                log.exception("event=commands.defect")
                self._history = None
                self._settled(repr(error))
            if self.problem is not None:
                until_s = time.monotonic() + pause.next()
                while time.monotonic() < until_s and not (self._stopping.is_set() or self._changed.is_set()):
                    self._stopping.wait(_TURN_S)
        if self._history is not None:
            self._history.close()

    def _opened(self) -> History:
        if self._history is None:
            now_ms = self._clock.now_ns() // 1_000_000 if self._clock.synced else 0
            history = History(self._path, now_ms)
            self._executor.resume(history)
            self._history = history
        return self._history

    def _reader(self, history: History) -> KeyReader:
        config = self._config
        key, metered = config.gateway.id.encode(), config.uplink.mode == "metered"
        properties = {**config.kafka.properties, "client.id": "commands"}
        servers = config.kafka.bootstrap_servers
        reader = KeyReader(servers, properties, COMMANDS_TOPIC, key, history.place, patient=not metered)
        history.pass_over(reader.place)
        return reader

    def _read(self, reader: KeyReader, history: History) -> None:
        """Until something changes or goes wrong."""
        uplink = self._config.uplink
        metered = uplink.mode == "metered"
        request_at_s = float("-inf")
        if metered:
            reader.pause()
        while not self._stopping.is_set() and not self._changed.is_set():
            if self._stores:
                self._executor.settle(history)
            if not metered:
                self._take(reader, history, _TURN_S)
                continue
            sending = self._batch.wait(_TURN_S)
            self._batch.clear()
            if not sending or time.monotonic() < request_at_s:
                self._take(reader, history, 0)
                continue
            request_at_s = time.monotonic() + max(uplink.batch_s / 2, _REQUEST_S)
            until_s = time.monotonic() + _BATCH_S
            reader.resume()
            while not (reader.at_end or self._stopping.is_set() or time.monotonic() >= until_s):
                self._take(reader, history, _TURN_S)
            reader.pause()

    def _take(self, reader: KeyReader, history: History, timeout_s: float) -> None:
        fetched = reader.read(timeout_s)
        if fetched is None:
            return
        # Others' keys have the same partition.
        if fetched.key == self._config.gateway.id.encode():
            self._executor.take(fetched, history, self._config.commands)
        else:
            history.pass_over(fetched.then)

    def _settled(self, problem: str | None = None) -> None:
        if problem != self.problem:
            if problem is None:
                log.info("event=commands.read")
            else:
                log.warning("event=commands.unread problem=%r", problem)
        self.problem = problem
