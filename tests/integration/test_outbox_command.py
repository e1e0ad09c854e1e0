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
from confluent_kafka import Consumer, TopicPartition
from zstandard import ZstdCompressor

from buffer import blocks
from buffer.sqlite_outbox import SqliteOutbox
from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.operate.identity import IdentityTopic
from cloud.wire.channel_records import parse_channel
from cloud.wire.identities import IDENTITIES_TOPIC, IdentityRecord, Step
from cloud.wire.reading_records import ALERTS_TOPIC, COMMANDS_TOPIC, EVENTS_TOPIC, RUNS_TOPIC
from cloud.wire.site_records import SITES_TOPIC
from gateway.calibration.history import kafka_record
from gateway.forwarding.records import summarise, to_bytes
from gateway.ports import Record
from tests.support.accounts import CUP, read_accounts, reading, run_record
from tests.support.commands import called
from tests.support.config import config_text, cup, write_config
from tests.support.mast import records
from tests.support.servers import eventually, unique_name
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

    def stats(self) -> dict[str, object]:
        done = called("outbox", "stats", "-c", self.config, "--json")
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
            for message in consumer.consume(1000, timeout=0.02):
                assert message.error() is None
                seq = json.loads(message.value() or b"")["seq"]
                found[seq, ("replayed", b"1") in (message.headers() or [])] += 1
        return found
    finally:
        consumer.close()


def test_what_waits_goes_to_the_prefix_that_the_config_has_now(place: Place, kafka: LocalBroker) -> None:
    """Stored without a prefix, exported and drained with one, and imported with another."""
    prefixes = [f"{unique_name(name)}." for name in ("north", "south")]
    for prefix in prefixes:
        provision_topics(kafka.bootstrap_servers, partitions=1, others=[place.topic], prefix=prefix)
    text = place.config.read_text()
    place.config.write_text(text.replace("[kafka]", f'[kafka]\nprefix = "{prefixes[0]}"'))
    copy, everything = place.directory / "copy.db", {(seq, True): 1 for seq in range(1, 1001)}
    assert called("outbox", "export", copy, "-c", place.config).returncode == 0
    done = called("outbox", "drain", "-c", place.config)
    assert done.returncode == 0, done.stderr
    assert place.stats()["records"] == 0
    assert arrived(kafka, prefixes[0] + place.topic) == everything
    send = ("import", copy, "--bootstrap-servers", kafka.bootstrap_servers, "-c", place.config)
    assert called("outbox", *send, "--prefix", prefixes[1]).returncode == 0
    assert arrived(kafka, prefixes[1] + place.topic) == everything
    assert called("outbox", *send).returncode == 0
    assert arrived(kafka, prefixes[0] + place.topic).total() == 2000
    assert not arrived(kafka, place.topic)


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
    done = called("outbox", "stats", "-c", place.config)
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
        done = called("outbox", "export", stick, "-c", place.config)
    finally:
        outbox.close()
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"{place.outbox} copied to {stick}: {stick.stat().st_size:,} bytes\n"
    assert not list(place.directory.glob(".*.new"))
    again = called("outbox", "export", stick, "-c", place.config)
    assert (again.returncode, again.stderr) == (
        1,
        f"fieldgate: {stick} is there already; choose another name\n",
    )
    assert place.stats()["records"] == 1004

    servers = ["--bootstrap-servers", kafka.bootstrap_servers]
    # The run record is not sent where Kafka has one that is as far: it would take its place.
    for count in ("1,002", "1,000"):
        done = called("outbox", "import", stick, *servers)
        assert done.returncode == 0
        assert done.stderr.splitlines() == [
            f"{count} records are in Kafka",
            "1 records wait for the clock: only the mast's daemon sends them",
            f"by its first record this is the outbox of '{place.gateway}'",
        ]
    assert arrived(kafka, place.topic) == {(seq, True): 2 for seq in range(1, 1001)}

    *_, last = (each for each in records(kafka.bootstrap_servers, [newer.topic]) if each.key() == newer.key)
    assert parse_channel(last.value() or b"") == replace(RECORD, gateway=place.gateway)

    with sqlite3.connect(stick) as connection:
        connection.execute("UPDATE blocks SET payload_checksum = x'0000000000000000' WHERE first = 51")
    connection.close()
    done = called("outbox", "import", stick, *servers)
    assert done.returncode == 1
    assert "not sent: 1 damaged blocks, 0 rows that are no records" in done.stderr
    assert "950 records are in Kafka" in done.stderr


def test_a_cards_file_sends_in_no_others_name(
    place: Place, kafka: LocalBroker, kafka_topic: Callable[..., str]
) -> None:
    """What a crafted file holds beside the mast's records: with the operator's login it could be written."""
    own, victim = kafka_topic("acme.wind_speed"), unique_name("victim")
    place.config.write_text(place.config.read_text().replace(place.topic, own))
    status = {"gateway": victim, "state": "online", "run": "r1"}
    forged = [
        Record(COMMANDS_TOPIC, victim.encode(), b'{"action": "switch"}', ()),
        Record(COMMANDS_TOPIC, place.gateway.encode(), b'{"action": "switch"}', ()),
        Record(IDENTITIES_TOPIC, victim.encode(), b"{}", ()),
        Record(ALERTS_TOPIC, victim.encode(), b"{}", ()),
        Record("__consumer_offsets", b"x", b"{}", ()),
        Record(own, b"x", b"{}", ()),
        Record(RUNS_TOPIC, f"{victim}/r1".encode(), run_record(state="running", last=9, gateway=victim), ()),
        Record(EVENTS_TOPIC, victim.encode(), b"{}", ()),
        # The key isn't all that is read.
        Record(EVENTS_TOPIC, place.gateway.encode(), json.dumps(status).encode(), ()),
        Record(SITES_TOPIC, victim.encode(), b"{}", ()),
    ]
    event = Record(EVENTS_TOPIC, place.gateway.encode(), b'{"gateway": "%s"}' % place.gateway.encode(), ())
    place.add(event, *forged)
    topics = {each.topic for each in forged} - {"__consumer_offsets"}
    before = {topic: sum(1 for _ in records(kafka.bootstrap_servers, [topic])) for topic in topics}
    words = ("outbox", "import", str(place.outbox), "--bootstrap-servers", kafka.bootstrap_servers)
    # Without its config the usual topics of readings are all that it may send them to.
    done = called(*words)
    assert done.returncode == 1
    assert "1,001 records are in Kafka" in done.stderr
    assert "10 records were refused" in done.stderr
    for name in (COMMANDS_TOPIC, IDENTITIES_TOPIC, ALERTS_TOPIC, "__consumer_offsets", own, RUNS_TOPIC):
        assert name in done.stderr
    assert victim in done.stderr
    # With it, its topics are the config's.
    again = called(*words, "-c", place.config)
    assert "1,002 records are in Kafka" in again.stderr
    assert "9 records were refused" in again.stderr
    for topic in topics:
        grown = sum(1 for _ in records(kafka.bootstrap_servers, [topic])) - before[topic]
        assert grown == {EVENTS_TOPIC: 2, own: 1}.get(topic, 0), topic


MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def test_what_unpacks_to_a_gigabyte_takes_no_gigabyte(place: Place, kafka: LocalBroker) -> None:
    payload = ZstdCompressor().compress(bytes(1 << 30))
    head = blocks._head_checksum(5_001, 1, blocks.ZSTD, 0, b"")
    bomb = (5_001, 1, blocks.ZSTD, 0, b"", head, blocks._checksum(head, payload), payload)
    with sqlite3.connect(place.outbox) as connection:
        connection.execute("INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", bomb)
    connection.close()
    words = ("outbox", "import", str(place.outbox), "--bootstrap-servers", kafka.bootstrap_servers)
    # Between: what this process has counts for its children too, until they are another program.
    command = (sys.executable, "-c", MEASURED, sys.executable, "-m", "gateway.cli", *words)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "1,000 records are in Kafka" in done.stderr
    assert "1 damaged blocks" in done.stderr
    assert int(done.stdout.split()[-1]) < 200 << 10


def test_records_of_another_mast_that_has_a_key_are_refused(place: Place, kafka: LocalBroker) -> None:
    stick = place.directory / "stick.db"
    shutil.copy(place.outbox, stick)
    known = IdentityRecord(place.gateway, 1, (Step(0, 1),))
    IdentityTopic(kafka.bootstrap_servers, {}, 10).write(known)
    stick.with_name("other").mkdir()
    others = unique_name("mast")
    other = write_config(stick.with_name("other"), place.config.read_text().replace(place.gateway, others))
    servers = ("--bootstrap-servers", kafka.bootstrap_servers)
    done = called("outbox", "import", stick, *servers, "-c", other)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "0 records are in Kafka",
        f"refused: 1,000 records to '{place.topic}' of '{place.gateway}'",
        f"1,000 records were refused: {others} sends nothing there, or not by that name",
    ]
    assert arrived(kafka, place.topic) == {}


def test_drains_without_a_daemon(place: Place, kafka: LocalBroker) -> None:
    outbox = SqliteOutbox(place.outbox)
    try:
        refused = called("outbox", "drain", "-c", place.config)
    finally:
        outbox.close()
    assert refused.returncode == 1
    assert "in use by another fieldgate" in refused.stderr
    assert "a running daemon drains it by itself" in refused.stderr

    done = called("outbox", "drain", "-c", place.config)
    assert (done.returncode, done.stderr) == (0, "1,000 records sent and removed, 0 left\n")
    assert place.stats()["records"] == 0
    assert arrived(kafka, place.topic) == {(seq, True): 1 for seq in range(1, 1001)}
    # Its record in the run ledger shows that nothing waits any more.
    accounts = read_accounts(kafka.bootstrap_servers, [place.topic]).of(place.gateway)
    runs = {account.run: account for account in accounts}
    assert runs.pop("r1").stored == 1000
    assert [(account.state, account.sampled) for account in runs.values()] == [("stopped", 0)]


def test_reports_which_topic_takes_nothing(place: Place) -> None:
    missing = unique_name("mqtt.no_such_topic")
    place.add(place.record(1001, missing))
    done = called("outbox", "drain", "-c", place.config, "--timeout", "10")
    assert done.returncode == 1
    *_, counts, sentence, reason = done.stderr.splitlines()
    assert counts == "1,000 records sent and removed, 1 left"
    assert sentence == "Kafka doesn't take these: provision the topics, or the permission"
    assert reason.startswith(f"  {missing}: _UNKNOWN_TOPIC")


def test_ctrl_c_leaves_what_kafka_has_not_confirmed(tmp_path: Path, nowhere: str) -> None:
    place = Place(tmp_path, nowhere, "mqtt.wind_speed", count=100)
    command = [sys.executable, "-m", "gateway.cli", "outbox", "drain", "-c", str(place.config)]
    # Started in the background, the tests would hand on that SIGINT is ignored.
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)

    def interrupted() -> str:
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heeds) as process:
            eventually(lambda: place.stats()["used_by_pid"], until=lambda pid: pid == process.pid)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=90)
        assert process.returncode == 130
        return errors

    # On a busy machine it may not have begun, and then there is nothing to say.
    errors = eventually(interrupted, 200)
    assert "0 records sent and removed, 100 left" in errors
    assert place.stats()["records"] == 100
