"""Provisioning a real broker: what is there, what it does twice, what it reports if it can't."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined] # no __all__
from confluent_kafka.admin._metadata import TopicMetadata
from confluent_kafka.cimpl import NewTopic

from cloud.errors import CloudError
from cloud.kafka.provision import TOPICS, Provisioned, provision_topics
from cloud.local.kafka_broker import LocalBroker
from gateway.cli import main
from tests.support.servers import eventually, unique_name

LAKE = ("lake.statistics", "lake.mast", "lake.presence", "lake.events", "lake.alerts")
EXPECTED = (
    *("mqtt.temperature", "mqtt.humidity", "mqtt.pressure", "mqtt.wind_speed", "mqtt.irradiance", "mqtt.co2"),
    *(
        "mqtt.location",
        "mqtt.wind_direction",
        "mqtt.precipitation",
        "mqtt.voltage",
        "mqtt.current",
        "mqtt.power",
    ),
    *(
        "mqtt.energy",
        "mqtt.module_temperature",
        "mqtt.soil_moisture",
        "mqtt.illuminance",
        "mqtt.battery_level",
    ),
    *("mqtt.state", "mqtt.raw", "gateway.events", "gateway.commands", "gateway.command-results"),
    *("gateway.alerts", "gateway.dead-letter", "gateway.status", "gateway.runs", "gateway.channels"),
    "gateway.sites",
    "gateway.identities",
    *LAKE,
)
COMPACTED = {"gateway.status", "gateway.runs", "gateway.channels", "gateway.sites", "gateway.identities"}
COMPACTED |= set(LAKE)


@pytest.fixture
def prefix() -> str:
    """What the test's own topics begin with, none of which is there yet."""
    return f"{unique_name('north')}."


@pytest.fixture
def own_topics(kafka: LocalBroker, prefix: str) -> Callable[[], dict[str, TopicMetadata]]:
    """Gives the topics that there are with the prefix, by their names without it."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    def find() -> dict[str, TopicMetadata]:
        found = admin.list_topics(timeout=10).topics
        return {name.removeprefix(prefix): each for name, each in found.items() if name.startswith(prefix)}

    return find


def prefixed(prefix: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{prefix}{name}" for name in names)


def test_it_creates_every_topic_once_and_compares_what_exists(
    kafka: LocalBroker,
    prefix: str,
    own_topics: Callable[[], dict[str, TopicMetadata]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    servers, co2 = kafka.bootstrap_servers, f"{prefix}mqtt.co2"
    admin = AdminClient({"bootstrap.servers": servers})
    wrong = NewTopic(co2, 2, 1, config={"message.timestamp.type": "CreateTime"})
    admin.create_topics([wrong])[co2].result(timeout=20)
    # A created topic is in the broker's metadata a moment later.
    eventually(lambda: "mqtt.co2" in own_topics())
    deviation = f"{co2}: message.timestamp.type is CreateTime, must be LogAppendTime"
    others = prefixed(prefix, (name for name in EXPECTED if name != "mqtt.co2"))

    planned = provision_topics(servers, dry_run=True, prefix=prefix)
    assert planned == Provisioned(created=others, existing=(co2,), deviations=(deviation,))
    assert set(own_topics()) == {"mqtt.co2"}

    few = (f"{co2}: partitions is 2, must be 3",)
    made = provision_topics(servers, partitions=3, replication=1, prefix=prefix)
    assert made == replace(planned, differences=few)
    topics = eventually(own_topics, until=lambda found: set(found) >= set(EXPECTED))
    assert set(EXPECTED) == set(topics) == set(TOPICS)
    assert {name: len(topics[name].partitions) for name in EXPECTED} == {
        name: 2 if name == "mqtt.co2" else 3 for name in EXPECTED
    }
    for name in others:
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        settings = admin.describe_configs([resource])[resource].result(timeout=20)
        assert settings["message.timestamp.type"].value == "LogAppendTime"
        compacted = name.removeprefix(prefix) in COMPACTED
        assert settings["cleanup.policy"].value == ("compact" if compacted else "delete")

    again = provision_topics(servers, prefix=prefix)
    assert again == Provisioned(created=(), existing=prefixed(prefix, EXPECTED), deviations=(deviation,))
    assert len(provision_topics(servers, partitions=5, prefix=prefix).differences) == len(EXPECTED)
    assert len(own_topics()["mqtt.humidity"].partitions) == 3

    assert main(["provision", "topics", "--bootstrap-servers", servers, "--prefix", prefix]) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [f"exists   {prefix}{name}" for name in EXPECTED]
    assert printed.err == f"fieldgate: {deviation}\n"


def test_apply_changes_settings_and_makes_partitions_where_keys_may_move(
    kafka: LocalBroker,
    prefix: str,
    own_topics: Callable[[], dict[str, TopicMetadata]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    servers, co2 = kafka.bootstrap_servers, f"{prefix}mqtt.co2"
    admin = AdminClient({"bootstrap.servers": servers})
    wrong = {"message.timestamp.type": "CreateTime", "cleanup.policy": "compact"}
    admin.create_topics([NewTopic(co2, 1, 1, config=wrong)])[co2].result(timeout=20)
    eventually(lambda: "mqtt.co2" in own_topics())
    provision_topics(servers, partitions=1, prefix=prefix)
    # A topic that has just been made isn't in each answer at once.
    eventually(lambda: own_topics().keys() >= set(EXPECTED))
    command = ["provision", "topics", "--bootstrap-servers", servers, "--prefix", prefix]
    command += ["--partitions", "2", "--replication", "2", "--retention", "30d"]
    assert main([*command, "--dry-run"]) == 1
    planned = capsys.readouterr()
    assert f"differs  {co2}: partitions is 1, must be 2\n" in planned.out
    assert f"differs  {co2}: retention.ms is 604800000, must be 2592000000\n" in planned.out
    assert f"differs  {co2}: replicas is 1, must be 2: by kafka-reassign-partitions\n" in planned.out
    stays = f"differs  {prefix}gateway.runs: partitions is 1, must be 2: its keys would move; it stays\n"
    assert stays in planned.out
    assert planned.err.splitlines() == [
        f"fieldgate: {co2}: cleanup.policy is compact, must be delete",
        f"{co2}: message.timestamp.type is CreateTime, must be LogAppendTime",
    ]
    assert main([*command, "--apply"]) == 0
    applied = capsys.readouterr().out
    assert f"changed  {co2}: cleanup.policy is compact, must be delete\n" in applied
    assert stays in applied
    eventually(lambda: len(own_topics()["mqtt.co2"].partitions) == 2)
    few = set(prefixed(prefix, (*COMPACTED, "gateway.commands")))
    eventually(
        lambda: provision_topics(servers, partitions=2, retention_s=2592000.0, prefix=prefix),
        until=lambda done: (
            not done.deviations and {line.partition(":")[0] for line in done.differences} == few
        ),
    )


def test_the_command_creates_what_a_dry_run_names(
    kafka: LocalBroker, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["provision", "topics", "--bootstrap-servers", kafka.bootstrap_servers, "--prefix", prefix]
    assert main([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"missing  {prefix}{name}" for name in EXPECTED]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines() == [f"created  {prefix}{name}" for name in EXPECTED]


def test_a_wrong_security_protocol_is_reported_as_one(kafka: LocalBroker) -> None:
    with pytest.raises(CloudError, match=r": its listener has no TLS: security\.protocol must be PLAINTEXT"):
        provision_topics(kafka.bootstrap_servers, properties={"security.protocol": "ssl"}, timeout_s=1.0)


def test_a_refusal_names_the_topic_and_the_reason(kafka: LocalBroker, prefix: str) -> None:
    with pytest.raises(CloudError, match=r"refused to create .*mqtt\.co2: .*replication.factor"):
        provision_topics(kafka.bootstrap_servers, replication=2, prefix=prefix)
