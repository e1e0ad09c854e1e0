"""Starts components in the order of their needs, restarts what dies, stops all. One thread calls it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cloud.backoff import backoff_s
from cloud.errors import CloudError
from cloud.local.process import last_lines
from cloud.local.server import LocalProgram
from gateway.commands.arguments import CommandError

log = logging.getLogger(__name__)

_SHORT_LIFE_S: Final = 10.0
_MOST_SHORT_LIVES: Final = 5
"""After so many starts in a row that lasted no time, another one is no help."""
_LONGEST_BACKOFF_S: Final = 8.0


class State(StrEnum):
    """What a component is doing."""

    WAITING = "waiting"
    STARTING = "starting"
    UP = "up"
    DOWN = "down"
    STOPPED = "stopped"


@dataclass(slots=True)
class Part:
    """A component under supervision. ``prepare`` runs once, when it answers for the first time."""

    name: str
    component: LocalProgram
    needs: tuple[str, ...] = ()
    prepare: Callable[[], object] | None = None
    state: State = field(init=False, default=State.WAITING)
    restarts: int = field(init=False, default=0)
    changed_s: float = field(init=False, default=0.0)
    _prepared: bool = field(init=False, default=False)
    _short_lives: int = field(init=False, default=0)

    def enter(self, state: State, now_s: float) -> None:
        """Change the state."""
        self.state, self.changed_s = state, now_s

    def came_up(self, now_s: float) -> None:
        """It answers."""
        if self.prepare is not None and not self._prepared:
            self.prepare()
        self._prepared = True
        self.enter(State.UP, now_s)

    def died(self, why: str, now_s: float) -> None:
        """It ended by itself. Raises CommandError where restarting is no use."""
        # At the very start it is the setup that is wrong, and trying again only hides it.
        lived_s = now_s - self.changed_s if self.state is State.UP else 0.0
        self._short_lives = 0 if lived_s > _SHORT_LIFE_S else self._short_lives + 1
        if not self._prepared or self._short_lives > _MOST_SHORT_LIVES:
            raise CommandError(
                f"{self.name} {why}; the end of {self.component.log}:\n{last_lines(self.component.log)}"
            )
        log.warning("event=demo.component_died name=%s why=%s", self.name, why)
        self.enter(State.DOWN, now_s)

    @property
    def extra_s(self) -> float:
        """What a restart waits on top: nothing the first time."""
        return backoff_s(self._short_lives - 1, 1.0, _LONGEST_BACKOFF_S) if self._short_lives > 1 else 0.0


class Stack:
    """All parts of a demo. Launched in the order given, stopped in that of ``stop_order``."""

    def __init__(
        self,
        parts: Sequence[Part],
        stop_order: Sequence[str],
        restart_after_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.parts = {part.name: part for part in parts}
        self._stop_order = tuple(stop_order)
        self._restart_after_s = restart_after_s
        self._monotonic = monotonic

    @property
    def all_up(self) -> bool:
        """Whether every part answered the last time."""
        return all(part.state is State.UP for part in self.parts.values())

    def tick(self) -> bool:
        """Examine every part once; True when one changed. Raises CommandError where one can't be started."""
        before = [(part.state, part.component.pid) for part in self.parts.values()]
        for part in self.parts.values():
            self._supervise(part, self._monotonic())
        return before != [(part.state, part.component.pid) for part in self.parts.values()]

    def _supervise(self, part: Part, now_s: float) -> None:
        component, code = part.component, part.component.exit_code
        match part.state:
            case State.WAITING:
                if all(self.parts[name].state is State.UP for name in part.needs):
                    self._launch(part)
            case State.STARTING if code is not None:
                part.died(f"ended with {code} while starting", now_s)
            case State.STARTING:
                if component.answers():
                    part.came_up(now_s)
                elif now_s - part.changed_s > component.start_timeout_s:
                    component.stop()
                    part.died(f"was not up after {component.start_timeout_s:g} s", now_s)
            case State.UP if code is not None:
                part.died(f"ended with {code}", now_s)
            case State.DOWN if now_s - part.changed_s >= self._restart_after_s + part.extra_s:
                part.restarts += 1
                self._launch(part)
            case _:
                pass

    def _launch(self, part: Part) -> None:
        try:
            part.component.launch()
        except (CloudError, CommandError) as error:
            part.died(f"can't be started: {error}", self._monotonic())
        else:
            part.enter(State.STARTING, self._monotonic())

    def stop(self, *names: str) -> None:
        """Stop the parts named, or all, in the stop order; they stay stopped."""
        for name in self._stop_order:
            part = self.parts[name]
            if (not names or name in names) and part.state is not State.STOPPED:
                part.enter(State.STOPPED, self._monotonic())
                part.component.stop()

    def kill(self) -> None:
        """End everything by force."""
        for part in self.parts.values():
            part.component.kill()
