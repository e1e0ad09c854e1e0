"""What masts report as it happens, into ``events`` and ``health``: each once, and none of them missing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cloud.lake.tables import open_lake
from gateway.commands.demo.mosquitto import LocalMosquitto
from spark_jobs.jobs.ingest import RecordsJob
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.records import RecordSink
from spark_jobs.transforms.events import HEALTH_RECORDS
from tests.spark.jobs.test_records_job import Topics, event, run_once, run_record, topics
from tests.spark.records import KAFKA_US, contents, kafka_frame, rows_of
from tests.support.config import config_text, cup
from tests.support.mast import GatewayProcess, published, records
from tests.support.servers import eventually, fieldgate, unique_name

__all__ = ["topics"]

ANALYSE = Path(__file__).parents[3] / "docs" / "analyse.md"
SPOOLED: dict[str, Any] = {"id": "5d1c0a7e5d1c0a7e", "at": "2026-05-27T06:00:00Z"}
"""What an event has that a command left for the daemon."""


class Feed:
    """The records job, given batches of one topic as Kafka's source gives them."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark, self._settings = spark, settings
        self._offset = self._number = 0

    def give(self, *values: bytes, day: int = 0, topic: str = "gateway.events") -> None:
        """One batch, and a job that has just been started."""
        at_us = KAFKA_US + day * 86_400_000_000
        rows = kafka_frame(
            self._spark, values, first_offset=self._offset, topic=topic, kafka_us=at_us, key=b"mast-07"
        )
        self._offset += len(values)
        self._number += 1
        job = RecordsJob(self._spark, self._settings)
        try:
            job.batch(rows, self._number)
        finally:
            job.close()

    def rows(self, table: str = "events") -> list[dict[str, Any]]:
        """The table's rows, by time."""
        return sorted(rows_of(self._settings, table), key=lambda row: (row["time"], row["id"]))

    def rejects(self) -> list[tuple[str, int]]:
        """Reason and offset of what is in quarantine."""
        return sorted((row["reason"], row["kafka_offset"]) for row in rows_of(self._settings, "quarantine"))


@pytest.fixture
def feed(spark: SparkSession, settings: Settings) -> Feed:
    return Feed(spark, settings)


def missing_events(lake: str) -> list[tuple[Any, ...]]:
    """What the documented query says of a lake."""
    query = re.search(r"```sql\n(WITH stored AS .*?)```", ANALYSE.read_text(), re.DOTALL)
    assert query is not None
    with open_lake(lake, tables=["events", "runs"]) as opened:
        return opened.sql(query[1]).fetchall()


def test_an_event_is_stored_once_however_often_and_late_it_comes(feed: Feed) -> None:
    moved = event("site-moved", 2, second=9, distance_m=900)
    feed.give(moved, moved)
    # A repeat a day later, and one that happened earlier and was in the outbox.
    feed.give(event("reloaded", 1, second=3), moved, day=1)
    feed.give(moved, day=2)
    late, row = feed.rows()
    assert (late["kind"], late["seq"], late["date"]) == ("reloaded", 1, date(2026, 5, 29))
    time = datetime(2026, 5, 28, 20, 0, 9, 125_000, tzinfo=UTC)
    assert {name: value for name, value in row.items() if name != "updated_at"} == {
        "gateway": "mast-07",
        "id": "r1/2",
        "time": time,
        "kind": "site-moved",
        "run": "r1",
        "seq": 2,
        "fields": '{"distance_m":900}',
        "announced": [{"run": "r1", "seq": 2, "time": time}],
        "kafka_topic": "gateway.events",
        "kafka_partition": 0,
        "kafka_offset": 0,
        "kafka_time": datetime.fromtimestamp(KAFKA_US / 1e6, UTC),
        "date": date(2026, 5, 28),
    }
    assert (feed.rejects(), feed.rows("health")) == ([], [])


def test_older_daemons_do_not_number_their_events(feed: Feed) -> None:
    first, second = event("dropped", None, count=1), event("dropped", None, count=2)
    feed.give(first, second, first)
    feed.give(second, event("dropped", None, run="r2", count=1))
    rows = feed.rows()
    assert sorted((row["run"], row["seq"], row["fields"]) for row in rows) == [
        ("r1", None, '{"count":1}'),
        ("r1", None, '{"count":2}'),
        ("r2", None, '{"count":1}'),
    ]
    assert len({row["id"] for row in rows}) == 3


def test_what_the_next_run_announces_again_is_one_event(feed: Feed) -> None:
    """The daemon dies before the file that a command left is deleted."""
    report: dict[str, Any] = {**SPOOLED, "cpu_celsius": 41.5}
    feed.give(event("report", 3, **report))
    feed.give(event("report", 1, run="r2", second=30, **report), day=1)
    feed.give(event("report", 1, run="r2", second=30, **report), day=1)
    (row,), (health,) = feed.rows(), feed.rows("health")
    assert (row["id"], row["time"].isoformat()) == ("5d1c0a7e5d1c0a7e", "2026-05-27T06:00:00+00:00")
    assert [(each["run"], each["seq"]) for each in row["announced"]] == [("r1", 3), ("r2", 1)]
    assert (row["run"], row["seq"], row["kafka_offset"], row["fields"]) == (
        "r1",
        3,
        0,
        '{"cpu_celsius":41.5}',
    )
    assert (health["id"], health["run"], health["cpu_celsius"]) == (row["id"], "r1", 41.5)


def test_another_event_under_the_same_number_is_refused(feed: Feed) -> None:
    feed.give(event("relay-failed", 1, relay="heater"), event("report", 1, cpu_celsius=99.0))
    feed.give(event("relay-failed", 1, relay="pump"))
    # Neither takes the place of the other.
    feed.give(event("relay-failed", 1, second=1, relay="fan"))
    assert [json.loads(row["fields"])["relay"] for row in feed.rows()] == ["heater", "fan"]
    assert feed.rejects() == [("EVENT_CHANGED", 1), ("EVENT_CHANGED", 2)]
    assert feed.rows("health") == []


REPORT: dict[str, Any] = {
    "since_s": 86400, "run_uptime_s": 90000, "machine_uptime_s": 91000.25,
    "channels": {
        "dht.temperature": {"sampled": 10, "forwarded": 9, "dropped": 0, "recovery": 0.5},
        "cup.wind_speed": {"sampled": 20, "forwarded": 15, "dropped": 3, "recovery": None},
    },
    "uplink": "draining", "kafka_confirmed_ago_s": 0.5, "outbox_records": 7, "outbox_bytes": 4096,
    "outbox_max_bytes": 1 << 30, "outbox_problem": None, "clock": "synced", "held": 0,
    "troubles": {"baro": "no answer"}, "parked": {"mqtt.co2": {"for_s": 60, "problem": "forbidden"}},
    "site_moved_m": 1200, "under_voltage": 2, "throttled": None, "bytes_sent": 81_920,
    "findings": [{"area": "clock", "severity": "warning", "what": "unset", "remedy": None, "new": 1}],
    "disk_free_bytes": 5_000_000_000, "cpu_celsius": 41.5, "load": 0.25,
    "versions": {"fieldgate": "0.2.0", "python": "3.11.2", "kernel": "6.1.0", "system": "Debian", "new": "1"},
    "config_hash": "5d1c0a7e5d1c0a7e", "new": {"x": 1},
}  # fmt: skip


def test_a_report_is_a_row_of_typed_columns(feed: Feed) -> None:
    silent: dict[str, Any] = {
        "daemon": "no answer",
        "machine_uptime_s": 5.0,
        "disk_free_bytes": 1,
        "versions": {"python": "3"},
    }
    wrong: dict[str, Any] = {
        "cpu_celsius": "hot",
        "held": -1,
        "channels": [],
        "findings": {},
        "load": 1,
        "versions": 3,
    }
    feed.give(
        event("report", 1, **REPORT), event("report", 2, second=1, **silent),
        event("report", 3, second=2, **wrong), event("report", None, second=3),
    )  # fmt: skip
    rows = feed.rows("health")
    place = {"gateway", "id", "time", "run", "updated_at", "date"}
    whole, without, odd, old = (
        {name: value for name, value in row.items() if name not in place and not name.startswith("kafka_t")}
        for row in rows
    )
    for each, offset in zip((whole, without, odd, old), range(4), strict=True):
        assert (each.pop("kafka_partition"), each.pop("kafka_offset")) == (0, offset)
    as_sent = (
        "since_s", "run_uptime_s", "machine_uptime_s", "uplink", "kafka_confirmed_ago_s", "outbox_records",
        "outbox_bytes", "outbox_max_bytes", "outbox_problem", "clock", "held", "site_moved_m",
        "under_voltage", "throttled", "disk_free_bytes", "cpu_celsius", "load", "config_hash", "bytes_sent",
    )  # fmt: skip
    assert whole == {name: REPORT[name] for name in as_sent} | {
        "daemon": None, "sampled": 30, "forwarded": 24, "dropped": 3,
        "recovery": [("dht.temperature", 0.5)], "parked": ["mqtt.co2"], "troubles": [("baro", "no answer")],
        "findings": [{"area": "clock", "severity": "warning", "what": "unset", "remedy": None}],
        "fieldgate": "0.2.0", "python": "3.11.2", "kernel": "6.1.0", "system": "Debian",
    }  # fmt: skip
    nothing = dict.fromkeys(whole)
    assert without == nothing | {
        "daemon": "no answer", "machine_uptime_s": 5.0, "disk_free_bytes": 1, "python": "3",
    }  # fmt: skip
    # What isn't of its column's type is in the event alone, and hides nothing else.
    assert odd == nothing | {"load": 1.0}
    assert old == nothing
    assert json.loads(feed.rows()[0]["fields"]) == REPORT
    assert json.loads(feed.rows()[2]["fields"]) == wrong
    assert feed.rejects() == []


def test_a_batch_that_was_cut_off_between_two_tables_is_stored_whole(
    spark: SparkSession, settings: Settings, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = topics.settings(settings)
    sent = [event("report", 1, cpu_celsius=40.0), event("x", 2), b"nonsense"]
    topics.produce(*(("events", b"mast-07", each, []) for each in sent))
    merge = RecordSink.merge

    def cut_off(sink: RecordSink, rows: list[dict[str, Any]]) -> tuple[int, list[dict[str, Any]]]:
        if sink.kind is HEALTH_RECORDS:
            raise OSError("cut off")
        return merge(sink, rows)

    monkeypatch.setattr(RecordSink, "merge", cut_off)
    with pytest.raises(Exception, match="cut off"):
        run_once(spark, settings)
    monkeypatch.undo()
    names = ("events", "health", "quarantine")
    assert [len(rows_of(settings, name)) for name in names] == [2, 0, 0]
    run_once(spark, settings)
    assert [len(rows_of(settings, name)) for name in names] == [2, 1, 1]
    before = {name: contents(settings, name) for name in names}
    run_once(spark, replace(settings, checkpoints=settings.checkpoints + "-lost"))
    assert {name: contents(settings, name) for name in names} == before


def test_the_missing_are_named(feed: Feed, settings: Settings) -> None:
    feed.give(
        *(event("x", seq, second=seq) for seq in (1, 3, 5)),
        event("x", 7, **SPOOLED),
        event("x", 1, run="r2", **SPOOLED),
        event("x", None, run="old"),
    )
    feed.give(
        run_record("r1", "stopped", 9, last_event=8),
        run_record("r2", "running", 9, last_event=2, previous_run="r1"),
        run_record("old", "stopped", 9),
        # It began before the table did: what it lacks before its first may have been dropped as too old.
        # Its record is late: the number of an event beyond counts too.
        run_record("long", "running", 9, last_event=4, started="2026-05-01T00:00:00Z"),
        topic="gateway.runs",
    )
    feed.give(event("x", 3, run="long"), event("x", 6, run="long"), event("x", 2, run="unrecorded"))
    assert missing_events(settings.lake) == [
        ("mast-07", "long", 4, 5, 3),
        *(("mast-07", "r1", seq, seq, 3) for seq in (2, 4, 6, 8)),
        ("mast-07", "r2", 2, 2, 3),
    ]
    feed.give(*(event("x", seq, second=seq) for seq in (2, 4, 6, 8)), event("x", 2, run="r2"))
    feed.give(event("x", 4, run="long"), event("x", 5, run="long"))
    assert missing_events(settings.lake) == []
    # Whoever makes a number up gets one line, not as many as the number says.
    feed.give(run_record("made-up", "running", 9, last_event=(1 << 47) - 1), topic="gateway.runs")
    assert missing_events(settings.lake) == [("mast-07", "made-up", 1, (1 << 47) - 1, 3)]


def test_a_daemons_own_events_reach_the_tables(
    spark: SparkSession, settings: Settings, provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    """A reload, the installed command's report, a kill in between: nothing is injected."""
    config = config_text(cup(), gateway={"id": unique_name("mast")})
    name = re.search(r'id = "(.*?)"', config)
    assert name is not None
    mast = GatewayProcess(tmp_path, config, name[1], provisioned, mosquitto)
    # The command finds the daemon by the config's own address.
    mast.write(config := config + f'\n[status]\nlisten = "127.0.0.1:{mast.status_port}"\n')

    def numbers() -> Sequence[int]:
        found = (json.loads(each.value() or b"{}") for each in records(provisioned, ["gateway.events"]))
        return [each["seq"] for each in found if each["gateway"] == mast.id]

    try:
        mast.launch()
        eventually(mast.sampled, until=lambda sampled: sampled > 2)
        assert mast.reload(config.replace("0.765", "0.8")) is None
        done = fieldgate("service", "report", "-c", mast.path)
        assert done.returncode == 0, done.stderr
        # The file of the report stays for minutes, so the next run announces it again.
        eventually(numbers, until=lambda found: sorted(found) == [1, 2])
        eventually(mast.run_record, until=lambda record: record["last_event"] == 2)
        mast.kill()
        mast.launch()
        eventually(numbers, until=lambda found: sorted(found) == [1, 1, 2])
        mast.delivered()
        assert mast.stop() == 0
    finally:
        mast.end()
    own = published(provisioned, "gateway.events", mast.id, mast.outbox)
    settings = replace(settings, bootstrap_servers=provisioned)
    run_once(spark, settings)
    events = [row for row in rows_of(settings, "events") if row["gateway"] == mast.id]
    assert sorted(row["kind"] for row in events) == ["reloaded", "report"]
    (report,) = [row for row in events if row["kind"] == "report"]
    first, second = {each["run"]: None for each in own}
    assert [(each["run"], each["seq"]) for each in report["announced"]] == [(first, 2), (second, 1)]
    (health,) = [row for row in rows_of(settings, "health") if row["gateway"] == mast.id]
    assert (health["id"], health["uplink"], health["clock"]) == (report["id"], "healthy", "synced")
    assert health["daemon"] is None
    assert health["sampled"] > 2
    assert health["outbox_max_bytes"] == 1 << 30
    assert health["disk_free_bytes"] > 0
    assert health["fieldgate"] is not None
    assert re.fullmatch("[0-9a-f]{16}", health["config_hash"])
    # Each field of the report is a column, or is known to be none.
    sent = json.loads(report["fields"]).keys() - {"channels", "versions"}
    assert sent <= health.keys()
    assert [row for row in rows_of(settings, "quarantine") if row["kafka_topic"] == "gateway.events"] == []
    runs = {row["run"]: row for row in rows_of(settings, "runs") if row["gateway"] == mast.id}
    assert {run: (row["state"], row["last_event"]) for run, row in runs.items()} == {
        first: ("killed", 2),
        second: ("stopped", 1),
    }
    assert [row for row in missing_events(settings.lake) if row[0] == mast.id] == []
