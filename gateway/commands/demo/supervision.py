"""Starts components in the order of their needs, restarts what dies, stops all. One thread calls it."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from cloud.command_line import CommandError
from cloud.errors import CloudError
from cloud.local.process import Child, last_lines
from cloud.local.server import LocalProgram

log = logging.getLogger(__name__)


class State(StrEnum):
    """What a component is doing."""

    WAITING = "waiting"
    STARTING = "starting"
    UP = "up"
    DOWN = "down"
    STOPPED = "stopped"


class Program(LocalProgram):
    """Runs ``command()``; ``ready`` decides by what it logged since its start whether it is up.

    The command is requested at each start, so that a restart can differ from the first one.
    """

    def __init__(
        self,
        command: Callable[[], Sequence[str]],
        log: Path,
        ready: Callable[[str], bool],
        environment: Mapping[str, str] | None = None,
        *,
        start_timeout_s: float = 60.0,
        stop_timeout_s: float = 15.0,
    ) -> None:
        super().__init__(log)
        self.start_timeout_s, self.stop_timeout_s = start_timeout_s, stop_timeout_s
        self._command = command
        self._ready = ready
        self._environment = environment
        self._log_start = 0

    def _spawn(self) -> Child:
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        # SIGTERM: when the demo is killed, the gateway still stores what is in memory.
        return Child(
            self._command(), self.log, environment=self._environment, parent_death_signal=signal.SIGTERM
        )

    def answers(self) -> bool:
        """True when it is up."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return self._ready(file.read().decode(errors="replace"))


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
        """It ended by itself. Raises CommandError before it ever answered: then the setup is wrong."""
        if not self._prepared:
            raise CommandError(
                f"{self.name} {why}; the end of {self.component.log}:\n{last_lines(self.component.log)}"
            )
        log.warning("event=demo.component_died name=%s why=%s", self.name, why)
        self.enter(State.DOWN, now_s)


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
            case State.DOWN if now_s - part.changed_s >= self._restart_after_s:
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
