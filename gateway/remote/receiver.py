"""Reads this gateway's commands from Kafka, in a thread of its own.

Without ``[commands] allow`` there is no connection and no thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cloud.kafka.key_reader import KeyReader
from cloud.kafka.roles import commands_group_of
from cloud.wire.reading_records import COMMANDS_TOPIC
from gateway.config import Config
from gateway.ports import Clock, Snapshot
from gateway.remote.executor import Executor
from gateway.remote.history import History, HistoryError
from gateway.remote.kafka_thread import TURN_S, KafkaThread
from gateway.status.status import CommandsStatus

log = logging.getLogger(__name__)

_FOR_CLOCK_S: Final = 60.0


def clock_wait(clock: Clock, stop: threading.Event) -> Callable[[], bool]:
    """Waits a minute for the clock, as after a boot; False where it isn't synchronised then."""

    def wait() -> bool:
        until_s = time.monotonic() + _FOR_CLOCK_S
        while not clock.synced and time.monotonic() < until_s and not stop.wait(TURN_S):
            pass
        return clock.synced

    return wait


class CommandReceiver(KafkaThread[KeyReader]):
    """The thread."""

    def __init__(
        self, config: Config, executor: Executor, clock: Clock, path: Path, stopping: threading.Event
    ) -> None:
        super().__init__("commands", config, stopping)
        self._executor = executor
        self._clock = clock
        self._path = path
        self._stores = True
        self._history: History | None = None

    def tick(self, snapshot: Snapshot) -> None:
        """Once a second."""
        self._stores = snapshot.stores
        super().tick(snapshot)

    @property
    def status(self) -> CommandsStatus:
        """Whether any is allowed, what keeps them away, results by outcome or reason."""
        return CommandsStatus(
            allow=tuple(self._config.commands.allow),
            problem=self.problem,
            results=dict(self._executor.counts),
        )

    def _wanted(self, config: Config) -> object:
        return bool(config.commands.allow)

    def _open(self) -> KeyReader:
        history, config = self._opened(), self._config
        properties = {**config.kafka.properties, "client.id": "commands"}
        servers, key = config.kafka.bootstrap_servers, config.gateway.id.encode()
        topic, group = (
            config.kafka.prefix + each for each in (COMMANDS_TOPIC, commands_group_of(config.gateway.id))
        )
        reader = KeyReader(
            servers, properties, topic, key, history.place, patient=not self._metered,
            member=(group, self._executor.run),
        )  # fmt: skip
        history.pass_over(reader.place)
        return reader

    def _opened(self) -> History:
        if self._history is None:
            now_ms = self._clock.now_ns() // 1_000_000 if self._clock.synced else 0
            history = History(self._path, now_ms)
            self._executor.resume(history)
            self._history = history
        return self._history

    def _turn(self, reader: KeyReader) -> None:
        if self._stores:
            self._executor.settle(self._opened())

    def _take(self, reader: KeyReader, timeout_s: float) -> None:
        fetched, history = reader.read(timeout_s), self._opened()
        if fetched is None:
            return
        # Others' keys have the same partition.
        if fetched.key == self._config.gateway.id.encode():
            # Two gateways with one id would each carry it out.
            reader.claim(fetched.then)
            self._executor.take(fetched, history, self._config.commands)
        else:
            history.pass_over(fetched.then)

    def _failed(self, error: Exception) -> bool:
        # Opened again: then what was cut off is answered.
        self._history = None
        return isinstance(error, HistoryError)

    def _ended(self) -> None:
        if self._history is not None:
            self._history.close()
