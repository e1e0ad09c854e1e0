"""Carries out commands, one after the other, each at most once. Owned by one thread.

A command is begun in the history before anything else; what becomes of it is a result with a word for its
reason, and the result is announced until it is durable.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from cloud.kafka.key_reader import Fetched
from cloud.wire.command_records import (
    ACTIONS,
    WITH_TARGET,
    Command,
    CommandResult,
    Outcome,
    parse_command,
    parse_result,
)
from cloud.wire.fields import InvalidFields, format_time
from cloud.wire.reading_records import COMMAND_RESULTS_TOPIC
from gateway.config.outputs import CommandsConfig
from gateway.ports import Clock, Record
from gateway.remote.actions import Action, NotDone
from gateway.remote.history import FARTHEST_US, History

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

    def take(self, fetched: Fetched, history: History, config: CommandsConfig) -> None:
        """Carry out a record of this gateway's key, or refuse it. Raises HistoryError."""
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
        begun = history.begin(name, expires_us, fetched.value, fetched.then, now_us)
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
