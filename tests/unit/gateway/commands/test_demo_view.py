"""What the demo shows on a terminal of 80 by 24 and where there is none; what it takes as complete."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs
from rich.console import Console

from gateway.commands.demo.accounting import Observation, RunCounts, TableCounts, missing
from gateway.commands.demo.layout import State
from gateway.commands.demo.view import LineView, LiveView, Picture, render
from gateway.status.status import RelayStatus, Status
from tests.support.status import COMMANDS, channel, status

NOW = datetime(2026, 11, 21, 7, 35, 2, tzinfo=UTC)


RELAY = RelayStatus(state="off", why="normal", problem=None, switches=0, interlocks=())


def seen_status(channels: int = 2, **changes: Any) -> Status:
    last = channel(quality=3, reasons=("STUCK_VALUE",))
    shown: dict[str, Any] = {
        "run": "now",
        "sampled": 80,
        "uptime_s": 8,
        "in_flight": 0,
        "outbox_records": 0,
        "relays": {"heater": RELAY},
        "commands": structs.replace(COMMANDS, results={"done": 2, "EXPIRED": 1}),
        "channels": {f"cup-{number:02}.wind_speed": last for number in range(channels)},
    }
    return status(**(shown | changes))


def counted(run: str, stored: int) -> RunCounts:
    """A run that has issued 30 readings."""
    return RunCounts(run, "running", 0, {"cup.wind_speed": 30}, stored)


SEEN = Observation(
    status=seen_status(),
    ends={"mqtt.wind_speed": 117, "mqtt.raw": 3, "gateway.dead-letter": 2},
    counts=TableCounts(
        rows=110, distinct_rows=110, synced=110, covered=110, statistics_rows=4, alerts=1,
        quarantined=9, quarantined_dead_letters=2, runs=[counted("earlier", 30), counted("now", 80)],
    ),
)  # fmt: skip


def picture(**changes: Any) -> Picture:
    states = {"jobs": State.STARTING, "mosquitto": State.UP, "kafka": State.DOWN, "gateway": State.UP}
    whole = Picture("mast-07", "sampling", 65.0, states, SEEN, True, ("Tables: here",))
    return replace(whole, **changes)


def drawn(shown: Picture, height: int = 24) -> list[str]:
    console = Console(width=80, height=height, file=io.StringIO(), force_terminal=False)
    with console.capture() as capture:
        console.print(render(shown, height, NOW))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_the_picture() -> None:
    lines = drawn(picture())
    assert lines[0].startswith("fieldgate demo mast-07  sampling")
    assert lines[0].endswith("01:05  Ctrl-C stops")
    assert lines[1] == "jobs starting   mosquitto up   kafka down   gateway up"
    assert lines[2] == "10.0 readings/s, sampled 80, in flight 0, uplink healthy, outbox 0"
    assert lines[3] == "Kafka 120 records; tables: readings 110, statistics 4, alerts 1, quarantine 9"
    assert lines[4] == "Relays: heater off; commands: done 2, EXPIRED 1"
    assert lines[6].split() == ["channel", "value", "unit", "quality", "time", "age", "reasons"]
    assert lines[7].split() == (
        ["cup-00.wind_speed", "7.235", "m/s", "suspect", "07:35:00", "2", "s", "STUCK_VALUE"]
    )
    assert lines[-1] == "Tables: here"


@pytest.mark.parametrize(("channels", "left_out"), [(11, 0), (12, 0), (13, 1), (200, 188)])
def test_it_fits_the_terminal(channels: int, left_out: int) -> None:
    lines = drawn(picture(seen=replace(SEEN, status=seen_status(channels))))
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    assert sum("wind_speed" in line for line in lines) == channels - left_out
    assert (f"… and {left_out} more" in lines) == (left_out > 0)


def test_before_anything_answers() -> None:
    down = {"jobs": State.STARTING, "gateway": State.WAITING}
    lines = drawn(picture(seen=Observation(), states=down))
    assert lines[2:4] == [
        "No gateway yet.",
        "Kafka – records; tables: readings 0, statistics 0, alerts 0, quarantine 0",
    ]
    assert lines[4] == "Relays: none; commands: none"
    assert "No readings yet." in lines


def test_lines_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    view = LineView(stream)
    with view.screen:
        view.show(picture(elapsed_s=1.0))
        view.show(picture(elapsed_s=2.0))
        view.show(picture(elapsed_s=5.0, phase="draining"))
    assert stream.getvalue().splitlines() == [
        "00:01 sampling",
        "Tables: here",
        "00:01 jobs is starting",
        "00:01 mosquitto is up",
        "00:01 kafka is down",
        "00:01 gateway is up",
        "00:05 draining",
        "00:05 10.0 readings/s, sampled 80, in flight 0, uplink healthy, outbox 0; "
        "Kafka 120 records; tables: readings 110, statistics 4, alerts 1, quarantine 9; "
        "Relays: heater off; commands: done 2, EXPIRED 1",
    ]


def test_the_last_picture_stays_on_the_terminal() -> None:
    console = Console(width=80, height=24, file=io.StringIO(), force_terminal=True)
    view = LiveView(console)
    with console.capture() as capture, view.screen:
        view.show(picture(phase="a"))
        view.show(picture(phase="draining"))
    assert "draining" in capture.get()


def test_complete() -> None:
    assert missing(SEEN) == []
    # Repeats in Kafka are nobody's readings.
    assert missing(replace(SEEN, ends={"mqtt.wind_speed": 119, "gateway.dead-letter": 2})) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"status": None}, ["the gateway does not answer"]),
        ({"ends": None}, ["Kafka does not answer"]),
        ({"counts": replace(SEEN.counts, runs=None)}, ["the tables are not counted yet"]),
        ({"status": seen_status(in_flight=3)}, ["3 messages are in flight in the gateway"]),
        ({"status": seen_status(outbox_records=4)}, ["4 records are in the outbox"]),
        (
            {"counts": replace(SEEN.counts, runs=[counted("earlier", 29), counted("now", 80)])},
            ["1 sampled readings are in no table"],
        ),
        ({"status": seen_status(sampled=82)}, ["2 sampled readings are in no table"]),
        ({"counts": replace(SEEN.counts, covered=100)}, ["10 readings are not in the statistics"]),
        (
            {"ends": {"mqtt.wind_speed": 117, "mqtt.raw": 9, "gateway.dead-letter": 5}},
            ["3 dead letters are not in quarantine"],
        ),
    ],
)
def test_incomplete(changes: dict[str, Any], expected: list[str]) -> None:
    assert missing(replace(SEEN, **changes)) == expected
