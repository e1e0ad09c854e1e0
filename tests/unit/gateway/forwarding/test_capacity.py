from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from buffer.reader import OutboxReader
from buffer.sqlite_outbox import SqliteOutbox
from gateway.commands.doctor.command import topic_findings
from gateway.config import Config, check, load
from gateway.config.kafka import open_templates, wanted_topics
from gateway.config.model import SiteConfig
from gateway.forwarding import capacity
from gateway.forwarding.capacity import Forecast
from gateway.status.status import Finding
from tests.support.config import baro, config_text, cup, write_config

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples"
MIB, GIB = 1 << 20, 1 << 30
DAY_S = 86_400
PER_READING = 50.0


@pytest.fixture(scope="module")
def mast() -> Config:
    return load(EXAMPLES / "mast.toml")


@pytest.fixture
def one_cup(tmp_path: Path) -> Config:
    """One reading a second, a cap of 1,012 MiB, of which ballast and log take 12."""
    outbox = {"max_bytes": "1012 MiB", "min_free_disk": "100 MiB"}
    return load(write_config(tmp_path, config_text(cup(), outbox=outbox)))


def test_what_fits(mast: Config) -> None:
    # The cap counts, then the disk; ballast and twice the log's limit are no room for readings.
    assert capacity.room_bytes(mast, 0, 100 * GIB) == GIB - (12 << 20)
    assert capacity.room_bytes(mast, 0, GIB) == GIB // 2 - (12 << 20)
    assert capacity.room_bytes(mast, GIB // 4, GIB) == GIB * 3 // 4 - (12 << 20)
    assert capacity.room_bytes(mast, 0, GIB // 4) == 0


def test_a_commit_of_one_reading_costs_more_than_its_share_of_a_commit_of_nine(
    one_cup: Config, mast: Config
) -> None:
    """Of the order that was measured with an outbox: 175 and 69 bytes."""
    assert 120 < capacity.bytes_per_reading(one_cup) < 250
    assert 50 < capacity.estimate(mast) < 80
    # A file that isn't there is not made.
    assert not one_cup.outbox.path.exists()


def block(readings: int, first: int) -> list[bytes]:
    """A commit's records, some 300 bytes each, that hardly compress."""
    noise = random.Random(first)
    return [noise.randbytes(300) for _ in range(readings)]


def test_what_a_reading_takes_is_read_from_the_newest_blocks(one_cup: Config) -> None:
    estimated = capacity.estimate(one_cup)
    outbox = SqliteOutbox(one_cup.outbox.path)
    try:
        for number in range(10):
            outbox.append(block(10, number))
        # A hundred records are too few.
        assert capacity.bytes_per_reading(one_cup) == estimated
        for number in range(60):
            outbox.append(block(10, number))
        stored = capacity.bytes_per_reading(one_cup)
        with OutboxReader(one_cup.outbox.path) as reader:
            grown = reader.database_bytes() / 700
        assert stored == pytest.approx(grown, rel=0.15)
        # What was stored long ago, by another config, doesn't count.
        for _ in range(5):
            outbox.append([b"x" * 20] * 500)
        assert capacity.bytes_per_reading(one_cup) < stored / 3
    finally:
        outbox.close()


def test_between_measured_points() -> None:
    points = ((1.0, 100.0), (100.0, 50.0), (1000.0, 40.0))
    assert [capacity.between(points, at) for at in (0.1, 1, 10, 100, 1000, 9999)] == [
        100,
        100,
        75,
        50,
        40,
        40,
    ]


def test_topics_that_forwards_name(tmp_path: Path) -> None:
    forwards: list[dict[str, Any]] = [
        {"filter": "a/+", "payload": "raw", "topic": "plant.{1}"},
        {"filter": "b/+", "payload": "raw", "topic": "plant"},
        {"filter": "c/+", "payload": "raw"},
        {"filter": "d", "payload": "number", "quantity": "co2", "topic": "acme.{quantity}"},
        {"filter": "e", "topic": "acme.all"},
        {"filter": "f", "topic": "acme.{quantity}"},
        {"filter": "g", "payload": "json", "readings": [{"quantity": "humidity", "path": "h"}]},
    ]
    config = load(write_config(tmp_path, config_text(forward=forwards)))
    of_all = {"gateway.runs", "gateway.status", "gateway.events", "gateway.channels", "gateway.dead-letter"}
    named = {"plant", "mqtt.raw", "acme.co2", "acme.all", "mqtt.humidity"}
    assert wanted_topics(config) == of_all | named
    assert open_templates(config) == ["plant.{1}"]
    placed = replace(config, site=SiteConfig(latitude=27.7, longitude=85.5))
    assert wanted_topics(placed) == of_all | named | {"gateway.sites"}
    (found,) = topic_findings(config, of_all | named)
    assert found.what == "all 10 are there; not known before messages come: plant.{1}"
    (missing,) = topic_findings(config, of_all | named - {"plant"})
    assert missing.remedy == "fieldgate provision topics --bootstrap-servers 127.0.0.1:9092 -c CONFIG"


def test_missing_topics_and_who_makes_them(mast: Config) -> None:
    assert [finding.severity for finding in topic_findings(mast, wanted_topics(mast))] == ["ok"]
    (missing,) = topic_findings(mast, wanted_topics(mast) - {"mqtt.wind_speed", "gateway.runs"})
    assert missing == Finding(
        "topics",
        "error",
        "missing: gateway.runs, mqtt.wind_speed",
        "fieldgate provision topics --bootstrap-servers kafka.example.org:9092",
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("no.such = 1", 'kafka.properties.no.such: is no property of librdkafka: "no.such"'),
        ('linger.ms = "x"', "kafka.properties.linger.ms: Invalid value"),
        ("transactional.id = 7", "makes Kafka take nothing, for the gateway sends no transactions"),
        ("compression.level = 99", 'property "compression.level" value 99 is outside allowed range -1..12'),
        ('error_cb = "x"', "kafka.properties.error_cb: error_cb can't be set by a file"),
        ("linger.ms = 100000", None),
        ('security.protocol = "SSL"\nssl.key.location = "/no/such"', None),
    ],
)
def test_a_wrong_property_is_found_without_a_network(tmp_path: Path, line: str, problem: str | None) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(f'[gateway]\nid = "m"\n[board]\nkind = "simulated"\n[kafka.properties]\n{line}\n')
    _, problems = check(path)
    errors = [str(each) for each in problems if each.severity == "error"]
    if problem is None:
        assert not errors
    else:
        assert len(errors) == 1
        assert errors[0].startswith(f"{path}:6: ")
        assert problem in errors[0]


def test_the_producer_of_a_metered_uplinks_batches_is_tried_too(tmp_path: Path) -> None:
    text = config_text(baro(), kafka={"properties": {"message.timeout.ms": 900}})
    path = write_config(tmp_path, text)
    assert check(path)[1] == ()
    path.write_text(text + '[uplink]\nmode = "metered"\n')
    assert [problem.message for problem in check(path)[1]] == [
        "librdkafka doesn't take these together: `message.timeout.ms` must be greater than `linger.ms`"
    ]


@pytest.fixture
def large_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "free_bytes", lambda directory: 5_000 * MIB)
    monkeypatch.setattr(capacity, "bytes_per_reading", lambda config: PER_READING)


@pytest.mark.usefixtures("large_disk")
def test_what_waits_counts_and_not_the_file(one_cup: Config) -> None:
    forecast = Forecast()
    found = forecast.days_left(one_cup, 0, 0)
    assert found is not None
    assert found == pytest.approx(1000 * MIB / PER_READING / DAY_S, abs=0.005)
    # A day of readings waits; a file that was larger once has the same room.
    assert forecast.days_left(one_cup, 200 * MIB, DAY_S) == pytest.approx(found - 1, abs=0.011)
    assert forecast.days_left(one_cup, 0, 10**9) == 0.0


def test_the_disk_counts_where_it_holds_less_than_the_cap(
    one_cup: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "free_bytes", lambda directory: 312 * MIB)
    monkeypatch.setattr(capacity, "bytes_per_reading", lambda config: PER_READING)
    forecast = Forecast()
    assert forecast.days_left(one_cup, 0, 0) == pytest.approx(200 * MIB / PER_READING / DAY_S, abs=0.005)

    def no_disk(directory: Path) -> int:
        raise OSError("gone")

    monkeypatch.setattr(capacity, "free_bytes", no_disk)
    assert forecast.days_left(one_cup, 0, 0) is None


@pytest.mark.usefixtures("large_disk")
def test_the_file_is_read_once_a_minute_and_for_each_config(
    one_cup: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[Config] = []
    now_s = 0.0

    def measure(config: Config) -> float:
        measured.append(config)
        return PER_READING

    monkeypatch.setattr(capacity, "bytes_per_reading", measure)
    forecast, other = Forecast(lambda: now_s), replace(one_cup)
    for config, at_s in ((one_cup, 0.0), (one_cup, 59.0), (other, 59.5), (other, 119.0), (other, 119.5)):
        now_s = at_s
        forecast.days_left(config, 0, 0)
    assert measured == [one_cup, other, other]
