"""What doctor reports of Kafka, of what waiting for its records costs, and of the schema registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloud.kafka.cluster_check import Cluster
from cloud.wire.avro_readings import SCHEMA, SUBJECT
from gateway.commands.doctor import command
from gateway.config import load
from gateway.config.kafka import wanted_topics
from tests.support.config import baro, config_text, write_config
from tests.support.schema_registry import small_registry

PASSWORD = "".join(("of", "-the-registry"))


def found(tmp_path: Path, url: str, **more: Any) -> list[tuple[str, str, str]]:
    kafka = {"format": "avro", "schema_registry_url": url, **more}
    config = load(write_config(tmp_path, config_text(baro(), gateway={"id": "mast"}, kafka=kafka)))
    return [(each.area, each.severity, each.what) for each in command.registry(config, 2.0)]


def test_each_thing_that_may_be_wrong_has_one_line(tmp_path: Path, nowhere: str) -> None:
    login = {"schema_registry_username": "mast", "schema_registry_password": PASSWORD}
    with small_registry() as small:
        small.login = f"mast:{PASSWORD}"
        # Without a login, with a wrong one, with the right one.
        for given in ({}, {**login, "schema_registry_password": "another"}):
            ((area, severity, text),) = found(tmp_path, small.url, **given)
            assert (area, severity) == ("registry", "error")
            assert text == f"{small.url} refuses this login (401): look at username and password"
        answered, schema = found(tmp_path, small.url, **login)
        assert answered[:2] == ("registry", "ok")
        assert answered[2].startswith(f"{small.url} answers in ")
        assert answered[2].endswith(" ms, and takes the login of mast")
        assert schema == (
            "schema",
            "error",
            f"{SUBJECT} hasn't this version's, so readings leave as JSON; it can be registered",
        )
        small.register(SUBJECT, '"string"')
        small.refuses = "reader field v is missing"
        _, schema = found(tmp_path, small.url, **login)
        assert schema[1] == "error"
        assert schema[2].endswith("compatible with this version's: reader field v is missing")
        number = small.register(SUBJECT, SCHEMA)
        _, schema = found(tmp_path, small.url, **login)
        assert schema == ("schema", "ok", f"{SUBJECT} has this version's: id {number}")
        assert not [each for each in small.requests if each.endswith("/versions")]
    ((_, severity, text),) = found(tmp_path, f"http://{nowhere}")
    assert (severity, "refused" in text) == ("error", True)


@pytest.mark.parametrize("kafka", [{}, {"format": "json"}])
def test_json_needs_no_registry(tmp_path: Path, kafka: dict[str, str]) -> None:
    config = load(write_config(tmp_path, config_text(baro(), gateway={"id": "mast"}, kafka=kafka)))
    assert not list(command.registry(config, 2.0))


@pytest.mark.parametrize(
    ("round_trip_s", "mode", "severities"),
    [(0.4, "live", ["ok", "ok"]), (0.8, "live", ["ok", "warning", "ok"]), (0.8, "metered", ["ok", "ok"])],
)
def test_over_a_slow_uplink_the_cost_and_the_key_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, round_trip_s: float, mode: str, severities: list[str]
) -> None:
    config = load(write_config(tmp_path, config_text(baro(), uplink={"mode": mode})))
    cluster = Cluster(3, frozenset(wanted_topics(config)), 2.5, round_trip_s)
    monkeypatch.setattr(command, "describe_cluster", lambda *_: cluster)
    findings = list(command.kafka(config, 1.0))
    assert [each.severity for each in findings] == severities
    for each in findings:
        if each.severity == "warning":
            assert each.what.startswith("a request takes 800 ms: over half of outbox.commit_interval_s")
            assert (each.remedy or "").startswith("outbox.commit_interval_s above 1.6")


@pytest.mark.parametrize(("mode", "size"), [("live", "25.0 MB"), ("metered", "34.9 MB")])
def test_what_waiting_for_kafkas_records_costs(tmp_path: Path, mode: str, size: str) -> None:
    downlink = {"topic": "settings", "mqtt_topic": "set/{key}"}
    text = config_text(
        gateway={"id": "mast"}, uplink={"mode": mode}, commands={"allow": ["reload"]}, downlink=[downlink]
    )
    finding = command.volume(load(write_config(tmp_path, text)))
    assert finding.what == (
        f"no sensors of its own; {size} to wait for commands; {size} to wait for downlink"
    )
