"""Run records from a real Mosquitto: the latest of each run, nonsense ignored, kept for a later demo."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from cloud.wire.run_records import RunRecord
from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.commands.demo.run_records import RunRecords
from tests.support.servers import eventually

TOPIC = "fieldgate/mast/run"


def record(run: str, seq: int, state: str = "running") -> bytes:
    """As the daemon writes it."""
    return json.dumps(
        {
            "v": 1,
            "gateway": "mast",
            "run": run,
            "started": "2026-11-21T07:35:00.000Z",
            "dropped": [{"reason": "X", "count": 1, "ranges": ["r0 cup.wind_speed 1-2"]}],
            "unfinished": [{"run": "r0", "end": "reset", "lost_at_most_s": 2.0}],
            "state": state,
            "last_seq": {"cup.wind_speed": seq},
            "in_flight": 2,
            "outbox_records": 1,
        }
    ).encode()


@pytest.fixture
def gateway(mosquitto: LocalMosquitto) -> Iterator[Client]:
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.connect(mosquitto.host, mosquitto.port)
    client.loop_start()
    yield client
    client.disconnect()
    client.loop_stop()


def tell(client: Client, payload: bytes) -> None:
    client.publish(TOPIC, payload, qos=1, retain=True).wait_for_publish(10)


def test_the_latest_of_each_run_is_kept(mosquitto: LocalMosquitto, gateway: Client, tmp_path: Path) -> None:
    file = tmp_path / "runs.json"
    tell(gateway, record("r1", 5))
    records = RunRecords(mosquitto.host, mosquitto.port, TOPIC, file)
    records.start()
    try:
        # Retained: who comes late still hears it.
        eventually(lambda: records.all().get("r1"), until=lambda found: found is not None)
        tell(gateway, record("r1", 9))
        for nonsense in (
            b"",
            b"{}",
            b"[1]",
            b"null",
            b'{"run": "x", "state": "s", "last_seq": {"c": "many"}}',
        ):
            tell(gateway, nonsense)
        tell(gateway, record("r2", 3, "stopped"))
        expected = {
            "r1": RunRecord.from_json(record("r1", 9)),
            "r2": RunRecord.from_json(record("r2", 3, "stopped")),
        }
        eventually(records.all, until=lambda found: found == expected)
        assert records.current == expected["r2"]
    finally:
        records.stop()
    resumed = RunRecords(mosquitto.host, mosquitto.port, TOPIC, file)
    assert resumed.all() == expected
    assert resumed.current is None
