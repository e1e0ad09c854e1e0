"""Leads the installer from sensor to sensor. Knows neither terminal nor daemon: it is told through ports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Final

from gateway.commands.commissioning.checks import Verdict, Window
from gateway.commands.commissioning.nameplate import questions, shortcomings
from gateway.commands.commissioning.session import GOOD, Result, Session
from gateway.commands.commissioning.sources import Watch
from gateway.commands.commissioning.steps import Step, steps_of, twin_steps
from gateway.commands.commissioning.terminal import Dialogue
from gateway.commands.reading_rows import Row, clock_text, number_text
from gateway.config import Config, SensorConfig
from gateway.quality.reasons import QUALITIES
from gateway.system.times import now_text

_YES_NO: Final = ("y", "n")


class Walk:
    """One session with one installer. ``today`` is None while the clock isn't set."""

    def __init__(
        self,
        config: Config,
        session: Session,
        watch: Watch,
        dialogue: Dialogue,
        today: Callable[[], date | None],
    ) -> None:
        self._config = config
        self._session = session
        self._watch = watch
        self._dialogue = dialogue
        self._today = today

    def go(self, sensors: Sequence[SensorConfig]) -> None:
        """All that isn't done yet. Raises EOFError, NoAnswer, NoStatus, OSError; what is done is kept."""
        pairs = twin_steps(sensors)
        for number, sensor in enumerate(sensors, 1):
            self._dialogue.tell(f"\n[{number}/{len(sensors)}] {sensor.name}, {_what(sensor)}")
            self._papers(sensor)
            for step in steps_of(self._config, sensor):
                self._step(step)
        for step in pairs:
            self._dialogue.tell(f"\n{step.sensor} and its twin")
            self._step(step)

    def _papers(self, sensor: SensorConfig) -> None:
        done = self._session.of(sensor.name)
        for check, words in shortcomings(sensor, self._today()):
            self._dialogue.tell(f"Noted: {words}")
            self._note(sensor.name, check, Result("fault", words))
        for question in questions(sensor):
            if question.check in done:
                self._tell_done(question.check, done[question.check])
                continue
            name = f"{sensor.name}.{question.check}"
            if self._dialogue.ask(f"{question.text} y/n", name, _YES_NO) == "y":
                result = Result("confirmed", question.text)
            else:
                note = self._words("What does it say?", f"{name}.note")
                result = Result("fault", f"{question.text} No: {question.remedy}", note)
            self._note(sensor.name, question.check, result)

    def _step(self, step: Step) -> None:
        done = self._session.of(step.sensor).get(step.check)
        if done is not None:
            self._tell_done(step.check, done)
            return
        while True:
            if not self._ready(step):
                note = self._words("Why?", f"{step.name}.note")
                self._note(step.sensor, step.check, Result("skipped", "not looked at", note))
                return
            verdict = self._look(step)
            result = self._settled(step, verdict)
            if result is not None:
                self._note(step.sensor, step.check, replace(result, figures=verdict.figures))
                return

    def _ready(self, step: Step) -> bool:
        """Whether the installer stands ready, False to leave it out; not asked where nothing is to do."""
        first = step.phases[0]
        if not first.fresh:
            self._dialogue.tell(first.tell)
            return True
        question = f"{first.tell} Enter: ready, s: skip"
        return self._dialogue.ask(question, f"{step.name}.ready", ("", "s")) == ""

    def _look(self, step: Step) -> Verdict:
        windows: list[Window] = []
        for number, phase in enumerate(step.phases):
            if number:
                self._dialogue.tell(phase.tell)
            show = partial(self._show, labels(phase.shows))
            windows.append(self._watch.phase(phase, tuple(windows), show, self._dialogue.interrupted))
        return step.judge(windows)

    def _show(self, names: Mapping[str, str], row: Row) -> None:
        self._dialogue.tell(live_line(row, names[row.channel]))

    def _settled(self, step: Step, verdict: Verdict) -> Result | None:
        """What it comes to by the installer's word; None to do it again."""
        name = f"{step.name}.result"
        if verdict.outcome == "passed":
            answer = self._dialogue.ask(
                f"Passed: {verdict.words}. Enter: next, r: repeat, n: note a fault", name, ("", "r", "n")
            )
            if answer == "":
                return Result("passed", verdict.words)
        elif verdict.outcome == "open":
            question = f"Judge yourself: {verdict.words}. y: it is right, r: repeat, n: note a fault"
            answer = self._dialogue.ask(question, name, ("y", "r", "n"))
            if answer == "y":
                return Result("confirmed", verdict.words)
        else:
            answer = self._dialogue.ask(
                f"Not right: {verdict.words}. r: repeat, n: note it as a fault", name, ("r", "n")
            )
        if answer == "r":
            return None
        return Result("fault", verdict.words, self._words("What is wrong?", f"{step.name}.note"))

    def _words(self, question: str, name: str) -> str:
        """At least a word: a fault that nobody describes is found by nobody."""
        while True:
            answer = self._dialogue.ask(question, name)
            if answer:
                return answer
            self._dialogue.tell("In a few words, please.")

    def _note(self, sensor: str, check: str, result: Result) -> None:
        self._session.note(sensor, check, replace(result, at=now_text("seconds")))

    def _tell_done(self, check: str, result: Result) -> None:
        mark = "done" if result.outcome in GOOD else "noted"
        self._dialogue.tell(f"{check}: {mark} ({result.outcome})")


def _what(sensor: SensorConfig) -> str:
    told = sensor.model or sensor.driver
    pin = getattr(sensor.options, "pin", None)
    return told if pin is None else f"{told} on BCM pin {pin}"


def labels(channels: Sequence[str]) -> dict[str, str]:
    """What tells these channels from one another: nothing, the quantity, or the sensor."""
    sensors = {channel.rpartition(".")[0] for channel in channels}
    part = 2 if len(sensors) == 1 else 0
    return {channel: channel.rpartition(".")[part] if len(channels) > 1 else "" for channel in channels}


def live_line(row: Row, label: str) -> str:
    """A reading while it is watched: short enough for a phone held upright."""
    line = " ".join(filter(None, (clock_text(row.time), label, number_text(row.value, row.unit))))
    if row.raw_unit != row.unit:
        line += f" ({number_text(row.raw, row.raw_unit)})"
    line += f" {QUALITIES.get(row.quality, '?')}"
    return f"{line}\n  {row.words}" if row.words else line
