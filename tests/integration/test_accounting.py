"""``fieldgate status --bootstrap-servers`` against a real broker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import TopicPartition

from cloud.local.kafka_broker import LocalBroker
from cloud.wire.reading_records import RUNS_TOPIC
from tests.support.servers import fieldgate, unique_name
from tests.unit.cloud.kafka.test_run_accounts import CUP, reading, run_record

Account = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def gateway(provisioned: str) -> str:
    return unique_name("mast")


def status(*arguments: str) -> subprocess.CompletedProcess[str]:
    return fieldgate("status", *arguments)


def produce(kafka: LocalBroker, *records: tuple[str, str, bytes]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for topic, key, value in records:
        producer.produce(topic, key=key, value=value)
    assert producer.flush(20) == 0


def test_reports_what_is_unaccounted(
    kafka: LocalBroker, kafka_topic: Callable[..., str], gateway: str
) -> None:
    topic = kafka_topic("mqtt.wind_speed")
    ours = ["--bootstrap-servers", kafka.bootstrap_servers, "--gateway", gateway, "--topic", topic]
    key = f"{gateway}/{CUP}"
    produce(
        kafka,
        (RUNS_TOPIC, f"{gateway}/r1", run_record("r1", "running", last=4, gateway=gateway)),
        (RUNS_TOPIC, f"{gateway}/r1", run_record("r1", last=10, gateway=gateway)),
        *((topic, key, reading(seq, gateway=gateway)) for seq in (*range(1, 10), 9)),
        (topic, "other", reading(77, gateway=unique_name("other"))),
    )
    done = status(*ours, "--json")
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    assert answer["total"] == {
        "sampled": 10, "in_kafka": 9, "repeats": 1, "dead_letters": 0, "dropped": 0, "expired": 0,
        "pending": 0, "unaccounted": 1, "never_sampled": 0,
    }  # fmt: skip
    assert [run["run"] for run in answer["runs"]] == ["r1"]

    produce(kafka, (topic, key, reading(10, gateway=gateway)))
    done = status(*ours)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (line.split() for line in done.stdout.splitlines() if gateway in line)
    assert line[1:3] == ["r1", "stopped"]
    assert line[5:] == ["10", "10", "1", "0", "0", "0", "0"]

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        deleted.result(timeout=20)
    # The first four are gone by retention: not lost.
    answer = json.loads(status(*ours, "--json").stdout)
    assert (answer["total"]["expired"], answer["total"]["unaccounted"]) == (4, 0)


def test_reports_that_kafka_does_not_answer(free_port: int) -> None:
    done = status("--bootstrap-servers", f"127.0.0.1:{free_port}", "--timeout", "1")
    assert done.returncode == 1
    assert f"no answer from Kafka at 127.0.0.1:{free_port}: " in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_reports_which_property_is_wrong(free_port: int) -> None:
    done = status("--bootstrap-servers", f"127.0.0.1:{free_port}", "--property", "no.such=1")
    assert done.returncode == 1
    assert done.stderr == 'fieldgate: No such configuration property: "no.such"\n'
