"""Drains a backlog through a real daemon: how fast, and what that costs the readings of the moment.

    python -m tests.bench.drain --backlog 1000000

Prints rows for docs/performance.md. The rate is compared with a bare loop that reads the same file and
produces with the same settings; the latency of live readings (published on the local broker until read from
Kafka) with that of the same daemon before the backlog came, both in one run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from buffer.sqlite_outbox import SqliteOutbox
from cloud.kafka.producer import KafkaSink
from cloud.wire.reading_records import encode_reading, parse_reading, reading_key
from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.forwarding.drain_cursor import BATCH_BYTES, BATCH_RECORDS
from gateway.forwarding.record_codec import from_bytes, to_bytes
from gateway.ports import Record
from tests.bench.figures import percentile
from tests.faults.kafka import HurtBroker, Kafka
from tests.faults.mast import Mast, device_reading
from tests.faults.uplink import Uplink
from tests.support.servers import eventually

_BLOCK: Final = 12
"""A mast's readings of one second: the blocks that an outage leaves."""
_PROBES_PER_S: Final = 20
_PROBE_RUN: Final = "probe"
_FORWARD: Final = """
[[forward]]
filter = "probe/#"
"""


def fill(path: Path, mast: Mast, count: int) -> None:
    """Leave readings in an outbox as a long outage would."""
    outbox = SqliteOutbox(path)
    readings = (device_reading(mast.id, seq) for seq in range(1, count + 1))
    headers = (("mqtt-topic", b"fieldgate/x/cup-a/wind_speed"), ("received-at", b"2026-01-01T00:00:00.000Z"))
    while block := list(islice(readings, _BLOCK)):
        outbox.append(
            [
                to_bytes(
                    Record(
                        mast.topics["wind_speed"],
                        reading_key(reading.gateway, reading.channel),
                        encode_reading(reading),
                        headers,
                    )
                )
                for reading in block
            ]
        )
    outbox.close()


def bare_rate(path: Path, bootstrap_servers: str) -> float:
    """Readings per second of a loop that does nothing but read the file and produce."""
    outbox = SqliteOutbox(path)
    sink = KafkaSink[None](bootstrap_servers, "bare", {})
    count = delivered = after = 0
    begin_s = time.monotonic()
    while rows := outbox.peek(after, BATCH_RECORDS, BATCH_BYTES):
        after = rows[-1][0]
        for _, stored in rows:
            record = from_bytes(stored)
            while not sink.send(record, None):
                delivered += len(sink.poll(0.01))
            count += 1
        delivered += len(sink.poll())
    while delivered < count:
        delivered += len(sink.poll(0.01))
    took_s = time.monotonic() - begin_s
    sink.close()
    outbox.close()
    return count / took_s


class Probe:
    """Publishes readings of another device and sees them come out of Kafka."""

    def __init__(self, mast: Mast, mosquitto: LocalMosquitto, kafka: Kafka) -> None:
        self._topic = mast.topics["wind_speed"]
        self._published: dict[int, float] = {}
        self._latencies: list[float] = []
        self._seq = 0
        self._ended = threading.Event()
        self._client = Client(CallbackAPIVersion.VERSION2)
        self._client.connect(mosquitto.host, mosquitto.port)
        self._client.loop_start()
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka.direct,
                "group.id": "probe",
                "fetch.wait.max.ms": 5,
                "auto.offset.reset": "latest",
            }
        )
        partitions = self._consumer.list_topics(self._topic, timeout=20).topics[self._topic].partitions
        self._consumer.assign(
            [
                TopicPartition(
                    self._topic,
                    number,
                    self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), timeout=20)[1],
                )
                for number in partitions
            ]
        )
        self._threads = [threading.Thread(target=self._publish), threading.Thread(target=self._read)]
        for thread in self._threads:
            thread.start()

    def take(self) -> list[float]:
        """Latencies in seconds since the last call; what is still under way is forgotten."""
        taken, self._latencies = self._latencies, []
        self._published.clear()
        return sorted(taken)

    def close(self) -> None:
        """Stop publishing and reading."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._client.disconnect()
        self._client.loop_stop()
        self._consumer.close()

    def _publish(self) -> None:
        while not self._ended.wait(1 / _PROBES_PER_S):
            self._seq += 1
            reading = device_reading("probe", self._seq, run=_PROBE_RUN)
            self._published[self._seq] = time.monotonic()
            self._client.publish("probe/reading", encode_reading(reading), qos=1)

    def _read(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(500, timeout=0.05):
                value = message.value() or b""
                if message.error() is None and b'"gateway":"probe"' in value:
                    sent_s = self._published.pop(parse_reading(value).seq, None)
                    if sent_s is not None:
                        self._latencies.append(time.monotonic() - sent_s)


@contextmanager
def servers(directory: Path) -> Iterator[tuple[Kafka, LocalMosquitto]]:
    """A Kafka and a Mosquitto of our own."""
    with (
        HurtBroker(directory / "kafka") as broker,
        Uplink(broker.uplink_port, broker.inner_port) as uplink,
        LocalMosquitto(directory / "mosquitto") as mosquitto,
    ):
        yield Kafka(broker, uplink), mosquitto


def main() -> int:
    parser = argparse.ArgumentParser(description="backlog: rate of the drain, and latency of live readings")
    parser.add_argument("--backlog", type=int, default=300_000, metavar="READINGS")
    parser.add_argument("--seconds", type=float, default=30.0, help="of the healthy state (default: 30)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, servers(Path(name)) as (kafka, mosquitto):
        directory = Path(name)
        with Mast(directory, kafka, mosquitto, rate=12, kafka_address=kafka.direct, more=_FORWARD) as mast:
            fill(directory / "backlog.db", mast, options.backlog)
            shutil.copy(directory / "backlog.db", directory / "bare.db")
            bare = bare_rate(directory / "bare.db", kafka.direct)
            mast.start()
            mast.delivered()
            probe = Probe(mast, mosquitto, kafka)
            try:
                probe.take()
                end_s = time.monotonic() + options.seconds
                eventually(time.monotonic, options.seconds + 5, until=lambda now_s: now_s >= end_s)
                healthy = probe.take()
                # The next start finds the backlog, as after an outage.
                mast.stop()
                shutil.copy(directory / "backlog.db", mast.outbox)
                begin_s = time.monotonic()
                mast.start()
                ready_s = time.monotonic()
                probe.take()
                eventually(
                    lambda: mast.status()["drained"],
                    60 + options.backlog / 1_000,
                    until=lambda drained: drained >= options.backlog,
                    poll_s=0.2,
                )
                end_s = time.monotonic()
                draining = probe.take()
            finally:
                probe.close()
            mast.stop()
    rate = options.backlog / (end_s - begin_s)
    p50, p99 = (
        [1000 * percentile(latencies, share) for latencies in (healthy, draining)] for share in (0.5, 0.99)
    )
    rows = [
        ("backlog, readings", f"{options.backlog:,}"),
        ("bare loop: read and produce", f"{bare:,.0f} readings/s"),
        ("the daemon, from its start", f"{rate:,.0f} readings/s, {rate / bare:.2f} of the bare loop"),
        ("its start took", f"{ready_s - begin_s:.1f} s of {end_s - begin_s:.1f} s"),
        ("live latency p50, healthy / draining", f"{p50[0]:.0f} / {p50[1]:.0f} ms"),
        (
            "live latency p99, healthy / draining",
            f"{p99[0]:.0f} / {p99[1]:.0f} ms, ratio {p99[1] / p99[0]:.1f}",
        ),
        ("readings timed, healthy / draining", f"{len(healthy):,} / {len(draining):,}"),
    ]
    sys.stdout.writelines(f"| {what} | {figure} |\n" for what, figure in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
