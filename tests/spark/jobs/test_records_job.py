"""What is no reading, from a real Kafka to its tables: each record once, in exactly one place."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from cloud.local.kafka_broker import LocalBroker
from cloud.wire.channel_records import ChannelRecord, Period, encode_channel
from cloud.wire.reading_records import dead_letter, encode_dead_letter, encode_reading, reading_key
from cloud.wire.site_records import SiteRecord, encode_site
from cloud.wire.status_records import StatusRecord, encode_status
from spark_jobs.jobs.ingest import IngestJob, RecordsJob
from spark_jobs.platform.settings import Settings
from tests.spark.records import KAFKA_US, START_US, contents, kafka_frame, reading, rows_of
from tests.spark.running import run_to_end
from tests.support.servers import unique_name

Headers = list[tuple[str, str | bytes | None]]

NAMES = ("wind_speed", "dead", "events", "raw", "channels", "runs", "status", "sites")
TABLES = ("readings", "messages", "channels", "runs", "_status", "sites", "events", "health")


class Topics:
    """Topics that no other test uses; each takes messages of 3 MB and is compacted where the real one is."""

    def __init__(self, kafka: LocalBroker) -> None:
        self.name = unique_name("records")
        self._servers = kafka.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        config = {"max.message.bytes": "3000000", "message.timestamp.type": "LogAppendTime"}
        compacted = {**config, "cleanup.policy": "compact,delete"}
        created = self.admin.create_topics(
            [
                NewTopic(
                    self[name],
                    num_partitions=2,
                    replication_factor=1,
                    config=compacted if name in NAMES[4:] else config,
                )
                for name in NAMES
            ]
        )
        for future in created.values():
            future.result(30)

    def __getitem__(self, name: str) -> str:
        # The readings' pattern must not match the others.
        return f"{self.name}{'.' if name in NAMES[:2] else '-'}{name}"

    def settings(self, settings: Settings) -> Settings:
        return replace(
            settings,
            bootstrap_servers=self._servers,
            topic_pattern=f"{self.name}\\..+",
            dead_letter_topic=self["dead"],
            raw_topic=self["raw"],
            channels_topic=self["channels"],
            runs_topic=self["runs"],
            status_topic=self["status"],
            sites_topic=self["sites"],
            events_topic=self["events"],
        )

    def producer(self, **more: str) -> Producer:
        settings: dict[str, Any] = {"bootstrap.servers": self._servers, "message.max.bytes": 3_000_000}
        return Producer(settings | {name.replace("_", "."): value for name, value in more.items()})

    def produce(self, *records: tuple[str, bytes | None, bytes | None, Headers]) -> None:
        # In order, and each once: what is asserted hangs on both.
        producer = self.producer(enable_idempotence="true")
        errors: list[object] = []
        for name, key, value, headers in records:
            producer.produce(
                self[name],
                value,
                key,
                headers=headers,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert (producer.flush(30), errors) == (0, [])


@pytest.fixture
def topics(kafka: LocalBroker) -> Iterator[Topics]:
    made = Topics(kafka)
    yield made
    made.admin.delete_topics([made[name] for name in NAMES])


def run_once(spark: SparkSession, settings: Settings) -> None:
    run_to_end(settings, RecordsJob(spark, settings))


def run_both(spark: SparkSession, settings: Settings) -> None:
    run_to_end(settings, IngestJob(spark, settings))
    run_once(spark, settings)


def calibration(revision: int, *, cal: str = "5d1c0a7e", slope: float = 0.765, begin: int = 0) -> bytes:
    record = ChannelRecord(
        gateway="mast-07", sensor="cup", quantity="wind_speed", cal=cal, revision=revision, in_force=True,
        periods=(Period(START_US + begin),), unit="m/s", driver="hall-anemometer", interval_s=1.0,
        range=(0.0, 75.0), kind="linear", raw_unit="Hz", slope=slope, offset=0.35,
        settings={"at_rest": "zero"}, reported={"serial": "é"}, extra={"new": [1]},
    )  # fmt: skip
    return encode_channel(record)


def run_record(run: str, state: str, last: int, **more: Any) -> bytes:
    fields = {
        "v": 1, "gateway": "mast-07", "run": run, "previous_run": None, "state": state,
        "started": "2026-05-28T20:00:00.000Z", "boot": "b-1", "revision": last,
        "last_seq": {"cup.wind_speed": last}, "in_flight": 1, "outbox_records": 2, "dropped": [],
    }  # fmt: skip
    return json.dumps(fields | more).encode()


def event(kind: str, seq: int | None, *, run: str = "r1", second: int = 0, **fields: Any) -> bytes:
    """An event; one without a number is an older daemon's."""
    number = {} if seq is None else {"seq": seq}
    of_all = {"v": 1, "gateway": "mast-07", "run": run, **number}
    return json.dumps(
        {**of_all, "time": f"2026-05-28T20:00:{second:02}.125Z", "event": kind, **fields}
    ).encode()


def status(state: str, run: str, revision: int = 0) -> bytes:
    return encode_status(StatusRecord("mast-07", state, run, time_us=START_US, revision=revision))


def site(revision: int, name: str, *, day: int = 0) -> bytes:
    begin_us = START_US + day * 86_400_000_000
    return encode_site(
        SiteRecord("mast-07", begin_us, revision, 27.7, 85.5, None, 345, name, extra={"new": 1})
    )


IDENTITY: Headers = [
    ("mqtt-topic", b"shed/fridge"),
    ("received-at", b"2026-05-28T20:27:01.250Z"),
    ("gateway", b"mast-07"),
    ("channel", b"fridge.raw"),
    ("run", b"run-1"),
    ("seq", b"7"),
]


def nonsense(chance: random.Random) -> bytes:
    """Bytes that are no record of ours: noise, or the beginning of one."""
    kind = chance.randrange(3)
    if kind == 0:
        return chance.randbytes(chance.randrange(200))
    if kind == 1:
        return bytes(chance.choice(b'{}[]":,0123456789eE+-.truefalsn\\u \xff') for _ in range(60))
    whole = chance.choice([calibration(1), run_record("r", "running", 1), status("online", "r", 1)])
    return whole[: chance.randrange(len(whole))]


def odd_headers(chance: random.Random) -> Headers:
    names = ["", "mqtt-topic", "gateway", "seq", "replayed", "received-at", "é\u202e" * 50, "x" * 300]
    return [
        (chance.choice(names), chance.choice([None, b"", b"1", b"\xff\xfe", chance.randbytes(40)]))
        for _ in range(chance.randrange(6))
    ]


HOSTILE = [
    run_record("r9", "running", 1 << 63),
    run_record("r9", "running", -1),
    run_record("r9", "running", 1, in_flight=1 << 70),
    run_record("r9", "\ud800", 1),
    run_record("r9\ud800", "running", 1),
    run_record("r9", "running", 1, unfinished=[{"run": "r", "end": "reset", "lost_at_most_s": 1e999}]),
    run_record(
        "r9", "running", 1, dropped=[{"reason": "X", "count": 1, "ranges": [f"r {'c'} 1-{'9' * 19}"]}]
    ),
    # Each once stopped a job for good.
    run_record(
        "r9",
        "running",
        1,
        dropped=[{"reason": "X", "count": 1, "ranges": ["r cup.wind_speed 9999999999999999999-5"]}],
    ),
    run_record("r9", "running", (1 << 63) - 1),
    run_record("r9", "running", 1, started="0001-01-01T00:00:00Z"),
    calibration(9, cal="00000009").replace(b'"interval_s":1.0', b'"interval_s":3e6'),
    calibration(9, cal="00000009").replace(b'"interval_s":1.0', b'"interval_s":1e-300'),
    calibration(9, cal="00000009").replace(b'"slope":0.765', b'"slope":1e300'),
    calibration(9, cal="00000009").replace(b'"height_m":null', b'"height_m":1e200'),
    calibration(9, cal="00000009").replace(b'"expires":null', b'"expires":"0001-01-01"'),
    encode_reading(reading(9, 1.7e308)),
    encode_reading(replace(reading(9), seq=(1 << 63) - 1)),
    run_record("r9", "running", 1, started=0),
    run_record("r9", "running", 1, last_seq=[]),
    event("x", 1 << 47),
    event("x", 0),
    event("x", True),
    event("", 1),
    event("x" * 65, 1),
    event("x", 1, gateway="M"),
    event("x", 1, v=2),
    event("x", 1, time="yesterday"),
    event("x", 1, id="", at="2026-05-28T20:00:00Z"),
    event("x", 1, id="a/b", at="2026-05-28T20:00:00Z"),
    event("x", 1, id="a", at="0001-01-01T00:00:00Z"),
    event("x", 1, text="\ud800"),
    event("x", 1, value=1).replace(b'"value": 1', b'"value": 1e999'),
    b"[" * 100_000,
    b'{"v":1,"gateway":' + b"9" * 5000 + b"}",
]


def test_no_byte_string_stops_a_query_and_each_record_ends_in_one_place(
    spark: SparkSession, settings: Settings, topics: Topics, full: bool
) -> None:
    settings = topics.settings(settings)
    chance = random.Random(7)
    keys = [b"", b"mast-07", b"\xff/x", chance.randbytes(9)]
    # A compacted topic takes no record without a key.
    sent: list[tuple[str, bytes | None, bytes | None, Headers]] = [
        (
            name,
            chance.choice([None, *keys] if name in NAMES[:4] else keys),
            nonsense(chance),
            odd_headers(chance),
        )
        for name in NAMES
        for _ in range(80)
    ]
    sent += [(name, b"mast-07", value, []) for value in HOSTILE for name in NAMES if name != "raw"]
    big = chance.randbytes(2_000_000)
    sent += [(name, b"mast-07/cup", big, IDENTITY) for name in NAMES]
    sent += [(name, b"mast-07/gone", None, []) for name in NAMES]
    good = [reading(seq, extra={"new": seq}) for seq in range(1, 21)]
    sent += [
        ("wind_speed", reading_key(each.gateway, each.channel), encode_reading(each), []) for each in good
    ]
    letter = dead_letter("mast-07", "r1", 1, "NOT_JSON", "bad", "shed/x", START_US, b"\x00bad")
    sent.append(("dead", b"mast-07", encode_dead_letter(letter), []))
    sent += [("raw", b"shed/fridge", b'{"t": 4.5}', [*IDENTITY, ("replayed", b"1")])]
    sent += [("channels", b"k", calibration(revision), []) for revision in (2, 3, 1)]
    sent += [
        ("runs", b"k", run_record("r1", state, last), []) for state, last in (("killed", 5), ("running", 9))
    ]
    sent += [("status", b"mast-07", status("online", "r1", 1), [])]
    sites = site(2, "Ridge"), site(3, "Lake"), site(1, "Lost"), site(1, "Hill", day=1)
    sent += [("sites", b"k", each, []) for each in sites]
    happened = event("site-moved", 1, distance_m=900), event("report", 2, cpu_celsius=41.5), event("x", None)
    sent += [("events", b"mast-07", each, []) for each in (*happened, *happened)]
    chance.shuffle(sent)
    # After the others of its cal: the table keeps the first.
    sent += [("channels", b"k", calibration(4, slope=0.8), [])]
    topics.produce(*sent)
    run_both(spark, settings)

    rows = {name: rows_of(settings, name) for name in TABLES}
    refused = rows_of(settings, "quarantine")
    per_topic = Counter(row["kafka_topic"] for row in refused)
    produced = Counter(name for name, *_ in sent)
    tombstones, useful = 1, {"channels": 3, "runs": 2, "status": 1, "sites": 4, "events": 6}
    assert len(rows["messages"]) == produced["raw"]
    assert (len(rows["readings"]), per_topic[topics["wind_speed"]]) == (20, produced["wind_speed"] - 20)
    assert {row["extra"] for row in rows["readings"]} == {f'{{"new":{seq}}}' for seq in range(1, 21)}
    assert per_topic[topics["dead"]] == produced["dead"]
    for name, made in useful.items():
        assert per_topic[topics[name]] == produced[name] - made - tombstones
    assert len({(row["kafka_topic"], row["kafka_partition"], row["kafka_offset"]) for row in refused}) == len(
        refused
    )
    assert [row["reason"] for row in refused if row["payload"] == calibration(4, slope=0.8)] == [
        "CAL_CHANGED"
    ]
    (too_large,) = [
        row for row in refused if row["payload_bytes"] == 2_000_000 and row["kafka_topic"] == topics["runs"]
    ]
    assert (too_large["reason"], too_large["payload"], too_large["gateway"]) == (
        "TOO_LARGE",
        big[:65536],
        "mast-07",
    )

    fridge = [row for row in rows["messages"] if row["payload"] == b'{"t": 4.5}']
    assert [
        (row["gateway"], row["channel"], row["run"], row["seq"], row["mqtt_topic"], row["replayed"])
        for row in fridge
    ] == [("mast-07", "fridge.raw", "run-1", 7, "shed/fridge", True)]
    assert fridge[0]["received_at"].isoformat() == "2026-05-28T20:27:01.250000+00:00"
    assert [(row["key"], row["value"]) for row in fridge[0]["headers"]] == [*IDENTITY, ("replayed", b"1")]
    assert sorted(row["payload"] or b"" for row in rows["messages"]) == sorted(
        value or b"" for name, _, value, _ in sent if name == "raw"
    )
    (channel,), (run,), (latest,) = rows["channels"], rows["runs"], rows["_status"]
    assert (channel["revision"], channel["slope"], dict(channel["settings"])) == (
        3,
        0.765,
        {"at_rest": '"zero"'},
    )
    assert (dict(channel["reported"]), channel["extra"]) == ({"serial": '"\\u00e9"'}, '{"new":[1]}')
    assert (run["state"], dict(run["last_seq"]), run["ended"]) == (
        "killed",
        {"cup.wind_speed": 5},
        run["reported_at"],
    )
    assert (latest["state"], latest["revision"]) == ("online", 1)
    assert sorted((row["kind"], row["seq"], row["fields"]) for row in rows["events"]) == [
        ("report", 2, '{"cpu_celsius":41.5}'),
        ("site-moved", 1, '{"distance_m":900}'),
        ("x", None, "{}"),
    ]
    assert [(row["id"], row["cpu_celsius"]) for row in rows["health"]] == [("r1/2", 41.5)]
    lake, hill = sorted(rows["sites"], key=lambda row: row["valid_from"])
    assert [(row["name"], row["revision"]) for row in (lake, hill)] == [("Lake", 3), ("Hill", 1)]
    assert hill["valid_from"] - lake["valid_from"] == timedelta(days=1)
    assert (lake["latitude"], lake["elevation_m"], lake["utc_offset_min"], lake["extra"]) == (
        *(27.7, None, 345),
        '{"new":1}',
    )

    if not full:
        return
    # Every checkpoint lost: nothing is there twice, nothing has changed.
    names = (*TABLES, "quarantine")
    before = {name: contents(settings, name) for name in names}
    run_both(spark, replace(settings, checkpoints=settings.checkpoints + "-lost"))
    assert {name: contents(settings, name) for name in names} == before


def test_messages_that_come_again_are_stored_once(spark: SparkSession, settings: Settings) -> None:
    """After a crash, or without its checkpoint, a query reads again what it has stored."""
    first = kafka_frame(spark, [b"4.5", None], topic=settings.raw_topic)
    more = kafka_frame(spark, [b"5.0"], topic=settings.raw_topic, first_offset=2, kafka_us=KAFKA_US + 1)
    job = RecordsJob(spark, settings)
    try:
        for number, rows in enumerate((first, first, more.union(first), more)):
            job.batch(rows, number)
    finally:
        job.close()
    assert sorted(row["kafka_offset"] for row in rows_of(settings, "messages")) == [0, 1, 2]


def test_gaps_in_the_offsets_are_no_loss(spark: SparkSession, settings: Settings, topics: Topics) -> None:
    """Compaction, transactions and deletion leave offsets that no record has; a query goes on over them."""
    settings = topics.settings(settings)
    producer = topics.producer(transactional_id=topics.name, acks="all")
    producer.init_transactions(30)
    runs = topics["runs"]

    def transaction(*values: bytes | None, commit: bool = True) -> None:
        producer.begin_transaction()
        for value in values:
            producer.produce(runs, value, b"mast-07/r1", partition=0)
        assert producer.flush(30) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(30)

    transaction(run_record("r1", "running", 1))
    run_once(spark, settings)
    # Each transaction ends in a marker, an offset without a record: at the end of the batch, and within it.
    transaction(run_record("r1", "running", 2), commit=False)
    transaction(run_record("r1", "running", 3), None)
    run_once(spark, settings)
    assert [dict(row["last_seq"]) for row in rows_of(settings, "runs")] == [{"cup.wind_speed": 3}]
    assert rows_of(settings, "quarantine") == []

    # A lost checkpoint, when the beginning of the topic is gone.
    for future in topics.admin.delete_records([TopicPartition(runs, 0, 3)]).values():
        future.result(30)
    transaction(run_record("r1", "stopped", 3))
    run_once(spark, replace(settings, checkpoints=settings.checkpoints + "-lost"))
    assert [row["state"] for row in rows_of(settings, "runs")] == ["stopped"]
    run_once(spark, settings)
