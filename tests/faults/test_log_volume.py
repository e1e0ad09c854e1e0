"""A day on a bad uplink stays below a megabyte of log: a real daemon's lines, on a day of simulated time."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.system.logs import ENTRY_BYTES, IN_A_ROW, LogQueue, RateLimit
from tests.faults.kafka import Kafka
from tests.faults.mast import Mast
from tests.support.servers import eventually

pytestmark = pytest.mark.system
Report = Callable[..., None]

DAY_MINUTES: Final = 1440
_MOST_FLAPS: Final = IN_A_ROW - 2
"""Fewer than the daemon itself would begin to leave out."""
_LINE: Final = re.compile(r"\S+ \S+ level=([A-Z]+) (\S+) (.*)")
_WORDS: Final = re.compile(r"(\w+)=(.*?)(?= \w+=|$)")
_BOARD: Final = {
    "start": "2026-01-01T00:00:00Z",
    "speed": 10,
    "faults": [
        {"sensor": "baro-a", "kind": "open-input", "after_s": 5},
        {"sensor": "dht", "kind": "bit-errors", "amount": 0.3},
    ],
}


def as_record(line: str) -> logging.LogRecord | None:
    """A line of the log as the record it was made of, values and all."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    level, name, message = found.groups()
    words = _WORDS.findall(message)
    template = " ".join(f"{key}=%s" for key, _ in words) if words else "%s"
    values = tuple(value for _, value in words) or (message,)
    return logging.LogRecord(name, logging.getLevelNamesMapping()[level], "x.py", 1, template, values, None)


class Day(logging.StreamHandler[io.StringIO]):
    """What is written in simulated time."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.now_s = 0.0
        self.setFormatter(logging.Formatter("%(asctime)s level=%(levelname)s %(name)s %(message)s"))

    @property
    def size(self) -> int:
        return len(self.stream.getvalue().encode())

    @property
    def lines(self) -> int:
        return self.stream.getvalue().count("\n")


@pytest.mark.timeout(600)
def test_a_day_of_flapping_brokers_and_failing_sensors(
    tmp_path: Path, cloud: Kafka, mosquitto: LocalMosquitto, report: Report, full: bool
) -> None:
    flaps = _MOST_FLAPS if full else 2
    with Mast(tmp_path, cloud, mosquitto, board=_BOARD) as mast:
        mast.start()
        counted, cycles = 0, []
        for _ in range(flaps):
            cloud.uplink.close()
            mosquitto.stop()
            eventually(mast.status, 60, until=lambda now: now["uplink"] == "spilling")
            mosquitto.start()
            cloud.uplink.open()
            eventually(mast.status, 60, until=lambda now: now["uplink"] == "healthy")
            eventually(mast.status, 60, until=lambda now: bool(now["mqtt_connected"]))
            lines = mast.log.read_text().splitlines()
            cycles.append([each for each in map(as_record, lines[counted:]) if each is not None])
            counted = len(lines)
        mast.stop()
    events = {str(record.args[0]) for cycle in cycles for record in cycle if record.args}  # type: ignore[index]
    assert {"kafka.error", "kafka.silent", "kafka.answers", "mqtt.disconnected", "sensor.silent"} <= events

    bounded, unbounded = Day(), Day()
    log, queued = RateLimit(bounded.handle, lambda: bounded.now_s), LogQueue()
    for minute in range(DAY_MINUTES):
        for second in range(60):
            bounded.now_s = 60.0 * minute + second
            log.release_due()
        for record in cycles[minute % flaps]:
            log.handle(queued.prepare(record))
            unbounded.handle(record)
    report(
        lines_a_flap=round(sum(map(len, cycles)) / flaps, 1),
        lines_a_day=bounded.lines,
        bytes_a_day=bounded.size,
        bytes_in_the_journal=bounded.size + ENTRY_BYTES * bounded.lines,
        lines_without_a_bound=unbounded.lines,
        bytes_without_a_bound=unbounded.size,
    )
    assert bounded.size + ENTRY_BYTES * bounded.lines < 1_000_000 < unbounded.size
    # The last line of the day is there, with how many were left out.
    last = [line for line in bounded.stream.getvalue().splitlines() if "event=kafka.answers" in line][-1]
    assert "suppressed=" in last
