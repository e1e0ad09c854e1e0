"""Gateways in Avro and in JSON, Apicurio, Kafka and the jobs, side by side. With ``--full`` only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cloud.config import RegistryConfig
from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.registry import NotRegistered, Registry, RegistryAccess, RegistryError
from cloud.wire.avro_readings import SCHEMA, is_avro
from gateway.commands.demo.mosquitto import LocalMosquitto
from spark_jobs.jobs.ingest import IngestJob, RecordsJob
from spark_jobs.jobs.presence import PresenceJob
from spark_jobs.jobs.statistics import StatisticsJob
from spark_jobs.platform.settings import Settings
from tests.spark.records import rows_of
from tests.spark.running import run_to_end
from tests.support.config import config_text, cup, dht
from tests.support.mast import GatewayProcess, records, run_gateway
from tests.support.schema_registry import apicurio, apicurio_jar
from tests.support.servers import eventually, fieldgate

pytestmark = pytest.mark.timeout(1800)

TOPICS = ["mqtt.wind_speed", "mqtt.temperature", "mqtt.humidity"]
OWN = (
    "gateway",
    "run",
    "kafka_partition",
    "kafka_offset",
    "kafka_time",
    "ingested_at",
    "updated_at",
    "replayed",
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    """One of the test's own: others' tests read JSON alone."""
    with LocalBroker(tmp_path / "kafka") as broker:
        provision_topics(broker.bootstrap_servers, partitions=2, replication=1)
        yield broker


def by_place(
    settings: Settings, table: str, gateway: str, *key: str
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """A gateway's rows by their key, without what is its own and Kafka's."""
    return {
        tuple(row[name] for name in key): {name: each for name, each in row.items() if name not in OWN}
        for row in rows_of(settings, table)
        if row["gateway"] == gateway
    }


def avro_values(servers: str) -> list[bytes]:
    values = (message.value() or b"" for message in records(servers, TOPICS))
    return [value for value in values if is_avro(value)]


def test_gateways_of_both_formats_beside_a_registry(
    spark: SparkSession,
    settings: Settings,
    tmp_path: Path,
    broker: LocalBroker,
    free_port: int,
    full: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not full:
        pytest.skip("only with --full: test_avro.py has a small registry")
    if apicurio_jar() is None:
        pytest.skip("no schema registry: make registry-jars")
    servers, cloud = broker.bootstrap_servers, tmp_path / "cloud.toml"
    settings = replace(settings, bootstrap_servers=servers)

    def config(name: str, **kafka: str) -> str:
        board = {"start": "2026-01-01T00:00:00Z", "speed": 50}
        extra = {"id": name, "set": {"site": "Ridge"}}
        return config_text(
            cup(), dht(), gateway=extra, outbox={"commit_interval_s": 0.5}, board=board, kafka=kafka
        )

    def start(stack: ExitStack, name: str, **kafka: str) -> GatewayProcess:
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        mosquitto = stack.enter_context(LocalMosquitto(directory / "mosquitto"))
        return stack.enter_context(run_gateway(directory, config(name, **kafka), name, servers, mosquitto))

    def finish(mast: GatewayProcess, sampled: int) -> None:
        eventually(mast.sampled, until=lambda count: count > sampled)
        mast.delivered()
        assert mast.stop() == 0

    with apicurio(free_port, tmp_path / "apicurio.log") as url:
        settings = replace(settings, registry=RegistryConfig(url=url))
        in_avro = {"format": "avro", "schema_registry_url": url}
        cloud.write_text(f'[kafka]\nbootstrap_servers = "{servers}"\n[schema_registry]\nurl = "{url}"\n')
        registry = Registry(RegistryAccess(url))
        assert (
            "missing  fieldgate.Reading"
            in fieldgate("provision", "schemas", "--cloud", cloud, "--dry-run").stdout
        )
        with pytest.raises(NotRegistered):
            registry.own_id()
        for words in ("created  fieldgate.Reading: id ", "exists   fieldgate.Reading: id "):
            assert words in fieldgate("provision", "schemas", "--cloud", cloud).stdout
        assert registry.rule() == "FULL_TRANSITIVE"
        assert registry.schema(registry.own_id()) == SCHEMA
        with pytest.raises(NotRegistered):
            registry.schema(4711)

        # What the rule forbids: Apicurio's own words.
        fields = json.loads(SCHEMA)
        fields["fields"].append({"name": "site", "type": "string"})
        monkeypatch.setattr("cloud.registry.SCHEMA", json.dumps(fields))
        assert registry.incompatibility() is not None
        with pytest.raises(RegistryError, match=r"is not compatible .*site"):
            registry.register()
        monkeypatch.undo()

        with ExitStack() as stack:
            masts = [start(stack, "mast-avro", **in_avro), start(stack, "mast-json")]
            for mast in masts:
                finish(mast, 400)
        count = len(avro_values(servers))
        assert count > 300
        for job in (RecordsJob, IngestJob, StatisticsJob, PresenceJob):
            run_to_end(settings, job(spark, settings))
        accounts = fieldgate("status", "--lake", settings.lake, "--json")
        assert json.loads(accounts.stdout)["balanced"], accounts.stdout
        watched = fieldgate(
            "watch", "--bootstrap-servers", servers, "--cloud", cloud, "--json", "--seconds", "3",
            "--since", "3600", "--gateway", "mast-avro",
        )  # fmt: skip
        assert watched.stdout.count('"mast-avro"') >= count, watched.stderr

    # The registry is away: a restart, forwarding and the jobs go on.
    with ExitStack() as stack:
        finish(start(stack, "mast-avro", **in_avro), 100)
    assert len(avro_values(servers)) > count + 50
    before = len(rows_of(settings, "readings"))
    run_to_end(settings, IngestJob(spark, settings))
    assert len(rows_of(settings, "readings")) > before + 50
    assert rows_of(settings, "quarantine") == []

    place = ("channel", "time", "seq")
    avro, plain = (by_place(settings, "readings", name, *place) for name in ("mast-avro", "mast-json"))
    both = avro.keys() & plain.keys()
    assert len(both) > 300
    assert {key: avro[key] for key in both} == {key: plain[key] for key in both}
    assert {row["extra"] for row in avro.values()} == {'{"site":"Ridge"}'}
    # Intervals that both have whole.
    avro, plain = (
        by_place(settings, "statistics", name, "channel", "interval_start")
        for name in ("mast-avro", "mast-json")
    )
    same = [key for key in avro.keys() & plain.keys() if avro[key]["count"] == plain[key]["count"] > 0]
    assert same
    for key in same:
        assert {**avro[key], "version": 0} == {**plain[key], "version": 0}
