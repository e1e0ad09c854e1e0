"""A flood of malformed payloads: nothing stops, each is kept with its reason, the good ones are all there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.integration.demo_runs import RunningDemo, running_demo
from tests.support.config import config_text, cup

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.timeout(700)]

FLOOD = 1000
KEPT_BYTES = 64 * 1024
CONFIG = config_text(
    cup(),
    gateway={"id": "flooded"},
    outbox=None,
    board={"seed": 3},
    forward=[{"filter": "sensors/+/reading", "payload": "reading"}],
)

Kept = tuple[str, bytes, int]
"""Reason, the first 64 KiB, the whole length."""


def good(seq: int) -> dict[str, Any]:
    """A valid reading of another device."""
    return {
        "v": 1,
        "gateway": "weather-box",
        "channel": "box.temperature",
        "quantity": "temperature",
        "unit": "Cel",
        "time": (datetime.now(UTC) - timedelta(hours=1) + timedelta(seconds=seq)).isoformat(),
        "period_ms": 1000,
        "value": 21.5,
        "raw": 21.5,
        "raw_unit": "Cel",
        "quality": 1,
        "reasons": [],
        "run": "box-1",
        "seq": seq,
        "clock": "synced",
        "cal": None,
    }


def malformed() -> list[tuple[str, bytes]]:
    """One of each kind, with the reason it must be kept under."""
    whole = json.dumps(good(1)).encode()
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()

    def number(text: str) -> bytes:
        return whole.replace(b'"value": 21.5', f'"value": {text}'.encode())

    def changed(**changes: Any) -> bytes:
        return json.dumps(good(1) | changes).encode()

    return [
        ("NOT_JSON", b"warm, 21.5 degrees"),
        ("EMPTY", b""),
        ("EMPTY", b" \n"),
        ("NOT_UTF8", b"\xff\xfe21.5"),
        ("NOT_AN_OBJECT", b"[21.5]"),
        ("NOT_FINITE", number("NaN")),
        ("NOT_FINITE", number("Infinity")),
        ("NOT_FINITE", number("-Infinity")),
        ("NOT_FINITE", number("1e400")),
        ("WRONG_TYPE", number('"21.5"')),
        ("WRONG_TYPE", number("true")),
        ("WRONG_TYPE", changed(time=1_700_000_000)),
        ("WRONG_TYPE", changed(seq="1")),
        ("BAD_TIME", changed(time="2026-01-01")),
        ("BAD_TIME", changed(time="2026-01-01T00:00:00")),
        ("TIME_IN_FUTURE", changed(time=tomorrow)),
        ("TIME_TOO_OLD", changed(time="1999-12-31T23:59:59Z")),
        ("MISSING_FIELD", json.dumps({k: v for k, v in good(1).items() if k != "seq"}).encode()),
        ("TRAILING_BYTES", whole + b"x"),
        ("TRAILING_BYTES", whole + whole),
        ("WRONG_UNIT", changed(unit="K")),
        ("INCONSISTENT", changed(value=None)),
        ("OUT_OF_RANGE", changed(quality=5)),
        ("BAD_NAME", changed(gateway="Weather Box")),
        ("TOO_LARGE", changed(note="x" * 70_000)),
    ]


def publish(demo: RunningDemo, messages: Iterable[tuple[str, bytes]]) -> None:
    """Publish at QoS 1 and wait until Mosquitto has them all."""
    broker = demo.described()["mosquitto"]
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.connect(broker["host"], broker["port"])
    client.loop_start()
    try:
        for sent in [client.publish(topic, payload, qos=1) for topic, payload in messages]:
            sent.wait_for_publish(30)
            assert sent.is_published()
    finally:
        client.disconnect()
        client.loop_stop()


def produce(demo: RunningDemo, topic: str, values: Iterable[bytes | None]) -> None:
    """Write straight into Kafka."""
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _record: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": demo.described()["kafka"]["bootstrap_servers"]})
    for value in values:
        producer.produce(topic, value, on_delivery=delivered)
    assert producer.flush(30) == 0
    assert refused == []


def kept(reason: str, payload: bytes) -> Kept:
    return reason, payload[:KEPT_BYTES], len(payload)


def test_a_flood_of_malformed_payloads(tmp_path: Path, full: bool) -> None:
    if not full:
        pytest.skip("only with --full: the faults flood a gateway, test_validate.py the jobs")
    config = tmp_path / "flooded.toml"
    config.write_text(CONFIG)
    bad = list(islice(cycle(malformed()), FLOOD))
    huge = [("TOO_LARGE", b"\x00" * 2_000_000)] * 5
    topics = cycle(
        ("sensors/weather-box/reading", "fieldgate/flooded/cup/wind_speed", "fieldgate/flooded/no/such")
    )
    readings = [json.dumps(good(seq)).encode() for seq in range(1, 101)]
    # Some come twice, as after a fault; tables hold each once.
    arriving = [("sensors/weather-box/reading", payload) for payload in readings[:60] + readings[40:60]]
    with running_demo(tmp_path, "-c", str(config), "--seconds", "16") as demo:
        flood = [(next(topics), payload) for _, payload in bad + huge]
        publish(demo, flood[: FLOOD // 2] + arriving + flood[FLOOD // 2 :])
        produce(demo, "mqtt.temperature", [payload for _, payload in bad] + readings[50:] + [None])
        result = demo.result(500)
        own = result["channels"].pop("cup.wind_speed")
        assert result["channels"] == {}
        assert own["sampled"] == own["table_rows"] == result["sampled"] >= 12
        assert (result["unaccounted"], result["duplicates"], result["outbox_records"]) == (0, 0, 0)
        assert result["dead_letters"] == FLOOD + 5
        assert result["quarantined"] == 2 * FLOOD + 5 + 1
        assert result["table_rows"] == result["sampled"] + 100
        # Twenty came twice on the broker, ten of the broker's once more in Kafka.
        assert result["kafka_records"] == result["table_rows"] + 20 + 10 + FLOOD + 1

        with demo.lake() as lake:
            rows = lake.execute(
                "SELECT reason, payload, payload_bytes, kafka_topic FROM quarantine"
            ).fetchall()
            boxed = lake.execute("SELECT seq FROM readings WHERE gateway = 'weather-box'").fetchall()
        assert sorted(seq for (seq,) in boxed) == list(range(1, 101))
        letters = Counter((r, bytes(p), n) for r, p, n, topic in rows if topic == "gateway.dead-letter")
        direct = Counter((r, bytes(p), n) for r, p, n, topic in rows if topic == "mqtt.temperature")
        assert letters == Counter(kept(*one) for one in bad + huge)
        assert direct == Counter(kept(*one) for one in [*bad, ("EMPTY", b"")])
