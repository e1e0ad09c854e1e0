"""``fieldgate doctor`` on a machine that is ready, and on one that is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from buffer.sqlite_outbox import SqliteOutbox
from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.support.servers import unique_name

CONFIG = """
[gateway]
id = "mast-07"
[mqtt]
port = {mqtt_port}
[kafka]
bootstrap_servers = "{kafka}"
topic = "{topic}"
[status]
listen = ""
[outbox]
path = "{outbox}"
min_free_disk = {min_free_disk}
max_bytes = "{max_bytes}"
[board]
kind = "simulated"
[[sensor]]
name = "cup-a"
driver = "hall-anemometer"
pin = 17
slope = 0.765
offset = 0.35
{more}
"""

Doctor = Callable[..., tuple[int, dict[str, list[dict[str, Any]]]]]


@pytest.fixture
def doctor(tmp_path: Path) -> Doctor:
    """Runs it on a config: exit code, and findings by subject."""

    def examine(**given: object) -> tuple[int, dict[str, list[dict[str, Any]]]]:
        values: dict[str, object] = {
            "topic": "mqtt.{quantity}", "outbox": tmp_path / "data" / "outbox.db", "min_free_disk": 0,
            "max_bytes": "1GiB", "more": "", "timeout": 30, **given,
        }  # fmt: skip
        config = tmp_path / "gateway.toml"
        config.write_text(CONFIG.format(**values))
        command = [sys.executable, "-m", "gateway.cli", "doctor", "-c", str(config), "--json"]
        told = subprocess.run(
            [*command, "--timeout", str(values["timeout"])],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        findings: dict[str, list[dict[str, Any]]] = {}
        for finding in json.loads(told.stdout)["findings"]:
            findings.setdefault(finding["subject"], []).append(finding)
        return told.returncode, findings

    return examine


def test_all_is_well(doctor: Doctor, tmp_path: Path, kafka: LocalBroker, mosquitto: LocalMosquitto) -> None:
    provision_topics(kafka.bootstrap_servers, partitions=2, replication=1)
    place: dict[str, object] = {"mqtt_port": mosquitto.port, "kafka": kafka.bootstrap_servers}
    code, findings = doctor(**place)
    assert code == 0, findings
    worse = [finding["found"] for each in findings.values() for finding in each if finding["state"] != "ok"]
    # That the outbox stands where tests have their files is rightly warned of.
    assert [found for found in worse if "is emptied when the machine starts" not in found] == []
    assert list(findings) == [
        "config", "outbox", "disk", "sensor", "mqtt", "kafka", "topics", "clock", "volume",
    ]  # fmt: skip
    assert findings["sensor"][0]["found"].startswith("cup-a: ")
    assert "days without Kafka" in findings["disk"][0]["found"]
    # It has looked, and made nothing.
    assert not (tmp_path / "data").exists()

    outbox = SqliteOutbox(tmp_path / "data" / "outbox.db")
    try:
        outbox.append([b"a", b"b"])
        (tmp_path / "data" / "outbox.db.damaged-1").write_bytes(b"123")
        topic = unique_name("no-such") + ".{quantity}"
        code, findings = doctor(topic=topic, max_bytes="16MiB", **place)
    finally:
        outbox.close()
    assert code == 1
    used, aside = findings["outbox"]
    assert used["found"].endswith(f"2 records at most are waiting, in use by process {os.getpid()}")
    assert (aside["state"], aside["found"]) == ("warning", "1 damaged files set aside, 3 bytes")
    # A process has the outbox and no status: the sensors are left alone.
    (sensor,) = findings["sensor"]
    assert sensor["state"] == "warning"
    assert f"the daemon (process {os.getpid()}) has the sensors and its status" in sensor["found"]
    (topics,) = findings["topics"]
    assert (topics["state"], topics["found"]) == ("error", f"missing: {topic.format(quantity='wind_speed')}")
    assert findings["disk"][0]["state"] == "warning"


def test_nothing_is_well(doctor: Doctor, free_port: int, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    kafka = f"127.0.0.1:{free_port}"
    nobody: dict[str, object] = {"mqtt_port": free_port, "kafka": kafka, "timeout": 2}
    code, findings = doctor(min_free_disk=1 << 49, outbox=tmp_path / "outbox.db", **nobody)
    assert code == 1
    told = {subject: each[-1]["state"] for subject, each in findings.items()}
    assert told == {
        "config": "ok", "outbox": "ok", "disk": "error", "sensor": "ok", "mqtt": "error", "kafka": "error",
        "clock": "ok", "volume": "ok",
    }  # fmt: skip
    assert "Connection refused" in findings["mqtt"][0]["found"]
    assert findings["kafka"][0]["found"].startswith(f"{kafka}: ")
    assert all(each[-1]["remedy"] for each in findings.values() if each[-1]["state"] == "error")

    code, findings = doctor(**nobody, outbox=tmp_path / "file" / "outbox.db")
    assert findings["outbox"][0]["state"] == "error"
    code, findings = doctor(**nobody, more="[kafka.properties]\nno.such = 1")
    assert (code, list(findings)) == (1, ["config"])
