"""What a lake in a bucket survives, and two machines that write it. Long: with ``--full``.

The store is versitygw, which keeps its objects when it is killed, 60 ms away. Without ``--full``, but where
versitygw is there, a few rounds.
"""

from __future__ import annotations

import contextlib
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cloud.lake.tables import LakeError, open_lake
from cloud.local.kafka_broker import LocalBroker
from cloud.local.process import free_port
from spark_jobs.streaming.lease import EXPIRES_S
from tests.faults.uplink import Uplink
from tests.spark.programs import QUICK, Flow, Program
from tests.spark.results import note
from tests.support.s3 import Moto, ObjectStore, VersityGateway, versitygw
from tests.support.servers import eventually

pytestmark = pytest.mark.timeout(3600)

_LATENCY_S = 0.06


class Bucket:
    """A lake in a bucket, ``port`` away, and the jobs on it."""

    def __init__(self, store: ObjectStore, port: int, kafka: LocalBroker, topic: str, folder: Path) -> None:
        self.topic = topic
        self._folder, self._lake = folder, f"s3://{store.make_bucket()}/lake"
        servers = f'bootstrap_servers = "{kafka.bootstrap_servers}"'
        self._config = store.config(folder / "cloud.toml", self._lake, port, "[kafka]", servers)
        self._options = store.options()
        self.flow = Flow(kafka.bootstrap_servers, self.topic)
        self._starts = 0

    def command(self, *more: str) -> list[str]:
        command = [sys.executable, "-m", "spark_jobs", "run", "ingest", "--cloud", str(self._config)]
        return [*command, "--topics", self.topic, "--trigger", "300ms", *QUICK, *more]

    def program(self, *more: str, within: tuple[str, ...] = ()) -> Program:
        self._starts += 1
        return Program([*within, *self.command(*more)], self._folder / f"jobs-{self._starts}.log")

    def rows(self) -> tuple[int, int]:
        """Readings in the table, and how many identities they have."""
        sql = "SELECT count(*), count(DISTINCT (gateway, channel, run, seq)) FROM readings"
        with contextlib.suppress(LakeError), open_lake(self._lake, self._options) as connection:
            (found,) = connection.sql(sql).fetchall()
            return found[0], found[1]
        return 0, 0

    def awaits_all(self, program: Program) -> None:
        """Waits until the table has what was produced so far."""
        wanted = len(self.flow.produced)
        eventually(self.rows, 600, until=lambda found: found[1] >= wanted, poll_s=1.0)
        assert psutil.pid_exists(program.pid)

    def ends_whole(self, case: str, full: bool, **figures: object) -> None:
        """The rest is stored; nothing is missing, nothing doubled."""
        with self.program("--once") as last:
            assert last.ends(900) == 0, last.log
        rows, different = self.rows()
        produced = len(self.flow.produced)
        assert (produced - different, rows - different) == (0, 0)
        if full:
            note(case, {"produced": produced, "missing": 0, "doubled": 0, **figures})


def test_driver_executors_and_store_killed(
    full: bool, kafka: LocalBroker, kafka_topic: Callable[..., str], tmp_path: Path
) -> None:
    if versitygw() is None:
        pytest.skip("no versitygw, on the path or in $FIELDGATE_VERSITYGW")
    rounds, dice = 20 if full else 2, random.Random(5)
    cluster = ("--master", "local-cluster[2,1,1024]")
    with VersityGateway(tmp_path) as store, Uplink(free_port(), store.port) as link:
        bucket = Bucket(store, link.port, kafka, kafka_topic("bucket", 2), tmp_path)
        link.delay_s = _LATENCY_S / 2
        with bucket.flow, contextlib.ExitStack() as running:
            program = running.enter_context(bucket.program(*cluster))
            program.awaits("event=ingest.batch batch=0")
            for _ in range(rounds):
                program.lives(dice.uniform(0, 5))
                executors = eventually(program.executors)
                dice.choice(executors).kill()
                bucket.awaits_all(program)
                program.lives(dice.uniform(0, 5))
                link.delay_s = 10 * _LATENCY_S
                program.lives(dice.uniform(0, 5))
                link.delay_s = _LATENCY_S / 2
                store.kill()
                program.lives(dice.uniform(0, 5))
                store.start()
                bucket.awaits_all(program)
                program.lives(dice.uniform(0, 5))
                program.kill()
                program = running.enter_context(bucket.program(*cluster))
                program.awaits("event=ingest.batch")
            bucket.awaits_all(program)
            # A batch so far away may take longer than a stop waits.
            program.terminate()
        link.delay_s = 0.0
        bucket.ends_whole("a bucket 60 ms away: driver, executor, store killed", full, rounds=rounds)


@pytest.fixture
def own_names() -> tuple[str, ...]:
    """Starts a program as on a machine of its own: the first of its processes, on a host of the same name."""
    # No name server knows that name.
    script = 'hostname writer && SPARK_LOCAL_IP=127.0.0.1 exec "$@"'
    # Java looks its Python workers up in /proc.
    return ("unshare", "--pid", "--mount-proc", "--uts", "--fork", "--kill-child", "sh", "-c", script, "sh")


@pytest.fixture
def bucket(kafka: LocalBroker, kafka_topic: Callable[..., str], tmp_path: Path) -> Iterator[Bucket]:
    with Moto(tmp_path) as store:
        yield Bucket(store, store.port, kafka, kafka_topic("bucket", 2), tmp_path)


def _each(program: Program, act: Callable[[psutil.Process], Any]) -> None:
    for process in [psutil.Process(program.pid), *psutil.Process(program.pid).children(recursive=True)]:
        act(process)


def test_two_machines(full: bool, bucket: Bucket, own_names: tuple[str, ...]) -> None:
    if not full:
        pytest.skip("long: with --full")
    with bucket.flow, bucket.program(within=own_names) as first:
        first.awaits("event=ingest.batch batch=0")
        with bucket.program(within=own_names) as second:
            second.awaits("event=query.failed query=ingest ", times=1)
            assert "stop it first" in second.log
            bucket.awaits_all(first)
            # Suspended for longer than its lease: the other one goes on in its place.
            _each(first, lambda process: process.send_signal(signal.SIGSTOP))
            second.awaits("event=ingest.batch")
            second.lives(EXPIRES_S)
            bucket.awaits_all(second)
            _each(first, lambda process: process.send_signal(signal.SIGCONT))
            first.awaits("event=query.failed query=ingest ")
            assert "another process has taken over" in first.log or "stop it first" in first.log
            second.lives(EXPIRES_S)
            bucket.awaits_all(second)
    bucket.ends_whole("two machines on one bucket, the first suspended", full)
