"""Repetitions are left out and counted, the last line always comes, no day has more than a megabyte."""

from __future__ import annotations

import logging
import random

import pytest

from gateway.system.logs import (
    AGAIN_S,
    BYTES_AT_ONCE,
    BYTES_PER_S,
    ENTRY_BYTES,
    IN_A_ROW,
    LogQueue,
    RateLimit,
)

DAY_S = 86_400


class Written(logging.Handler):
    """Keeps the lines that come through, with the time."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[float, str]] = []
        self.records: list[logging.LogRecord] = []
        self.now_s = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((self.now_s, self.format(record)))
        self.records.append(record)

    @property
    def messages(self) -> list[str]:
        return [line for _, line in self.lines]


class Log:
    """A limited log on a clock of the test's own."""

    def __init__(self) -> None:
        self.written = Written()
        self._queue = LogQueue()
        self.limit = RateLimit(self.written.handle, lambda: self.written.now_s)

    def at(self, second: float) -> None:
        self.written.now_s = second
        self.limit.release_due()

    def write(self, template: str, *arguments: object, level: int = logging.WARNING) -> None:
        number = sum(map(ord, template))
        line = logging.LogRecord("gateway.x", level, "x.py", number, template, arguments, None)
        self.limit.handle(self._queue.prepare(line))


@pytest.fixture
def log() -> Log:
    return Log()


def test_repetitions_are_counted_and_the_last_one_is_written(log: Log) -> None:
    for number in range(IN_A_ROW + 4):
        log.write("event=kafka.error error=%s", f"e{number}")
    assert log.written.messages == [f"event=kafka.error error=e{number}" for number in range(IN_A_ROW)]
    log.at(AGAIN_S - 1)
    assert len(log.written.messages) == IN_A_ROW
    log.at(AGAIN_S)
    # Nothing came meanwhile: the last one is written, three before it are counted.
    assert log.written.messages[IN_A_ROW:] == [f"event=kafka.error error=e{IN_A_ROW + 3} suppressed=3"]
    log.at(5 * AGAIN_S)
    assert len(log.written.messages) == IN_A_ROW + 1
    log.write("event=kafka.error error=%s", "again")
    assert log.written.messages[-1] == "event=kafka.error error=again"


def test_one_thing_does_not_hide_another(log: Log) -> None:
    for _ in range(100):
        log.write("event=sensor.silent sensor=%s error=%s", "baro", "dead")
    log.write("event=sensor.silent sensor=%s error=%s", "dht", "dead")
    log.write("event=sensor.answers sensor=%s", "baro")
    for number in range(100):
        log.write("a line of a library: %d", number)
    assert log.written.messages[IN_A_ROW:] == [
        "event=sensor.silent sensor=dht error=dead",
        "event=sensor.answers sensor=baro",
        *(f"a line of a library: {number}" for number in range(IN_A_ROW)),
    ]


def test_all_problems_of_a_config_are_written(log: Log) -> None:
    for number in range(30):
        log.write("event=config.refused problem=%s", f"gateway.toml:{number}: wrong", level=logging.ERROR)
    assert len(log.written.messages) == 30


def test_what_ends_the_daemon_is_always_written(log: Log) -> None:
    for _ in range(50):
        log.write("event=thread.died threads=%s", "forwarder", level=logging.CRITICAL)
    assert len(log.written.messages) == 50


def test_no_day_has_more_than_a_megabyte_whatever_comes(log: Log) -> None:
    """Lines of hundreds of kinds all the time, for two days: any 24 hours of it."""
    dice = random.Random(7)
    for second in range(0, 2 * DAY_S, 600):
        log.at(float(second))
        for _ in range(500 if second == DAY_S else 40):
            log.write("event=message.refused topic=%s reason=%s", f"t/{dice.randrange(400)}", "x" * 600)
    total, begin, most = 0, 0, 0
    sizes = [(at_s, len(line) + ENTRY_BYTES) for at_s, line in log.written.lines]
    for at_s, size in sizes:
        total += size
        while sizes[begin][0] <= at_s - DAY_S:
            total -= sizes[begin][1]
            begin += 1
        most = max(most, total)
    assert most <= BYTES_AT_ONCE + DAY_S * BYTES_PER_S < 1_000_000
    # The allowance is there to be used.
    assert most > 800_000
