"""The jobs' image: built and run without a container engine, alone and as Spark's pods. With ``--full``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from cloud.local.kafka_broker import LocalBroker
from spark_jobs.platform.settings import Settings
from tests.spark.programs import Flow, Program, assert_tables_hold, wait_for_rows
from tests.support.container import Image
from tests.support.kubernetes_api import KubernetesApi
from tests.support.servers import eventually
from tests.unit.systemd.test_kubernetes import config_map

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.timeout(3000)


@pytest.fixture(scope="module")
def image(full: bool, tmp_path_factory: pytest.TempPathFactory) -> Image:
    if not full:
        pytest.skip("long: with --full")
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("needs root and debootstrap")
    context = tmp_path_factory.mktemp("context")
    build = [str(ROOT / "systemd/debian/build.py"), "--product", "cloud", "--quick"]
    target = ["--release", "trixie", "--arch", "amd64", "--output", str(context / "dist")]
    subprocess.run([sys.executable, *build, *target], check=True)
    (context / "systemd").symlink_to(ROOT / "systemd")
    return Image(ROOT / "systemd/container/Containerfile", context, context / "root")


@pytest.fixture
def place(image: Image, settings: Settings, kafka: LocalBroker, kafka_topic: Callable[..., str]) -> Settings:
    """Settings with a topic of their own, and a lake in the image's folder for it."""
    topic = kafka_topic("image", partitions=2)
    folder = image.root / "var/lib/fieldgate-cloud"
    for name in ("lake", "lake-checkpoints"):
        shutil.rmtree(folder / name, ignore_errors=True)
    lake, checkpoints = str(folder / "lake"), str(folder / "lake-checkpoints")
    return replace(
        settings,
        bootstrap_servers=kafka.bootstrap_servers,
        topic_pattern=topic,
        lake=lake,
        checkpoints=checkpoints,
    )


def configure(image: Image, settings: Settings) -> None:
    """Writes the image's cloud.toml, with the modes it has when it is mounted from a secret."""
    config = image.root / "etc/fieldgate-cloud/cloud.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{settings.bootstrap_servers}"\n'
        '[lake]\npath = "/var/lib/fieldgate-cloud/lake"\n'
        f"[jobs]\ninterval = '60s'\ntrigger = '500ms'\ntopics = '{settings.topic_pattern}'\n"
    )
    config.chmod(0o440)
    os.chown(config, 0, 10001)


def stop(program: Program) -> float:
    """SIGTERM to tini, as an engine sends it; how long the jobs take to end, seconds."""
    begun_s = time.monotonic()
    processes = psutil.Process(program.pid).children(recursive=True)
    next(each for each in processes if each.name() == "tini").terminate()
    assert program.ends(60) == 0, program.log
    assert "event=jobs.stop reason=signal" in program.log
    return time.monotonic() - begun_s


RUN = ("jobs", "run", "ingest", "statistics", "--cloud", "/etc/fieldgate-cloud/cloud.toml")


def finish(image: Image, place: Settings, flow: Flow, log: Path) -> None:
    """Stops the readings; what is left goes through the image once more, and the tables hold all of it."""
    flow.stop()
    with Program(image.command(*RUN, "--once"), log) as program:
        assert program.ends(300) == 0, program.log
    assert_tables_hold(place, flow.produced)


def test_the_image_runs_the_jobs_and_ends_on_sigterm(image: Image, place: Settings, tmp_path: Path) -> None:
    configure(image, place)
    with Flow(place.bootstrap_servers, place.topic_pattern) as flow:
        with Program(image.command(*RUN), tmp_path / "jobs.log") as program:
            wait_for_rows(place, 100)
            print("stopped after", stop(program))  # noqa: T201
        finish(image, place, flow, tmp_path / "once.log")


def test_executors_on_kubernetes_are_lost_and_come_again(
    image: Image, place: Settings, tmp_path: Path
) -> None:
    """With the configuration of the manifests; pods are processes of this machine."""

    def start(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        return image.command(*arguments, environment=environment)

    configure(image, place)
    (image.root / "etc/spark").mkdir(exist_ok=True)
    for name, text in config_map("fieldgate-spark").items():
        (image.root / "etc/spark" / name).write_text(text)
    here = {
        "spark.driver.host": "127.0.0.1",
        "spark.kubernetes.namespace": "default",
        "spark.executor.memory": "512m",
        "spark.dynamicAllocation.minExecutors": "2",
        # The poll suffices here.
        "spark.kubernetes.executor.enableApiWatcher": "false",
        "spark.kubernetes.executor.apiPollingInterval": "1s",
    }
    conf = [word for key, value in here.items() for word in ("--conf", f"{key}={value}")]
    with KubernetesApi(start, image.root, tmp_path) as api:
        command = image.command(
            *RUN, "--master", f"k8s://{api.address}", *conf, environment={"SPARK_CONF_DIR": "/etc/spark"}
        )
        with Flow(place.bootstrap_servers, place.topic_pattern) as flow:
            with Program(command, tmp_path / "jobs.log") as program:
                wait_for_rows(place, 100)
                eventually(lambda: len(api.running), until=lambda running: running == 2)
                api.kill(api.running[0])
                wait_for_rows(place, len(flow.produced))
                eventually(lambda: len(api.running), until=lambda running: running == 2)
                print("stopped after", stop(program))  # noqa: T201
            eventually(lambda: not api.running)
            finish(image, place, flow, tmp_path / "once.log")
    pods = [pod["spec"] for pod in api.pods.values()]
    assert len(pods) >= 3
    assert all(pod["securityContext"]["runAsNonRoot"] for pod in pods)
    mounts = {mount["mountPath"] for pod in pods for mount in pod["containers"][0]["volumeMounts"]}
    assert "/etc/fieldgate-cloud" in mounts
