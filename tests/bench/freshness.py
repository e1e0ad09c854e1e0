"""How old a reading is when it can be queried, and how long after its end an interval's statistics can be.

    python -m tests.bench.freshness --seconds 660

Runs ``--jobs`` as one process, produces ``--rate`` readings a second as that many
channels of 1 Hz (``--period 60``: as sixty times as many, each once a minute), and watches the tables' logs:
a reading is in ``readings`` when the commit that adds its row is there, counted from Kafka's timestamp; an
interval is in ``statistics`` when its closed row is, counted from its end. What arrived while the program
started, and for ``--settle`` seconds after the first commit, isn't counted. Counts longer than an interval,
because all channels' intervals end at once. Prints rows for docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cloud.local.kafka_broker import LocalBroker
from cloud.wire.reading_records import Reading, encode_reading, reading_key
from tests.bench.figures import cpu_s, percentile, pss_mib
from tests.support.servers import eventually

_TOPIC: Final = "mqtt.wind_speed"
_OF_A_GATEWAY: Final = 10
_STEP_S: Final = 0.1


class Channels(threading.Thread):
    """Produces one reading of each channel a period; how many of them Kafka has taken."""

    def __init__(self, bootstrap_servers: str, channels: int, period_s: int) -> None:
        super().__init__()
        self._period_s = period_s
        self._names = [
            (f"mast-{n // _OF_A_GATEWAY:03}", f"cup-{n % _OF_A_GATEWAY}.wind_speed") for n in range(channels)
        ]
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "linger.ms": "5", "compression.type": "zstd"}
        )
        self._ended = threading.Event()
        self.taken = 0

    def run(self) -> None:
        steps = round(self._period_s / _STEP_S)
        begin_s = time.time()
        step = 0
        while not self._ended.wait(max(begin_s + step * _STEP_S - time.time(), 0)):
            at_us = (int(begin_s) + step // steps * self._period_s) * 1_000_000
            for gateway, channel in self._names[step % steps :: steps]:
                reading = Reading(
                    gateway, channel, "wind_speed", "m/s", at_us, 1000 * self._period_s, 7.235, 9.0, "Hz", 1,
                    (), "run-1", step // steps + 1, "synced", "5d1c0a7e",
                )  # fmt: skip

                def delivered(error: object, message: Message) -> None:
                    assert error is None, error
                    self.taken += 1

                self._producer.produce(
                    _TOPIC, encode_reading(reading), reading_key(gateway, channel), on_delivery=delivered
                )
            self._producer.poll(0)
            step += 1
        assert self._producer.flush(60) == 0

    def stop(self) -> None:
        """Ends when all is delivered."""
        self._ended.set()
        self.join()


class Log:
    """Follows the commits of a table."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._next = 0

    def news(self, columns: list[str]) -> Iterator[tuple[float, Any]]:
        """When each new commit was made (s) and the rows in the files it added."""
        while (commit := self._table / "_delta_log" / f"{self._next:020}.json").exists():
            self._next += 1
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            # Not those that a compaction writes again.
            added = [each["add"] for each in actions if "add" in each and each["add"]["dataChange"]]
            files = [self._table / each["path"] for each in added]
            tables = [pq.ParquetFile(file).read(columns=columns) for file in files if file.exists()]
            if tables:
                yield commit.stat().st_mtime, pa.concat_tables(tables)


class Watch:
    """Ages of readings and of closed rows in a run, by table."""

    def __init__(self, lake: Path, interval_s: int) -> None:
        self._logs = {name: Log(lake / name) for name in ("readings", "statistics")}
        self._interval_s = interval_s
        self._closed: set[tuple[str, str, int]] = set()
        # Pairs of the time that counts (Kafka's, or the interval's end) and age, in seconds.
        self.ages: dict[str, list[tuple[float, float]]] = {name: [] for name in self._logs}
        self.first_s: float | None = None
        self.polled_s = 0.0

    def poll(self) -> Self:
        """Takes up new commits."""
        self.polled_s = time.time()
        for visible_s, rows in self._logs["readings"].news(["kafka_time"]):
            self.first_s = self.first_s or visible_s
            times = [us / 1e6 for us in _microseconds(rows["kafka_time"])]
            self.ages["readings"] += [(at, visible_s - at) for at in times]
        keys = ["gateway", "channel", "interval_start"]
        for visible_s, rows in self._logs["statistics"].news([*keys, "version"]):
            closed = rows.filter(pc.greater(rows["version"], 0))
            starts = [us // 1_000_000 for us in _microseconds(closed["interval_start"])]
            names = (closed[name].to_pylist() for name in keys[:2])
            # A commit brings the rows again that share a file with changed ones.
            new = set(zip(*names, starts, strict=True)) - self._closed
            self._closed |= new
            ends = [start + self._interval_s for _, _, start in new]
            self.ages["statistics"] += [(end, visible_s - end) for end in ends]
        return self

    def closed_at(self, end_s: float) -> int:
        """How many channels' intervals of this end are closed."""
        return sum(start + self._interval_s == end_s for _, _, start in self._closed)


def _microseconds(times: Any) -> list[int]:
    return list(times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64()).to_pylist())


def main() -> int:
    parser = argparse.ArgumentParser(description="age of readings when they are in the tables")
    parser.add_argument("--rate", type=int, default=1000, metavar="N", help="readings a second")
    parser.add_argument("--period", type=int, default=1, metavar="S", help="of each channel (default: 1)")
    parser.add_argument("--seconds", type=float, default=660.0, help="that count")
    parser.add_argument("--settle", type=float, default=30.0, help="seconds after the first commit")
    parser.add_argument(
        "--interval", type=int, default=600, metavar="S", help="of the statistics (default: 600)"
    )
    parser.add_argument("--trigger", default="2s")
    parser.add_argument("--jobs", nargs="+", default=["ingest", "statistics"], metavar="JOB")
    options = parser.parse_args()
    count = options.rate * options.period
    with tempfile.TemporaryDirectory(prefix="bench-") as name, LocalBroker(Path(name) / "kafka") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(_TOPIC, num_partitions=4, replication_factor=1)])[_TOPIC].result(30)
        lake = Path(name) / "lake"
        command = [sys.executable, "-m", "spark_jobs", "run", *options.jobs, "--lake", str(lake)]
        command += ["--bootstrap-servers", broker.bootstrap_servers, "--trigger", options.trigger]
        command += ["--interval", f"{options.interval}s"]
        with (Path(name) / "jobs.log").open("w") as log, subprocess.Popen(command, stderr=log) as jobs:
            channels = Channels(broker.bootstrap_servers, count, options.period)
            watch = Watch(lake, options.interval)
            channels.start()
            try:
                first_s = eventually(lambda: watch.poll().first_s, 180, poll_s=0.2)
                from_s = first_s + options.settle
                until_s = from_s + options.seconds
                eventually(lambda: watch.poll().polled_s >= from_s, options.settle + 60, poll_s=0.2)
                used_s, before = cpu_s(jobs.pid), channels.taken
                memory = [0.0]

                def has_passed() -> bool:
                    memory.append(pss_mib(jobs.pid))
                    return bool(watch.poll().polled_s >= until_s)

                eventually(has_passed, options.seconds + 60, poll_s=0.5)
                used_s, readings = cpu_s(jobs.pid) - used_s, channels.taken - before
                channels.stop()
                last_s = until_s // options.interval * options.interval
                # A short run has no interval's end.
                closed = count if last_s > first_s else 0
                eventually(
                    lambda: (len(watch.poll().ages["readings"]), watch.closed_at(last_s)),
                    300,
                    until=lambda there: there[0] >= channels.taken and there[1] >= closed,
                    poll_s=0.2,
                )
            finally:
                channels.stop()
                jobs.send_signal(signal.SIGTERM)
                jobs.wait(60)
    whats = {"readings": "readings, from Kafka to", "statistics": "closed intervals, from their end to"}
    for table, ages in watch.ages.items():
        if not (counted := sorted(age for at, age in ages if from_s <= at < until_s)):
            continue
        p50, p99 = percentile(counted, 0.5), percentile(counted, 0.99)
        what = f"{len(counted):,} {whats[table]} `{table}` at {options.rate:,}/s: p50, p99, most"
        sys.stdout.write(f"| {what} | {p50:.1f} s, {p99:.1f} s, {counted[-1]:.1f} s |\n")
    used = f"{used_s / readings * 1e6:.1f} us, {used_s / options.seconds:.2f} cores, {max(memory):,.0f} MiB"
    sys.stdout.write(f"| CPU of all jobs a reading, cores, most memory | {used} |\n")
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    sys.stdout.write(f"| load of the machine, 1, 5 and 15 minutes | {load} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
