"""Who sent it: what doesn't prove to be its gateway's is in quarantine, and nothing else of it is anywhere.

One mast must prove itself, another one needn't and forges it; a third must sign each record, and its run is
known to the forger. Then the first gets another key, with a backlog of the old one.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from cloud.command_line import CommandError
from cloud.config import Secret
from cloud.config.model import IdentityConfig
from cloud.kafka.command_client import publish
from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.operate.identity import IdentityTopic, Known, enforced, handed_out, revoked
from cloud.wire.identities import IDENTITIES_TOPIC, IDENTITY, IdentityRecord, Step, gateway_key, proving_run
from cloud.wire.reading_records import ALERTS_TOPIC, dead_letter, encode_dead_letter, encode_reading
from spark_jobs.jobs.alerts import AlertsJob
from spark_jobs.jobs.ingest import IngestJob, RecordsJob
from spark_jobs.jobs.presence import PresenceJob
from spark_jobs.platform.errors import JobError
from spark_jobs.platform.settings import Settings
from spark_jobs.sources.kafka import IdentitySource
from tests.spark.jobs.test_alerts_job import produced
from tests.spark.jobs.test_records_job import Headers, Topics, calibration, run_record, site, status, topics
from tests.spark.records import reading, rows_of
from tests.spark.running import run_to_end
from tests.support.servers import eventually, unique_name

__all__ = ["topics"]

MASTER: Final = "0123456789abcdef0123456789abcdef"
RULES: Final = """
[[rule]]
name = "any-wind"
kind = "threshold"
quantity = "wind_speed"
above = 30
for = "0s"
"""
CAP: Final = 3


class Fleet:
    """Two masts of the test's own, and what is produced as theirs."""

    def __init__(self, kafka: LocalBroker, topics: Topics) -> None:
        self.mine, self.forger = unique_name("mast-a"), unique_name("mast-b")
        self.topic = IdentityTopic(kafka.bootstrap_servers, {}, 10)
        self.ledger: dict[str, int] = {}
        self._topics = topics
        self._seq = 0

    def known(self) -> Known:
        """As ``provision`` reads it; the runs' records are in a topic of the test's own."""
        return replace(self.topic.read(self.mine), runs=dict(self.ledger))

    def run(self, generation: int, nonce: str = "000000000001") -> str:
        return proving_run(gateway_key(MASTER, self.mine, generation), self.mine, nonce)

    def sends(self, *values: bytes, key: str | None = None) -> None:
        """Records of a reading topic; the key is the mast's."""
        name = key or f"{self.mine}/cup.wind_speed"
        self._topics.produce(*(("wind_speed", name.encode(), value, []) for value in values))

    def value(
        self, run: str, value: float = 5.0, gateway: str | None = None, channel: str = "cup.wind_speed"
    ) -> bytes:
        """A new reading of now."""
        self._seq += 1
        mine, now_us = gateway or self.mine, time.time_ns() // 1000
        return encode_reading(reading(self._seq, value, gateway=mine, channel=channel, run=run, at_us=now_us))

    def record(self, name: str, value: bytes, run: str | None = None) -> None:
        """A record of another topic under the mast's key, with its name in place of the usual one."""
        headers: Headers = [] if run is None else [("run", run.encode())]
        named = value.replace(b'"mast-07"', f'"{self.mine}"'.encode())
        self._topics.produce((name, f"{self.mine}/x".encode(), named, headers))


def later_than(us: int) -> None:
    """Kafka's time is in whole milliseconds."""
    eventually(lambda: time.time_ns() // 1000 > us + 2000)


@pytest.fixture
def fleet(kafka: LocalBroker, topics: Topics) -> Fleet:
    provision_topics(kafka.bootstrap_servers)
    # A topic that was just made is seen a moment later.
    eventually(lambda: IDENTITIES_TOPIC in topics.admin.list_topics(timeout=10).topics)
    return Fleet(kafka, topics)


@pytest.fixture
def secured(settings: Settings, topics: Topics, tmp_path: Path) -> Settings:
    """Settings of jobs that have the master key."""
    (tmp_path / "master.key").write_text(MASTER)
    (tmp_path / "rules.toml").write_text(RULES)
    key = Secret("file", str(tmp_path / "master.key"), ("identity", "master_key"), "cloud.toml:1")
    return replace(
        topics.settings(settings),
        quarantine_cap=CAP,
        identity=IdentityConfig(master_key=key),
        rules=str(tmp_path / "rules.toml"),
    )


def runs_of(settings: Settings, table: str, gateway: str) -> Counter[str]:
    return Counter(row["run"] for row in rows_of(settings, table) if row["gateway"] == gateway)


def test_a_forged_reading_is_in_quarantine_and_nothing_else_of_it_is_anywhere(
    spark: SparkSession, secured: Settings, kafka: LocalBroker, fleet: Fleet
) -> None:
    mine, proven = fleet.mine, fleet.run(1)
    # Of today's version: no proof, no header; welcome until the mast must prove itself.
    fleet.sends(fleet.value("old-run", 40.0, channel="twin.wind_speed"), fleet.value("unknown-run"))
    fleet.record("runs", run_record("old-run", "running", 9))
    fleet.record("channels", calibration(2, cal="00000001"))
    later_than(time.time_ns() // 1000)
    since_us = time.time_ns() // 1000
    fleet.topic.write(IdentityRecord(mine, 1, (Step(since_us, 1),), frozenset({"old-run"})))
    later_than(since_us)
    good = [fleet.value(proven), fleet.value("old-run")]
    fleet.sends(*good)
    forged = [fleet.value("00a1b2c3d4e5", 99.0), fleet.value("unknown-run", 99.0)]
    forged += [fleet.value(proving_run("0" * 64, mine, "00a1b2c3d4e5"), 99.0)]
    fleet.sends(forged[0])
    # By the forger's own key, and as his own reading: it is one.
    fleet.sends(*forged[1:], key=f"{fleet.forger}/cup.wind_speed")
    fleet.sends(fleet.value("any-run", gateway=fleet.forger), key=f"{fleet.forger}/cup.wind_speed")
    # More garbage in the mast's name than its cap, and then what is really its: both ways.
    fleet.sends(*[b"garbage %d" % number for number in range(CAP + 4)])
    broken = json.dumps({**json.loads(fleet.value(proven)), "unit": "km/h"}).encode()
    letter = dead_letter(mine, proven, 1, "NOT_JSON", "bad", "shed/x", since_us, b"bad")
    fleet.sends(broken)
    fleet._topics.produce(("dead", mine.encode(), encode_dead_letter(letter), []))
    for run, state in ((proven, "running"), ("00a1b2c3d4e5", "running")):
        fleet.record("runs", run_record(run, state, 3))
        fleet.record("status", status("online", run, 1))
    for header, cal, day in ((proven, "00000002", 1), ("00a1b2c3d4e5", "00000003", 2), (None, "00000004", 3)):
        fleet.record("channels", calibration(2, cal=cal), header)
        fleet.record("sites", site(2, "Hill", day=day), header)
    for run in (proven, "00a1b2c3d4e5"):
        named: Headers = [
            ("gateway", mine.encode()), ("channel", b"fridge.raw"), ("run", run.encode()), ("seq", b"7"),
        ]  # fmt: skip
        fleet._topics.produce(("raw", b"shed/fridge", b"cold", named))
    for make in (RecordsJob, IngestJob, AlertsJob):
        run_to_end(secured, make(spark, secured))

    found = runs_of(secured, "readings", mine)
    assert found == {"old-run": 2, "unknown-run": 1, proven: 1}
    assert runs_of(secured, "readings", fleet.forger) == {"any-run": 1}
    assert set(runs_of(secured, "runs", mine)) == {"old-run", proven}
    assert set(runs_of(secured, "_status", mine)) == {proven}
    assert set(runs_of(secured, "messages", mine)) == {proven}
    cals = {row["cal"] for row in rows_of(secured, "channels") if row["gateway"] == mine}
    assert cals == {"00000001", "00000002"}
    assert len([row for row in rows_of(secured, "sites") if row["gateway"] == mine]) == 1
    # That of before; an alert of a rule with a command would be a command too.
    raised = [json.loads(value) for value in produced(kafka, ALERTS_TOPIC, mine)]
    assert {alert["channel"] for alert in raised} == {"twin.wind_speed"}

    rejects = rows_of(secured, "quarantine")
    stored = [row for row in rejects if row["overflow"] is None]
    # Its own two are there, whatever others sent in its name; those take each other's room.
    assert {(row["reason"], row["gateway"]) for row in stored if row["payload"] in (broken, b"bad")} == {
        ("WRONG_UNIT", mine), ("NOT_JSON", mine),
    }  # fmt: skip
    assert len([row for row in stored if row["gateway"] == mine]) == 2
    assert len([row for row in stored if row["gateway"] == ""]) == CAP
    identity = [row for row in stored if row["reason"] == IDENTITY]
    assert identity
    assert {row["gateway"] for row in identity} <= {"", fleet.forger}
    of_forger = [row["payload"] for row in identity if row["gateway"] == fleet.forger]
    assert sorted(of_forger) == sorted(forged[1:]), "byte for byte, as they came"

    # Nobody's rejects say where the mast's readings are.
    run_to_end(secured, PresenceJob(spark, secured))
    claimed = {row["run"] for row in rows_of(secured, "_set_aside") if row["gateway"] == mine}
    assert claimed <= {proven}


def test_a_new_key_lets_the_backlog_of_the_old_one_in(
    spark: SparkSession, secured: Settings, fleet: Fleet
) -> None:
    mine, old, stolen = fleet.mine, fleet.run(1), fleet.run(1, "00000000beef")
    first = handed_out(fleet.known(), mine, MASTER, 1, another=False)
    assert (first.generation, first.steps) == (1, (Step(1, 1),)), "nothing was known of it"
    fleet.topic.write(first)
    fleet.sends(fleet.value(old), fleet.value("plain"))
    fleet.ledger[old] = fleet.ledger["plain"] = time.time_ns() // 1000
    second = handed_out(fleet.known(), mine, MASTER, 1, another=True)
    fleet.topic.write(second)
    fleet.sends(fleet.value(fleet.run(2)), fleet.value(old), fleet.value(fleet.run(3)))

    # The mast has shown that it has the new one: from here on runs of the old one are those that are known.
    with pytest.raises(CommandError, match=r"no run of .* has proven itself by key 2 yet"):
        enforced(fleet.known(), MASTER, 2)
    fleet.ledger[fleet.run(2)] = time.time_ns() // 1000
    since_us = time.time_ns() // 1000
    third = enforced(fleet.known(), MASTER, since_us)
    assert third.runs == {old}
    fleet.topic.write(third)
    later_than(since_us)
    fleet.sends(fleet.value(old), fleet.value(stolen), fleet.value(fleet.run(2)))
    since_us = time.time_ns() // 1000
    fleet.topic.write(revoked(fleet.known(), mine, since_us))
    later_than(since_us)
    fleet.sends(fleet.value(old), fleet.value(fleet.run(2)))

    # Whenever it is read: each by what counted when Kafka had it.
    run_to_end(secured, IngestJob(spark, secured))
    assert runs_of(secured, "readings", mine) == {old: 3, fleet.run(2): 2}
    rejects = rows_of(secured, "quarantine")
    assert {row["reason"] for row in rejects if row["overflow"] is None} == {IDENTITY}
    assert sum(row["overflow"] or 1 for row in rejects) == 5


def test_what_is_enforced_is_read_again_and_a_record_that_cant_be_read_stops_the_jobs(
    spark: SparkSession, secured: Settings, kafka: LocalBroker, fleet: Fleet
) -> None:
    source = IdentitySource(spark, secured)
    try:
        assert source.current().accepts(fleet.mine, "any", 5)
        fleet.topic.write(IdentityRecord(fleet.mine, 1, (Step(0, None),)))
        assert source.current().accepts(fleet.mine, "any", 5), "once in some seconds"
        source._read_at_s = -1e9
        assert not source.current().accepts(fleet.mine, "any", 5)
        # Rather than let all in.
        publish(kafka.bootstrap_servers, {}, (IDENTITIES_TOPIC, fleet.forger.encode(), b'{"v":2}'), 10)
        source._read_at_s = -1e9
        with pytest.raises(JobError, match=f"{fleet.forger}'s record in gateway.identities can't be read"):
            source.current()
    finally:
        source.close()
        # Others use the broker too.
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce(IDENTITIES_TOPIC, None, fleet.forger.encode())
        assert producer.flush(30) == 0
