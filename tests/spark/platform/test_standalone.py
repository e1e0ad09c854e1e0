"""The jobs on a standalone Spark cluster as docs/operate-cluster.md prints it. With ``--full`` only."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import psutil
import pyspark
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cloud.local.kafka_broker import LocalBroker
from spark_jobs.platform.settings import Settings
from tests.spark.cluster import standalone_cluster
from tests.spark.programs import (
    CHANNELS,
    EXECUTOR,
    Flow,
    assert_tables_hold,
    javas_of,
    jobs_program,
    wait_for_rows,
)
from tests.spark.records import reading, rows_of
from tests.support.servers import eventually

pytestmark = pytest.mark.timeout(1800)

_PROJECT: Final = Path(__file__).resolve().parents[3]
_DRIVER: Final = "org.apache.spark.deploy.worker.DriverWrapper"


@pytest.fixture(autouse=True)
def _only_full(full: bool) -> None:
    if not full:
        pytest.skip("long: with --full")


@pytest.fixture
def place(settings: Settings, kafka: LocalBroker, tmp_path: Path) -> Settings:
    """A lake that all processes reach, and a topic."""
    topic = f"standalone-{tmp_path.name}.wind_speed"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])[topic].result(30)
    return replace(
        settings,
        bootstrap_servers=kafka.bootstrap_servers,
        topic_pattern=topic,
        lake=f"file://{tmp_path}/lake",
        checkpoints=f"file://{tmp_path}/checkpoints",
    )


def printed(tag: str, has: str) -> str:
    """The block of the page that holds these words."""
    page = (_PROJECT / "docs" / "operate-cluster.md").read_text()
    blocks: list[str] = re.findall(rf"^```{tag}\n(.*?)^```$", page, re.M | re.S)
    return next(text for text in blocks if has in text)


def finish(place: Settings, flow: Flow, log: Path) -> None:
    """Closes the intervals in a local Spark, and compares the tables with what was produced."""
    with jobs_program(place, log, "--once") as program:
        assert program.ends(300) == 0
    assert_tables_hold(place, flow.produced)


def test_what_the_queries_keep_outlives_an_executor_that_isnt_needed_any_more(
    place: Settings, tmp_path: Path
) -> None:
    block = printed("properties", "spark.dynamicAllocation.enabled")
    conf = dict(line.split() for line in block.splitlines())
    conf |= {key: "10s" for key in conf if key.lower().endswith("timeout")}
    conf |= {
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        # A part of what is kept is on each executor.
        "spark.sql.shuffle.partitions": "2",
    }
    conf["spark.fieldgate.openCluster"] = "true"
    options = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    with standalone_cluster(tmp_path, (1, 1), "1g") as (address, workers):

        def executors() -> int:
            return sum(len(javas_of(worker.pid, EXECUTOR)) for worker in workers)

        with (
            Flow(place.bootstrap_servers, place.topic_pattern) as flow,
            jobs_program(place, tmp_path / "jobs.log", "--master", address, *options) as program,
        ):
            eventually(executors, 300, until=lambda count: count == 2)
            program.awaits("event=statistics.computed")
            flow.stop()
            wait_for_rows(place, len(flow.produced))
            eventually(executors, 300, until=lambda count: count == 1)
            last = max(seq for *_, seq in flow.produced)
            for seq in range(last + 1, last + 200):
                for channel in CHANNELS:
                    flow.send(reading(seq, 7.5, channel=channel))
            assert flow.flush() == 0
            # Intervals that the new readings ended: the state was read.
            eventually(lambda: _newest(place), 300, until=lambda end: end >= _open_from(flow, place))
            assert "event=query.failed" not in program.log
            assert program.terminate() == 0
        finish(place, flow, tmp_path / "once.log")


def _newest(place: Settings) -> float:
    """The beginning of the newest closed interval, in seconds since the epoch."""
    rows = rows_of(place, "statistics")
    return max((row["interval_start"].timestamp() for row in rows if row["version"] > 0), default=0.0)


def _open_from(flow: Flow, place: Settings) -> float:
    """The beginning of the newest interval that newer readings have ended."""
    newest_s = max(item.time_us for item in flow.produced.values()) // 1_000_000
    return newest_s // place.interval_s * place.interval_s - place.interval_s


_CLOUD: Final = """\
[kafka]
bootstrap_servers = "{servers}"
[lake]
path = "{lake}"
checkpoints = "{checkpoints}"
[jobs]
interval = "{interval}s"
trigger = "300ms"
topics = '{topics}'
[jobs.conf]
"spark.executor.memory" = "512m"
"spark.fieldgate.openCluster" = "true"
"""


def test_a_driver_on_the_cluster_comes_again_when_it_is_killed(
    place: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "cloud.toml"
    config.write_text(
        _CLOUD.format(
            servers=place.bootstrap_servers, lake=place.lake, checkpoints=place.checkpoints,
            interval=place.interval_s, topics=place.topic_pattern,
        )
    )  # fmt: skip
    # The packages and the Python of this environment, in place of the Debian package's.
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    with standalone_cluster(tmp_path, (3,), "2g") as (address, (worker,)):
        here = {
            "/usr/lib/fieldgate-cloud/pyspark": str(Path(pyspark.__file__).parent),
            "/usr/lib/fieldgate-cloud": str(_PROJECT),
            "/etc/fieldgate-cloud/cloud.toml": str(config),
            "spark://spark.example.org:7077": address,
        }

        def run(block: str) -> str:
            for there, name in here.items():
                block = block.replace(there, name)
            done = subprocess.run(["bash", "-ec", block], capture_output=True, text=True, check=True)
            return done.stdout + done.stderr

        def drivers() -> list[psutil.Process]:
            return javas_of(worker.pid, _DRIVER)

        def another(than: psutil.Process) -> psutil.Process:
            found = eventually(drivers, 300, until=lambda found: any(each.pid != than.pid for each in found))
            return next(each for each in found if each.pid != than.pid)

        def log() -> str:
            return "".join(each.read_text() for each in tmp_path.glob("worker-0/driver-*/std*"))

        with Flow(place.bootstrap_servers, place.topic_pattern) as flow:
            found = re.search(r"driver-\d+-\d+", run(printed("sh", "PythonRunner")))
            assert found is not None
            here["driver-20261127120000-0000"] = found[0]
            (driver,) = eventually(drivers)
            wait_for_rows(place, 100)
            for victim in (_itself, _python):
                victim(driver).kill()
                driver = another(driver)
                wait_for_rows(place, len(flow.produced))
        wait_for_rows(place, len(flow.produced))
        run(printed("sh", "deploy.Client kill"))
        eventually(drivers, 60, until=lambda found: not found)
        assert "event=jobs.stop reason=signal" in log()
        finish(place, flow, tmp_path / "once.log")


def _itself(driver: psutil.Process) -> psutil.Process:
    return driver


def _python(driver: psutil.Process) -> psutil.Process:
    return next(child for child in driver.children() if child.name().startswith("python"))
