"""Leads the installer from sensor to sensor, through ports for the terminal and the readings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Final

from gateway.commands.commissioning.checks import GOOD, Result, Window
from gateway.commands.commissioning.collector import Collector
from gateway.commands.commissioning.nameplate import questions, shortcomings
from gateway.commands.commissioning.session import Session
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
        collector: Collector,
        dialogue: Dialogue,
        today: Callable[[], date | None],
    ) -> None:
        self._config = config
        self._session = session
        self._collector = collector
        self._dialogue = dialogue
        self._today = today

    def go(self, sensors: Sequence[SensorConfig]) -> None:
        """All that isn't done yet. Raises EOFError, NoAnswer, NoStatus, OSError; what is done is kept."""
        pairs = twin_steps(sensors)
        for number, sensor in enumerate(sensors, 1):
            self._dialogue.show(f"\n[{number}/{len(sensors)}] {sensor.name}, {_what(sensor)}")
            self._papers(sensor)
            for step in steps_of(self._config, sensor):
                self._step(step)
        for step in pairs:
            self._dialogue.show(f"\n{step.sensor} and its twin")
            self._step(step)

    def _papers(self, sensor: SensorConfig) -> None:
        done = self._session.of(sensor.name)
        for check, words in shortcomings(sensor, self._today()):
            self._dialogue.show(f"Noted: {words}")
            self._note(sensor.name, check, Result("fault", words))
        for question in questions(sensor):
            if question.check in done:
                self._show_done(question.check, done[question.check])
                continue
            name = f"{sensor.name}.{question.check}"
            if self._dialogue.ask(f"{question.text} y/n", name, _YES_NO) == "y":
                result = Result("confirmed", question.text)
            else:
                note = self._words("What does it say?", f"{name}.note")
                result = Result("fault", f"{question.text} No: {question.remedy}", note=note)
            self._note(sensor.name, question.check, result)

    def _step(self, step: Step) -> None:
        done = self._session.of(step.sensor).get(step.check)
        if done is not None:
            self._show_done(step.check, done)
            return
        while True:
            if not self._ready(step):
                note = self._words("Why?", f"{step.name}.note")
                self._note(step.sensor, step.check, Result("skipped", "not checked", note=note))
                return
            result = self._confirmed(step, self._evaluate(step))
            if result is not None:
                self._note(step.sensor, step.check, result)
                return

    def _ready(self, step: Step) -> bool:
        """Whether the installer stands ready, False to skip it; without a question where nothing is to do."""
        first = step.phases[0]
        if not first.fresh:
            self._dialogue.show(first.instruction)
            return True
        question = f"{first.instruction} Enter: ready, s: skip"
        return self._dialogue.ask(question, f"{step.name}.ready", ("", "s")) == ""

    def _evaluate(self, step: Step) -> Result:
        windows: list[Window] = []
        for number, phase in enumerate(step.phases):
            if number:
                self._dialogue.show(phase.instruction)
            show = partial(self._show, labels(phase.shows))
            windows.append(self._collector.collect(phase, tuple(windows), show, self._dialogue.interrupted))
        return step.evaluate(windows)

    def _show(self, names: Mapping[str, str], row: Row) -> None:
        self._dialogue.show(live_line(row, names[row.channel]))

    def _confirmed(self, step: Step, result: Result) -> Result | None:
        """The result with the installer's decision; None to repeat the step."""
        if result.outcome == "passed":
            question, good = f"Passed: {result.words}. Enter: next, r: repeat, n: note a fault", ""
        elif result.outcome == "open":
            question, good = (
                f"Judge yourself: {result.words}. y: it is right, r: repeat, n: note a fault",
                "y",
            )
        else:
            question, good = f"Not right: {result.words}. r: repeat, n: note it as a fault", None
        allowed = ("r", "n") if good is None else (good, "r", "n")
        answer = self._dialogue.ask(question, f"{step.name}.result", allowed)
        if answer == "r":
            return None
        if answer == good:
            return replace(result, outcome="passed" if result.outcome == "passed" else "confirmed")
        return replace(result, outcome="fault", note=self._words("What is wrong?", f"{step.name}.note"))

    def _words(self, question: str, name: str) -> str:
        """At least a word: a fault without a description isn't found again."""
        while True:
            answer = self._dialogue.ask(question, name)
            if answer:
                return answer
            self._dialogue.show("In a few words, please.")

    def _note(self, sensor: str, check: str, result: Result) -> None:
        self._session.note(sensor, check, replace(result, at=now_text("seconds")))

    def _show_done(self, check: str, result: Result) -> None:
        mark = "done" if result.outcome in GOOD else "noted"
        self._dialogue.show(f"{check}: {mark} ({result.outcome})")


def _what(sensor: SensorConfig) -> str:
    what = sensor.model or sensor.driver
    pin = getattr(sensor.options, "pin", None)
    return what if pin is None else f"{what} on BCM pin {pin}"


def labels(channels: Sequence[str]) -> dict[str, str]:
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
