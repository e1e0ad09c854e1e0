"""``fieldgate simulate``: exit 0 when Kafka has all of it, 1 when not."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from cloud.errors import Undelivered
from cloud.kafka.producer import KafkaSink
from gateway.commands.arguments import OK, CommandError, add_kafka, count, kafka_of, positive
from gateway.commands.demo.layout import MAST
from gateway.commands.simulate.fleet import Fleet
from gateway.commands.tables import progress_bar
from gateway.config import load
from gateway.ports import Record

_DAY_S: Final = 86_400
_STALLED_S: Final = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How large a fleet, for how long, and which Kafka gets it."""
    parser.description = (
        "Fills Kafka with the past days of a fleet that never was: weather, outages, faults, late data. "
        "The jobs make a lake of it as of any other."
    )
    add_kafka(parser, "the cluster; its topics must be there (fieldgate provision topics)")
    add = parser.add_argument
    add("--gateways", type=count, default=10, metavar="N", help="masts, of 12 channels each (default: 10)")
    add("--days", type=positive, default=1.0, metavar="D", help="how many, up to now (default: 1)")
    add("--period", dest="period_s", type=count, default=60, metavar="S",
        help="seconds between two readings of a channel (default: 60)")  # fmt: skip
    add("--until", type=_moment, metavar="TIME", help="end of the last day, RFC 3339 (default: now)")
    add("--seed", type=int, default=1, metavar="N", help="the same seed makes the same fleet (default: 1)")
    add("--rate", type=positive, default=20_000.0, metavar="R",
        help="records a second at most (default: 20000)")  # fmt: skip


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-11-26T12:00:00Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def run(arguments: argparse.Namespace) -> int:
    """Send it all. Raises CommandError, ConfigError, CloudError."""
    servers, properties, prefix = kafka_of(arguments)
    if servers is None:
        raise CommandError("which Kafka? name it with --bootstrap-servers HOST:PORT, or --cloud FILE")
    now_s = time.time()
    until_s = now_s if arguments.until is None else arguments.until
    if until_s > now_s:
        raise CommandError("--until is yet to come: readings of the future are refused")
    period_s = arguments.period_s
    end_s = int(until_s) // period_s * period_s
    begin_s = end_s - max(1, round(arguments.days * _DAY_S / period_s)) * period_s
    fleet = Fleet(load(MAST, at_work=False), arguments.gateways, arguments.seed, period_s, begin_s, end_s)
    sink: KafkaSink[None] = KafkaSink(servers, "fieldgate-simulate", properties, prefix=prefix)
    sending = Sending(sink, arguments.rate)
    try:
        with progress_bar("periods of a mast") as progress:
            done = 0
            for periods, records in fleet.records():
                sending.send(records)
                done += periods
                progress(done, len(fleet))
            sending.finish()
    finally:
        sink.close()
    print(f"{sending.delivered:,} records of {arguments.gateways} masts are in Kafka")
    return OK


class Sending:
    """Records to Kafka, at most so many a second; each is confirmed, or it ends."""

    def __init__(self, sink: KafkaSink[None], rate: float) -> None:
        self._sink, self._rate = sink, rate
        self._begun_s = time.monotonic()
        self._moved_s = self._begun_s
        self._given = 0
        self.delivered = 0

    def send(self, records: Iterable[Record]) -> None:
        """Hands records over; waits where there are too many. Raises CommandError."""
        for record in records:
            while not self._sink.send(record, None):
                self._poll(0.1)
            self._given += 1
        self._poll(0.0)
        while (ahead_s := self._given / self._rate - (time.monotonic() - self._begun_s)) > 0.05:
            self._poll(min(ahead_s, 0.5))

    def finish(self) -> None:
        """Waits until Kafka has confirmed them all. Raises CommandError."""
        while self.delivered < self._given:
            self._poll(0.1)

    def _poll(self, timeout_s: float) -> None:
        outcomes = self._sink.poll(timeout_s)
        now_s = time.monotonic()
        failed: Undelivered | None = next((problem for _, problem in outcomes if problem is not None), None)
        if failed is not None:
            raise CommandError(
                f"Kafka doesn't take a record: {failed.problem}; "
                "are the topics there? fieldgate provision topics makes them"
            )
        self.delivered += len(outcomes)
        if outcomes or self.delivered == self._given:
            self._moved_s = now_s
        elif now_s > self._moved_s + _STALLED_S:
            reason = self._sink.problem or f"nothing was confirmed for {_STALLED_S:g} s"
            raise CommandError(f"Kafka doesn't take the records: {reason}")
