"""Reads this gateway's commands from Kafka and carries out each at most once, in a thread of its own.

``History`` is the file of what was begun: a command is durable there before anything is done, together with
the place in Kafka where reading continues, so that none is begun twice, whenever the gateway is killed. An id
is kept until it has expired and its result has left; what expires no later than the last one that was deleted
counts as expired whatever the clock shows. One that was refused because it expires too far ahead goes with
its result: it would stay for ever. Not to be deleted while commands may be valid.

``Executor`` carries out one command after the other. What becomes of it is a result with a word for its
reason, and the result is announced until it is durable.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from cloud.errors import CloudError
from cloud.kafka.readers import KeyReader, Place, TopicRecord
from cloud.kafka.roles import commands_group_of
from cloud.wire.command_records import (
    ACTIONS,
    LONGEST_US,
    WITH_TARGET,
    Command,
    CommandResult,
    Outcome,
    parse_command,
    parse_result,
)
from cloud.wire.fields import InvalidFields, format_time
from cloud.wire.reading_records import COMMAND_RESULTS_TOPIC, COMMANDS_TOPIC
from gateway.config import Config
from gateway.config.outputs import CommandsConfig
from gateway.ports import Clock, Record, Snapshot
from gateway.remote.actions import Action, NotDone
from gateway.remote.kafka_thread import TURN_S, KafkaThread
from gateway.status.status import CommandsStatus

MOST: Final = 10_000
"""Ids at most, some 5 MB; a command beyond is refused until others have expired."""
FARTHEST_US: Final = LONGEST_US + 600_000_000
"""No command expires later than so long from now: a day, and ten minutes between two clocks."""

_NEVER_US: Final = (1 << 63) - 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS command (
    id TEXT PRIMARY KEY, expires_us INTEGER NOT NULL, record BLOB NOT NULL, result BLOB,
    left INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS position (
    one INTEGER PRIMARY KEY CHECK (one = 1), partition INTEGER, next INTEGER, time_ms INTEGER NOT NULL,
    deleted_us INTEGER NOT NULL DEFAULT 0
);
"""


class HistoryError(Exception):
    """The file can't be used: no command is executed."""


class Begun(NamedTuple):
    """Whether a command is new, and else its result, None where there was no room for it."""

    new: bool
    result: bytes | None = None


class History:
    """The file. Every method raises HistoryError.

    ``now_ms``: where reading begins the first time, 0 for the topic's end.
    """

    def __init__(self, path: Path, now_ms: int) -> None:
        with _errors(path):
            self._path = path
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "journal_size_limit=1048576"):
                self._database.execute(f"PRAGMA {pragma}")
            self._database.executescript(_SCHEMA)
            self._database.execute("INSERT OR IGNORE INTO position (one, time_ms) VALUES (1, ?)", (now_ms,))
            row = self._database.execute("SELECT partition, next, time_ms FROM position").fetchone()
        self.place = Place(*row)
        self._skipped = False

    @property
    def deleted_us(self) -> int:
        """The latest expiry of an id that is no longer here."""
        with _errors(self._path):
            return int(self._database.execute("SELECT deleted_us FROM position").fetchone()[0])

    def unfinished(self) -> list[tuple[str, bytes]]:
        """Id and record of those that were begun and have no result."""
        with _errors(self._path):
            rows = self._database.execute("SELECT id, record FROM command WHERE result IS NULL")
            return list(rows.fetchall())

    def waiting(self) -> list[tuple[str, bytes]]:
        """Id and result of those whose result isn't known to have left."""
        with _errors(self._path):
            rows = self._database.execute("SELECT id, result FROM command WHERE NOT left AND result NOT NULL")
            return list(rows.fetchall())

    def begin(self, name: str, expires_us: int, record: bytes, place: Place, now_us: int) -> Begun:
        """Note that a command is begun, and that reading continues at ``place``; durable at its return.

        ``now_us``: 0 where the time isn't known.
        """
        with _errors(self._path), self._database as database:
            database.execute("BEGIN IMMEDIATE")
            over = "FROM command WHERE left AND expires_us < ?"
            latest = database.execute(f"SELECT max(expires_us) {over}", (now_us,)).fetchone()[0]
            database.execute(
                "UPDATE position SET partition = ?, next = ?, time_ms = ?, deleted_us = max(deleted_us, ?)",
                (*place, latest or 0),
            )
            database.execute(f"DELETE {over}", (now_us,))
            # Only what was refused: the clock may have been set back since another one was carried out.
            database.execute(
                "DELETE FROM command WHERE left AND expires_us > ? "
                "AND json_extract(CAST(result AS TEXT), '$.outcome') = 'refused'",
                # Without the time nothing is known to be far ahead.
                (now_us + FARTHEST_US if now_us else _NEVER_US,),
            )
            known = database.execute("SELECT result FROM command WHERE id = ?", (name,)).fetchone()
            room = database.execute("SELECT count(*) FROM command").fetchone()[0] < MOST
            if known is None and room:
                row = (name, expires_us, record)
                database.execute("INSERT INTO command (id, expires_us, record) VALUES (?, ?, ?)", row)
        self.place = place
        return Begun(known is None and room, known[0] if known else None)

    def withdraw(self, name: str, place: Place) -> None:
        """Note that a command isn't begun after all, and that reading continues at ``place``."""
        with _errors(self._path), self._database as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("DELETE FROM command WHERE id = ? AND result IS NULL", (name,))
            database.execute("UPDATE position SET partition = ?, next = ?, time_ms = ?", tuple(place))
        self.place = place

    def pass_over(self, place: Place) -> None:
        """Continue at ``place``, after what isn't for this gateway; stored with the next command."""
        self.place, self._skipped = place, True

    def finish(self, name: str, result: bytes) -> None:
        """Store a command's result."""
        with _errors(self._path):
            self._database.execute("UPDATE command SET result = ? WHERE id = ?", (result, name))

    def note_left(self, names: list[str]) -> None:
        """Note that results are durable elsewhere."""
        with _errors(self._path), self._database as database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany("UPDATE command SET left = 1 WHERE id = ?", [(name,) for name in names])

    def close(self) -> None:
        """Store what was passed over, and close."""
        with _errors(self._path):
            if self._skipped:
                self._database.execute(
                    "UPDATE position SET partition = ?, next = ?, time_ms = ?", tuple(self.place)
                )
            self._database.close()


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise HistoryError(f"{path}: {error}") from error


log = logging.getLogger(__name__)

_LEFT_AFTER_S: Final = 10.0
_CUT_OFF: Final = "the gateway was killed, or its disk failed: whether it was carried out isn't known"


class Executor:
    """``announce`` takes a result's record; ``wait`` returns whether the clock is synchronised in time."""

    def __init__(
        self,
        identity: tuple[str, str],
        actions: Mapping[str, Action],
        clock: Clock,
        wait: Callable[[], bool],
        announce: Callable[[Record], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``identity``: the gateway and its run."""
        self._gateway, self.run = identity
        self._actions = actions
        self._clock = clock
        self._wait = wait
        self._announce = announce
        self._monotonic = monotonic
        self._leaving: list[tuple[str, float]] = []
        self.counts: Counter[str] = Counter()
        """Results, by outcome or the reason that there was."""

    def resume(self, history: History) -> None:
        """Answer what an earlier run has begun, and announce again what may not have left."""
        for name, record in history.unfinished():
            self._finish(history, name, record, "unknown", "INTERRUPTED", _CUT_OFF)
        finished = {name for name, _ in self._leaving}
        for name, result in history.waiting():
            if name not in finished:
                self._leave(name, result)

    def take(
        self, fetched: TopicRecord, history: History, config: CommandsConfig, claim: Callable[[], None]
    ) -> None:
        """Carry out a record of this gateway's key, or refuse it. Raises HistoryError, CloudError.

        ``claim`` makes it this gateway's in Kafka. It is begun before: killed in between, it is answered.
        """
        problem: tuple[str, str] | None = None
        try:
            command = parse_command(fetched.value)
            name, expires_us = command.id, command.expires_us
        except InvalidFields as error:
            problem = "MALFORMED", str(error)[:300]
        else:
            if command.gateway != self._gateway:
                problem = "FOREIGN", f"it is for {command.gateway}"
        if problem is not None:
            # Its place names it: whatever it claims to be must not use up another command's id.
            name, expires_us = f"{fetched.then.partition}/{fetched.then.offset}", fetched.then.time_ms * 1000
        now_us = self._clock.now_ns() // 1000 if self._wait() else 0
        before = history.place
        begun = history.begin(name, expires_us, fetched.value, fetched.then, now_us)
        try:
            claim()
        except CloudError:
            # It is another's, or Kafka doesn't answer and it comes again.
            history.withdraw(name, before)
            raise
        if begun.new and problem is not None:
            self._finish(history, name, fetched.value, "refused", *problem)
        elif begun.new:
            self._carry_out(history, command, config)
        elif begun.result is not None:
            self._leave(name, begun.result)
        else:
            detail = "too many commands are valid at once"
            result = self._result(fetched.value, "refused", "HISTORY_FULL", detail)
            self._leave(None, result.to_json())

    def settle(self, history: History) -> None:
        """Note the results that have become durable by now; called while what is announced does."""
        until_s = self._monotonic() - _LEFT_AFTER_S
        left = [name for name, at_s in self._leaving if at_s <= until_s]
        if left:
            history.note_left(left)
            self._leaving = [each for each in self._leaving if each[1] > until_s]

    def _carry_out(self, history: History, command: Command, config: CommandsConfig) -> None:
        try:
            self._judge(command, history.deleted_us, config)
            done = self._actions[command.action](command)
        except NotDone as error:
            outcome: Outcome = "refused" if error.refused else "failed"
            self._finish(history, command.id, command.to_json(), outcome, error.reason, str(error))
        except Exception as error:
            log.exception("event=command.failed id=%s action=%s", command.id, command.action)
            self._finish(history, command.id, command.to_json(), "failed", "FAILED", repr(error)[:300])
        else:
            self._finish(history, command.id, command.to_json(), "done", result=done)

    def _judge(self, command: Command, deleted_us: int, config: CommandsConfig) -> None:
        """Raises NotDone where a command is not to be begun."""
        if command.action not in ACTIONS:
            raise NotDone("UNKNOWN_ACTION", f"this gateway has {', '.join(ACTIONS)}")
        if bool(command.target) != (command.action in WITH_TARGET):
            wanted = "needs a target" if command.action in WITH_TARGET else "has no target"
            raise NotDone("UNKNOWN_TARGET", f"{command.action} {wanted}")
        if not config.allows(command.action, command.target):
            raise NotDone("NOT_ALLOWED", "the gateway's config doesn't allow it: [commands] allow")
        if not self._clock.synced:
            raise NotDone("CLOCK_UNSYNCED", "the gateway's clock isn't set")
        # Last, for all before takes its time.
        now_us = self._clock.now_ns() // 1000
        if command.expires_us <= max(now_us, deleted_us):
            raise NotDone("EXPIRED", f"it was {format_time(now_us)} on the gateway")
        if command.expires_us > now_us + FARTHEST_US:
            raise NotDone("BAD_TIME", "it expires more than a day from now")

    def _finish(
        self,
        history: History,
        name: str,
        command: bytes,
        outcome: Outcome,
        reason: str | None = None,
        detail: str = "",
        result: Mapping[str, Any] | None = None,
    ) -> None:
        made = self._result(command, outcome, reason, detail, result).to_json()
        history.finish(name, made)
        self._leave(name, made)

    def _result(
        self,
        command: bytes,
        outcome: Outcome,
        reason: str | None,
        detail: str,
        result: Mapping[str, Any] | None = None,
    ) -> CommandResult:
        try:
            known: Command | None = parse_command(command)
        except InvalidFields:
            known = None
        return CommandResult(
            id=known.id if known else None,
            gateway=self._gateway,
            outcome=outcome,
            time=format_time(self._clock.now_ns() // 1000),
            run=self.run,
            target=known.target if known else "",
            action=known.action if known else "",
            reason=reason,
            detail=detail,
            result=result,
        )

    def _leave(self, name: str | None, result: bytes) -> None:
        fields = parse_result(result)
        self.counts[fields.reason or fields.outcome] += 1
        log.info(
            "event=command.result id=%s action=%s target=%s outcome=%s reason=%s",
            fields.id, fields.action, fields.target, fields.outcome, fields.reason,
        )  # fmt: skip
        self._announce(Record(COMMAND_RESULTS_TOPIC, self._gateway.encode(), result, ()))
        if name is not None:
            self._leaving.append((name, self._monotonic()))


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
        prefix = config.kafka.prefix
        topic, group = prefix + COMMANDS_TOPIC, prefix + commands_group_of(config.gateway.id)
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
            self._executor.take(fetched, history, self._config.commands, partial(reader.claim, fetched.then))
        else:
            history.pass_over(fetched.then)

    def _failed(self, error: Exception) -> bool:
        # Opened again: then what was cut off is answered.
        self._history = None
        return isinstance(error, HistoryError)

    def _ended(self) -> None:
        if self._history is not None:
            self._history.close()
