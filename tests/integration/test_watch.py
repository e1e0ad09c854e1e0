"""``fieldgate watch``: readings on their way, as lines, as a table and as SQL's answers."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer
from rich.console import Console

from cloud.errors import CloudError
from cloud.kafka.latest import Latest, sparkline
from cloud.kafka.topic_scan import Tail
from cloud.operate.watch import _Table
from cloud.operate.window import Window
from cloud.wire.reading_records import Reading, encode_reading
from gateway.cli import main
from tests.support.servers import eventually, unique_name

TOPIC = "mqtt.wind_speed"


def reading(gateway: str, seq: int, value: float | None = 7.25, quality: int = 1) -> Reading:
    return Reading(
        gateway, "cup-50m-a.wind_speed", "wind_speed", "m/s", time.time_ns() // 1000, 1000, value, None, None,
        quality, (), "r1", seq, "synced", None,
    )  # fmt: skip


def produce(servers: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        # By one key into one partition: they come in this order.
        producer.produce(TOPIC, value, b"mast")
    assert producer.flush(20) == 0


@contextmanager
def watching(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "gateway.cli", "watch", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_lines_begin_a_while_ago_and_go_on_until_interrupted(provisioned: str) -> None:
    gateway = unique_name("mast")
    produce(provisioned, b"{", *(encode_reading(reading(gateway, seq)) for seq in (1, 2)))
    with watching("--bootstrap-servers", provisioned, "--gateway", gateway, "--json") as process:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        wrong = reading(unique_name("other"), 1), reading(gateway, 3, None, 9)
        produce(provisioned, *map(encode_reading, wrong))
        lines.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    assert [(each["gateway"], each["value"], each["quality"]) for each in lines] == [
        (gateway, 7.25, 1), (gateway, 7.25, 1), (gateway, None, 9),
    ]  # fmt: skip


def test_a_query_over_the_last_minutes(provisioned: str) -> None:
    gateway = unique_name("mast")
    produce(provisioned, *(encode_reading(reading(gateway, seq, float(seq))) for seq in range(1, 5)))
    sql = f"SELECT count(*), avg(value) FROM readings WHERE gateway = '{gateway}'"  # noqa: S608 - of ours
    window = Window(300.0)
    with closing(Tail(provisioned, {}, 300.0, 10.0)) as tail:

        def answer() -> object:
            window.take(tail.read(0.1))
            return window.answer(sql)[1]

        eventually(answer, until=lambda rows: rows == [(4, 2.5)])
    window.take([(reading(gateway, 5), time.time_ns() // 1000 - 301_000_000)])
    assert window.answer(sql)[1] == [(4, 2.5)]
    with pytest.raises(CloudError, match=r"^Parser Error: syntax error"):
        window.answer("SELEC 1")


def test_a_table_has_the_last_reading_of_each_channel() -> None:
    table = _Table()
    now_us = time.time_ns() // 1000
    table.take([(reading("mast-07", seq, float(seq)), now_us) for seq in (1, 2, 3)])
    table.take([(reading("mast-08", 1, None, 9), now_us)])
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table.drawn(24, datetime.now(UTC), "3 records were no readings"))
    text = console.export_text()
    assert "mast-07  cup-50m-a.wind_speed      3  m/s   good" in text
    assert "▁▅█" in text
    assert "mast-08  cup-50m-a.wind_speed      –  m/s   missing" in text
    assert "3 records were no readings" in text


def test_what_is_held_of_a_channel_has_a_bound() -> None:
    latest = Latest()
    latest.take((replace(reading("mast-07", seq), extra={"more": "x" * 60_000}), 0) for seq in (1, 2))
    (shown,) = latest.of("mast-07").values()
    assert (shown.reading.seq, shown.reading.extra) == (2, None)


def test_bars() -> None:
    assert sparkline([]) == ""
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    # Of doubles that readings may have: a difference that is none, and one that divides nothing.
    assert sparkline([-1.7e308, 1e307, 1.7e308]) == "▁▅█"
    assert sparkline([-5e-324, 0.0]) == sparkline([0.0, 5e-324]) == "▁▁"


def test_what_is_of_the_future_is_refused_as_the_jobs_do(provisioned: str) -> None:
    gateway = unique_name("mast")
    future = time.time_ns() // 1000 + 365 * 86_400_000_000
    # Else it would be a channel's newest for a year.
    given = replace(reading(gateway, 1, 99.0), time_us=future), reading(gateway, 2, 6.0)
    produce(provisioned, *map(encode_reading, given))
    found: list[float | None] = []
    with closing(Tail(provisioned, {}, 300.0, 10.0)) as tail:

        def values() -> list[float | None]:
            found.extend(each.value for each, _ in tail.read(0.1) if each.gateway == gateway)
            return found

        eventually(values, until=lambda each: 6.0 in each)
        assert found == [6.0]
        assert tail.refused >= 1


def test_what_is_wrong_is_one_line(nowhere: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch"]) == 2
    assert main(["watch", "--bootstrap-servers", nowhere, "--timeout", "0.3"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == "fieldgate: where is Kafka? --bootstrap-servers HOST:PORT or --cloud FILE"
    assert second.startswith(f"fieldgate: no answer from Kafka at {nowhere}: ")
