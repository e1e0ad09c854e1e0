"""The walk from sensor to sensor with made-up readings and answers: results, repeats, resuming."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

import pytest

from cloud.command_line import CommandError
from gateway.commands.commissioning.checks import Result
from gateway.commands.commissioning.command import event_fields, make_report
from gateway.commands.commissioning.session import Session
from gateway.commands.commissioning.walkthrough import Terminal, Walk
from gateway.commands.read import Source
from gateway.commands.reading_rows import Row
from gateway.config import Config, load
from gateway.status.client import NoStatus
from tests.support.config import baro, config_text, cup

CONFIG = config_text(
    cup("a", serial="1795", calibrated=date(2026, 3, 12), offset=0.0, height_m=50, boom_deg=315, pair="b"),
    cup("b", 27, offset=0.0, pair="a"),
    baro(),
    gateway={"elevation_m": 2100},
)
ANSWERS = {
    "*.serial": "y", "*.certificate": "y", "*.place": "y", "*.ready": "", "*.result": "", "*.note": "why",
}  # fmt: skip


class Mast:
    """Two cups in a wind of 9 Hz, a barometer, and a hand that follows the terminal's instructions."""

    def __init__(self, out: io.StringIO, wires: Callable[[str], str] = lambda name: name) -> None:
        self._out = out
        self._wires = wires
        self.second = 0
        self.pressure_kpa = 78.4

    def poll(self) -> list[Row]:
        self.second += 1
        shown = self._out.getvalue()
        held, spun = shown.rfind("Hold "), shown.rfind("Now spin ")
        hand = shown[max(held, spun) :].split()[1 if held > spun else 2] if max(held, spun) >= 0 else ""
        rows = []
        for name in ("a", "b"):
            standing = self._wires(name) == hand and held > spun
            raw = 0.0 if standing else 9.0
            rows.append(self._row(f"{name}.wind_speed", 0.765 * raw, raw))
        return [*rows, self._row("baro.pressure", self.pressure_kpa, 3.1)]

    def _row(self, channel: str, value: float, raw: float) -> Row:
        time = f"2026-11-21T12:{self.second // 60:02}:{self.second % 60:02}.000Z"
        return Row(channel.rpartition(".")[0], channel, time, value, "u", raw, "Hz", 1, (), self.second)


_KINDS = {
    "Does the label": "serial", "Does its certificate": "certificate", "Is it": "place", "Passed": "result",
    "Judge": "result", "Not right": "result", "What": "note", "Why": "note",
}  # fmt: skip


class Answers(Terminal):
    """Answers by sensor and kind of question; without one the connection is gone."""

    def __init__(self, out: io.StringIO, answers: Mapping[str, str | list[str]]) -> None:
        super().__init__(out)
        self._answers = {key: [each] if isinstance(each, str) else [*each] for key, each in answers.items()}
        self._sensor = ""

    def show(self, text: str) -> None:
        if found := re.match(r"\n(?:\[\d+/\d+\] )?(\w+)( and its twin)?", text):
            self._sensor = f"{found[1]}.twin" if found[2] else found[1]
        super().show(text)

    def prompt(self, question: str, allowed: Sequence[str] | None = None) -> str:
        self.show(question)
        kind = next((kind for begin, kind in _KINDS.items() if question.startswith(begin)), "ready")
        key = f"{self._sensor}.{kind}"
        answers = self._answers.get(key if key in self._answers else f"*.{kind}")
        if answers is None:
            raise EOFError
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        assert allowed is None or answer in allowed
        self.show(f"> {answer}")
        return answer

    def interrupted(self) -> bool:
        return False


class Person:
    """Walks once through a mast with these answers."""

    def __init__(self, directory: Path, config: str = CONFIG) -> None:
        self.path = directory / "gateway.toml"
        self.path.write_text(config)
        self.config: Config = load(self.path)
        self.out = io.StringIO()
        self.session = Session(self.config)

    def walk(self, answers: Mapping[str, str | list[str]], mast: Mast | None = None) -> None:
        self.clock_s = 0.0
        source = Source("board", (mast or Mast(self.out)).poll)
        terminal = Answers(self.out, answers)
        day = date(2026, 11, 21)
        walk = Walk(self.config, self.session, source, terminal, day, lambda: self.clock_s, self._sleep)
        walk.go(self.config.sensors)

    def _sleep(self, seconds: float) -> None:
        self.clock_s += seconds

    def outcomes(self) -> dict[str, str]:
        return {
            f"{sensor.name}.{check}": each.outcome
            for sensor in self.config.sensors
            for check, each in self.session.of(sensor.name).items()
        }


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    walking = Person(tmp_path)
    yield walking
    walking.session.close()


GOOD = {
    "a.serial": "confirmed", "a.certificate": "confirmed", "a.place": "confirmed", "a.pulses": "passed",
    "b.certificate": "confirmed", "b.papers": "fault", "b.pulses": "passed",
    "baro.pressure": "passed", "a.twin-wind_speed": "passed",
}  # fmt: skip


def test_all_steps_and_what_is_shown(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    person.walk({**ANSWERS, "baro.result": ["r", "r", ""]})
    assert person.outcomes() == GOOD
    lines = person.out.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    shown = " ".join(person.out.getvalue().split())
    assert "Does the label say serial 1795? y/n > y" in shown
    assert "Is it 50 m above ground, its boom to 315° from north? y/n" in shown
    assert "12:00:03 0.000 u (0.000 Hz) good" in shown
    # A data sheet's slope is no certificate; repeated twice.
    assert "21.79" not in shown
    assert shown.count("standard at 2100 m 78.51") == 3
    # Twins are compared once, by their names.
    assert shown.count("they are compared") == 1
    assert " a 6.885 u" in shown


def test_swapped_cups_are_found(person: Person) -> None:
    mast = Mast(person.out, {"a": "b", "b": "a"}.__getitem__)
    person.walk({**ANSWERS, "a.result": "n", "b.result": "n"}, mast)
    result = person.session.of("a")["pulses"]
    assert (result.outcome, result.note) == ("fault", "why")
    assert result.words.startswith("b moved instead: the two are swapped")
    assert person.session.of("b")["pulses"].words.startswith("a moved instead")


def test_a_wrong_label_a_skipped_step_a_fault_against_the_check(person: Person) -> None:
    person.walk(
        {
            **ANSWERS,
            "a.serial": "n",
            "a.note": "1796",
            "b.ready": "s",
            # Its hand never leaves cup b.
            "a.twin.result": "n",
            "baro.result": "n",
        }
    )
    serial = person.session.of("a")["serial"]
    assert serial.words == "Does the label say serial 1795? No: fieldgate commission swap a --serial …"
    assert (serial.outcome, serial.note) == ("fault", "1796")
    skipped = person.session.of("b")["pulses"]
    assert skipped == Result("skipped", "not checked", "why", skipped.at)
    assert person.session.of("baro")["pressure"].outcome == "fault"


def test_a_session_that_was_broken_off_goes_on(person: Person, tmp_path: Path) -> None:
    with pytest.raises(EOFError):
        person.walk({key: each for key, each in ANSWERS.items() if key != "*.result"} | {
            "a.result": "", "b.result": "",
        })  # fmt: skip
    done = person.outcomes()
    assert "baro.pressure" not in done
    with pytest.raises(CommandError, match="in another terminal"):
        Session(person.config)
    person.session.close()

    again = Person(tmp_path)
    assert again.outcomes() == {}
    earlier = again.session.earlier()
    assert earlier == (person.session.started, len(done))
    again.session.resume()
    assert again.outcomes() == done
    again.walk({"*.ready": "", "*.result": ""})
    assert again.outcomes() == GOOD
    again.session.close()

    # What has another table now is checked again, the others aren't.
    changed = Person(tmp_path, CONFIG.replace('serial = "1795"', 'serial = "1796"'))
    changed.session.resume()
    assert {key.partition(".")[0] for key in changed.outcomes()} == {"b", "baro"}
    changed.session.close()
    (tmp_path / "commissioning" / "session.json").write_bytes(b"\0" * 300)
    broken = Person(tmp_path)
    assert broken.session.earlier() is None
    broken.session.close()


def test_a_daemon_that_ends_does_not_lose_what_was_found(person: Person) -> None:
    class Ending(Mast):
        def poll(self) -> list[Row]:
            if self.second > 4:
                raise NoStatus("the daemon has ended")
            return super().poll()

    with pytest.raises(NoStatus):
        person.walk(ANSWERS, Ending(person.out))
    assert "a.serial" in person.outcomes()


def test_the_report(person: Person) -> None:
    person.walk(ANSWERS)
    found = [(each.name, person.session.of(each.name)) for each in person.config.sensors]
    signed = {
        "signed_by": "A. *Person*", "signed_at": "2026-11-21T12:00:00Z", "started": "2026-11-21T11:00:00Z",
        "readings_from": "daemon", "version": "0.1.0", "config_sha256": "ab" * 32,
    }  # fmt: skip
    report = make_report(person.config, found, {"clock": Result("passed", "synchronised")}, signed)
    fields = json.loads(report.content)
    assert (fields["ok"], fields["complete"], fields["signed_by"]) == (False, True, "A. *Person*")
    (fault,) = fields["faults"]
    assert fault.startswith("b: papers: the config has no serial and no calibrated: ")
    first = fields["sensors"][0]
    assert (first["serial"], first["slope"], first["pin"]) == ("1795", 0.765, 17)
    assert [each["check"] for each in first["checks"]][-2:] == ["pulses", "twin-wind_speed"]
    event = event_fields(report, "x.json")
    assert (event["sha256"], event["report"]["sensors"], event["ok"]) == (
        report.sha256,
        fields["sensors"],
        False,
    )
    # One sensor alone: no fault, and not everything.
    part = make_report(person.config, found[:1], {}, signed)
    assert (part.ok, part.fields["complete"]) == (True, False)
