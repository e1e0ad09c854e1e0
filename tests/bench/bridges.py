"""Bridges from Mosquitto to Kafka against brokers of the bench's own, and what became of a load.

All on loopback and below one temporary directory, which goes at the end.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from paho.mqtt import publish
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from buffer.sqlite_outbox import SqliteOutbox
from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.local.process import Child, free_port, last_lines
from cloud.local.server import LocalProgram
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.bench.figures import Row, cpu_s, spread
from tests.support.config import baro, config_text, write_config
from tests.support.mast import records
from tests.support.servers import eventually, unique_name

# Nothing of a backlog may be thrown away, whatever its size.
_MOSQUITTO: Final = "max_queued_messages 0\nmax_queued_bytes 0\nset_tcp_nodelay true\n"
# paho.mqtt.publish logs an error when it has disconnected.
logging.getLogger("paho").addHandler(logging.NullHandler())
_ARRIVED_WITHIN_S: Final = 15.0
_TELEGRAF: Final = """\
agent = {{ flush_interval = "100ms", metric_batch_size = 500, omit_hostname = true }}
[[inputs.mqtt_consumer]]
  servers = ["tcp://127.0.0.1:{port}"]
  topics = ["{filter}"]
  topic_tag = ""
  qos = 1
  persistent_session = true
  client_id = "{name}"
  data_format = "value"
  data_type = "string"
[[outputs.kafka]]
  brokers = ["{kafka}"]
  topic = "{name}"
  version = "2.6.0"
  compression_codec = 4
  idempotent_writes = true
  # Or it ends where Kafka is down when it starts.
  startup_error_behavior = "retry"
  data_format = "template"
  template = '{{{{ .Field "value" }}}}'
"""


@dataclass(frozen=True)
class Servers:
    """A Kafka, a Mosquitto and a directory."""

    directory: Path
    kafka: LocalBroker
    mosquitto: LocalMosquitto

    def create(self, *topics: str, partitions: int = 1) -> None:
        """Create topics whose records have the time at which Kafka appended them."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers, "log_level": 0})
        settings = {"message.timestamp.type": "LogAppendTime"}
        new = [NewTopic(topic, partitions, 1, config=settings) for topic in topics]
        for created in admin.create_topics(new).values():
            created.result(timeout=20)

    def publisher(
        self, prefix: str, count: int, size: int, *, rate: float = 0, topics: int = 1
    ) -> subprocess.Popen[str]:
        """Start ``tests.bench.publisher``."""
        arguments = (str(self.mosquitto.port), prefix, *map(str, (count, rate, size, topics)))
        command = (sys.executable, "-m", "tests.bench.publisher", *arguments)
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    @contextmanager
    def subscribed(self, client: Client, prefix: str) -> Iterator[None]:
        """A client that receives ``prefix``/+ in a thread of its own."""
        answered = threading.Event()
        client.on_subscribe = lambda *_: answered.set()
        client.connect(self.mosquitto.host, self.mosquitto.port)
        client.loop_start()
        client.subscribe(f"{prefix}/+", qos=1)
        try:
            assert answered.wait(20), "Mosquitto has not answered a subscription"
            yield
        finally:
            client.disconnect()
            client.loop_stop()


@contextmanager
def servers() -> Iterator[Servers]:
    """A Kafka and a Mosquitto that end with the block."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        LocalBroker(Path(name) / "kafka") as kafka,
        LocalMosquitto(Path(name) / "mosquitto", settings=_MOSQUITTO) as mosquitto,
    ):
        provision_topics(kafka.bootstrap_servers, partitions=1, replication=1)
        yield Servers(Path(name), kafka, mosquitto)


class Bridge(LocalProgram):
    """``gateway``, ``hand-written`` or ``telegraf``, with an id, a session and Kafka topics of its own.

    It takes ``prefix``/0, ``prefix``/1 … to one Kafka topic; the gateway also each of ``topics`` to its own.
    """

    start_timeout_s = 60.0
    stop_timeout_s = 15.0

    def __init__(
        self, kind: str, servers: Servers, *, prefix: str = "", topics: int = 0, partitions: int = 1
    ) -> None:
        self.kind, self.id = kind, unique_name(kind)
        self.prefix = prefix or f"bench/{self.id}"
        self.topics = [f"{self.id}.{number}" for number in range(topics)] or [self.id]
        self._servers = servers
        self._directory = servers.directory / self.id
        self._directory.mkdir()
        self.outbox = self._directory / "outbox.db"
        super().__init__(self._directory / "log")
        servers.create(*self.topics, partitions=partitions)
        self._places = [TopicPartition(topic, n) for topic in self.topics for n in range(partitions)]
        self._consumer = Consumer(
            {"bootstrap.servers": servers.kafka.bootstrap_servers, "group.id": self.id, "log_level": 0}
        )

    def flow(self) -> None:
        """Start it, and wait until a message has come through on each topic. Raises AssertionError."""
        self.launch()
        eventually(self.answers, self.start_timeout_s, poll_s=0.3)

    def answers(self) -> bool:
        """Publish a message on each topic; True once Kafka has one of each."""
        assert self.exit_code is None, f"{self.kind} ended with {self.exit_code}:\n{last_lines(self.log)}"
        for number in range(len(self.topics)):
            topic = f"{self.prefix}/{number}"
            publish.single(topic, "-1 0 probe", qos=1, port=self._servers.mosquitto.port)
        return {place.topic for place in self.ends() if place.offset > 0} == set(self.topics)

    def ends(self) -> list[TopicPartition]:
        """Its partitions with their next offsets. Raises LookupError where Kafka doesn't answer."""
        try:
            return [
                TopicPartition(each.topic, each.partition, self._consumer.get_watermark_offsets(each, 5)[1])
                for each in self._places
            ]
        except KafkaException as error:
            raise LookupError(str(error)) from error

    def count(self) -> int:
        """How many records its topics have."""
        return sum(place.offset for place in self.ends())

    def numbers(self) -> Counter[int]:
        """How often each numbered message is in Kafka."""
        kafka = self._servers.kafka.bootstrap_servers
        found = Counter(int((each.value() or b"").split(b" ", 1)[0]) for each in records(kafka, self.topics))
        del found[-1]
        return found

    @contextmanager
    def arrivals(self) -> Iterator[Arrivals]:
        """What comes to its topics from now on."""
        arrivals, ended = Arrivals(), threading.Event()
        self._consumer.assign(self.ends())

        def read() -> None:
            while not ended.is_set():
                message = self._consumer.poll(0.1)
                if message is not None and message.error() is None:
                    arrivals.note(message.value() or b"", message.timestamp()[1])

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield arrivals
        finally:
            ended.set()
            thread.join()
            self._consumer.unassign()

    def close(self) -> None:
        """End it."""
        self.kill()
        self._consumer.close()

    def _spawn(self) -> Child:
        port, kafka = self._servers.mosquitto.port, self._servers.kafka.bootstrap_servers
        topic_filter = f"{self.prefix}/+"
        if self.kind == "telegraf":
            file = self._directory / "telegraf.conf"
            file.write_text(_TELEGRAF.format(port=port, kafka=kafka, filter=topic_filter, name=self.id))
            return Child((telegraf() or "telegraf", "--config", str(file)), self.log)
        if self.kind == "hand-written":
            arguments = (str(port), kafka, self.id, self.id, topic_filter)
            return Child((sys.executable, "-m", "tests.bench.handmade", *arguments), self.log)
        # A new outbox loads a library that loads pandas, where that is installed: on no mast.
        if not self.outbox.exists():
            SqliteOutbox(self.outbox).close()
        topic = self.id if self.topics == [self.id] else f"{self.id}.{{1}}"
        text = config_text(
            baro(interval_s=10),
            gateway={"id": self.id},
            mqtt={"port": port},
            kafka={"bootstrap_servers": kafka},
            status={"listen": f"127.0.0.1:{free_port()}"},
            forward=[{"filter": topic_filter, "payload": "raw", "channel": "bench", "topic": topic}],
        )
        file = write_config(self._directory, text)
        command = (sys.executable, "-m", "gateway.cli", "run", "-c", str(file))
        # As fieldgate.service has it.
        return Child(command, self.log, environment={"MALLOC_ARENA_MAX": "2"})


def telegraf() -> str | None:
    """Telegraf's program: $TELEGRAF, or what PATH has."""
    return shutil.which(os.environ.get("TELEGRAF", "telegraf"))


class Arrivals:
    """When messages were published, appended by Kafka and received; s since 1970."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float, float]] = []

    def note(self, payload: bytes, appended_ms: int = 0) -> None:
        """Take a message that has just been received; Kafka's times are whole ms, so its middle counts."""
        now_s = time.time()
        number, published_ns, _ = payload.split(b" ", 2)
        if int(number) >= 0:
            self.times.append((int(published_ns) / 1e9, (appended_ms + 0.5) / 1e3, now_s))


@contextmanager
def from_mqtt(servers: Servers, prefix: str) -> Iterator[Arrivals]:
    """What a plain subscriber receives: the path without Kafka."""
    arrivals, client = Arrivals(), Client(CallbackAPIVersion.VERSION2)
    client.on_message = lambda _client, _userdata, message: arrivals.note(bytes(message.payload))
    with servers.subscribed(client, prefix):
        yield arrivals


def measure(
    servers: Servers, arrivals: Arrivals, publisher: subprocess.Popen[str], bridge: Bridge | None = None
) -> Row:
    """Figures of a load that is being published, once all of it has arrived (or nothing more for 15 s).

    ``produce`` is until Kafka's append (without a bridge Mosquitto's PUBACK), ``fetch`` until a consumer
    has it, in ms from publishing. ``cpu_percent`` is the brokers' and the bridge's processor time in % of
    the machine, ``all_percent`` with publisher and consumer, ``bridge_percent`` the bridge's alone in %
    of a core. ``rate`` is messages a second at the consumer.
    """
    pids = [servers.mosquitto.pid, *((servers.kafka.pid, bridge.pid) if bridge else ())]
    before, own_s = [cpu_s(pid) for pid in pids], time.process_time()
    published = json.loads(publisher.communicate()[0])
    times, count, quiet_s = arrivals.times, -1, time.monotonic()
    while len(times) < published["acked"] and time.monotonic() < quiet_s + _ARRIVED_WITHIN_S:
        if count != len(times):
            count, quiet_s = len(times), time.monotonic()
        time.sleep(0.01)
    used_s = [cpu_s(pid) - begin_s for pid, begin_s in zip(pids, before, strict=True)]
    all_s = sum(used_s) + published["cpu_s"] + time.process_time() - own_s
    figures: Row = {
        "missing": published["acked"] - len(times),
        "rate": len(times) / max(times[-1][2] - times[0][2], 1e-3) if times else 0.0,
        "cpu_percent": 100 * sum(used_s) / published["seconds"] / (os.cpu_count() or 1),
        "all_percent": 100 * all_s / published["seconds"] / (os.cpu_count() or 1),
        **{name: value for name, value in published.items() if name.startswith("produce")},
        **spread("fetch", [1000 * (received - sent) for sent, _, received in times]),
    }
    if bridge:
        figures["bridge_us"] = 1e6 * used_s[-1] / published["acked"]
        figures["bridge_percent"] = 100 * used_s[-1] / published["seconds"]
        figures |= spread("produce", [1000 * (appended - sent) for sent, appended, _ in times])
    return figures
