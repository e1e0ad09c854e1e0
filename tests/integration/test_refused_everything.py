"""A Kafka that is reached and refuses all that is produced: what, and which key mends it, is said in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud.kafka.librdkafka import is_of_config
from cloud.kafka.producer import KafkaSink
from gateway.cli import main
from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.ports import Record
from tests.support.config import config_text, cup
from tests.support.mast import run_gateway
from tests.support.refusing_kafka import RefusingKafka
from tests.support.servers import eventually

WITHIN_S = 30.0


@pytest.mark.parametrize(
    ("code", "name", "key", "of_config"),
    [
        (76, "UNSUPPORTED_COMPRESSION_TYPE", "compression.type", True),
        (21, "INVALID_REQUIRED_ACKS", "acks", True),
        (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", "message.format.version", False),
        (44, "POLICY_VIOLATION", "policy", False),
        (32, "INVALID_TIMESTAMP", "message.timestamp.type", False),
    ],
)
def test_each_refusal_is_the_topics_and_names_what_mends_it(
    code: int, name: str, key: str, of_config: bool
) -> None:
    refusing = RefusingKafka()
    refusing.refuse(code, 100)
    sink = KafkaSink[int](refusing.servers, "live", {})
    try:
        assert sink.send(Record("topic", b"key", b"value", ()), 1)
        [(_, undelivered)] = eventually(lambda: sink.poll(0.05))
    finally:
        sink.close()
    assert undelivered is not None
    assert (undelivered.record_at_fault, undelivered.topic_at_fault) == (False, True)
    assert undelivered.problem.startswith(f"{name}: ")
    assert key in undelivered.problem
    assert is_of_config(undelivered.problem) is of_config


@pytest.mark.parametrize(
    ("code", "name", "key", "kind"),
    [
        (76, "UNSUPPORTED_COMPRESSION_TYPE", "compression.type", "config"),
        (32, "INVALID_TIMESTAMP", "message.timestamp.type", "topic"),
    ],
)
def test_a_kafka_that_refuses_everything_is_named_in_status_metrics_doctor_and_log(
    code: int,
    name: str,
    key: str,
    kind: str,
    mosquitto: LocalMosquitto,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    refusing = RefusingKafka()
    refusing.refuse(code, 10_000)
    with run_gateway(tmp_path, config_text(cup()), "mast-07", refusing.servers, mosquitto) as mast:
        status = eventually(mast.status_now, WITHIN_S, until=lambda now: bool(now.get("kafka_problem")))
        assert status["kafka_problem"].startswith(f"{name}: ")
        assert key in status["kafka_problem"]
        assert status["kafka_refusal"] == kind
        assert f'fieldgate_kafka_refuses{{reason="{kind}"}} 1.0' in mast.metrics()
        eventually(lambda: name in mast.log.read_text())
        assert status["dead_letters"] == 0
        eventually(lambda: mast.status()["outbox_records"], until=lambda rows: rows > 3)
        mast.write(
            config_text(
                cup(),
                mqtt={"port": mosquitto.port},
                kafka={"bootstrap_servers": refusing.servers},
                status={"listen": f"127.0.0.1:{mast.status_port}"},
            )
        )
        for command in ("status", "doctor"):
            main([command, "-c", str(mast.path)])
            assert key in capsys.readouterr().out, command
