"""Two of three brokers are killed, one after the other, under a gateway and the jobs."""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.faults.cluster import BROKERS, Cluster
from tests.faults.kafka import Identity
from tests.faults.mast import Mast
from tests.support.servers import eventually

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.timeout(1200)]


def column(lake: Path, table: str, *names: str) -> list[Any]:
    """A table's column, or tuples of several; nothing where there is no table yet."""
    if not DeltaTable.is_deltatable(str(lake / table)):
        return []
    found = DeltaTable(str(lake / table)).to_pyarrow_dataset().to_table(list(names)).to_pydict()
    return list(zip(*found.values(), strict=True)) if len(names) > 1 else found[names[0]]


def in_lake(lake: Path) -> list[Identity]:
    """The identities in ``readings``, repeats kept."""
    return column(lake, "readings", "gateway", "channel", "run", "seq")


@contextmanager
def running_jobs(kafka: Cluster, lake: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """All that follow Kafka, and statistics behind them."""
    rules = lake.with_name("rules.toml")
    rule = '[[rule]]\nname = "any-wind"\nkind = "threshold"\n'
    rules.write_text(f'{rule}quantity = "wind_speed"\nabove = 0.1\n')
    command = (
        *(sys.executable, "-m", "spark_jobs", "run", "ingest", "alerts", "statistics", "presence"),
        *("--bootstrap-servers", kafka.direct, "--lake", str(lake), "--topics", "mqtt[.].*"),
        *("--rules", str(rules), "--interval", "1m"),
    )
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(90)
        finally:
            process.kill()


def gaps_s(kafka: Cluster, topics: Iterator[str]) -> list[float]:
    """The times between two records that follow each other in a partition, as Kafka stamped them."""
    stamps = defaultdict[tuple[str, int], list[float]](list)
    for message in kafka.messages(topics):
        stamps[message.topic() or "", message.partition() or 0].append(message.timestamp()[1] / 1000)
    return [after - before for times in stamps.values() for before, after in pairwise(sorted(times))]


def test_two_of_three_brokers_are_killed(
    tmp_path: Path, mosquitto: LocalMosquitto, report: Callable[..., None], full: bool
) -> None:
    if not full:
        pytest.skip("only with --full: a controller, three brokers and Spark")
    lake, log = tmp_path / "lake", tmp_path / "jobs.log"
    with (
        Cluster(tmp_path / "kafka") as cluster,
        Mast(tmp_path, cluster, mosquitto, rate=100) as mast,
        running_jobs(cluster, lake, log) as jobs,
    ):
        topic = mast.topics["wind_speed"]
        mast.start()
        mast.sample(500)
        eventually(lambda: in_lake(lake), 240)
        # The leader dies: the two others have everything, and one of them leads after seconds.
        first = cluster.leader(topic)
        cluster.nodes[first].kill()
        mast.sample(1500)
        eventually(lambda: cluster.leader(topic), 60, until=lambda leader: leader not in (first, -1))
        mast.delivered()
        one_away = mast.status()
        assert jobs.poll() is None, log.read_text()[-3000:]
        # The second one: a single replica is too few, whatever is sampled is stored on the mast.
        second = cluster.leader(topic)
        cluster.nodes[second].kill()
        killed_s = time.monotonic()
        mast.spilling()
        spilling_s = time.monotonic() - killed_s
        mast.sample(1500)
        kept = mast.status()["outbox_records"]
        refusal = eventually(lambda: mast.status()["kafka_refusal"], 60, until="replicas".__eq__)
        assert kept >= 1000
        for node in (first, second):
            cluster.nodes[node].start()
        eventually(lambda: cluster.in_sync(topic), 120, until=lambda replicas: replicas == BROKERS)
        mast.delivered(180)
        mast.sample(200)
        mast.delivered()
        mast.stop()
        reckoning = mast.reckon()
        reckoning.balance()
        ours = {identity for identity in reckoning.kafka if identity[0] == mast.id}
        stored = eventually(
            lambda: [each for each in in_lake(lake) if each[0] == mast.id],
            300,
            until=lambda rows: len(rows) >= len(ours),
        )
        assert jobs.poll() is None, log.read_text()[-3000:]
        assert set(stored) == ours
        assert len(stored) == len(ours)
        # The mast's time is long ago, so its alerts are history: rows, and no messages.
        eventually(lambda: column(lake, "alerts", "gateway"), 60, until=lambda found: set(found) == {mast.id})
        gaps = gaps_s(cluster, iter([topic]))
        report(
            reckoning.figures(), lake=len(stored), doubled=len(stored) - len(set(stored)),
            spilled_by_one_broker=one_away["spilled"], until_spilling_s=round(spilling_s, 1),
            kept=kept, refusal=refusal, p99_gap_s=round(statistics.quantiles(gaps, n=100)[98], 2),
            longest_gap_s=round(max(gaps), 1),
        )  # fmt: skip
