"""A standalone Spark cluster on this machine: daemons as processes of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cloud.local.process import Child, free_port, listening
from tests.support.servers import eventually


def _daemon(name: str, log: Path, *arguments: str) -> Child:
    binaries = Path(sys.executable).parent
    environment = os.environ | {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": "127.0.0.1",
        # spark-class finds Spark through it.
        "PYSPARK_PYTHON": sys.executable,
        # As docs/operate-cluster.md has it: jobs get the time to end their batches.
        "SPARK_WORKER_OPTS": "-Dspark.worker.driverTerminateTimeout=45s",
    }
    command = [str(binaries / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    return Child(command, log, environment=environment)


@contextmanager
def standalone_cluster(
    directory: Path, cores: Sequence[int], memory: str
) -> Iterator[tuple[str, list[Child]]]:
    """A master and a worker of each number of cores and so much memory: the master's address, the workers."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    processes = [
        _daemon(
            "master.Master", directory / "master.log", "--host", "127.0.0.1", "--port", str(port),
            "--webui-port", str(free_port()),
        )
    ]  # fmt: skip
    try:
        eventually(lambda: listening(port))
        for number, count in enumerate(cores):
            log, work = directory / f"worker-{number}.log", str(directory / f"worker-{number}")
            processes.append(
                _daemon(
                    "worker.Worker", log, "--host", "127.0.0.1", "--cores", str(count), "--memory", memory,
                    "--work-dir", work, "--webui-port", str(free_port()), address,
                )
            )  # fmt: skip
            eventually(lambda log=log: "Successfully registered" in log.read_text())  # type: ignore[misc]
        yield address, processes[1:]
    finally:
        for process in reversed(processes):
            process.stop(10)
