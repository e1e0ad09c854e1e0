"""A thread that reads from Kafka: neither sampling nor the main loop waits for it.

It requests only while a batch is being sent where the uplink is metered.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from typing import Final, Generic, TypeVar

from cloud.backoff import Backoff
from cloud.errors import CloudError
from cloud.kafka.readers import Fenced, Reader
from gateway.config import Config
from gateway.ports import Snapshot

log = logging.getLogger(__name__)

_R = TypeVar("_R", bound=Reader)
TURN_S: Final = 0.5
_BATCH_S: Final = 10.0
# A look costs some 800 bytes: 35 MB a month.
_REQUEST_S: Final = 55.0
_AGAIN_S: Final = (2.0, 60.0)
_STOP_S: Final = 3.0
LOOK_EVERY_S: Final = 600.0
"""How often a reader looks for partitions that were added."""
# Whoever has come goes on undisturbed for so long, and its problem stands here. To join costs some 3 kB.
_FENCED_S: Final = 1800.0


class KafkaThread(ABC, Generic[_R]):
    """The main thread starts, changes and stops it; ``stopping`` ends it."""

    def __init__(self, name: str, config: Config, stopping: threading.Event) -> None:
        self._name = name
        self._config = config
        self._stopping = stopping
        self._changed = threading.Event()
        self._batch = threading.Event()
        self._thread: threading.Thread | None = None
        self.problem: str | None = None
        """Why records don't come; None while they do."""

    def start(self) -> None:
        """Read, where the config has anything to read."""
        if self._wanted(self._config) and self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def apply(self, config: Config) -> None:
        """Go on by another config."""
        before, self._config = self._config, config
        if (before.kafka, self._wanted(before)) != (config.kafka, self._wanted(config)):
            self._changed.set()
        self.start()

    def tick(self, snapshot: Snapshot) -> None:
        """Once a second."""
        if snapshot.confirmed_ago_s is not None and snapshot.confirmed_ago_s < 2:
            self._batch.set()

    def stop(self) -> None:
        """Begin nothing more; wait a little for what has begun."""
        self._stopping.set()
        self._batch.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    @abstractmethod
    def _wanted(self, config: Config) -> object:
        """What of a config decides what is read; false where that is nothing."""

    @abstractmethod
    def _open(self) -> _R:
        """A reader, as the config has it. Raises CloudError, or what ``_failed`` takes."""

    @abstractmethod
    def _take(self, reader: _R, timeout_s: float) -> None:
        """Read a record, if one comes in time."""

    def _turn(self, reader: _R) -> None:
        """Called at least once in ``TURN_S`` or two."""

    def _left(self, reader: _R) -> None:
        """Called before a reader is closed."""

    def _failed(self, error: Exception) -> bool:
        """Called after any error but a CloudError; whether it is one that may happen, no defect."""
        return False

    def _ended(self) -> None:
        """The thread ends."""

    @property
    def _metered(self) -> bool:
        return self._config.uplink.mode == "metered"

    @property
    def _goes_on(self) -> bool:
        return not (self._stopping.is_set() or self._changed.is_set())

    def _run(self) -> None:
        pause = Backoff(*_AGAIN_S)
        while not self._stopping.is_set():
            self._changed.clear()
            if not self._wanted(self._config):
                self.problem = None
                self._stopping.wait(TURN_S)
                continue
            fenced = False
            try:
                reader = self._open()
                try:
                    pause.reset()
                    self._settled()
                    self._read(reader)
                    self._left(reader)
                finally:
                    reader.close()
            except CloudError as error:
                self._settled(str(error))
                fenced = isinstance(error, Fenced)
            except Exception as error:
                # Never the end of all reading, nor of the gateway.
                expected = self._failed(error)
                if not expected:
                    log.exception("event=reader.defect reader=%s", self._name)
                self._settled(str(error) if expected else repr(error))
            if self.problem is not None:
                until_s = time.monotonic() + (_FENCED_S if fenced else pause.next())
                while time.monotonic() < until_s and self._goes_on:
                    self._stopping.wait(TURN_S)
        self._ended()

    def _read(self, reader: _R) -> None:
        """Until something changes or goes wrong."""
        request_at_s, look_at_s = float("-inf"), time.monotonic() + LOOK_EVERY_S
        if self._metered:
            reader.pause()
        while self._goes_on:
            self._turn(reader)
            if time.monotonic() >= look_at_s:
                look_at_s = time.monotonic() + LOOK_EVERY_S
                if reader.has_grown():
                    self._changed.set()
            if not self._metered:
                self._take(reader, TURN_S)
                continue
            sending = self._batch.wait(TURN_S)
            self._batch.clear()
            if not sending or time.monotonic() < request_at_s:
                self._take(reader, 0)
                continue
            request_at_s = time.monotonic() + max(self._config.uplink.batch_s / 2, _REQUEST_S)
            until_s = time.monotonic() + _BATCH_S
            reader.resume()
            while not (reader.at_end or self._stopping.is_set() or time.monotonic() >= until_s):
                self._take(reader, TURN_S)
                self._turn(reader)
            reader.pause()

    def _settled(self, problem: str | None = None) -> None:
        if problem != self.problem:
            if problem is None:
                log.info("event=reader.read reader=%s", self._name)
            else:
                log.warning("event=reader.unread reader=%s problem=%r", self._name, problem)
        self.problem = problem
