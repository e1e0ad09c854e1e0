"""A cluster whose driver takes anybody for an executor is refused before any task. With ``--full`` only."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cloud.local.kafka_broker import LocalBroker
from cloud.local.process import Child, free_port
from spark_jobs.platform.settings import Settings
from tests.spark.cluster import standalone_cluster
from tests.spark.platform.test_standalone import printed
from tests.spark.programs import EXECUTOR, javas_of, jobs_program
from tests.support.servers import eventually

pytestmark = pytest.mark.timeout(300)


def test_a_cluster_without_authentication_is_refused(tmp_path: Path, full: bool) -> None:
    if not full:
        pytest.skip("long: with --full")
    with standalone_cluster(tmp_path, (), "512m") as (address, _):
        command = (
            sys.executable, "-m", "spark_jobs", "run", "ingest", "--once", "--master", address,
            "--lake", str(tmp_path / "lake"), "--bootstrap-servers", "127.0.0.1:1",
            "--conf", "spark.driver.host=127.0.0.1",
        )  # fmt: skip
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert ended.returncode == 2, ended.stderr
    assert f"{address}: set spark.authenticate true, spark.network.crypto.enabled true" in ended.stderr


@pytest.mark.parametrize("closed", [True, False])
def test_only_an_executor_with_the_secret_gets_tasks(
    closed: bool,
    settings: Settings,
    kafka: LocalBroker,
    tmp_path: Path,
    full: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same executor, which nobody started for this driver, is registered where the cluster is open."""
    if not full:
        pytest.skip("long: with --full")
    conf = tmp_path / "conf"
    conf.mkdir()
    if closed:
        text = printed("properties", "spark.authenticate ").replace(
            "A-SECRET-OF-openssl-rand-hex-32", "5e" * 32
        )
    else:
        text = "spark.fieldgate.openCluster true\n"
    (conf / "spark-defaults.conf").write_text(text)
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
    port = free_port()
    place = replace(settings, bootstrap_servers=kafka.bootstrap_servers, topic_pattern="nobody[.]writes")
    of_driver = ("--conf", "spark.driver.host=127.0.0.1", "--conf", f"spark.driver.port={port}")
    with (
        standalone_cluster(tmp_path, (1,), "1g") as (address, (worker,)),
        jobs_program(place, tmp_path / "jobs.log", "--master", address, *of_driver),
    ):
        eventually(lambda: javas_of(worker.pid, EXECUTOR), 200)
        monkeypatch.delenv("SPARK_CONF_DIR")
        log = tmp_path / "rogue.log"
        rogue = Child(
            [
                str(Path(sys.executable).parent / "spark-class"),
                "org.apache.spark.executor.CoarseGrainedExecutorBackend",
                *("--driver-url", f"spark://CoarseGrainedScheduler@127.0.0.1:{port}"),
                *("--executor-id", "666", "--bind-address", "127.0.0.1", "--hostname", "127.0.0.1"),
                *("--cores", "1", "--app-id", "rogue", "--resourceProfileId", "0"),
            ],
            log,
            # spark-class finds Spark through it.
            environment=os.environ | {"PYSPARK_PYTHON": sys.executable},
        )
        try:
            registered = "Successfully registered with driver"
            eventually(lambda: rogue.exit_code is not None or registered in log.read_text(), 120)
            assert (registered in log.read_text()) is not closed, log.read_text()[-3000:]
        finally:
            rogue.stop(5)
