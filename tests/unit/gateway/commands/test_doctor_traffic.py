"""What doctor reports of commands, downlinks, posted readings and Kafka's refusals; what readers cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from cloud.kafka.producer import Refusal
from gateway.commands.doctor import storage, traffic
from gateway.config import Config, load
from gateway.ports import REFUSALS
from gateway.status.metrics import render
from tests.support.config import baro, config_text, write_config

QUIET: dict[str, Any] = {
    "kafka_problem": None, "kafka_refusal": None, "parked": {},
    "commands": {"allow": [], "problem": None, "results": {}},
    "downlinks": {"problem": None, "topics": {}},
    "http": {"port": None, "requests": 0, "readings": 0, "refused": 0, "unauthorized": 0, "pressure": 0},
}  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> Config:
    text = config_text(baro(), gateway={"id": "mast"}, http={"listen": "127.0.0.1:8323"})
    return load(write_config(tmp_path, text))


def found(config: Config, **status: Any) -> list[tuple[str, str, str]]:
    return [(each.subject, each.state, each.found) for each in traffic.findings(config, QUIET | status)]


def test_what_is_configured_and_well(config: Config) -> None:
    topic = {"received": 5, "published": 5, "refused": {}, "lag": None}
    assert found(
        config,
        commands={"allow": ["read"], "problem": None, "results": {"done": 2}},
        downlinks={"problem": None, "topics": {"settings": topic}},
        http=QUIET["http"] | {"port": 8323, "requests": 3, "readings": 7},
    ) == [
        ("command", "ok", "read; done 2"),
        ("downlink", "ok", "settings: received 5, published 5, waiting ?"),
        ("http", "ok", "port 8323: requests 3, readings 7, refused 0, unauthorized 0"),
    ]


def test_what_is_not_well(config: Config) -> None:
    topic = {"received": 5, "published": 3, "refused": {"NO_KEY": 2}, "lag": 0}
    assert found(
        config,
        kafka_problem="_AUTHENTICATION: invalid credentials",
        kafka_refusal="login",
        parked={"mqtt.co2": {"for_s": 7200, "problem": "TOPIC_AUTHORIZATION_FAILED: no"}},
        commands={"allow": ["read"], "problem": "gateway.commands: allow Describe and Read", "results": {}},
        downlinks={"problem": "settings: invalid credentials", "topics": {"settings": topic}},
    ) == [
        ("kafka", "error", "the daemon: _AUTHENTICATION: invalid credentials"),
        ("kafka", "error", "takes nothing for mqtt.co2, for 2 h: TOPIC_AUTHORIZATION_FAILED: no"),
        ("command", "error", "can't be read: gateway.commands: allow Describe and Read"),
        ("downlink", "error", "can't be read: settings: invalid credentials"),
        ("downlink", "warning", "settings: received 5, published 3, waiting 0, refused NO_KEY 2"),
        ("http", "error", "the daemon doesn't listen on 127.0.0.1:8323"),
    ]


def test_each_kind_of_refusal_has_a_remedy_and_a_metric(config: Config) -> None:
    assert set(get_args(Refusal)) < set(REFUSALS)
    for kind in REFUSALS:
        status = QUIET | {"kafka_problem": "it is so", "kafka_refusal": kind}
        (finding, *_) = traffic.findings(config, status)
        assert finding.state == ("warning" if kind == "quota" else "error")
        assert "; readings are kept in the outbox meanwhile" in (finding.remedy or "")
        lines = render({"kafka_refusal": kind, "config": {}}).decode().splitlines()
        refused = [line for line in lines if line.startswith("fieldgate_kafka_refuses{")]
        assert f'fieldgate_kafka_refuses{{reason="{kind}"}} 1.0' in refused
        assert sum(line.endswith(" 1.0") for line in refused) == 1


@pytest.mark.parametrize(
    ("mode", "sizes"), [("live", ("25.0 MB", "25.0 MB")), ("metered", ("34.9 MB", "34.9 MB"))]
)
def test_what_waiting_for_kafkas_records_costs(tmp_path: Path, mode: str, sizes: tuple[str, str]) -> None:
    downlink = {"topic": "settings", "mqtt_topic": "set/{key}"}
    text = config_text(
        gateway={"id": "mast"}, uplink={"mode": mode}, commands={"allow": ["reload"]}, downlink=[downlink]
    )
    finding = storage.volume(load(write_config(tmp_path, text)))
    commands, downlinks = sizes
    assert finding.found == (
        f"no sensors of its own; {commands} to wait for commands; {downlinks} to wait for downlink"
    )


def test_dead_letters_are_no_silence(config: Config) -> None:
    (letters,) = [each for each in found(config, dead_letters=3000) if each[0] == "letters"]
    assert letters[1:] == (
        "warning",
        "3000 messages since the daemon's start weren't forwarded, and are in gateway.dead-letter",
    )
    assert not [each for each in found(config, dead_letters=0) if each[0] == "letters"]


def test_another_gateway_with_this_id_is_named(config: Config) -> None:
    (taken,) = [each for each in found(config, mqtt_taken_over=True) if each[0] == "mqtt"]
    assert (taken[1], "another gateway with this id" in taken[2]) == ("error", True)
    for problem in (
        {"mqtt_taken_over": True},
        {"commands": {"problem": "another gateway with this id reads"}},
    ):
        assert "fieldgate_id_taken 1.0" in render(problem).decode()
    assert "fieldgate_id_taken 0.0" in render({}).decode()
