"""Alerts of what gateways report: their events, daily reports and calibrations, by the packaged rules."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cloud.wire.alert_records import AlertRecord
from cloud.wire.channel_records import ChannelRecord, Period, encode_channel
from cloud.wire.fields import format_time
from cloud.wire.reading_records import ALERTS_TOPIC
from gateway.commands.demo.mosquitto import LocalMosquitto
from spark_jobs.jobs.alerts import AlertsJob
from spark_jobs.jobs.ingest import RecordsJob
from spark_jobs.platform.settings import Settings
from tests.integration.test_notify import Mails, mails, notifying, wait_for
from tests.spark.jobs.test_records_job import run_once
from tests.spark.records import kafka_table
from tests.support.config import config_text, cup
from tests.support.mast import GatewayProcess, on_a_pi, records
from tests.support.servers import eventually, unique_name

__all__ = ["mails"]

Give = Callable[[Mapping[str, Iterable[bytes]]], None]


def found(servers: str, gateway: str) -> list[AlertRecord]:
    """Its alerts in the order in which Kafka has them."""
    all_of_them = [
        msgspec.json.decode(each.value() or b"", type=AlertRecord)
        for each in records(servers, [ALERTS_TOPIC])
    ]
    return [each for each in all_of_them if each.gateway == gateway]


def event(gateway: str, seq: int, kind: str, at: datetime, **fields: Any) -> bytes:
    time = format_time(round(at.timestamp() * 1e6))
    return json.dumps(
        {"v": 1, "gateway": gateway, "run": "r1", "seq": seq, "time": time, "event": kind, **fields}
    ).encode()


def calibration(
    gateway: str, channel: str, expires: date | None, revision: int = 1, cal: str = "5d1c0a7e"
) -> bytes:
    sensor, _, quantity = channel.partition(".")
    begin_us = round((datetime.now(UTC) - timedelta(days=30)).timestamp() * 1e6)
    return encode_channel(
        ChannelRecord(
            gateway=gateway, sensor=sensor, quantity=quantity, cal=cal, revision=revision, in_force=True,
            periods=(Period(begin_us + revision),), unit="m/s",
            driver="hall-anemometer", interval_s=1.0, range=(0.0, 75.0), kind="linear", raw_unit="Hz",
            slope=0.765, offset=0.35, expires=expires,
        )
    )  # fmt: skip


@pytest.fixture
def gateway() -> str:
    return unique_name("mast")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], datetime]:
    """The jobs' time begins at noon of the day before: no day ends while the test runs."""
    begun = datetime.now(UTC)
    back = begun - (begun - timedelta(days=1)).replace(hour=12, minute=0, second=0, microsecond=0)

    def now() -> datetime:
        return datetime.now(UTC) - back

    for module in ("spark_jobs.jobs.alerts", "spark_jobs.alerting.feeds"):
        monkeypatch.setattr(f"{module}.now_us", lambda: round(now().timestamp() * 1e6))
    return now


@pytest.fixture
def give(spark: SparkSession, settings: Settings, clock: Callable[[], datetime]) -> Give:
    """Batches of the records job, each by one that has just been started: values by their topics."""
    offsets, numbers = itertools.count(), itertools.count(1)

    def batch(topics: Mapping[str, Iterable[bytes]]) -> None:
        at_us = round(clock().timestamp() * 1e6)
        rows = [
            kafka_table([value], next(offsets), topic, at_us, key=json.loads(value)["gateway"].encode())
            for topic, values in topics.items()
            for value in values
        ]
        job = RecordsJob(spark, settings)
        try:
            job.batch(spark.createDataFrame(pa.concat_tables(rows)), next(numbers))
        finally:
            job.close()

    return batch


def test_the_packaged_rules_on_events_reports_and_calibrations(
    spark: SparkSession,
    settings: Settings,
    provisioned: str,
    gateway: str,
    give: Give,
    clock: Callable[[], datetime],
) -> None:
    settings = replace(settings, bootstrap_servers=provisioned)
    now = clock()
    today = now.date()
    reports = [
        event(
            gateway, 100 + day, "report", now - timedelta(days=10 - day, minutes=1),
            outbox_bytes=300 + 50 * day, outbox_max_bytes=1000, disk_free_bytes=5_000_000_000,
            cpu_celsius=41.5, channels={"cup.wind_speed": {"recovery": 0.5 if day == 10 else 1.0}},
        )
        for day in range(11)
    ]  # fmt: skip
    give({"gateway.events": reports[:-1]})
    # Another mast's report without an outbox, and an event of a clock that is ten years ahead.
    other, ahead = f"{gateway}-other", now + timedelta(days=3650)
    job = AlertsJob(spark, settings)
    events = [
        event(other, 1, "report", now, outbox_bytes=0, outbox_max_bytes=0, cpu_celsius=90.0),
        event(other, 2, "site-moved", ahead, distance_m=900),
        reports[-1],
        event(gateway, 1, "site-moved", now - timedelta(seconds=30), distance_m=1210, latitude=54.5),
        event(gateway, 2, "under-voltage", now - timedelta(hours=3), times=1),
        event(gateway, 3, "under-voltage-over", now - timedelta(hours=2), lasted_s=3600),
        event(gateway, 4, "reloaded", now),
    ]
    calibrations = [
        calibration(gateway, "cup.wind_speed", today + timedelta(days=20)),
        calibration(gateway, "vane.wind_speed", today - timedelta(days=1)),
        calibration(gateway, "twin.wind_speed", today + timedelta(days=400)),
        calibration(gateway, "old.wind_speed", None),
    ]
    give({"gateway.events": events, "gateway.channels": calibrations})
    job.finish()
    first = found(provisioned, gateway)
    assert {(each.rule, each.channel, each.state) for each in first} == {
        ("mast-moved", None, "raised"),
        ("weak-supply", None, "raised"),
        ("outbox-filling", None, "raised"),
        ("day-recovery", "cup.wind_speed", "raised"),
        ("calibration-due", "cup.wind_speed", "raised"),
        ("calibration-ends", "cup.wind_speed", "raised"),
        *((f"calibration-{each}", "vane.wind_speed", "raised") for each in ("due", "ends", "expired")),
    }
    assert not any(each.historical for each in first)
    details = {(each.rule, each.channel): each.detail for each in first if each.state == "raised"}
    assert details["mast-moved", None] == (
        f"{gateway} is not where it stood: site-moved: distance_m 1210, latitude 54.5"
    )
    assert details["outbox-filling", None].startswith(f"{gateway}: its outbox fills, in 2 days from then on")
    assert "expires in 20 days" in details["calibration-ends", "cup.wind_speed"]
    raised_at = {(each.rule, each.channel): each.raised_at for each in first if each.state == "raised"}
    assert raised_at["calibration-expired", "vane.wind_speed"] == f"{today}T00:00:00.000Z"

    of_other = found(provisioned, other)
    assert sorted((each.rule, each.state) for each in of_other) == [
        ("hot", "raised"),
        ("mast-moved", "raised"),
    ]
    assert not any(each.historical for each in of_other)

    # A new run ends what the one before it announced, and not what it has announced itself by then.
    def started(run: str, at: datetime) -> bytes:
        fields = {"v": 1, "gateway": gateway, "run": run, "state": "running", "revision": 1, "last_seq": {}}
        times = {"started": format_time(round(at.timestamp() * 1e6)), "in_flight": 0, "outbox_records": 0}
        return json.dumps({**fields, **times, "previous_run": None, "boot": "b", "dropped": []}).encode()

    def states(rule: str) -> list[str]:
        return sorted(each.state for each in found(provisioned, gateway) if each.rule == rule)

    in_memory = event(gateway, 6, "outbox-in-memory", now - timedelta(seconds=20))
    give({"gateway.events": [in_memory], "gateway.runs": [started("r1", now - timedelta(seconds=60))]})
    job.finish()
    assert states("outbox-in-memory") == ["raised"]
    give({"gateway.runs": [started("r2", now - timedelta(seconds=10))]})
    job.finish()
    assert states("outbox-in-memory") == ["cleared", "raised"]

    # A supply that is weak each night is one alert, until a day's report counts no under-voltage.
    # The report of a new run's first hour is none.
    for number, hours, times, expected in (
        (7, 24, 2, ["raised"]), (8, 1, 0, ["raised"]), (9, 24, 0, ["cleared", "raised"]),
    ):  # fmt: skip
        at, since_s = now - timedelta(minutes=10 - number), 3600.0 * hours
        report = event(gateway, number, "report", at, since_s=since_s, under_voltage=times)
        give({"gateway.events": [report]})
        job.finish()
        assert states("weak-supply") == expected
    first = found(provisioned, gateway)

    # Another job goes on with them: nothing is raised twice, and a new certificate ends what it ends.
    job = AlertsJob(spark, settings)
    events = [
        event(gateway, 1, "site-moved", now - timedelta(seconds=30), distance_m=1210, latitude=54.5),
        event(gateway, 5, "site-back", now, distance_m=3),
        event(other, 3, "site-back", clock()),
    ]
    renewed = calibration(gateway, "vane.wind_speed", today + timedelta(days=700), 2, "77aa0011")
    give({"gateway.events": events, "gateway.channels": [renewed]})
    job.finish()
    assert ("mast-moved", "cleared") in {(each.rule, each.state) for each in found(provisioned, other)}
    more = [each for each in found(provisioned, gateway) if each not in first]
    assert {(each.rule, each.channel, each.state) for each in more} == {
        ("mast-moved", None, "cleared"),
        *((f"calibration-{each}", "vane.wind_speed", "cleared") for each in ("due", "ends", "expired")),
    }
    assert {each.id for each in more} < {each.id for each in first}

    # A calibration that changes counts at once, among all that its channel has; the others with the days.
    def of_cup() -> list[str]:
        return [
            each.state
            for each in found(provisioned, gateway)
            if each.rule == "calibration-ends" and each.channel == "cup.wind_speed"
        ]

    assert of_cup() == ["raised"]
    for revision, days, cal in ((3, 700, "88bb0022"), (4, 20, "5d1c0a7e")):
        expires = today + timedelta(days=days)
        give({"gateway.channels": [calibration(gateway, "cup.wind_speed", expires, revision, cal)]})
        job.finish()
    assert of_cup() == ["raised", "cleared"]


@pytest.mark.filterwarnings("ignore:.imghdr. is deprecated:DeprecationWarning")  # apprise's
def test_a_refused_config_and_a_weak_supply_reach_people(
    spark: SparkSession,
    settings: Settings,
    provisioned: str,
    mosquitto: LocalMosquitto,
    mails: tuple[Mails, str],
    tmp_path: Path,
    gateway: str,
) -> None:
    """A daemon, Mosquitto, Kafka, the jobs and a mail server: nothing is injected but a file of a Pi's."""
    within, firmware = on_a_pi(tmp_path)
    settings = replace(settings, bootstrap_servers=provisioned)
    config = config_text(cup(), gateway={"id": gateway})
    mast = GatewayProcess(tmp_path, config, gateway, provisioned, mosquitto)
    job, (server, url) = AlertsJob(spark, settings), mails
    cloud = tmp_path / "cloud.toml"
    target = f'[notify.olga]\nurl = "{url}"\ngateways = ["{gateway}"]\ngroup = "1s"\n'
    cloud.write_text(f'[kafka]\nbootstrap_servers = "{provisioned}"\n{target}')
    cloud.chmod(0o600)

    def announced() -> set[str]:
        events = (json.loads(each.value() or b"") for each in records(provisioned, ["gateway.events"]))
        return {each["event"] for each in events if each["gateway"] == gateway}

    def told() -> list[str]:
        subjects = [mail["Subject"].removeprefix(f"{gateway}: ") for mail in server.found]
        return sorted(cause for each in subjects for cause in each.split(", "))

    with notifying(cloud) as notify:
        wait_for(notify, "event=notify.reads")
        try:
            mast.launch(within=within)
            eventually(mast.sampled, until=lambda sampled: sampled > 2)
            firmware.write_text("50005\n")
            assert mast.reload(config.replace("0.765", '"much"')) is not None
            eventually(announced, until=lambda kinds: kinds >= {"under-voltage", "config-refused"})
            run_once(spark, settings)
            job.finish()
            # In one mail, or in two where the second alert comes late.
            eventually(told, 60, until=lambda causes: causes == ["config-refused", "weak-supply"])
            text = "".join(mail.as_string() for mail in server.found)
            assert "supply, battery or cable are weak" in text
            assert "goes on with its former config" in text
            assert mast.reload(config) is None
            eventually(announced, until=lambda kinds: "reloaded" in kinds)
            run_once(spark, settings)
            job.finish()
        finally:
            mast.end()
    own = [each for each in found(provisioned, gateway) if each.rule == "config-refused"]
    assert [each.state for each in own] == ["raised", "cleared"]
    assert "much" in own[0].detail
