"""Two fleets on one Kafka that denies by default, each with its prefix: masts, jobs and people as installed.

Both have a gateway ``mast-07``; what one fleet does is nothing to the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from paho.mqtt import publish, subscribe
from pyspark.sql import SparkSession

from gateway.commands.demo.mosquitto import LocalMosquitto
from spark_jobs.platform.registry import STREAMING, load
from spark_jobs.platform.settings import parse_run
from tests.integration.test_locked_kafka import DEVICES as PLANT
from tests.spark.platform.test_secured_kafka import RULES
from tests.spark.running import run_to_end
from tests.support.commands import called
from tests.support.config import changed
from tests.support.mast import GatewayProcess, run_gateway
from tests.support.secured_kafka import SecuredBroker
from tests.support.servers import eventually, fieldgate

PREFIXES: Final = {"north": "north.", "south": "south-"}
GATEWAY: Final = "mast-07"
KINDS: Final = {"olga": "operators", "jobs": "jobs", "anna": "analysts"}
DEVICES: Final = f'{PLANT}retain = true\nbegin = "earliest"\n'
MAST: Final = f'[gateway]\nid = "{GATEWAY}"\n[board]\nkind = "simulated"\n{DEVICES}'


class Fleet:
    """One fleet's files: ``olga.toml``, ``jobs.toml`` and ``anna.toml`` are the cloud's config of each."""

    def __init__(self, name: str, broker: SecuredBroker, place: Path) -> None:
        self.name, self.prefix, self.channel = name, PREFIXES[name], f"cup-{name}.wind_speed"
        self.broker, self.place = broker, place
        users = "".join(f'{kind} = ["{name}-{user}"]\n' for user, kind in KINDS.items())
        self._rest = f'[users]\n{users}topics = ["plant.*"]\n[lake]\npath = "lake"\n'
        self._rest += '[jobs]\nrules = "rules.toml"\n'
        (place / "rules.toml").write_text(RULES)
        (place / "mast.toml").write_text(MAST)
        self.cloud("root", broker.bootstrap_servers, "")

    def cloud(self, user: str, servers: str, login: str) -> None:
        text = f'[kafka]\nbootstrap_servers = "{servers}"\nprefix = "{self.prefix}"\n{login}{self._rest}'
        (self.place / f"{user}.toml").write_text(text)

    def may(self, user: str, *command: str | Path) -> str:
        """What a command prints that goes well by a user's login."""
        done = called(*command, "--cloud", self.place / f"{user}.toml")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def provision(self) -> None:
        """Users by who may do everything, all else by the fleet's own operator."""
        passwords = self.place / "passwords"
        self.may("root", "provision", "users", "--passwords", passwords)
        for line in passwords.read_text().splitlines():
            user, password = line.split()
            login = f"""\
[kafka.properties]
security.protocol = "SASL_SSL"
sasl.mechanism = "SCRAM-SHA-512"
sasl.username = "{user}"
sasl.password = "{password}"
ssl.ca.location = "{self.broker.certificates / "ca.pem"}"
"""
            self.cloud(user.removeprefix(f"{self.name}-"), self.broker.scram, login)
        mast = self.place / "mast.toml"
        # The broker's login may not have a password yet that its metadata has.
        topics = ("provision", "topics", "--partitions", "1", "-c", mast, "--cloud", self.place / "olga.toml")
        made = eventually(lambda: called(*topics), 60, until=lambda done: done.returncode == 0)
        assert f"created  {self.prefix}mqtt.wind_speed\n" in made.stdout
        # What a forward's placeholder becomes is known to people alone.
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        (inverter,) = admin.create_topics([NewTopic(f"{self.prefix}plant.inverter", 1, 1)]).values()
        inverter.result(timeout=20)
        gateway = ("provision", "gateway", GATEWAY, "--user", f"{self.name}-mast", "-c", mast)
        self.may("olga", *gateway, "-o", self.place / "access.toml")
        cup = f"cup-{self.name}=hall-anemometer:17,slope=0.765,offset=0.35,interval_s=0.2"
        init = ("init", "--access", self.place / "access.toml", "--board", "simulated", "--sensor", cup)
        assert called(*init, "-o", self.place / "gateway.toml").returncode == 0

    def config(self) -> str:
        """The mast's, of its access file, with devices and a command."""
        own = (("[commands]", 'allow = ["read"]'), ("[outbox]", 'path = "outbox.db"'))
        text = (self.place / "gateway.toml").read_text()
        return changed(text, ((f"{section}\n", f"{section}\n{key}\n") for section, key in own)) + DEVICES

    def jobs(self, spark: SparkSession) -> None:
        """All of Kafka into the fleet's lake."""
        words = ["ingest", "presence", "alerts", "--once", "--cloud", str(self.place / "jobs.toml")]
        settings = parse_run(words)
        for place in " ".join(STREAMING[name] for name in settings.jobs).split():
            run_to_end(settings, load(place)(spark, settings))

    def rows(self, sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.may("anna", "query", sql, "--json"))
        return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("shared")) as broker:
        yield broker


@pytest.fixture(scope="module")
def fleets(broker: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> list[Fleet]:
    fleets = [Fleet(name, broker, tmp_path_factory.mktemp(name)) for name in PREFIXES]
    for each in fleets:
        each.provision()
    return fleets


def taken(broker: SecuredBroker) -> set[str]:
    """The topics that have records, but for Kafka's own."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "test"})
    try:
        return {
            name
            for name, topic in consumer.list_topics(timeout=20).topics.items()
            for each in topic.partitions
            if not name.startswith("__")
            and consumer.get_watermark_offsets(TopicPartition(name, each), timeout=20)[1]
        }
    finally:
        consumer.close()


def use(fleet: Fleet, mast: GatewayProcess, mosquitto: LocalMosquitto) -> None:
    """Readings, a raw message, a downlink, a command; what doctor and watch say of it."""
    mast.sample(10)
    publish.single("plant/inverter", fleet.name, 1, port=mosquitto.port)
    producer = Producer({"bootstrap.servers": fleet.broker.bootstrap_servers})
    producer.produce(f"{fleet.prefix}settings", fleet.name, b"pump")
    assert producer.flush(30) == 0
    message = subscribe.simple("devices/pump", port=mosquitto.port)  # type: ignore[no-untyped-call]
    assert message.payload == fleet.name.encode()
    sent = fleet.may("olga", "command", "send", GATEWAY, "read", f"cup-{fleet.name}", "--json")
    assert json.loads(sent)["result"]["outcome"] == "done"
    assert fleet.may("olga", "command", "list", GATEWAY, "--json").count("\n") == 1
    found = json.loads(fieldgate("doctor", "-c", mast.path, "--json").stdout)
    assert [each["severity"] for each in found["findings"] if each["area"] == "topics"] == ["ok"]
    seen = fleet.may("anna", "watch", "--seconds", "5", "--json")
    assert {json.loads(line)["channel"] for line in seen.splitlines()} == {fleet.channel}
    mast.delivered()


@pytest.mark.timeout(1500)
def test_two_fleets_share_a_kafka_and_nothing_else(
    spark: SparkSession, broker: SecuredBroker, fleets: list[Fleet], full: bool
) -> None:
    if not full:
        pytest.skip("two minutes of two fleets: only with --full")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    with ExitStack() as stack:
        masts: list[GatewayProcess] = []
        brokers = [stack.enter_context(LocalMosquitto(each.place / "mosquitto")) for each in fleets]
        for fleet, mosquitto in zip(fleets, brokers, strict=True):
            running = run_gateway(fleet.place, fleet.config(), GATEWAY, broker.scram, mosquitto)
            masts.append(stack.enter_context(running))
        for each in zip(fleets, masts, brokers, strict=True):
            use(*each)
        groups = {each.group_id for each in admin.list_consumer_groups().result(timeout=20).valid}
        for mast in masts:
            mast.delivered()
            assert mast.stop() == 0
    assert groups == {
        f"{prefix}fieldgate-{GATEWAY}{which}" for prefix in PREFIXES.values() for which in ("", "-commands")
    }
    for fleet in fleets:
        fleet.jobs(spark)
        (mine,) = json.loads(fleet.may("anna", "status", "--json"))["gateways"]
        assert mine["sampled"] == mine["stored_or_quarantined"] >= 10, mine
        sql = "SELECT count(*) AS n, kafka_topic, channel FROM readings GROUP BY ALL"
        topic = f"{fleet.prefix}mqtt.wind_speed"
        assert fleet.rows(sql) == [{"n": mine["sampled"], "kafka_topic": topic, "channel": fleet.channel}]
        assert fleet.rows("SELECT count(*) AS n FROM quarantine") == [{"n": 0}]
        assert fleet.rows("SELECT sensor FROM channels") == [{"sensor": f"cup-{fleet.name}"}]
        assert fleet.rows("SELECT lost, pending FROM presence") == [{"lost": 0, "pending": 0}]
    own = ("status", "runs", "channels", "commands", "command-results", "alerts")
    names = ("mqtt.wind_speed", "plant.inverter", "settings", *(f"gateway.{name}" for name in own))
    # A mast that Kafka answers quickly has no event to tell.
    events = {f"{prefix}gateway.events" for prefix in PREFIXES.values()}
    assert taken(broker) - events == {prefix + name for prefix in PREFIXES.values() for name in names}
