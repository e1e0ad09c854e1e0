"""Over an uplink slower than half the commit interval each reading is written to the card: who says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud.kafka.cluster_check import Cluster
from gateway import cli
from gateway.commands.doctor import network
from gateway.config import load
from gateway.config.kafka import wanted_topics
from tests.support.config import baro, config_text, write_config


@pytest.mark.parametrize(
    ("round_trip_s", "mode", "states"),
    [(0.4, "live", ["ok", "ok"]), (0.8, "live", ["ok", "warning", "ok"]), (0.8, "metered", ["ok", "ok"])],
)
def test_doctor_names_the_cost_and_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, round_trip_s: float, mode: str, states: list[str]
) -> None:
    config = load(write_config(tmp_path, config_text(baro(), uplink={"mode": mode})))
    cluster = Cluster(3, frozenset(wanted_topics(config)), 2.5, round_trip_s)
    monkeypatch.setattr(network, "describe_cluster", lambda *_: cluster)
    findings = list(network.kafka(config, 1.0))
    assert [each.state for each in findings] == states
    for each in findings:
        if each.state == "warning":
            assert "written to the card" in each.found
            assert each.remedy is not None
            assert each.remedy.startswith("outbox.commit_interval_s above 1.6")


def test_status_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parked = {"mqtt.co2": {"for_s": 7200, "problem": "TOPIC_AUTHORIZATION_FAILED"}}
    downlinks = {
        "problem": None,
        "topics": {"settings": {"received": 5, "published": 3, "refused": {"NO_KEY": 2}, "lag": 0}},
    }
    http = {"port": 8323, "requests": 4, "readings": 9, "refused": 1, "unauthorized": 2, "pressure": 0}
    more = {
        "kafka_problem": "the broker's certificate has expired",
        "kafka_refusal": "certificate",
        "commands": {"allow": ["read"], "problem": None, "results": {"done": 3, "EXPIRED": 1}},
        "downlinks": downlinks,
        "http": http,
    }
    status = more | {"kafka_late_s": 0.82, "parked": parked, "site_moved_m": 12345, "channels": {}}
    monkeypatch.setattr("gateway.commands.status.fetch", lambda address: status)
    monkeypatch.setenv("COLUMNS", "300")
    assert cli.main(["status", "-c", str(write_config(tmp_path, config_text(baro())))]) == 0
    printed = capsys.readouterr().out
    assert "Kafka confirms after 0.82 s: over half of outbox.commit_interval_s" in printed
    assert "Kafka (certificate): the broker's certificate has expired\n" in printed
    assert "commands: done 3, EXPIRED 1\n" in printed
    assert "downlink settings: received 5, published 3, waiting 0, refused NO_KEY 2\n" in printed
    assert "http port 8323: requests 4, readings 9, refused 1, unauthorized 2\n" in printed
    assert "the mast was moved: by GPS it is 12,345 m from [site]: give [site] its new" in printed
    assert "Kafka takes nothing for mqtt.co2, for 2 h: TOPIC_AUTHORIZATION_FAILED" in printed
