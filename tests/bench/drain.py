"""Drains a backlog through a real daemon: how fast, and what that costs the messages of the moment.

    python -m tests.bench.drain --backlog 1000000

Prints rows for docs/performance.md. The rate is compared with a bare loop that reads the same file and
produces with the same settings; the latency of live messages (published on the local broker until read from
Kafka) with that of the same daemon before the backlog came, both in one run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from buffer.sqlite_outbox import SqliteOutbox
from cloud.kafka.producer import KafkaSink
from cloud.wire.reading_records import encode_reading, reading_key
from gateway.forwarding.outbox_writer import BATCH_BYTES, BATCH_RECORDS
from gateway.forwarding.records import from_bytes, to_bytes
from gateway.ports import Record
from tests.bench.bridges import Bridge, servers
from tests.bench.figures import percentile
from tests.faults.mast import device_reading
from tests.support.servers import eventually, unique_name

_BLOCK: Final = 12
"""A mast's readings of one second: the blocks that an outage leaves."""
_LIVE_PER_S: Final = 20
_POLL_S: Final = 0.02


def fill(path: Path, topic: str, count: int) -> None:
    """Leave readings in an outbox as a long outage would."""
    outbox = SqliteOutbox(path)
    readings = (device_reading("mast", seq) for seq in range(1, count + 1))
    headers = (("mqtt-topic", b"fieldgate/x/cup-a/wind_speed"), ("received-at", b"2026-01-01T00:00:00.000Z"))
    while block := list(islice(readings, _BLOCK)):
        outbox.append(
            [
                to_bytes(
                    Record(
                        topic, reading_key(reading.gateway, reading.channel), encode_reading(reading), headers
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


def main() -> int:
    parser = argparse.ArgumentParser(description="backlog: rate of the drain, and latency of live messages")
    parser.add_argument("--backlog", type=int, default=300_000, metavar="READINGS")
    parser.add_argument("--seconds", type=float, default=30.0, help="of the healthy state (default: 30)")
    options = parser.parse_args()
    most_s = 60 + options.backlog / 1_000
    with servers() as ours:
        topic, file = unique_name("backlog"), ours.directory / "backlog.db"
        ours.create(topic)
        fill(file, topic, options.backlog)
        bare = bare_rate(Path(shutil.copy(file, ours.directory / "bare.db")), ours.kafka.bootstrap_servers)
        bridge = Bridge("gateway", ours)
        bridge.flow()
        consumer = Consumer({"bootstrap.servers": ours.kafka.bootstrap_servers, "group.id": topic})
        with bridge.arrivals() as arrivals:
            count = int(_LIVE_PER_S * (options.seconds + most_s))
            publisher = ours.publisher(bridge.prefix, count, 200, rate=_LIVE_PER_S)
            eventually(lambda: arrivals.times)
            begun_s = time.time()
            time.sleep(options.seconds)
            stopped_s = time.time()
            # The next start finds the backlog, as after an outage.
            bridge.stop()
            shutil.copy(file, bridge.outbox)
            launched_s = time.time()
            bridge.launch()
            eventually(lambda: arrivals.times[-1][2] > launched_s, poll_s=_POLL_S)
            # What the bare loop has produced is there already.
            place, wanted = TopicPartition(topic, 0), 2 * options.backlog
            ends = partial(consumer.get_watermark_offsets, place, 20)
            ready_s, left = time.time(), wanted - ends()[1]
            eventually(ends, most_s, until=lambda offsets: offsets[1] >= wanted, poll_s=_POLL_S)
            drained_s = time.time()
            publisher.kill()
            publisher.wait()
        bridge.close()
        consumer.close()
    rate, steady = options.backlog / (drained_s - launched_s), left / (drained_s - ready_s)
    healthy, draining = (
        sorted(1000 * (received - sent) for sent, _, received in arrivals.times if begin_s <= sent < end_s)
        for begin_s, end_s in ((begun_s, stopped_s), (ready_s, drained_s))
    )
    p50, p99 = ([percentile(ms, share) for ms in (healthy, draining)] for share in (0.5, 0.99))
    rows = [
        ("backlog, readings", f"{options.backlog:,}"),
        ("bare loop: read and produce", f"{bare:,.0f} readings/s"),
        ("the daemon, from its start", f"{rate:,.0f} readings/s, {rate / bare:.2f} of the bare loop"),
        ("the same, once it has started", f"{steady:,.0f} readings/s, {steady / bare:.2f} of the bare loop"),
        ("its start took", f"{ready_s - launched_s:.1f} s of {drained_s - launched_s:.1f} s"),
        ("live latency p50, healthy / draining", f"{p50[0]:.0f} / {p50[1]:.0f} ms"),
        (
            "live latency p99, healthy / draining",
            f"{p99[0]:.0f} / {p99[1]:.0f} ms, ratio {p99[1] / p99[0]:.1f}",
        ),
        ("messages timed, healthy / draining", f"{len(healthy):,} / {len(draining):,}"),
    ]
    sys.stdout.writelines(f"| {what} | {figure} |\n" for what, figure in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
