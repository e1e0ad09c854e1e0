"""A fortnight of a fleet through Kafka, the jobs, mails and pages: can a stranger name the faulty masts?

    python -m tests.bench.trial --out trial --truth trial-truth.txt

writes what an operator sees, ``pages/`` and ``mails/``, and beside it the truth. The records are those of
``tests.support.fortnight``, on the fourteen days up to now, in Kafka's wire formats. Kafka, the jobs, the
packaged rules, ``notify``, SMTP server, dashboard and browser are real. Only time is made: the topics take
the producer's time, and the jobs' clock goes on by a step once its records are in Kafka: of ``alerts`` some
hours, of the jobs that fill the tables a day (``--tables``). So ``max_age`` is as long, as with a metered
uplink; nothing else of the packaged rules is changed. ``notify`` has a clock that is moved to each alert's
own time: it joins in one mail what it would join.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from aiosmtpd.controller import Controller
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from cloud.config import load
from cloud.kafka.provision import TOPICS
from cloud.kafka.readers import TopicReader, TopicRecord
from cloud.local.kafka_broker import LocalBroker
from cloud.local.process import free_port
from cloud.notify import Opens, Sender, Sent as SentAlerts, Target, parse_alert
from cloud.wire.quantities import QUANTITIES
from cloud.wire.reading_records import ALERTS_TOPIC
from spark_jobs.alerting.rules import DEFAULT_RULES
from spark_jobs.jobs.alerts import AlertsJob
from spark_jobs.jobs.ingest import IngestJob, RecordsJob
from spark_jobs.jobs.maintain import write_trends
from spark_jobs.jobs.mast import MastJob
from spark_jobs.jobs.presence import PresenceJob
from spark_jobs.jobs.statistics import StatisticsJob
from spark_jobs.platform import intervals, schemas
from spark_jobs.platform.session import running_session
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table
from spark_jobs.streaming.query import BatchGate, Job, Timer, start_query
from tests.integration.test_dashboard_login import served
from tests.spark.running import QUICK_JAVA, QUICK_PLANS
from tests.support.browser import Chromium
from tests.support.fleet_lake import write
from tests.support.fortnight import DAYS, Mast, fleet
from tests.support.servers import eventually

log = logging.getLogger("trial")

_S: Final = 1_000_000
_HOUR_US: Final = 3600 * _S
_DAY_US: Final = 24 * _HOUR_US
_TEXT: Final = """(() => {
    const words = [...document.querySelectorAll('[role=img], .chart')].map(
        (each) => each.getAttribute('aria-label')).filter(Boolean);
    return [document.title, location.pathname, '', document.body.innerText, '', ...words].join('\\n');
})()"""


class Clock:
    """The jobs' clock, microseconds since the epoch; it stands still until it is moved."""

    def __init__(self, at_us: int) -> None:
        self.at_us = at_us

    def moment(self) -> datetime:
        return intervals.moment_of(self.at_us)


class Letters:
    """An SMTP server that keeps each mail as a file, dated by the made-up clock."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder, self._clock, self.days = folder, clock, Counter[str]()
        folder.mkdir(parents=True)

    async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's
        mail, now = message_from_bytes(envelope.content, policy=policy.default), self._clock.moment()
        del mail["Date"]
        mail["Date"] = format_datetime(now)
        self.days[f"{now:%Y-%m-%d}"] += 1
        number = sum(self.days.values())
        (self._folder / f"{now:%m%d-%H%M}-{number:03d}.eml").write_bytes(mail.as_bytes())
        return "250 OK"


class OneByOne:
    """Alerts as ``notify`` reads them, each when the clock is at its own time."""

    def __init__(self, reader: TopicReader) -> None:
        self._reader, self.next = reader, list[TopicRecord]()
        self.begun, self.committed = reader.begun, reader.committed

    def read(self, _timeout_s: float) -> TopicRecord | None:
        return self.next.pop() if self.next else None

    def commit(self, _positions: object) -> None:
        """The run is one: nothing is read again."""

    def waiting(self, clock: Clock) -> list[tuple[int, TopicRecord]]:
        """All that is in Kafka by now, each with the time at which its alert happened, at most now."""
        found = []
        # On a busy machine what was produced last comes late.
        while (record := self._reader.read(3.0)) is not None:
            alert = parse_alert(record.value)
            if alert is not None:
                found.append((min(intervals_us(alert.reported_at), clock.at_us), record))
        return sorted(found, key=lambda each: each[0])


def intervals_us(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * _S)


class Trial:
    """The fleet, the pipeline it sends to, and the people who get its alerts."""

    def __init__(self, place: Path, masts: Sequence[Mast], given: argparse.Namespace, servers: str) -> None:
        self._masts, self._step_us, self._tables_us = masts, given.step * _HOUR_US, given.tables * _HOUR_US
        self.clock = Clock(masts[0].start_us)
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "batch.size": 1_000_000,
                                   "queue.buffering.max.messages": 1_000_000})  # fmt: skip
        rules = place / "rules.toml"
        minutes = given.tables * 60 + 5
        rules.write_text(DEFAULT_RULES.read_text().replace('max_age = "5m"', f'max_age = "{minutes}m"'))
        self.settings = Settings(
            jobs=("ingest",), bootstrap_servers=servers, lake=str(place / "lake"),
            checkpoints=str(place / "checkpoints"), rules=str(rules), once=True, trigger_s=0.1,
            interval_s=given.interval * 60,
            conf=(("spark.driver.extraJavaOptions", f"{QUICK_JAVA} -Xms1g -Xmn400m"), *QUICK_PLANS),
        )  # fmt: skip

    def write_history(self, spark: SparkSession) -> None:
        """The months before: interval statistics, so that trends have a past."""
        ensure_table(spark, self.settings, schemas.STATISTICS)
        every, interval_s = self.settings.interval_s // 600, self.settings.interval_s
        parts = [
            (mast.gateway, name, rows[:, ::every])
            for mast in self._masts for name, rows in mast.history.items()
        ]  # fmt: skip
        length, quantities = len(parts[0][2][0]), [name.partition(".")[2] for _, name, _ in parts]
        first = np.datetime64(self._masts[0].start_us - length * interval_s * _S, "us")
        starts = np.tile(first + np.arange(length) * np.timedelta64(interval_s, "s"), len(parts))
        n = len(starts)

        def each(values: Sequence[str]) -> list[str]:
            return [value for value in values for _ in range(length)]

        write(Path(self.settings.lake), schemas.STATISTICS, {
            "gateway": each([gateway for gateway, _, _ in parts]),
            "channel": each([name for _, name, _ in parts]), "quantity": each(quantities),
            "unit": each([QUANTITIES[name].unit for name in quantities]),
            "interval_s": [interval_s] * n, "interval_start": starts, "date": starts.astype("datetime64[D]"),
            "avg": np.concatenate([rows[0] for _, _, rows in parts]),
            "sd": np.concatenate([rows[1] for _, _, rows in parts]),
            "count": [2] * n, "expected": [2] * n, "n_good": [2] * n, "recovery": np.ones(n),
            "quality": [1] * n, "period_ms": [300_000] * n, "version": [1] * n,
            "updated_at": starts + np.timedelta64(interval_s + 60, "s"),
        })  # fmt: skip

    def run(self, spark: SparkSession, target: Target, alerts: OneByOne, sent: SentAlerts) -> None:
        """All of the fortnight, a step at a time."""
        jobs: list[Job] = [each(spark, self.settings) for each in (RecordsJob, IngestJob, StatisticsJob)]
        judge = AlertsJob(spark, self.settings)
        # It counts as started long ago, else it would wait with silence.
        judge._started_s = 0.0
        start_us, end_us = self.clock.at_us, self.clock.at_us + DAYS * _DAY_US
        while self.clock.at_us < end_us:
            begun_s, begin_us = time.monotonic(), self.clock.at_us
            self.clock.at_us = min(begin_us + self._step_us, end_us)
            count, is_due = self._produce(begin_us), (self.clock.at_us - start_us) % self._tables_us == 0
            for job in jobs if is_due else ():
                self._to_end(job)
            if is_due:
                write_trends(spark.newSession(), self.settings, self.clock.moment())
            judge._timers = {name: Timer(0.0 if is_due else 1e9, at_once=is_due) for name in judge._timers}
            self._to_end(judge, is_due)
            judge.tick()
            found = self._notify(target, alerts, sent)
            took_s = time.monotonic() - begun_s
            log.info("%s: %d records, %d alerts, %.1f s", self.clock.moment(), count, found, took_s)
        jobs += [PresenceJob(spark, self.settings), MastJob(spark, self.settings)]
        for job in jobs[-2:]:
            self._to_end(job)
        for job in (*jobs, judge):
            job.close()

    def _produce(self, begin_us: int) -> int:
        """Kafka's time of a record is when it comes, and of each channel they come in order."""
        found = [each for mast in self._masts for each in mast.sent(begin_us, self.clock.at_us)]
        for each in sorted(found, key=lambda each: each.at_us):
            headers: list[tuple[str, str | bytes | None]] = [("replayed", b"1")] if each.is_late else []
            at_ms = each.at_us // 1000
            self._producer.produce(each.topic, each.value, each.key, timestamp=at_ms, headers=headers)
            self._producer.poll(0)
        assert self._producer.flush(120) == 0
        return len(found)

    def _to_end(self, job: Job, finish: bool = True) -> None:
        query = start_query(self.settings, job, BatchGate())
        query.awaitTermination()
        assert query.exception() is None, query.exception()
        if finish:
            job.finish()

    def _notify(self, target: Target, alerts: OneByOne, sent: SentAlerts) -> int:
        """Each alert at its time, and between them what has waited long enough for others."""
        reached_us, waiting = self.clock.at_us, alerts.waiting(self.clock)
        turns = [(at_us, [record]) for at_us, record in waiting]
        turns += [(at_us + 31 * _S, []) for at_us, _ in waiting]
        for at_us, records in sorted(turns, key=lambda each: each[0]):
            self.clock.at_us, alerts.next = at_us, records
            target.turn(alerts, sent)  # type: ignore[arg-type] # what it reads of a TopicReader
        self.clock.at_us = reached_us
        return len(waiting)


def make_topics(servers: str) -> None:
    """As ``provision`` makes them, but with the producer's time, and kept."""
    changed = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
    topics = [
        NewTopic(name, num_partitions=1, replication_factor=1, config={**given, **changed})
        for name, given in TOPICS.items()
    ]
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics(topics).values():
        made.result(30)


def write_pages(place: Path, folder: Path, masts: Sequence[Mast]) -> None:
    """The dashboard's pages as a browser shows them, and the words of their charts."""
    folder.mkdir(parents=True)
    (place / "cloud.toml").write_text('[lake]\npath = "lake"\n')
    with (
        served(place, "cloud.toml", "127.0.0.1", quiet=False) as port,
        Chromium(place / "profile") as browser,
    ):
        paths = ["/", "/alerts", "/pipeline", *(f"/mast/{mast.gateway}" for mast in masts)]
        for path in paths:
            page = browser.page(1440, 2400)
            page.open(f"http://127.0.0.1:{port}{path}")
            eventually(partial(page.run, "window.did_handshake && window.socket?.connected"), 60)
            texts = [""]

            def settled(page: Any = page, texts: list[str] = texts) -> bool:
                texts.append(page.run(_TEXT))
                return len(texts) > 4 and len(set(texts[-3:])) == 1 and len(texts[-1]) > 300

            eventually(settled, 60, poll_s=0.5)
            name = re.sub(r"\W+", "-", path.strip("/")) or "fleet"
            (folder / f"{name}.txt").write_text(texts[-1] + "\n")
            page.picture(folder / f"{name}.png", whole=True)
            page.close()


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--truth", type=Path, required=True)
    arguments.add_argument("--work", type=Path, help="where Kafka and the lake are; default: a new folder")
    arguments.add_argument("--masts", type=int, default=20)
    arguments.add_argument("--seed", type=int, default=43)
    arguments.add_argument("--step", type=int, default=6, help="hours after which readings are judged")
    arguments.add_argument("--tables", type=int, default=24, help="hours after which the tables are filled")
    arguments.add_argument("--interval", type=int, default=10, help="minutes of statistics")
    given = arguments.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger("mail.log").setLevel(logging.WARNING)
    place = given.work or Path(tempfile.mkdtemp(prefix="fieldgate-trial-"))
    end = datetime.now(UTC).replace(second=0, microsecond=0)
    masts = fleet(given.seed, end.replace(minute=end.minute // 10 * 10), given.masts)
    given.truth.write_text("".join(
        f"{mast.gateway}: {mast.kind or 'nothing'}"
        + (f" from {intervals.moment_of(mast.begins_us):%Y-%m-%d %H:%M} UTC on\n" if mast.begins_us else "\n")
        for mast in masts
    ))  # fmt: skip
    with LocalBroker(place / "kafka") as broker:
        servers = broker.bootstrap_servers
        make_topics(servers)
        trial = Trial(place, masts, given, servers)
        letters = Letters(given.out / "mails", trial.clock)
        mailing = Controller(letters, hostname="127.0.0.1", port=free_port())
        mailing.start()
        (place / "notify.toml").write_text(
            f'[kafka]\nbootstrap_servers = "{servers}"\n[notify.olga]\nurl = "mailto://127.0.0.1:{mailing.port}/'
            '?from=fieldgate@example.org&to=olga@example.org&mode=insecure&format=text"\n'
        )
        (place / "notify.toml").chmod(0o600)
        config = load(place / "notify.toml")
        ticks = itertools.count(0.0, 0.25)
        reader = TopicReader(servers, {}, "olga", {ALERTS_TOPIC: "earliest"})
        wall = SimpleNamespace(time_ns=lambda: trial.clock.at_us * 1000)
        with (
            closing(reader), closing(SentAlerts(place / "sent.db", "olga")) as sent,
            patch.object(intervals, "time", wall), running_session(trial.settings) as spark,
        ):  # fmt: skip
            target = Target(
                "olga", config.notify["olga"], Sender("olga", config), Opens(lambda: sent, lambda: reader),
                trial.clock.moment, monotonic=lambda: next(ticks),
            )  # fmt: skip
            trial.write_history(spark)
            trial.run(spark, target, OneByOne(reader), sent)
        mailing.stop()
    write_pages(place, given.out / "pages", masts)
    for day, count in sorted(letters.days.items()):
        sys.stdout.write(f"{day}: {count} mails\n")


if __name__ == "__main__":
    main()
