"""The jobs as a program of their own, to be hurt, and readings that are produced meanwhile."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import psutil
from confluent_kafka import Producer
from deltalake.exceptions import TableNotFoundError

from cloud.wire.reading_records import Reading, encode_reading, reading_key
from spark_jobs import submit
from spark_jobs.platform.package import write_package
from spark_jobs.platform.session import find_jars
from spark_jobs.platform.settings import Settings
from tests.spark.records import identities, reading, rows_of
from tests.spark.running import QUICK_JAVA, QUICK_PLANS
from tests.support.servers import eventually

QUICK = (
    *("--conf", f"spark.driver.extraJavaOptions={QUICK_JAVA}"),
    *chain.from_iterable(("--conf", f"{key}={value}") for key, value in QUICK_PLANS),
)
"""Options of programs that live for seconds."""


EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


def javas_of(pid: int, main_class: str) -> list[psutil.Process]:
    """The Java processes of a class that a process started, or what it started."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if main_class in child.cmdline():
                found.append(child)
    return found


def run_command(settings: Settings, *more: str) -> list[str]:
    """``jobs run`` on these settings."""
    return [
        *("run", *settings.jobs, "--interval", f"{settings.interval_s}s", "--trigger", "300ms"),
        *("--bootstrap-servers", settings.bootstrap_servers, "--topics", settings.topic_pattern),
        *("--dead-letter-topic", settings.dead_letter_topic),
        *("--lake", settings.lake, "--checkpoints", settings.checkpoints),
        *more,
    ]


class Program:
    """One start of the jobs, in a session of its own; its log is read while it runs."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                cwd=log.parent,
                env=None if environment is None else dict(environment),
            )
        self.pid = self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def awaits(self, text: str, times: int = 1, deadline_s: float = 600.0) -> None:
        """Waits until the log holds the text so often; fails when the program ends before that."""

        def there() -> bool:
            ended = self._process.poll() is not None
            if self.log.count(text) >= times:
                return True
            assert not ended, f"the jobs ended without logging {text!r}: {self.log}"
            return False

        eventually(there, deadline_s)

    def python(self) -> psutil.Process:
        """The driver's Python: the program itself, or what spark-submit started for it."""
        itself = psutil.Process(self.pid)
        tree = [itself, *itself.children()]
        return next(process for process in tree if process.name().startswith("python"))

    def jvm(self) -> psutil.Process:
        """The driver's Java."""
        children = psutil.Process(self.pid).children()
        return next(child for child in children if child.name() == "java")

    def executors(self) -> list[psutil.Process]:
        """The executors' Java, where the master starts some of their own."""
        return javas_of(self.pid, EXECUTOR)

    def ends(self, deadline_s: float = 300.0) -> int:
        """The exit status, once it has one."""
        return self._process.wait(deadline_s)

    def lives(self, seconds: float) -> None:
        """Lets it run so long; fails when it ends before that."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"the jobs ended with {self._process.wait(seconds)}: {self.log}")

    def terminate(self) -> int:
        """SIGTERM; the exit status."""
        self.python().send_signal(signal.SIGTERM)
        return self.ends()

    def kill(self, *, python_only: bool = False) -> None:
        """SIGKILL to the program and its Java at once, or to the program alone; its Java may live on."""
        if python_only:
            self._process.kill()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def jobs_program(settings: Settings, log: Path, *more: str) -> Program:
    """Starts ``jobs run``."""
    return Program([sys.executable, "-m", "spark_jobs", *run_command(settings, *QUICK, *more)], log)


def submitted_program(settings: Settings, log: Path, master: str) -> Program:
    """Starts ``jobs run`` by spark-submit, as on a cluster: with one file of packages, and jars."""
    package = write_package(log.parent)
    jars = ",".join(map(str, find_jars()))
    command = [
        *("spark-submit", "--master", master, "--jars", jars, "--py-files", str(package)),
        *("--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.ui.enabled=false"),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
        *("--driver-java-options", "-XX:TieredStopAtLevel=1"),
        *("--conf", "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1"),
        str(Path(submit.__file__)),
        *run_command(settings),
    ]
    # Nothing of ours on the path but what is submitted.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PYSPARK_PYTHON"] = sys.executable
    binaries = Path(sys.executable).parent
    return Program([str(binaries / command[0]), *command[1:]], log, environment)


CHANNELS = ("cup.wind_speed", "twin.wind_speed")


class Flow:
    """Readings of two cups, a hundred a second or so, every tenth twice, until stopped."""

    def __init__(self, bootstrap_servers: str, topic: str, seed: int = 0) -> None:
        self.produced: dict[tuple[str, str, str, int], Reading] = {}
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 5, "log_level": 0}
        )
        self._topic, self._random = topic, random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        seq = 0
        while not self._stop.wait(0.02):
            seq += 1
            for channel in CHANNELS:
                self.send(reading(seq, round(self._random.uniform(0, 30), 3), channel=channel))
            self._producer.poll(0)

    def send(self, item: Reading) -> None:
        self.produced[item.identity] = item
        for _ in range(2 if self._random.random() < 0.1 else 1):
            self._producer.produce(self._topic, encode_reading(item), reading_key(item.gateway, item.channel))

    def flush(self) -> int:
        """Waits for all acknowledgements; how many are missing after a minute."""
        return self._producer.flush(60)

    def stop(self) -> None:
        """Ends it; all that was produced is acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self.flush() == 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._stop.is_set():
            self.stop()


def assert_tables_hold(settings: Settings, produced: dict[tuple[str, str, str, int], Reading]) -> None:
    """Each produced reading is in ``readings`` once, with its value; ``statistics`` are those of all."""
    found = identities(settings)
    assert len(found) == len(set(found)), "duplicate identities"
    assert set(found) == set(produced), f"{len(set(produced) - set(found))} missing"
    for row in rows_of(settings, "readings"):
        assert row["value"] == produced[row["gateway"], row["channel"], row["run"], row["seq"]].value
    values: dict[tuple[str, int], list[float]] = defaultdict(list)
    length_us = settings.interval_s * 1_000_000
    for item in produced.values():
        assert item.value is not None
        values[item.channel, item.time_us // length_us].append(item.value)
    rows = rows_of(settings, "statistics")
    assert {_interval(row, length_us): row["count"] for row in rows} == {
        key: len(there) for key, there in values.items()
    }
    assert len(rows) == len(values)
    for row in rows:
        there = np.array(values[_interval(row, length_us)])
        np.testing.assert_allclose([row["avg"], row["max"]], [there.mean(), there.max()], rtol=1e-9)


def _interval(row: dict[str, Any], length_us: int) -> tuple[str, int]:
    return row["channel"], round(row["interval_start"].timestamp() * 1e6) // length_us


def wait_for_rows(settings: Settings, count: int, deadline_s: float = 600.0) -> None:
    """Waits until ``readings`` holds at least so many."""

    def rows() -> int:
        try:
            return len(identities(settings))
        except TableNotFoundError:
            return 0

    eventually(rows, deadline_s, until=lambda there: there >= count, poll_s=0.3)
