"""Kafka as it runs in a data centre: a controller and three brokers, each a process of its own."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.local.process import LocalServer
from tests.faults.kafka import Kafka
from tests.support.servers import eventually

BROKERS: Final = 3
IN_SYNC: Final = 2
_PARTITIONS: Final = 3
_CONTROLLER_ID: Final = 100
_SETTINGS: Final = """
offsets.topic.replication.factor=3
default.replication.factor=3
min.insync.replicas=2
share.coordinator.state.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
# A killed broker is taken for dead, and may register again, after two seconds in place of nine.
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
replica.lag.time.max.ms=4000
controller.quorum.voters={voter}@127.0.0.1:{controller_port}
"""


class _Controller(LocalBroker):
    """The controller, which has no records."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.port = self.controller_port

    def answers(self) -> bool:
        return LocalServer.answers(self)

    def _configure(self) -> Path:
        properties = super()._configure()
        lines = [each for each in properties.read_text().splitlines() if not each.startswith("advertised.")]
        properties.write_text("\n".join(lines))
        with properties.open("a") as file:
            file.write(_SETTINGS.format(voter=_CONTROLLER_ID, controller_port=self.controller_port))
            file.write(f"process.roles=controller\nnode.id={_CONTROLLER_ID}\n")
            file.write(f"listeners=CONTROLLER://127.0.0.1:{self.controller_port}\n")
        return properties


class _Node(LocalBroker):
    """One broker of the three; it belongs to the controller's cluster."""

    def __init__(self, directory: Path, node: int, controller: LocalBroker) -> None:
        super().__init__(directory, controller_port=controller.controller_port)
        self._node = node
        self._cluster = controller.directory / "data" / "meta.properties"

    def _configure(self) -> Path:
        meta = self.directory / "data" / "meta.properties"
        if not meta.exists():
            meta.parent.mkdir(parents=True)
            (cluster,) = (
                line for line in self._cluster.read_text().splitlines() if line.startswith("cluster.id=")
            )
            meta.write_text(f"version=1\n{cluster}\nnode.id={self._node}\n")
        properties = super()._configure()
        with properties.open("a") as file:
            file.write(_SETTINGS.format(voter=_CONTROLLER_ID, controller_port=self.controller_port))
            file.write(f"process.roles=broker\nnode.id={self._node}\n")
            file.write(f"listeners=PLAINTEXT://127.0.0.1:{self.port}\n")
        return properties


class Cluster(Kafka):
    """Three brokers; topics are on all of them, and two must have a record before it is acknowledged."""

    def __init__(self, directory: Path) -> None:
        controller = _Controller(directory / "controller")
        self.nodes = {
            node: _Node(directory / f"broker-{node}", node, controller) for node in range(1, BROKERS + 1)
        }
        self._servers = controller, *self.nodes.values()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            for server in self._servers:
                opening.enter_context(server)
            self._admin = AdminClient({"bootstrap.servers": self.direct, "log_level": 0})
            eventually(lambda: len(self._admin.list_topics(timeout=10).brokers), until=lambda n: n == BROKERS)
            provision_topics(self.direct, partitions=_PARTITIONS, replication=BROKERS)
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def direct(self) -> str:
        return ",".join(node.bootstrap_servers for node in self.nodes.values())

    @property
    def by_uplink(self) -> str:
        return self.direct

    def create(self, *topics: str) -> None:
        config = {"min.insync.replicas": str(IN_SYNC)}
        wanted = [
            NewTopic(topic, num_partitions=_PARTITIONS, replication_factor=BROKERS, config=config)
            for topic in topics
        ]
        for created in self._admin.create_topics(wanted).values():
            created.result(timeout=20)
        eventually(lambda: set(topics) <= set(self._admin.list_topics(timeout=10).topics))

    def leader(self, topic: str) -> int:
        """The broker that leads the topic's first partition."""
        found = self._admin.list_topics(topic, timeout=10).topics[topic].partitions
        return int(found[0].leader)

    def in_sync(self, topic: str) -> int:
        """How many brokers have all of each partition of the topic."""
        found = self._admin.list_topics(topic, timeout=10).topics[topic].partitions
        return min(len(each.isrs) for each in found.values())
