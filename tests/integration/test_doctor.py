"""``fieldgate doctor`` on a machine that is ready, and on one that is not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from buffer.sqlite_outbox import SqliteOutbox
from cloud.local.kafka_broker import LocalBroker
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.support.commands import called
from tests.support.config import config_text, cup, write_config
from tests.support.servers import unique_name


class Misadvertised(LocalBroker):
    """One that gives its clients a name that nobody can resolve."""

    def _configure(self) -> Path:
        file = super()._configure()
        here = f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}"
        assert here in file.read_text()
        elsewhere = f"advertised.listeners=PLAINTEXT://kafka-broker.invalid:{self.port}"
        file.write_text(file.read_text().replace(here, elsewhere))
        return file


Doctor = Callable[..., tuple[int, dict[str, list[dict[str, Any]]]]]


@pytest.fixture
def doctor(tmp_path: Path) -> Doctor:
    """Runs it on a config: exit code, and findings by subject."""

    def examine(**given: object) -> tuple[int, dict[str, list[dict[str, Any]]]]:
        values: dict[str, object] = {
            "topic": "mqtt.{quantity}", "path": str(tmp_path / "data" / "outbox.db"), "min_free_disk": 0,
            "max_bytes": "1GiB", "more": "", "timeout": 30, **given,
        }  # fmt: skip
        text = config_text(
            cup("cup-a"),
            mqtt={"port": values["mqtt_port"]},
            kafka={"bootstrap_servers": values["kafka"], "topic": values["topic"]},
            status={"listen": ""},
            outbox={key: values[key] for key in ("path", "min_free_disk", "max_bytes")},
        )
        config = write_config(tmp_path, f"{text}{values['more']}")
        done = called("doctor", "-c", config, "--json", "--timeout", str(values["timeout"]))
        findings: dict[str, list[dict[str, Any]]] = {}
        for finding in json.loads(done.stdout)["findings"]:
            findings.setdefault(finding["area"], []).append(finding)
        return done.returncode, findings

    return examine


def test_all_is_well(doctor: Doctor, tmp_path: Path, provisioned: str, mosquitto: LocalMosquitto) -> None:
    place: dict[str, object] = {"mqtt_port": mosquitto.port, "kafka": provisioned}
    code, findings = doctor(**place)
    assert code == 0, findings
    worse = [finding["what"] for each in findings.values() for finding in each if finding["severity"] != "ok"]
    # That the outbox stands where tests have their files is rightly warned of.
    assert [found for found in worse if "is emptied when the machine starts" not in found] == []
    assert list(findings) == [
        "config", "identity", "outbox", "disk", "sensor", "mqtt", "kafka", "topics", "clock", "volume",
    ]  # fmt: skip
    assert findings["sensor"][0]["what"].startswith("cup-a: ")
    assert "days without Kafka" in findings["disk"][0]["what"]
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
    assert used["what"].endswith(f"2 records at most are waiting, in use by process {os.getpid()}")
    assert (aside["severity"], aside["what"]) == ("warning", "1 damaged files set aside, 3 bytes")
    # A process has the outbox and no status: the sensors are left alone.
    (sensor,) = findings["sensor"]
    assert sensor["severity"] == "warning"
    assert f"the daemon (process {os.getpid()}) has the sensors and its status" in sensor["what"]
    (topics,) = findings["topics"]
    missing = f"missing: {topic.format(quantity='wind_speed')}"
    assert (topics["severity"], topics["what"]) == ("error", missing)
    assert findings["disk"][0]["severity"] == "warning"


def test_nothing_is_well(doctor: Doctor, nowhere: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    port = int(nowhere.partition(":")[2])
    unreachable: dict[str, object] = {"mqtt_port": port, "kafka": nowhere, "timeout": 2}
    code, findings = doctor(min_free_disk=1 << 49, path=str(tmp_path / "outbox.db"), **unreachable)
    assert code == 1
    states = {area: each[-1]["severity"] for area, each in findings.items()}
    assert states == {
        "config": "ok", "identity": "ok", "outbox": "ok", "disk": "error", "sensor": "ok", "mqtt": "error",
        "kafka": "error",
        "clock": "ok", "volume": "ok",
    }  # fmt: skip
    assert "Connection refused" in findings["mqtt"][0]["what"]
    assert findings["kafka"][0]["what"].startswith(f"{nowhere}: ")
    assert all(each[-1]["remedy"] for each in findings.values() if each[-1]["severity"] == "error")

    code, findings = doctor(**unreachable, path=str(tmp_path / "file" / "outbox.db"))
    assert findings["outbox"][0]["severity"] == "error"
    code, findings = doctor(**unreachable, more="[kafka.properties]\nno.such = 1")
    assert code == 1
    # The daemon starts with it: the rest of the machine is examined, too.
    assert {area: each[-1]["severity"] for area, each in findings.items()} == {
        **states, "config": "error", "disk": "ok",
    }  # fmt: skip
    assert "no.such" in findings["kafka"][0]["what"]


@pytest.mark.parametrize(
    ("setting", "key"), [("retain_available false", "retain_available"), ("max_qos 0", "max_qos")]
)
def test_a_local_broker_that_the_daemon_can_not_use_is_not_ok(
    setting: str, key: str, doctor: Doctor, nowhere: str, tmp_path: Path
) -> None:
    with LocalMosquitto(tmp_path / "mosquitto", settings=f"{setting}\n") as broker:
        code, findings = doctor(mqtt_port=broker.port, kafka=nowhere, timeout=1)
    assert code == 1
    (found,) = findings["mqtt"]
    assert (found["severity"], key in found["remedy"]) == ("error", True), found


def test_an_advertised_name_that_does_not_resolve_is_named(
    doctor: Doctor, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    with Misadvertised(tmp_path / "kafka") as kafka:
        code, findings = doctor(mqtt_port=mosquitto.port, kafka=kafka.bootstrap_servers, timeout=5)
    assert code == 1
    (found,) = [each for each in findings["kafka"] if each["severity"] != "ok"]
    assert "kafka-broker.invalid" in found["what"]
    assert "advertised.listeners" in found["remedy"]
