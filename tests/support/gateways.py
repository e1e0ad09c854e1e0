"""Runs ``fieldgate run`` as systemd does, and looks at it from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition
from paho.mqtt import subscribe

from buffer.reader import OutboxReader
from cloud.local.process import free_port
from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.forwarding.record_codec import from_bytes
from tests.support.servers import eventually, unique_name


@dataclass
class Gateway:
    """A running daemon."""

    id: str
    process: subprocess.Popen[bytes]
    status_port: int
    mosquitto: LocalMosquitto
    log: Path

    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.status_port}/api/status", timeout=30) as answer:
            status: dict[str, Any] = json.load(answer)
        return status

    def asked(self) -> dict[str, Any]:
        """The status, or nothing before it can be asked."""
        try:
            return self.status()
        except OSError:
            return {}

    def sampled(self) -> int:
        return int(self.asked().get("sampled", 0))

    def delivered(self) -> None:
        """Wait until Kafka has what was sampled so far; a slow one makes some of it wait in the outbox."""
        eventually(
            self.asked,
            until=lambda status: status["uplink"] == "healthy" and not status["outbox_records"],
            poll_s=0.02,
        )

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(90)

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
    name: str,
    kafka: str,
    mosquitto: LocalMosquitto,
    packages: Path | None = None,
) -> Iterator[Gateway]:
    """A daemon on a config in ``directory`` with these brokers; its log there is appended to.

    ``packages`` is a directory of installed packages besides the environment's.
    """
    path, log, port = directory / "gateway.toml", directory / "gateway.log", free_port()
    path.write_text(config)
    command = [sys.executable, "-m", "gateway.cli", "run", "-c", str(path)]
    for override in (
        f"mqtt.port={mosquitto.port}",
        f"kafka.bootstrap_servers={kafka}",
        f"status.listen=127.0.0.1:{port}",
    ):
        command += ["--set", override]
    paths = [str(packages)] if packages is not None else []
    paths += [path for path in (os.environ.get("PYTHONPATH"),) if path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)} if paths else None
    with (
        log.open("ab") as stderr,
        subprocess.Popen(command, stderr=stderr, env=environment) as process,
    ):
        try:
            yield Gateway(name, process, port, mosquitto, log)
        finally:
            if process.poll() is None:
                process.kill()


def told(kafka: str, topic: str, gateway: str, outbox: Path) -> list[dict[str, Any]]:
    """What a gateway that has ended has said in a topic, in order: in Kafka, and last what its outbox has.

    What is said last may wait there for the next run, where Kafka was slow to answer.
    """
    values = [message.value() or b"{}" for message in records(kafka, [topic])]
    with OutboxReader(outbox) as reader:
        waiting = [from_bytes(stored) for _, stored in reader.records()]
    values += [record.value for record in waiting if record.topic == topic]
    return [record for record in map(json.loads, values) if record.get("gateway") == gateway]


def records(kafka: str, topics: list[str]) -> Iterator[Message]:
    """Everything in these topics."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": unique_name("test")})
    try:
        for topic in topics:
            for partition in consumer.list_topics(topic, timeout=20).topics[topic].partitions:
                place = TopicPartition(topic, partition, 0)
                start, end = consumer.get_watermark_offsets(place, timeout=20)
                consumer.assign([place])
                while start < end and consumer.position([place])[0].offset < end:
                    yield from consumer.consume(1000, timeout=0.2)
    finally:
        consumer.close()
