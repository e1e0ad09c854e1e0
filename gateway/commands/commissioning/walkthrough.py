"""Leads the installer from sensor to sensor, and collects the readings meanwhile."""

from __future__ import annotations

import select
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Final, TextIO

from cloud.terminal import clock_text
from cloud.wire.reading_records import QUALITIES
from gateway.commands.commissioning.checks import GOOD, Result, Window
from gateway.commands.commissioning.session import Session
from gateway.commands.commissioning.steps import Phase, Step, questions, shortcomings, steps_of, twin_steps
from gateway.commands.read import Source
from gateway.commands.reading_rows import Row, number_text
from gateway.config import Config, SensorConfig
from gateway.system.times import now_text

_POLL_S: Final = 0.3
_WIDEST: Final = 76


class Terminal:
    """Shows text on ``out``, on a phone 40 columns wide, and takes answers from standard input."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, text: str) -> None:
        """Print text, no line longer than the terminal is wide, so that a phone shows whole words."""
        width = min(shutil.get_terminal_size().columns, _WIDEST)
        for line in text.split("\n"):
            indent = line[: len(line) - len(line.lstrip())]
            wrapped = textwrap.fill(line.strip(), width, initial_indent=indent, subsequent_indent=indent)
            self._out.write(f"{wrapped}\n")
        self._out.flush()

    def prompt(self, question: str, allowed: Sequence[str] | None = None) -> str:
        """An answer, stripped; one of ``allowed`` where that is given. Raises EOFError."""
        while True:
            self.show(question)
            self._out.write("> ")
            self._out.flush()
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            answer = line.strip()
            if allowed is None or answer.lower() in allowed:
                return answer if allowed is None else answer.lower()
            self.show(f"Please one of: {', '.join(each or 'Enter' for each in allowed)}")

    def interrupted(self) -> bool:
        """Whether Enter was pressed while something else was going on; the line is taken."""
        ready, _, _ = select.select([sys.stdin], [], [], 0)
        return bool(ready) and bool(sys.stdin.readline())


@dataclass
class Walk:
    """One session with one installer. ``today`` is None while the clock isn't set."""

    config: Config
    session: Session
    source: Source
    terminal: Terminal
    today: date | None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    last: dict[str, Row] = field(init=False, default_factory=dict)
    """The last readings by channel, so that what changes rarely need not be waited for."""

    def go(self, sensors: Sequence[SensorConfig]) -> None:
        """All that isn't done yet. Raises EOFError, NoStatus, OSError; what is done is kept."""
        for number, sensor in enumerate(sensors, 1):
            pin = getattr(sensor.options, "pin", None)
            what = (sensor.model or sensor.driver) + ("" if pin is None else f" on BCM pin {pin}")
            self.terminal.show(f"\n[{number}/{len(sensors)}] {sensor.name}, {what}")
            self._papers(sensor)
            for step in steps_of(self.config, sensor):
                self._step(step)
        for step in twin_steps(sensors):
            self.terminal.show(f"\n{step.sensor} and its twin")
            self._step(step)

    def _papers(self, sensor: SensorConfig) -> None:
        for check, words in shortcomings(sensor, self.today):
            self.terminal.show(f"Noted: {words}")
            self._note(sensor.name, check, Result("fault", words))
        for question in questions(sensor):
            if self._is_done(sensor.name, question.check):
                continue
            if self.terminal.prompt(f"{question.text} y/n", ("y", "n")) == "y":
                result = Result("confirmed", question.text)
            else:
                note = self._words("What does it say?")
                result = Result("fault", f"{question.text} No: {question.remedy}", note=note)
            self._note(sensor.name, question.check, result)

    def _step(self, step: Step) -> None:
        if self._is_done(step.sensor, step.check):
            return
        result = None
        while result is None:
            if self._ready(step.phases[0]):
                result = self._confirmed(self._evaluate(step))
            else:
                result = Result("skipped", "not checked", note=self._words("Why?"))
        self._note(step.sensor, step.check, result)

    def _ready(self, phase: Phase) -> bool:
        """Whether the installer stands ready, False to skip it; without a question where nothing is to do."""
        if not phase.fresh:
            self.terminal.show(phase.instruction)
            return True
        return self.terminal.prompt(f"{phase.instruction} Enter: ready, s: skip", ("", "s")) == ""

    def _evaluate(self, step: Step) -> Result:
        windows: list[Window] = []
        for number, phase in enumerate(step.phases):
            if number:
                self.terminal.show(phase.instruction)
            windows.append(self._collect(phase, windows))
        return step.evaluate(windows)

    def _collect(self, phase: Phase, before: Sequence[Window]) -> Window:
        """The phase's readings until they are enough, time is over or Enter ends it. Raises NoStatus."""
        window: dict[str, list[Row]] = {}
        names = labels(phase.shows)

        def take(rows: Sequence[Row]) -> None:
            for row in rows:
                window.setdefault(row.channel, []).append(row)
                if row.channel in names:
                    self.terminal.show(live_line(row, names[row.channel]))

        self._poll()
        if not phase.fresh:
            take([row for row in self.last.values() if row.channel in names])
        end_s = self.clock() + phase.limit_s
        while not phase.enough((*before, window)) and self.clock() < end_s:
            if self.terminal.interrupted():
                break
            self.sleep(_POLL_S)
            take(self._poll())
        return window

    def _poll(self) -> list[Row]:
        rows = self.source.poll()
        self.last.update((row.channel, row) for row in rows)
        return rows

    def _confirmed(self, result: Result) -> Result | None:
        """The result with the installer's decision; None to repeat the step."""
        question, good = {
            "passed": (f"Passed: {result.words}. Enter: next, r: repeat, n: note a fault", ""),
            "open": (f"Judge yourself: {result.words}. y: it is right, r: repeat, n: note a fault", "y"),
        }.get(result.outcome, (f"Not right: {result.words}. r: repeat, n: note it as a fault", "r"))
        answer = self.terminal.prompt(question, tuple(dict.fromkeys((good, "r", "n"))))
        if answer == "r":
            return None
        if answer == good:
            return result if result.outcome == "passed" else replace(result, outcome="confirmed")
        return replace(result, outcome="fault", note=self._words("What is wrong?"))

    def _words(self, question: str) -> str:
        """Requires a word at least: a fault without a description isn't found again."""
        while not (answer := self.terminal.prompt(question)):
            self.terminal.show("In a few words, please.")
        return answer

    def _note(self, sensor: str, check: str, result: Result) -> None:
        self.session.note(sensor, check, replace(result, at=now_text("seconds")))

    def _is_done(self, sensor: str, check: str) -> bool:
        """Whether it was done in the session before; then its outcome is shown."""
        done = self.session.of(sensor).get(check)
        if done is not None:
            mark = "done" if done.outcome in GOOD else "noted"
            self.terminal.show(f"{check}: {mark} ({done.outcome})")
        return done is not None


def labels(channels: Sequence[str]) -> Mapping[str, str]:
    """What distinguishes these channels: nothing, the quantity, or the sensor."""
    sensors = {channel.rpartition(".")[0] for channel in channels}
    part = 2 if len(sensors) == 1 else 0
    return {channel: channel.rpartition(".")[part] if len(channels) > 1 else "" for channel in channels}


def live_line(row: Row, label: str) -> str:
    """A reading as it comes: short enough for a phone held upright."""
    line = " ".join(filter(None, (clock_text(row.time), label, number_text(row.value, row.unit))))
    if row.raw_unit != row.unit:
        line += f" ({number_text(row.raw, row.raw_unit)})"
    line += f" {QUALITIES.get(row.quality, '?')}"
    return f"{line}\n  {row.words}" if row.words else line
