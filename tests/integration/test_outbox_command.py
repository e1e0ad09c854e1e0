"""``fieldgate outbox`` with a real Kafka; the daemon's place is taken by whoever holds the outbox."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from buffer.sqlite_outbox import SqliteOutbox
from cloud.kafka.identities import IdentityTopic
from cloud.kafka.provision import provision_topics
from cloud.kafka.topic_scan import read_books, read_revised
from cloud.local.kafka_broker import LocalBroker
from cloud.wire.identities import IDENTITIES_TOPIC, IdentityRecord, Step, gateway_key
from cloud.wire.reading_records import RUNS_TOPIC
from gateway.calibration.history import kafka_record
from gateway.cli import main
from gateway.forwarding.record_codec import to_bytes
from gateway.forwarding.seq_summary import summarise
from gateway.ports import Record
from tests.support.config import config_text, cup, write_config
from tests.support.mast import is_signed, records
from tests.support.servers import eventually, fieldgate, unique_name
from tests.unit.cloud.kafka.test_run_accounts import CUP, reading, run_record
from tests.unit.cloud.wire.test_channel_records import RECORD


class Place:
    """A gateway's directory with a config and a full outbox."""

    def __init__(self, directory: Path, kafka: str, topic: str, count: int = 1000) -> None:
        self.gateway = unique_name("mast")
        self.directory = directory
        self.topic = topic
        self.outbox = directory / "outbox.db"
        text = config_text(
            cup("cup-a"),
            gateway={"id": self.gateway},
            kafka={"bootstrap_servers": kafka, "topic": topic},
            outbox={"min_free_disk": 0},
        )
        self.config = write_config(directory, text)
        records = [self.record(seq) for seq in range(1, count + 1)]
        outbox = SqliteOutbox(self.outbox)
        for at in range(0, count, 50):
            part = records[at : at + 50]
            outbox.append(list(map(to_bytes, part)), summarise(part))
        outbox.close()

    def record(self, seq: int, topic: str = "") -> Record:
        key = f"{self.gateway}/{CUP}".encode()
        headers = (("received-at", b"2026-01-01T00:00:00.000Z"),)
        return Record(topic or self.topic, key, reading(seq, gateway=self.gateway), headers)

    def add(self, *records: Record) -> None:
        outbox = SqliteOutbox(self.outbox)
        outbox.append(list(map(to_bytes, records)), summarise(records))
        outbox.close()

    def fieldgate(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return fieldgate("outbox", *arguments)

    def stats(self) -> dict[str, object]:
        done = self.fieldgate("stats", "-c", str(self.config), "--json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, object] = json.loads(done.stdout)
        return answer


@pytest.fixture
def place(tmp_path: Path, kafka: LocalBroker, kafka_topic: Callable[..., str]) -> Place:
    provision_topics(kafka.bootstrap_servers, partitions=2, replication=1)
    return Place(tmp_path, kafka.bootstrap_servers, kafka_topic("mqtt.wind_speed"))


def arrived(kafka: LocalBroker, topic: str) -> Counter[tuple[int, bool]]:
    """How often each seq came, and whether it was marked as replayed."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": unique_name("look")})
    try:
        place = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=20)
        consumer.assign([place])
        found: Counter[tuple[int, bool]] = Counter()
        while found.total() < end:
            for message in consumer.consume(1000, timeout=1):
                assert message.error() is None
                seq = json.loads(message.value() or b"")["seq"]
                found[seq, ("replayed", b"1") in (message.headers() or [])] += 1
        return found
    finally:
        consumer.close()


def test_stats_beside_the_one_who_writes(place: Place) -> None:
    outbox = SqliteOutbox(place.outbox)
    try:
        answer = place.stats()
    finally:
        outbox.close()
    assert answer["used_by_pid"] is not None
    assert (answer["records"], answer["readings"], answer["blocks"]) == (1000, 1000, 20)
    assert answer["by_channel"] == {f"{place.gateway}/{CUP}": 1000}
    assert answer["runs"] == [{"gateway": place.gateway, "run": "r1", "channel": CUP, "ranges": [[1, 1000]]}]
    assert answer["oldest"] == answer["newest"] == "2026-01-01T00:00:00.000Z"
    assert answer["dropped"] == 0
    done = place.fieldgate("stats", "-c", str(place.config))
    assert "1,000, of them 1,000 readings, in 20 blocks" in done.stdout
    assert "not in use" in done.stdout


def test_what_was_carried_home_gets_into_kafka(place: Place, kafka: LocalBroker) -> None:
    stick = place.directory / "stick.db"
    run_payload = run_record(state="running", last=9, gateway=place.gateway)
    place.add(Record(RUNS_TOPIC, f"{place.gateway}/r1".encode(), run_payload, ()))
    newer = kafka_record(replace(RECORD, gateway=place.gateway))
    # Kafka keeps the last of a key, so of two the newer one is sent, and only where Kafka has an older one.
    for revision in (3, 2):
        place.add(kafka_record(replace(RECORD, gateway=place.gateway, revision=revision)))
    held = place.record(1001)
    place.add(Record(held.topic, held.key, held.value, (*held.headers, ("unrepaired", b"boot"))))
    outbox = SqliteOutbox(place.outbox)
    try:
        done = place.fieldgate("export", str(stick), "-c", str(place.config))
    finally:
        outbox.close()
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"{place.outbox} copied to {stick}: {stick.stat().st_size:,} bytes\n"
    assert not list(place.directory.glob(".*.new"))
    again = place.fieldgate("export", str(stick), "-c", str(place.config))
    assert (again.returncode, again.stderr) == (
        1,
        f"fieldgate: {stick} is there already; choose another name\n",
    )
    assert place.stats()["records"] == 1004

    servers = ["--bootstrap-servers", kafka.bootstrap_servers]
    # The run record is not sent where Kafka has one that is as far: it would take its place.
    for count in ("1,002", "1,000"):
        done = place.fieldgate("import", str(stick), *servers)
        assert done.returncode == 0
        assert done.stderr.splitlines() == [
            f"{count} records are in Kafka",
            "1 records wait for the clock: only the mast's daemon sends them",
        ]
    assert arrived(kafka, place.topic) == {(seq, True): 2 for seq in range(1, 1001)}

    counts = read_revised(kafka.bootstrap_servers)[newer.topic, newer.key]
    assert counts == replace(RECORD, gateway=place.gateway)

    with sqlite3.connect(stick) as connection:
        connection.execute("UPDATE blocks SET payload_checksum = x'0000000000000000' WHERE first = 51")
    connection.close()
    done = place.fieldgate("import", str(stick), *servers)
    assert done.returncode == 1
    assert "not sent: 1 damaged blocks, 0 rows that are no records" in done.stderr
    assert "950 records are in Kafka" in done.stderr


def test_what_has_to_be_signed_is_refused_or_signed(
    place: Place, kafka: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    stick, key = place.directory / "stick.db", gateway_key("m" * 32, place.gateway, 1)
    shutil.copy(place.outbox, stick)
    topic = IdentityTopic(kafka.bootstrap_servers, {}, 10)
    record = IdentityRecord(place.gateway, 1, (Step(0, 1, signed=True),))
    topic.write(record)
    # One that was deleted is none.
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(IDENTITIES_TOPIC, None, unique_name("gone").encode())
    assert producer.flush(20) == 0
    signed = signing(place.config.read_text(), key)
    stick.with_name("other").mkdir()
    other = write_config(stick.with_name("other"), signed.replace(place.gateway, unique_name("mast")))

    def bring(*options: str) -> tuple[int, list[str]]:
        words = ("outbox", "import", str(stick), "--bootstrap-servers", kafka.bootstrap_servers)
        code = main([*words, *options])
        return code, capsys.readouterr().err.splitlines()

    # Another mast's config has another key, and one that doesn't sign has none.
    for options in ((), ("-c", str(place.config)), ("-c", str(other))):
        assert bring(*options) == (
            1,
            [
                "0 records are in Kafka",
                f"fieldgate: each record of {place.gateway} must be signed: name its config, which has the "
                "key, by -c; or accept its run first: "
                f"fieldgate provision gateway {place.gateway} --accept-run r1",
            ],
        )
    assert arrived(kafka, place.topic) == {}

    place.config.write_text(signed)
    assert bring("-c", str(place.config)) == (0, ["1,000 records are in Kafka"])
    assert arrived(kafka, place.topic) == {(seq, True): 1 for seq in range(1, 1001)}
    assert all(is_signed(message, key) for message in records(kafka.bootstrap_servers, [place.topic]))

    # Of one whose run is accepted as it is.
    topic.write(replace(record, runs=frozenset({"r1"}), unsigned=frozenset({"r1"})))
    assert bring() == (0, ["1,000 records are in Kafka"])
    assert arrived(kafka, place.topic).total() == 2000


def signing(config: str, key: str) -> str:
    """A config whose gateway signs its records."""
    return config.replace("[gateway]", f'[gateway]\nidentity_key = "{key}"\nsign_records = true')


def test_drains_without_a_daemon(place: Place, kafka: LocalBroker) -> None:
    outbox = SqliteOutbox(place.outbox)
    try:
        refused = place.fieldgate("drain", "-c", str(place.config))
    finally:
        outbox.close()
    assert refused.returncode == 1
    assert "in use by another fieldgate" in refused.stderr
    assert "a running daemon drains it by itself" in refused.stderr

    # Records of before there was a key are signed as they are sent.
    key = gateway_key("m" * 32, place.gateway, 1)
    place.config.write_text(signing(place.config.read_text(), key))
    done = place.fieldgate("drain", "-c", str(place.config))
    assert (done.returncode, done.stderr) == (0, "1,000 records sent and removed, 0 left\n")
    assert place.stats()["records"] == 0
    assert arrived(kafka, place.topic) == {(seq, True): 1 for seq in range(1, 1001)}
    # Its record in the run ledger shows that nothing waits any more.
    accounts = read_books(kafka.bootstrap_servers, gateway=place.gateway, topics=[place.topic]).accounts()
    runs = {account.run: account for account in accounts}
    assert runs.pop("r1").in_kafka == 1000
    assert [(account.state, account.sampled) for account in runs.values()] == [("stopped", 0)]
    # As everything that leaves, that record too.
    assert all(is_signed(message, key) for message in records(kafka.bootstrap_servers, [place.topic]))
    known = IdentityTopic(kafka.bootstrap_servers, {}, 10).read(place.gateway)
    assert known.signature is not None
    assert known.signature.is_by(key)


def test_reports_which_topic_takes_nothing(place: Place) -> None:
    missing = unique_name("mqtt.no_such_topic")
    place.add(place.record(1001, missing))
    done = place.fieldgate("drain", "-c", str(place.config), "--timeout", "10")
    assert done.returncode == 1
    *_, counts, sentence, reason = done.stderr.splitlines()
    assert counts == "1,000 records sent and removed, 1 left"
    assert sentence == "Kafka doesn't take these: provision the topics, or the permission"
    assert reason.startswith(f"  {missing}: _UNKNOWN_TOPIC")


def test_ctrl_c_leaves_what_kafka_has_not_confirmed(tmp_path: Path, free_port: int) -> None:
    place = Place(tmp_path, f"127.0.0.1:{free_port}", "mqtt.wind_speed", count=100)
    command = [sys.executable, "-m", "gateway.cli", "outbox", "drain", "-c", str(place.config)]
    # Started in the background, the tests would hand on that SIGINT is ignored.
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heeds) as process:
        eventually(lambda: place.stats()["used_by_pid"], until=lambda pid: pid == process.pid)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=90)
    assert process.returncode == 130
    assert "0 records sent and removed, 100 left" in errors
    assert place.stats()["records"] == 100
