"""``fieldgate watch``: readings as they arrive in Kafka; with ``--sql`` what is computed of them."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from cloud.command_line import (
    OK,
    USAGE,
    CommandError,
    add_json,
    add_kafka,
    add_list,
    add_timeout,
    fail,
    kafka_of,
    positive,
    schemas_of,
)
from cloud.kafka.topic_scan import Latest, sparkline
from cloud.terminal import age_text, clock_text, plain_table, quality_text
from cloud.wire.fields import format_time
from cloud.wire.reading_records import Reading

if TYPE_CHECKING:
    from cloud.kafka.topic_scan import Tail

_Arrived = tuple[Reading, int]
"""With Kafka's time, microseconds since the epoch."""

_TURN_S: Final = 0.25
_LINES_AROUND: Final = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where Kafka is, which readings, and what is made of them."""
    add_kafka(parser, "the cluster")
    add_timeout(parser)
    add_list(parser, "--gateway", "gateways", "NAME", "only this one; * stands for any letters")
    add_list(parser, "--channel", "channels", "NAME", "only this one, such as cup-*.wind_speed")
    add_list(parser, "--quality", "qualities", "FLAG", "only readings of this flag: 1, 2, 3, 4 or 9", int)
    parser.add_argument(
        "--since", type=positive, default=60.0, metavar="S", help="begin so many seconds ago (default: 60)"
    )
    parser.add_argument(
        "--sql", metavar="SQL", help="DuckDB's, once a second over the table readings of the last --window"
    )
    parser.add_argument(
        "--window", type=positive, default=300.0, metavar="S", help="seconds of --sql (default: 300)"
    )
    parser.add_argument("--seconds", type=positive, metavar="S", help="end after so long")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Until interrupted. Raises CloudError, ConfigError, CommandError."""
    from cloud.kafka.topic_scan import Tail

    servers, properties, prefix = kafka_of(arguments)
    if servers is None:
        return fail("where is Kafka? --bootstrap-servers HOST:PORT or --cloud FILE", USAGE)
    view = _view(arguments)
    since_s = max(arguments.since, arguments.window if arguments.sql else 0.0)
    schemas = schemas_of(arguments)
    with closing(Tail(servers, properties, since_s, arguments.timeout, schemas, prefix)) as tail:
        _watch(tail, view, _filter(arguments), arguments.seconds or math.inf)
    return OK


def _filter(arguments: argparse.Namespace) -> Callable[[_Arrived], bool]:
    def matches(name: str, patterns: Sequence[str]) -> bool:
        return not patterns or any(fnmatchcase(name, each) for each in patterns)

    def wanted(arrived: _Arrived) -> bool:
        reading = arrived[0]
        return (
            matches(reading.gateway, arguments.gateways)
            and matches(reading.channel, arguments.channels)
            and (not arguments.qualities or reading.quality in arguments.qualities)
        )

    return wanted


def _view(arguments: argparse.Namespace) -> _Lines | _Table | _Answers:
    if arguments.sql is not None:
        return _Answers(arguments.sql, arguments.window)
    return _Table() if sys.stdout.isatty() and not arguments.json else _Lines(as_json=arguments.json)


def _watch(
    tail: Tail, view: _Lines | _Table | _Answers, wanted: Callable[[_Arrived], bool], seconds: float
) -> None:
    until_s = time.monotonic() + seconds
    if isinstance(view, _Lines):
        while time.monotonic() < until_s:
            view.take(filter(wanted, tail.read(_TURN_S)))
        return
    console = Console()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while time.monotonic() < until_s:
            view.take(filter(wanted, tail.read(_TURN_S)))
            live.update(view.drawn(console.height, datetime.now(UTC), _state(tail)), refresh=True)


def _state(tail: Tail) -> str:
    refused = f"{tail.refused} records were no readings" if tail.refused else ""
    unknown = (
        f"{tail.unknown} are Avro of an unknown schema: --cloud names the registry" if tail.unknown else ""
    )
    return "; ".join(filter(None, (tail.problem, refused, unknown)))


class _Lines:
    """A line a reading, for pipes; JSON with ``as_json``."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def take(self, readings: Iterable[_Arrived]) -> None:
        for each, _ in readings:
            at = format_time(each.time_us)
            if self._as_json:
                fields = {
                    "gateway": each.gateway, "channel": each.channel, "time": at, "value": each.value,
                    "unit": each.unit, "quality": each.quality, "reasons": each.reasons,
                }  # fmt: skip
                print(json.dumps(fields))
            else:
                value = "–" if each.value is None else f"{each.value:.6g} {each.unit}"
                print(at, each.gateway, each.channel, value, each.quality, *each.reasons)
        sys.stdout.flush()


class _Table:
    """A row a channel: its last reading, and a line of those before."""

    def __init__(self) -> None:
        self._latest = Latest()

    def take(self, readings: Iterable[_Arrived]) -> None:
        self._latest.take(readings)

    def drawn(self, height: int, now: datetime, state: str) -> RenderableType:
        table = plain_table("gateway", "channel", "value", "unit", "quality", "time", "age", "last ones", "",
                            right=("value", "age"))  # fmt: skip
        room = max(height - _LINES_AROUND, 1)
        shown = self._latest.in_order()
        for each, _, values in shown[:room]:
            at = format_time(each.time_us)
            table.add_row(
                each.gateway, each.channel, "–" if each.value is None else f"{each.value:.5g}", each.unit,
                quality_text(each.quality), clock_text(at), age_text(at, now),
                sparkline(values), " ".join(each.reasons),
            )  # fmt: skip
        left_out = len(shown) - room
        words = ("nothing yet" if not shown else "", f"and {left_out} more: --gateway, --channel"
                 if left_out > 0 else "", state)  # fmt: skip
        table.caption = Text("; ".join(filter(None, words)) or "Ctrl-C ends", style="dim")
        return table


class _Answers:
    """The answer to a query over the last minutes, made again each second. Raises CommandError."""

    def __init__(self, sql: str, window_s: float) -> None:
        try:
            from cloud.operate.window import Window
        except ModuleNotFoundError as error:
            raise CommandError("--sql needs the extra 'analyst': pip install 'fieldgate[analyst]'") from error
        self._window = Window(window_s)
        self._sql = sql
        self._shown: tuple[Sequence[str], list[tuple[Any, ...]]] = ((), [])
        self._at_s = -math.inf

    def take(self, readings: Iterable[_Arrived]) -> None:
        self._window.take(readings)
        if time.monotonic() >= self._at_s + 1.0:
            self._shown = self._window.answer(self._sql)
            self._at_s = time.monotonic()

    def drawn(self, height: int, now: datetime, state: str) -> RenderableType:
        columns, rows = self._shown
        table = plain_table(*columns)
        for row in rows[: max(height - _LINES_AROUND, 1)]:
            table.add_row(*("–" if each is None else _text(each) for each in row))
        table.caption = Text("; ".join(filter(None, (f"{now:%H:%M:%S} UTC", state))), style="dim")
        return table


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
