"""A broker to be hurt, and everything a mast has in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # no __all__
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.local.process import free_port
from tests.faults.uplink import Uplink
from tests.support.servers import eventually, unique_name

Identity = tuple[str, str, str, int]
"""Gateway, channel, run, seq of a reading."""

QUANTITIES: Final = ("wind_speed", "temperature", "humidity", "pressure")
_PARTITIONS: Final = 2

_MORE_PROPERTIES: Final = """
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,UPLINK:PLAINTEXT,CONTROLLER:PLAINTEXT
listeners=PLAINTEXT://127.0.0.1:{port},UPLINK://127.0.0.1:{inner},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},UPLINK://127.0.0.1:{uplink}
inter.broker.listener.name=PLAINTEXT
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
# A killed broker may register again when its old session is over.
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
"""


class HurtBroker(LocalBroker):
    """A broker with a second listener that it announces at the uplink's port, and with ACLs."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.inner_port, self.uplink_port = free_port(), free_port()

    def _configure(self) -> Path:
        properties = super()._configure()
        with properties.open("a") as file:
            # Of a key that is given twice the last one counts.
            file.write(
                _MORE_PROPERTIES.format(
                    port=self.port,
                    inner=self.inner_port,
                    uplink=self.uplink_port,
                    controller_port=self.controller_port,
                )
            )
        return properties


class _FormerBroker(LocalBroker):
    """A second broker of the cluster: once it has been there, topics may count on it."""

    def __init__(self, directory: Path, first: LocalBroker) -> None:
        super().__init__(directory, controller_port=first.controller_port)
        self._first = first

    def _configure(self) -> Path:
        meta = dict(
            line.split("=", 1)
            for line in (self._first.directory / "data" / "meta.properties").read_text().splitlines()
            if "=" in line
        )
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "meta.properties").write_text(f"version=1\ncluster.id={meta['cluster.id']}\nnode.id=2\n")
        properties = super()._configure()
        with properties.open("a") as file:
            file.write(f"process.roles=broker\nnode.id=2\nlisteners=PLAINTEXT://127.0.0.1:{self.port}\n")
            file.write("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n")
            file.write("allow.everyone.if.no.acl.found=true\n")
        return properties


class Kafka:
    """The broker, the uplink that leads to it, and the operator's hands on its topics."""

    def __init__(self, broker: HurtBroker, uplink: Uplink) -> None:
        self.broker = broker
        self.uplink = uplink
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        provision_topics(broker.bootstrap_servers, partitions=_PARTITIONS, replication=1)

    @property
    def direct(self) -> str:
        """The broker's own address."""
        return self.broker.bootstrap_servers

    @property
    def by_uplink(self) -> str:
        """The address through the uplink."""
        return f"127.0.0.1:{self.uplink.port}"

    def create(self, *topics: str) -> None:
        """Create topics, and wait until the broker has them."""
        wanted = [NewTopic(topic, num_partitions=_PARTITIONS, replication_factor=1) for topic in topics]
        for created in self._admin.create_topics(wanted).values():
            created.result(timeout=20)
        eventually(lambda: set(topics) <= set(self._admin.list_topics(timeout=10).topics))

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until the broker has forgotten it."""
        self._admin.delete_topics([topic])[topic].result(timeout=20)
        eventually(lambda: topic not in self._admin.list_topics(timeout=10).topics)

    def forbid_writing(self, topic: str) -> None:
        """Let everyone read a topic; with that, no client may write it."""
        rule = _may_read(topic)
        self._admin.create_acls([rule])[rule].result(timeout=20)

    def allow_writing(self, topic: str) -> None:
        """Take the rule away again."""
        rule = AclBindingFilter(
            ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*",
            AclOperation.ANY, AclPermissionType.ANY,
        )  # fmt: skip
        self._admin.delete_acls([rule])[rule].result(timeout=20)

    def create_with_a_replica_that_is_down(self, topic: str) -> None:
        """Create a topic whose second replica's broker has left the cluster: in sync is the first alone."""
        with _FormerBroker(self.broker.directory.with_name("former-kafka"), self.broker):
            pass
        placed = NewTopic(topic, num_partitions=_PARTITIONS, replica_assignment=[[1, 2]] * _PARTITIONS)
        self._admin.create_topics([placed])[topic].result(timeout=20)

    def require_replicas(self, topic: str, count: int) -> None:
        """Set how many replicas must have a record before it is acknowledged."""
        entry = ConfigEntry("min.insync.replicas", str(count), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(timeout=20)

    def messages(self, topics: Iterable[str]) -> Iterator[Message]:
        """Every message of these topics; those that don't exist have none."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.direct,
                "group.id": unique_name("reckoning"),
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )
        try:
            known = consumer.list_topics(timeout=20).topics
            ends: dict[tuple[str, int], int] = {}
            places = []
            for topic in topics:
                for partition in known[topic].partitions if topic in known else ():
                    start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
                    if start < end:
                        ends[topic, partition] = end
                        places.append(TopicPartition(topic, partition, start))
            consumer.assign(places)
            while ends:
                for message in consumer.consume(1000, timeout=0.05):
                    place = (message.topic() or "", message.partition() or 0)
                    if message.error() is None and place in ends:
                        yield message
                        if (message.offset() or 0) + 1 >= ends[place]:
                            del ends[place]
        finally:
            consumer.close()


def _may_read(topic: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*",
        AclOperation.READ, AclPermissionType.ALLOW,
    )  # fmt: skip
