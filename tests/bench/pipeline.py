"""Kafka to tables, cold: the jobs beside a hundred hand-written lines and a bare Spark query.

    python -m tests.bench.pipeline --records 1000000 --rounds 3

Each system reads the same topic to its end, in a process started for it, and stores each reading once: raw
readings, rejects and ten-minute statistics (the bare query makes neither of the last two, and keeps repeats
and garbage). 5 % of the readings come twice, 2 % late, and 0.1 % of the records are garbage. What is in the
tables is compared with what was produced. Prints rows for docs/performance.md: seconds, processor time of all
processes (not Kafka's) a record, memory, and what is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

import duckdb
import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from deltalake import DeltaTable

from cloud.local.kafka_broker import LocalBroker
from spark_jobs.platform.session import spark_session
from spark_jobs.platform.settings import Settings
from tests.bench.figures import cpu_s, pss_mib
from tests.bench.load import CHANNELS, DAY_US, bare, payloads
from tests.support.servers import eventually

_TOPIC: Final = "mqtt.wind_speed"
_TWICE, _LATE, _GARBAGE = 20, 50, 1000
"""One record of so many comes twice, is late, or has garbage after it."""
_COMES_AGAIN: Final = 30 * len(CHANNELS)
"""Records after which a repeat follows: half a minute."""
_EXPECTED: Final = """
    create table expected as select gateway, channel, seq, epoch_us(time_bucket(interval 10 minutes,
        make_timestamp($day_us + seq * 1000000))) as start_us, 0.765 * (seq % 29) + 0.35 as value
    from channels, (select unnest(range(1, $last + 1)) as seq)
    where (seq - 1) * $channels + number < $records
"""
_READINGS: Final = """
    select count(*) as rows, count(distinct (gateway, channel, run, seq)) as readings,
        count(*) filter (abs(value - (0.765 * (seq % 29) + 0.35)) > 1e-9) as wrong from readings
"""
# The jobs don't average a pressure of 8 kPa: there is none on Earth.
_STATISTICS: Final = """
    with wanted as (select gateway, channel, start_us, count(*) as n, avg(value) as mean,
        stddev_samp(value) as sd from expected where channel not like '%.pressure' group by all)
    select count(*) filter (found.avg is null), count(*) filter (found.count <> n
        or abs(found.avg - mean) > 1e-6 or abs(found.sd - wanted.sd) > 1e-6)
    from wanted left join found using (gateway, channel, start_us)
"""


def records_of(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Key and payload of so many readings in the order in which Kafka gets them, repeats and garbage too."""
    late: list[tuple[bytes, bytes]] = []
    again: dict[int, tuple[bytes, bytes]] = {}
    for number, record in enumerate(payloads(count, 1)):
        if number % _LATE == 1:
            late.append(record)
        else:
            yield record
            if number % _TWICE == 0:
                again[number + _COMES_AGAIN] = record
        if number in again:
            yield again.pop(number)
        if number % _GARBAGE == 0:
            yield record[0], record[1][:-9]
    yield from late
    yield from again.values()


def produce(bootstrap_servers: str, count: int) -> int:
    """Fills the topic; how many records."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(_TOPIC, num_partitions=4, replication_factor=1)])[_TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "compression.type": "zstd", "linger.ms": 20})
    produced = 0
    for key, payload in records_of(count):
        eventually(lambda: _taken(producer, key, payload), 60)  # noqa: B023 - called here
        produced += 1
    assert producer.flush(120) == 0
    return produced


def _taken(producer: Producer, key: bytes, payload: bytes) -> bool:
    with suppress(BufferError):
        producer.produce(_TOPIC, payload, key)
        producer.poll(0)
        return True
    producer.poll(0.1)
    return False


@dataclass(frozen=True)
class Took:
    """One run: seconds and the processor's seconds of it, and the most proportional memory, in MiB."""

    seconds: float
    cpu_s: float
    memory_mib: float
    problems: str = ""


def run(command: Sequence[str], log: Path) -> Took:
    """Runs a command, and follows the processes below it."""
    begin_s, spent_s, memory, next_s = time.monotonic(), 0.0, 0.0, 0.0
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        while process.poll() is None:
            with suppress(psutil.NoSuchProcess):
                spent_s = max(spent_s, cpu_s(process.pid))
                # Seldom: a process stands still while its pages are counted.
                if time.monotonic() >= next_s:
                    memory, next_s = max(memory, pss_mib(process.pid)), time.monotonic() + 2
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.25)
    assert process.returncode == 0, log.read_text()[-3000:]
    return Took(time.monotonic() - begin_s, spent_s, memory)


def problems(directory: Path, records: int) -> str:
    """What is wrong in the tables that a system has made; nothing where all is right."""
    database = duckdb.connect()
    channels = [(*names, number) for number, names in enumerate(CHANNELS)]
    database.execute("create table channels (gateway text, channel text, number int)")
    database.executemany("insert into channels values (?, ?, ?)", channels)
    size = {"records": records, "channels": len(CHANNELS), "last": records // len(CHANNELS) + 1}
    database.execute(_EXPECTED, {**size, "day_us": DAY_US})
    database.register("readings", DeltaTable(str(directory / "readings")).to_pyarrow_dataset())
    [(rows, readings, wrong)] = database.execute(_READINGS).fetchall()
    found = {"missing": records - readings, "twice": rows - readings, "wrong": wrong}
    if (directory / "statistics").exists():
        database.register("made", DeltaTable(str(directory / "statistics")).to_pyarrow_dataset())
        database.execute("create view found as select *, epoch_us(interval_start) as start_us from made")
        [(missing, wrong)] = database.execute(_STATISTICS).fetchall()
        aside = str(directory / "quarantine")
        rejects = DeltaTable(aside).count() if DeltaTable.is_deltatable(aside) else 0
        found |= {"intervals missing": missing, "intervals wrong": wrong}
        found["rejects too few"] = len(range(0, records, _GARBAGE)) - rejects
    return ", ".join(f"{number:,} {what}" for what, number in found.items() if number)


def commands(servers: str, directory: Path, conf: Sequence[str]) -> dict[str, list[str]]:
    """What to run, by system; each has a directory of its own for its tables."""
    python = sys.executable
    jobs = [python, "-m", "spark_jobs", "run", "ingest", "statistics", "--once"]
    jobs += ["--bootstrap-servers", servers]
    jobs += [word for each in conf for word in ("--conf", each)]
    return {
        "by hand": [python, "-m", "tests.bench.hand_pipeline", servers, str(directory)],
        "bare Spark": [python, "-m", "tests.bench.pipeline", "--bare", servers, str(directory)],
        "fieldgate": [*jobs, "--lake", str(directory)],
    }


def _bare(servers: str, directory: str) -> None:
    settings = Settings(("ingest",), servers, directory, f"{directory}-checkpoints", once=True)
    spark = spark_session(settings, app="bare")
    bare(spark, settings)
    spark.stop()


def main() -> int:
    """As the options set it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, metavar="N", help="readings in the topic")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--systems", nargs="+", default=["by hand", "bare Spark", "fieldgate"])
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="of Spark, for the jobs"
    )
    parser.add_argument("--bare", nargs=2, metavar=("SERVERS", "DIRECTORY"), help="only run the bare query")
    options = parser.parse_args()
    if options.bare is not None:
        _bare(*options.bare)
        return 0
    found: dict[str, list[Took]] = {name: [] for name in options.systems}
    with tempfile.TemporaryDirectory(prefix="bench-") as name, LocalBroker(Path(name) / "kafka") as broker:
        produced = produce(broker.bootstrap_servers, options.records)
        for number in range(options.rounds):
            for system, rounds in found.items():
                directory = Path(name) / f"{number}-{system.replace(' ', '-')}"
                command = commands(broker.bootstrap_servers, directory, options.conf)[system]
                took = run(command, directory.with_suffix(".log"))
                rounds.append(replace(took, problems=problems(directory, options.records)))
                sys.stderr.write(f"{json.dumps({'system': system, **vars(rounds[-1])})}\n")
    for system, rounds in found.items():
        seconds, spent_s, memory = (
            median(values)
            for values in zip(*[tuple(vars(each).values())[:3] for each in rounds], strict=True)
        )
        cells = (
            f"{seconds:.0f} s",
            f"{spent_s / produced * 1e6:.0f} µs",
            f"{memory:.0f} MiB",
            rounds[-1].problems,
        )
        sys.stdout.write(f"| {system} | {' | '.join(cells)} |\n")
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    sys.stdout.write(f"| {produced:,} records; load of the machine, 1, 5 and 15 minutes | {load} | | | |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
