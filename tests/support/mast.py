"""A gateway daemon as a process of its own, and what it left in Kafka and in its outbox."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from paho.mqtt import subscribe

from buffer.reader import OutboxReader
from cloud.local.process import free_port
from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.forwarding.records import from_bytes
from tests.support.config import write_config
from tests.support.servers import eventually, unique_name


class GatewayProcess:
    """A gateway through one run or several: one config file, one outbox, one log."""

    def __init__(
        self,
        directory: Path,
        config: str,
        gateway: str,
        kafka: str,
        mosquitto: LocalMosquitto,
        *,
        program: Sequence[str] = ("gateway.cli", "run"),
        packages: Path | None = None,
    ) -> None:
        """The brokers given win over the config's; ``packages`` are installed besides the environment's."""
        self.id = gateway
        self.mosquitto = mosquitto
        self.outbox = directory / "outbox.db"
        self.log = directory / "gateway.log"
        self.status_port = free_port()
        self._config = write_config(directory, config)
        self._command = [sys.executable, "-m", *program, "-c", str(self._config)]
        for override in (
            f"mqtt.port={mosquitto.port}",
            f"kafka.bootstrap_servers={kafka}",
            f"status.listen=127.0.0.1:{self.status_port}",
        ):
            self._command += ["--set", override]
        paths = [str(packages)] if packages is not None else []
        paths += [path for path in (os.environ.get("PYTHONPATH"),) if path]
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)} if paths else None
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self, *arguments: str, within: Sequence[str] = ()) -> None:
        """Start a run and don't wait for it; ``within`` is a command that becomes the one behind it."""
        command = [*within, *self._command, *arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, env=self._environment)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The last run's."""
        assert self._process is not None, "not started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def path(self) -> Path:
        """The config file's."""
        return self._config

    def write(self, config: str) -> None:
        """Another text for the file, which counts from the next start or reload on."""
        self._config.write_text(config)

    def config(self) -> str:
        """The file as it is."""
        return self._config.read_text()

    def status(self) -> dict[str, Any]:
        """The daemon's own account of itself."""
        assert self.process.poll() is None, f"the daemon ended with {self.process.returncode}"
        with urllib.request.urlopen(f"http://127.0.0.1:{self.status_port}/api/status", timeout=30) as answer:
            status: dict[str, Any] = json.load(answer)
        return status

    def metrics(self) -> list[str]:
        """The lines that Prometheus scrapes."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.status_port}/metrics", timeout=30) as answer:
            text: str = answer.read().decode()
        return text.splitlines()

    def status_now(self) -> dict[str, Any]:
        """The status, or nothing before it is served."""
        try:
            return self.status()
        except OSError:
            return {}

    def sampled(self) -> int:
        """How many readings this run has sampled."""
        return int(self.status_now().get("sampled", 0))

    def sample(self, count: int, deadline_s: float = 90) -> None:
        """Wait until the run has sampled ``count`` more."""
        before = self.sampled()
        eventually(self.sampled, deadline_s, until=lambda sampled: sampled >= before + count)

    def delivered(self, deadline_s: float = 90) -> None:
        """Wait until Kafka answers and nothing is left in the outbox."""
        self._reach({"uplink": "healthy", "outbox_records": 0}, deadline_s)

    def empty(self, deadline_s: float = 90) -> None:
        """Wait until nothing is open, in memory or in the outbox."""
        self._reach({"in_flight": 0, "outbox_records": 0}, deadline_s)

    def spilling(self, deadline_s: float = 90) -> None:
        """Wait until the daemon stores what it samples."""
        self._reach({"uplink": "spilling"}, deadline_s)

    def in_memory(self, until: Callable[[int], bool], deadline_s: float = 90) -> None:
        """Wait until so many records are in memory for want of a disk."""
        eventually(lambda: self.status()["outbox_memory_records"], deadline_s, until=until)

    def _reach(self, wanted: dict[str, Any], deadline_s: float) -> None:
        eventually(
            lambda: {name: self.status()[name] for name in wanted},
            deadline_s,
            until=lambda now: now == wanted,
            poll_s=0.02,
        )

    def reload(self, config: str) -> str | None:
        """Write the file, send SIGHUP, and wait for its answer: what is wrong with it, or None."""
        before = self.status()["config"]
        self._config.write_text(config)
        self.process.send_signal(signal.SIGHUP)
        after = eventually(lambda: self.status()["config"], until=lambda now: now != before)
        error: str | None = after["error"]
        return error

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(90)

    def kill(self) -> float:
        """SIGKILL; when that was (monotonic)."""
        self.process.kill()
        killed_s = time.monotonic()
        self.process.wait()
        return killed_s

    def end(self) -> None:
        """Whatever state it is in, there is no process afterwards."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def run_record(self) -> dict[str, Any]:
        """The retained run record on the broker."""
        message = subscribe.simple(  # type: ignore[no-untyped-call]
            f"fieldgate/{self.id}/run", hostname=self.mosquitto.host, port=self.mosquitto.port
        )
        record: dict[str, Any] = json.loads(message.payload)
        return record


@contextmanager
def run_gateway(
    directory: Path,
    config: str,
    gateway: str,
    kafka: str,
    mosquitto: LocalMosquitto,
    packages: Path | None = None,
) -> Iterator[GatewayProcess]:
    """One run."""
    running = GatewayProcess(directory, config, gateway, kafka, mosquitto, packages=packages)
    running.launch()
    try:
        yield running
    finally:
        running.end()


def on_a_pi(directory: Path) -> tuple[list[str], Path]:
    """What to launch a program within so that it finds a Pi's firmware, and the file with that one's bits.

    Skips the test where a program may not have a view of ``/sys`` of its own.
    """
    bits = directory / "platform" / "soc" / "soc:firmware" / "get_throttled"
    bits.parent.mkdir(parents=True)
    bits.write_text("0\n")
    bind = 'mount --bind "$0" /sys/devices/platform && exec "$@"'
    within = ["unshare", "--map-root-user", "--mount", "sh", "-c", bind, str(bits.parents[2])]
    if subprocess.run([*within, "true"], check=False, capture_output=True).returncode:
        pytest.skip("a view of /sys of one's own isn't permitted here")
    return within, bits


def published(kafka: str, topic: str, gateway: str, outbox: Path) -> list[dict[str, Any]]:
    """Records of a gateway that has ended, in order: those in Kafka, and last those in its outbox.

    The last ones may wait there for the next run, where Kafka was slow to answer.
    """
    values = [message.value() or b"{}" for message in records(kafka, [topic])]
    with OutboxReader(outbox) as reader:
        waiting = [from_bytes(stored) for _, stored in reader.records()]
    values += [record.value for record in waiting if record.topic == topic]
    return [record for record in map(json.loads, values) if record.get("gateway") == gateway]


def _ends(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """First and next offset. Raises LookupError while a partition just made has no leader."""
    try:
        return consumer.get_watermark_offsets(place, timeout=20)
    except KafkaException as error:
        raise LookupError(str(error)) from error


def records(kafka: str, topics: list[str]) -> Iterator[Message]:
    """Everything in these topics."""
    # A broker holds back the answer about a partition that has no more, and what is asked for after it.
    quickly = {"fetch.wait.max.ms": 10}
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": unique_name("test"), **quickly})
    try:
        for topic in topics:
            for partition in consumer.list_topics(topic, timeout=20).topics[topic].partitions:
                place = TopicPartition(topic, partition, 0)
                start, end = eventually(partial(_ends, consumer, place))
                if start == end:
                    continue
                consumer.assign([place])
                while consumer.position([place])[0].offset < end:
                    # It waits for all of the thousand.
                    yield from consumer.consume(1000, timeout=0.02)
    finally:
        consumer.close()
