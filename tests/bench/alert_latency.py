"""How soon an alert follows its reading: ``python -m tests.bench.alert_latency [--jobs alerts|all]``.

A fleet sends 1,000 readings a second into a local Kafka (``--gateways 12000 --period 60``: 2,000, of 120,000
channels); two of them a second violate a rule. Measured is the time from Kafka's append of the violating
reading to its append of the alert's record, after a minute of warming up. The rules are the packaged ones and
the one that is violated. Prints rows for docs/performance.md.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import msgspec
import psutil
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.local.process import wait_for
from cloud.wire.alert_records import AlertRecord
from cloud.wire.reading_records import ALERTS_TOPIC, Reading, encode_reading, reading_key
from tests.bench.figures import cpu_s

_CHANNELS: Final = (
    ("probe.temperature", "Cel"),
    ("dht.temperature", "Cel"),
    ("dht.humidity", "%RH"),
    ("baro.pressure", "kPa"),
    ("pyranometer.irradiance", "W/m2"),
    *((f"cup-{place}.wind_speed", "m/s") for place in ("20m-a", "20m-b", "30m-a", "50m-a", "50m-b")),
)
_RULE: Final = """
[[rule]]
name = "probe"
kind = "threshold"
channel = "probe.temperature"
above = 60.0
"""
_EACH_S: Final = 2
"""Violations a second."""
_STEADY_S: Final = 3.0
_START_S: Final = 300.0
"""How long Spark may take to start."""


class Fleet:
    """Sends one reading of each channel of each gateway a period, the gateways evenly over it."""

    def __init__(self, bootstrap_servers: str, gateways: int, period_s: int) -> None:
        self.appended_ms: dict[tuple[str, int], int] = {}
        self.sent = 0
        self._gateways, self._period_s = gateways, period_s
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 1})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._random = random.Random(7)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.flush(30)

    def _run(self) -> None:
        slots = [(gateway, at) for gateway in range(self._gateways) for at in range(len(_CHANNELS))]
        each, begin = self._gateways // (_EACH_S * self._period_s), time.time()
        for number in itertools.count(1):
            for position, (gateway, at) in enumerate(slots):
                wait_s = begin + (number - 1 + position / len(slots)) * self._period_s - time.time()
                if self._ended.is_set() or (wait_s > 0.002 and self._ended.wait(wait_s)):
                    return
                self._send(gateway, at, number, at == 0 and (gateway + number) % each == 0)

    def _send(self, gateway: int, at: int, seq: int, violating: bool) -> None:
        channel, unit = _CHANNELS[at]
        name = f"mast-{gateway:03d}"
        reading = Reading(
            gateway=name,
            channel=channel,
            quantity=channel.partition(".")[2],
            unit=unit,
            time_us=time.time_ns() // 1_000_000 * 1000,
            period_ms=1000 * self._period_s,
            value=75.0 if violating else round(self._random.gauss(12, 2), 2),
            raw=9.5,
            raw_unit="Hz",
            quality=1,
            reasons=(),
            run="bench",
            seq=seq,
            clock="synced",
            cal="5d1c0a7e",
        )

        def delivered(error: object, message: Message) -> None:
            assert error is None, error
            if violating:
                self.appended_ms[name, reading.time_us] = message.timestamp()[1]

        self.sent += 1
        self._producer.produce(
            f"mqtt.{reading.quantity}",
            encode_reading(reading),
            reading_key(name, channel),
            on_delivery=delivered,
        )
        self._producer.poll(0)


def collect(bootstrap_servers: str, ended: threading.Event, published_ms: dict[tuple[str, int], int]) -> None:
    """Append times of raised alerts by gateway and event time; the first record counts."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "bench", "fetch.wait.max.ms": 50}
    )
    partitions = consumer.list_topics(ALERTS_TOPIC, timeout=20).topics[ALERTS_TOPIC].partitions
    consumer.assign([TopicPartition(ALERTS_TOPIC, number, 0) for number in partitions])
    while not ended.is_set():
        for message in consumer.consume(500, timeout=0.2):
            value = message.value()
            if message.error() is None and value is not None:
                alert = msgspec.json.decode(value, type=AlertRecord)
                if alert.rule == "probe" and alert.state == "raised":
                    published_ms.setdefault((alert.gateway, alert.raised_us), message.timestamp()[1])
    consumer.close()


def _fresh(published_ms: dict[tuple[str, int], int], most_s: float, since_s: float = 0.0) -> bool:
    """Whether an alert was published of a violation after a moment that is so many seconds old at most."""
    newest_s = max((time_us for _, time_us in list(published_ms)), default=0) / 1e6
    return newest_s > since_s and time.time() - newest_s < most_s


def measure(jobs: str, warm_s: float, seconds: float, gateways: int, period_s: int, directory: Path) -> None:
    """One run; prints what it found."""
    rules = directory / "rules.toml"
    packaged = Path("spark_jobs/alerting/default_rules.toml").read_text()
    rules.write_text(packaged + _RULE)
    with LocalBroker(directory / "kafka") as broker:
        provision_topics(broker.bootstrap_servers, partitions=2)
        command = [sys.executable, "-m", "spark_jobs", "run", jobs, "--rules", str(rules)]
        command += ["--bootstrap-servers", broker.bootstrap_servers, "--lake", str(directory / "lake")]
        log = (directory / "jobs.log").open("w")
        process = subprocess.Popen(command, stderr=log)
        fleet, published_ms, ended = (
            Fleet(broker.bootstrap_servers, gateways, period_s),
            dict[tuple[str, int], int](),
            threading.Event(),
        )
        reader = threading.Thread(target=collect, args=(broker.bootstrap_servers, ended, published_ms))
        try:
            fleet.start()
            reader.start()
            # The minute of warming up begins when the job has caught up with the fleet once.
            wait_for(lambda: process.poll() is not None or _fresh(published_ms, 10), _START_S, poll_s=0.5)
            time.sleep(warm_s)
            begin_us = time.time_ns() // 1000
            processes_s, driver_s = cpu_s(process.pid), sum(psutil.Process(process.pid).cpu_times()[:2])
            time.sleep(seconds)
            end_us = time.time_ns() // 1000
            processes_s = cpu_s(process.pid) - processes_s
            driver_s = sum(psutil.Process(process.pid).cpu_times()[:2]) - driver_s
            load = os.getloadavg()[0]
            driver_bytes = psutil.Process(process.pid).memory_info().rss
            time.sleep(10)
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            again_s, log = time.time(), (directory / "jobs-again.log").open("w")
            process = subprocess.Popen(command, stderr=log)
            wait_for(lambda: _fresh(published_ms, _STEADY_S, again_s), _START_S, poll_s=0.1)
            steady_s = time.time() - again_s
        finally:
            fleet.stop()
            ended.set()
            reader.join()
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            log.close()
    violations = {key: ms for key, ms in fleet.appended_ms.items() if begin_us <= key[1] < end_us}
    late_s = sorted((published_ms[key] - ms) / 1000 for key, ms in violations.items() if key in published_ms)
    if not late_s:
        sys.stdout.write((directory / "jobs.log").read_text()[-3000:])
        return
    rate = gateways * len(_CHANNELS) / period_s
    cuts = statistics.quantiles(late_s, n=100)
    sys.stdout.write(
        f"jobs {jobs}: {rate:g} readings/s, {seconds:g} s, {len(violations)} violations, "
        f"{len(violations) - len(late_s)} without an alert; append to append p50 {cuts[49] * 1000:.0f} ms, "
        f"p90 {cuts[89] * 1000:.0f}, p99 {cuts[98] * 1000:.0f}, most {late_s[-1] * 1000:.0f}; "
        f"jobs' CPU {processes_s / seconds:.2f} cores, of them the driver's Python "
        f"{driver_s / seconds / rate * 1e6:.0f} us a reading and {driver_bytes >> 20} MiB; started again, "
        f"alerts are {_STEADY_S:g} s behind at most after {steady_s:.0f} s; load {load:.1f}\n"
    )


def main() -> None:
    """As the options set it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", nargs="+", default=["alerts", "all"], choices=["alerts", "all"])
    parser.add_argument("--warm", type=float, default=60.0, help="seconds before it counts")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--gateways", type=int, default=100, help="ten channels each")
    parser.add_argument(
        "--period", type=int, default=1, metavar="S", help="seconds between readings of a channel"
    )
    parser.add_argument("--keep", type=Path, help="directory to leave behind")
    options = parser.parse_args()
    for jobs in options.jobs:
        with tempfile.TemporaryDirectory() as temporary:
            directory = (options.keep or Path(temporary)) / jobs
            directory.mkdir(parents=True)
            measure(jobs, options.warm, options.seconds, options.gateways, options.period, directory)


if __name__ == "__main__":
    main()
