"""Bridges from Mosquitto to Kafka side by side: raw limits, forty hand-written lines, Telegraf, this gateway.

    make bench BENCH=peers ARGS='--rounds 3'

Telegraf runs where its program is on PATH or at $TELEGRAF. A round takes about nine minutes:

- drain: messages that Mosquitto queued while the bridge was away, from the first to the last in Kafka.
- latency: a paced publisher, and the time until a consumer of Kafka has the message.
- loss: all bridges subscribe to the same topic, 500 messages a second, and then something fails.

Writes docs/results/peers.jsonl and, from it, docs/performance.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import psutil
from confluent_kafka import Producer
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from tests.bench import page
from tests.bench.bridges import Bridge, Servers, from_mqtt, measure, servers, telegraf
from tests.bench.figures import Row, cpu_s, peak_rss_mib
from tests.bench.handmade import PRODUCER
from tests.support.servers import eventually, unique_name

_SIZE: Final = 200
_STEPS: Final = {"100/s": (100, 1), "1,000/s": (1_000, 1), "1,000/s, 5 topics": (1_000, 5)}
"""Messages per second in all, and MQTT topics."""
_LOSS_RATE: Final = 500
_AWAY_S: Final = 2.0
"""How long Mosquitto is away; a bridge half as long."""
_QUIET_S: Final = 20.0
_POLL_S: Final = 0.01
_FAILURES: Final = (AssertionError, LookupError, psutil.Error, subprocess.SubprocessError)


def drain(ours: Servers, kind: str, count: int) -> Row:
    """A bridge takes what waits in Mosquitto: messages/s, µs of CPU a message, memory, and what came."""
    bridge = Bridge(kind, ours)
    try:
        bridge.flow()
        bridge.kill()
        ours.publisher(bridge.prefix, count, _SIZE).communicate()
        base = bridge.count()
        bridge.launch()
        pids = {"cpu_us": bridge.pid, "mosquitto_us": ours.mosquitto.pid, "kafka_us": ours.kafka.pid}
        # A start loads libraries: what counts begins with the first message.
        first = eventually(bridge.count, until=lambda records: records > base, poll_s=_POLL_S)
        begin_s, used = time.perf_counter(), {name: cpu_s(pid) for name, pid in pids.items()}
        last, end_s = first, begin_s
        while last < base + count and time.perf_counter() < end_s + _QUIET_S:
            time.sleep(_POLL_S)
            if (now := bridge.count()) > last:
                last, end_s = now, time.perf_counter()
        moved = max(last - first, 1)
        figures: Row = {name: 1e6 * (cpu_s(pid) - used[name]) / moved for name, pid in pids.items()}
        figures |= {"rate": moved / max(end_s - begin_s, _POLL_S), "rss_mib": peak_rss_mib(bridge.pid)}
        return figures | _accounts(bridge, count)
    finally:
        bridge.close()


def subscribe(ours: Servers, name: str, count: int) -> Row:
    """The same of a subscriber without Kafka: ``paho``, in this process, or ``mosquitto_sub``."""
    session = unique_name("raw")
    client = Client(CallbackAPIVersion.VERSION2, client_id=session, clean_session=False)
    with ours.subscribed(client, session):
        pass
    ours.publisher(session, count, _SIZE).communicate()
    if name == "mosquitto_sub":
        options = ("-p", str(ours.mosquitto.port), "-q", "1", "-c", "-i", session, "-C", str(count))
        begin_s, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [name, *options, "-t", f"{session}/+"], stdout=subprocess.DEVNULL, check=True, timeout=300
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return _speed(count, time.perf_counter() - begin_s, used_s)
    begun: list[float] = []
    ended, received = threading.Event(), 0

    def arrived(*_: object) -> None:
        nonlocal received
        if not received:
            begun.extend((time.perf_counter(), time.process_time()))
        received += 1
        if received == count:
            ended.set()

    client.on_message = arrived
    with ours.subscribed(client, session):
        assert ended.wait(300), f"{received} of {count} came"
        return _speed(count, time.perf_counter() - begun[0], time.process_time() - begun[1])


def produce(ours: Servers, count: int) -> Row:
    """The same of a producer without MQTT."""
    topic = unique_name("raw")
    ours.create(topic)
    producer = Producer({"bootstrap.servers": ours.kafka.bootstrap_servers} | PRODUCER)
    producer.list_topics(topic, timeout=20)
    digits = os.urandom(1 << 20).hex()
    begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
    for number in range(count):
        at = number * 7919 % (len(digits) - _SIZE)
        while len(producer) > 50_000:
            producer.poll(0.01)
        producer.produce(topic, digits[at : at + _SIZE])
    assert producer.flush(60) == 0, "Kafka has not confirmed all"
    return _speed(count, time.perf_counter() - begin_s, time.process_time() - begin_cpu_s)


def latency(ours: Servers, kind: str, rate: int, topics: int, seconds: float) -> Row:
    """ms from publishing until a consumer has the message; ``paho`` is a subscriber of Mosquitto alone."""
    count = int(rate * seconds)
    if kind == "paho":
        prefix = unique_name("raw")
        with from_mqtt(ours, prefix) as arrivals:
            return measure(ours, arrivals, ours.publisher(prefix, count, _SIZE, rate=rate, topics=topics))
    bridge = Bridge(kind, ours)
    try:
        bridge.flow()
        with bridge.arrivals() as arrivals:
            publisher = ours.publisher(bridge.prefix, count, _SIZE, rate=rate, topics=topics)
            return measure(ours, arrivals, publisher, bridge)
    finally:
        bridge.close()


def loss(ours: Servers, kinds: Sequence[str], scenario: str, count: int) -> Iterator[Row]:
    """What of the numbered messages is missing in Kafka, or there twice, for each bridge."""
    prefix = unique_name("loss")
    bridges = [Bridge(kind, ours, prefix=prefix) for kind in kinds]
    try:
        for bridge in bridges:
            bridge.flow()
        base = bridges[0].count()
        publisher = ours.publisher(prefix, count, _SIZE, rate=_LOSS_RATE)
        eventually(bridges[0].count, until=lambda records: records > base, poll_s=_POLL_S)
        begin_s = time.monotonic()
        for share, happens in _SCENARIOS[scenario]:
            time.sleep(max(0.0, begin_s + share * count / _LOSS_RATE - time.monotonic()))
            happens(ours, bridges)
        acked = json.loads(publisher.communicate()[0])["acked"]
        assert acked == count, f"Mosquitto has acknowledged {acked} of {count} messages"
        before, quiet_s = [0], time.monotonic()
        while time.monotonic() < quiet_s + _QUIET_S and min(before) <= count:
            time.sleep(0.5)
            now = [eventually(bridge.count) for bridge in bridges]
            if now != before:
                before, quiet_s = now, time.monotonic()
        for bridge in bridges:
            yield {"name": bridge.kind, "rss_mib": peak_rss_mib(bridge.pid), **_accounts(bridge, count)}
    finally:
        for bridge in bridges:
            bridge.close()


def _kill(bridges: Sequence[Bridge]) -> None:
    for bridge in bridges:
        bridge.kill()
    time.sleep(_AWAY_S / 2)
    for bridge in bridges:
        bridge.launch()


def _kill_mosquitto(ours: Servers) -> None:
    ours.mosquitto.kill()
    time.sleep(_AWAY_S)
    ours.mosquitto.start()


_Events = list[tuple[float, Callable[[Servers, Sequence[Bridge]], None]]]
_DOWN: Final[_Events] = [(0.25, lambda ours, _: ours.kafka.kill())]
_UP: Final[_Events] = [(0.75, lambda ours, _: ours.kafka.start())]
_KILLS: Final[_Events] = [(share, lambda _, bridges: _kill(bridges)) for share in (0.25, 0.5, 0.75)]
_SCENARIOS: Final[dict[str, _Events]] = {
    "Kafka down": _DOWN + _UP,
    "bridge killed three times": _KILLS,
    "Mosquitto killed": [(0.4, lambda ours, _: _kill_mosquitto(ours))],
    "Kafka down, bridge killed": _DOWN + _KILLS[1:2] + _UP,
}
"""When, as a share of the publishing, what happens."""


def _speed(count: int, seconds: float, used_s: float) -> Row:
    return {"rate": count / seconds, "cpu_us": 1e6 * used_s / count}


def _accounts(bridge: Bridge, count: int) -> Row:
    """Missing and repeated messages, once no more come."""
    before = -1
    while (now := bridge.count()) != before:
        before = now
        time.sleep(1)
    found = bridge.numbers()
    return {"missing": count - len(found), "twice": found.total() - len(found)}


def one_round(raw: Sequence[str], kinds: Sequence[str], options: argparse.Namespace) -> Iterator[Row]:
    """All measurements, with ``what`` and ``name``; one that fails costs the others nothing."""

    def tried(what: str, name: str, call: Callable[[], Row]) -> Row:
        try:
            return {"what": what, "name": name} | call()
        except _FAILURES as error:
            return {"what": what, "name": name, "failed": str(error)[-500:]}

    with servers() as ours:
        for name in raw:
            yield tried("drain", name, partial(subscribe, ours, name, options.count))
        yield tried("drain", "librdkafka", partial(produce, ours, options.count))
        for kind in kinds:
            yield tried("drain", kind, partial(drain, ours, kind, options.count))
        for step, (rate, topics) in _STEPS.items():
            for kind in ("paho", *kinds):
                yield tried(step, kind, partial(latency, ours, kind, rate, topics, options.seconds))
        for scenario in _SCENARIOS:
            try:
                yield from ({"what": scenario} | row for row in loss(ours, kinds, scenario, options.loss))
            except _FAILURES as error:
                yield {"what": scenario, "name": "all", "failed": str(error)[-500:]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the results, and the page from them."""
    parser = argparse.ArgumentParser(description="bridges side by side")
    parser.add_argument("--count", type=int, default=60_000, help="messages of drain")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each step of latency")
    parser.add_argument("--loss", type=int, default=20_000, help="messages of loss")
    options = page.options(parser, arguments, rounds=3)
    there = {"mosquitto_sub": shutil.which("mosquitto_sub"), "telegraf": telegraf()}
    absent = [name for name, program in there.items() if program is None]
    for name in absent:
        sys.stdout.write(f"skipped: {name}, there is no such program on this machine\n")
    raw, kinds = (
        [name for name in names if name not in absent]
        for names in (("paho", "mosquitto_sub"), ("hand-written", "telegraf", "gateway"))
    )
    sizes = {"size": _SIZE, "count": options.count, "loss": options.loss, "loss_rate": _LOSS_RATE}
    # This process is a raw limit itself.
    gc.freeze()
    page.record("peers", options, partial(one_round, raw, kinds, options), absent=absent, **sizes)


if __name__ == "__main__":
    main()
