"""Provisioning a real broker: what is there, what it does twice, what it reports if it can't."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined] # no __all__
from confluent_kafka.cimpl import NewTopic

from cloud.errors import CloudError
from cloud.kafka.provision import TOPICS, Provisioned, provision_topics
from cloud.local.kafka_broker import LocalBroker
from gateway.cli import main
from tests.support.servers import eventually

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
)
COMPACTED = {"gateway.status", "gateway.runs", "gateway.channels", "gateway.sites", "gateway.identities"}


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def broker(own_broker: LocalBroker) -> LocalBroker:
    """Without any topic."""
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap_servers})
    if topics := list(admin.list_topics(timeout=10).topics):
        for deleted in admin.delete_topics(topics).values():
            deleted.result(timeout=20)
        eventually(lambda: not admin.list_topics(timeout=10).topics)
    return own_broker


def test_it_creates_every_topic_once_and_compares_what_exists(
    broker: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    wrong = NewTopic("mqtt.co2", 2, 1, config={"message.timestamp.type": "CreateTime"})
    admin.create_topics([wrong])["mqtt.co2"].result(timeout=20)
    # A created topic is in the broker's metadata a moment later.
    eventually(lambda: "mqtt.co2" in admin.list_topics(timeout=10).topics)
    deviation = "mqtt.co2: message.timestamp.type is CreateTime, must be LogAppendTime"
    others = tuple(name for name in EXPECTED if name != "mqtt.co2")

    planned = provision_topics(servers, dry_run=True)
    assert planned == Provisioned(created=others, existing=("mqtt.co2",), deviations=(deviation,))
    assert set(admin.list_topics(timeout=10).topics) == {"mqtt.co2"}

    few = ("mqtt.co2: partitions is 2, must be 3",)
    assert provision_topics(servers, partitions=3, replication=1) == replace(planned, differences=few)
    topics = eventually(
        lambda: admin.list_topics(timeout=10).topics, until=lambda found: set(found) >= set(EXPECTED)
    )
    assert set(EXPECTED) == set(topics) == set(TOPICS)
    assert {name: len(topics[name].partitions) for name in EXPECTED} == {
        name: 2 if name == "mqtt.co2" else 3 for name in EXPECTED
    }
    for name in others:
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        settings = admin.describe_configs([resource])[resource].result(timeout=20)
        assert settings["message.timestamp.type"].value == "LogAppendTime"
        assert settings["cleanup.policy"].value == ("compact" if name in COMPACTED else "delete")

    again = provision_topics(servers)
    assert again == Provisioned(created=(), existing=EXPECTED, deviations=(deviation,))
    assert len(provision_topics(servers, partitions=5).differences) == len(EXPECTED)
    assert len(admin.list_topics(timeout=10).topics["mqtt.humidity"].partitions) == 3

    assert main(["provision", "topics", "--bootstrap-servers", servers]) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [f"exists   {name}" for name in EXPECTED]
    assert printed.err == f"fieldgate: {deviation}\n"


def test_apply_changes_settings_and_makes_partitions_where_keys_may_move(
    broker: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    wrong = {"message.timestamp.type": "CreateTime", "cleanup.policy": "compact"}
    admin.create_topics([NewTopic("mqtt.co2", 1, 1, config=wrong)])["mqtt.co2"].result(timeout=20)
    eventually(lambda: "mqtt.co2" in admin.list_topics(timeout=10).topics)
    provision_topics(servers, partitions=1)
    command = ["provision", "topics", "--bootstrap-servers", servers]
    command += ["--partitions", "2", "--replication", "2", "--retention", "30d"]
    assert main([*command, "--dry-run"]) == 1
    planned = capsys.readouterr()
    assert "differs  mqtt.co2: partitions is 1, must be 2\n" in planned.out
    assert "differs  mqtt.co2: retention.ms is 604800000, must be 2592000000\n" in planned.out
    assert "differs  mqtt.co2: replicas is 1, must be 2: by kafka-reassign-partitions\n" in planned.out
    stays = "differs  gateway.runs: partitions is 1, must be 2: its keys would move; it stays\n"
    assert stays in planned.out
    assert planned.err.splitlines() == [
        "fieldgate: mqtt.co2: cleanup.policy is compact, must be delete",
        "mqtt.co2: message.timestamp.type is CreateTime, must be LogAppendTime",
    ]
    assert main([*command, "--apply"]) == 0
    applied = capsys.readouterr().out
    assert "changed  mqtt.co2: cleanup.policy is compact, must be delete\n" in applied
    assert stays in applied
    eventually(lambda: len(admin.list_topics(timeout=10).topics["mqtt.co2"].partitions) == 2)
    again = eventually(
        lambda: provision_topics(servers, partitions=2, retention_s=2592000.0),
        until=lambda done: not done.deviations,
    )
    few = {line.partition(":")[0] for line in again.differences}
    assert few == {*COMPACTED, "gateway.commands"}


def test_the_command_creates_what_a_dry_run_names(
    broker: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["provision", "topics", "--bootstrap-servers", broker.bootstrap_servers]
    assert main([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"missing  {name}" for name in EXPECTED]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines() == [f"created  {name}" for name in EXPECTED]


def test_an_unreachable_broker_is_an_error_not_a_traceback(free_port: int) -> None:
    with pytest.raises(CloudError, match=rf"^no answer from Kafka at 127.0.0.1:{free_port}: "):
        provision_topics(f"127.0.0.1:{free_port}", timeout_s=1)


def test_a_wrong_security_protocol_is_reported_as_one(broker: LocalBroker) -> None:
    with pytest.raises(CloudError, match=r": its listener has no TLS: security\.protocol must be PLAINTEXT"):
        provision_topics(broker.bootstrap_servers, properties={"security.protocol": "ssl"}, timeout_s=1.0)


def test_a_refusal_names_the_topic_and_the_reason(broker: LocalBroker) -> None:
    with pytest.raises(CloudError, match=r"refused to create .*mqtt\.co2: .*replication.factor"):
        provision_topics(broker.bootstrap_servers, replication=2)
