"""Records of calibrations and sites of a real daemon in a real Kafka: starts, reloads, edits, outages."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import date
from pathlib import Path

import pytest

from buffer.reader import OutboxReader
from cloud.wire.channel_records import ChannelRecord, parse_channel
from cloud.wire.reading_records import Reading, parse_reading, parse_time
from cloud.wire.site_records import parse_site
from gateway.calibration.history import read_history
from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.forwarding.records import from_bytes
from tests.support.config import Table, config_text, cup, dht
from tests.support.mast import records, run_gateway
from tests.support.servers import eventually, unique_name

TOPICS = ["mqtt.wind_speed", "mqtt.temperature", "mqtt.humidity"]


def mast_config(name: str, start: str, slope: float, *more: Table, site: str | None = None) -> str:
    dates: Table = {"calibrated": date(2025, 3, 12), "expires": date(2026, 1, 1)}
    return config_text(
        cup(slope=slope, serial="179500123456", **dates),
        *more,
        gateway={"id": name, "latitude": 27.7, "longitude": 85.5},
        site=None if site is None else {"name": site, "utc_offset": "+05:45"},
        outbox={"commit_interval_s": 0.5},
        board={"start": start, "speed": 20},
    )


FIRST, SECOND = "2026-01-01T23:59:50Z", "2026-01-03T00:00:00Z"


def newest_records(kafka: str, gateway: str) -> dict[tuple[str, str], ChannelRecord]:
    """What Kafka keeps of each key: the record that came last, which must be the newest of all that came."""
    found: dict[tuple[str, str], ChannelRecord] = {}
    highest: dict[tuple[str, str], int] = defaultdict(int)
    for message in records(kafka, ["gateway.channels"]):
        record = parse_channel(message.value() or b"")
        if record.gateway == gateway:
            assert message.key() == f"{gateway}/{record.channel}/{record.cal}".encode()
            place = record.channel, record.cal
            found[place], highest[place] = record, max(record.revision, highest[place])
    assert {place: record.revision for place, record in found.items()} == highest
    return found


def readings(kafka: str, gateway: str) -> dict[str, list[Reading]]:
    """Everything of a gateway that is in Kafka, by channel."""
    found = defaultdict(list)
    for message in records(kafka, TOPICS):
        reading = parse_reading(message.value() or b"")
        if reading.gateway == gateway:
            found[reading.channel].append(reading)
    return found


def test_every_record_is_there_as_promised(
    provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    name = unique_name("mast")
    first = mast_config(name, FIRST, 0.765, dht())
    other = mast_config(name, FIRST, 0.761, site="Ridge")
    history = tmp_path / "outbox.db.channels"
    with run_gateway(tmp_path, first, name, provisioned, mosquitto) as mast:
        mast.sample(20)
        published = eventually(
            lambda: newest_records(provisioned, name), until=lambda published: len(published) == 3
        )
        assert {channel for channel, _ in published} == {"cup.wind_speed", "dht.temperature", "dht.humidity"}
        assert all(each.in_force and each.valid_from_us == parse_time(FIRST) for each in published.values())
        # What a sensor reports of itself comes when it has been started.
        eventually(lambda: any(each.reported for each in read_history(history)))
        written = history.stat()
        mast.sample(20)
        assert history.stat() == written
        # Another slope, and a sensor that is taken down.
        assert mast.reload(other) is None
        mast.sample(20)
        # Of the site, the next turn of the daemon's loop.
        eventually(lambda: "Ridge" in (tmp_path / "outbox.db.sites").read_text())
        mast.delivered()
        assert mast.stop() == 0
    after_reload = newest_records(provisioned, name)
    # The old cup comes back while the daemon is stopped.
    back = mast_config(name, SECOND, 0.765, site="Lake")
    with run_gateway(tmp_path, back, name, provisioned, mosquitto) as mast:
        mast.sample(20)
        mast.delivered()
        assert mast.stop() == 0

    published = newest_records(provisioned, name)
    in_kafka = readings(provisioned, name)
    old, new = (next(each for each in published.values() if each.slope == slope) for slope in (0.765, 0.761))
    assert (
        set(published)
        == set(after_reload)
        == {(channel, reading.cal) for channel, series in in_kafka.items() for reading in series}
    )
    swapped_us = new.periods[0].begin_us
    assert swapped_us is not None
    back_us = parse_time(SECOND)
    ends = {
        key: [(each.begin_us, each.end_us) for each in record.periods] for key, record in published.items()
    }
    start_us = parse_time(FIRST)
    assert ends == {
        (old.channel, old.cal): [(start_us, swapped_us), (back_us, None)],
        (new.channel, new.cal): [(swapped_us, back_us)],
        **{key: [(start_us, swapped_us)] for key in published if key[0].startswith("dht.")},
    }
    assert [each.in_force for each in (old, new)] == [True, False]
    assert (after_reload[old.channel, old.cal].in_force, after_reload[new.channel, new.cal].in_force) == (
        False,
        True,
    )
    # The first config had no site; a start publishes what there was before, too.
    sites = [parse_site(message.value() or b"") for message in records(provisioned, ["gateway.sites"])]
    # Keys lie in partitions of their own.
    sites.sort(key=lambda each: each.valid_from_us)
    assert [(each.name, each.valid_from_us) for each in sites if each.gateway == name] == [
        ("Ridge", pytest.approx(swapped_us, abs=60_000_000)),
        ("Ridge", pytest.approx(swapped_us, abs=60_000_000)),
        ("Lake", back_us),
    ]
    # Each reading was made while its record was in force, and is flagged from the day after its last one.
    for channel, series in in_kafka.items():
        # Time stands still while sensors change, and the DHT11 is read at a period's beginning, that moment.
        at_end_us = 1 if channel.startswith("dht.") else 0
        for reading in series:
            periods = published[channel, reading.cal or ""].periods
            assert any(
                each.begin_us is not None
                and each.begin_us <= reading.time_us
                and (each.end_us is None or reading.time_us < each.end_us + at_end_us)
                for each in periods
            ), reading
            expired = channel == "cup.wind_speed" and reading.time_us >= parse_time("2026-01-02T00:00:00Z")
            assert ("CALIBRATION_EXPIRED" in reading.reasons) is expired
            assert not expired or reading.quality == 3
    assert any(reading.time_us < parse_time("2026-01-02T00:00:00Z") for reading in in_kafka["cup.wind_speed"])
    by_revision = sorted(read_history(history), key=lambda each: (each.channel, each.cal))
    assert by_revision == [published[key] for key in sorted(published)]


def test_records_of_an_outage_do_not_overtake_newer_ones(
    provisioned: str, nowhere: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    """Kafka is away at the start and at a reload; it is back for the next run, after another edit."""
    name = unique_name("mast")
    texts = {slope: mast_config(name, FIRST, slope) for slope in (0.765, 0.761, 0.75)}
    with run_gateway(tmp_path, texts[0.765], name, nowhere, mosquitto) as mast:
        mast.spilling()
        mast.sample(20)
        assert mast.reload(texts[0.761]) is None
        mast.sample(20)
        assert mast.stop() == 0
        assert newest_records(provisioned, name) == {}
    with run_gateway(tmp_path, texts[0.75], name, provisioned, mosquitto) as mast:
        eventually(lambda: mast.status_now().get("drained"))
        mast.sample(20)
        mast.delivered()
        assert mast.stop() == 0
        record = mast.run_record()
    published = newest_records(provisioned, name)
    assert {each.slope: each.in_force for each in published.values()} == {
        0.765: False,
        0.761: False,
        0.75: True,
    }
    history = read_history(tmp_path / "outbox.db.channels")
    assert sorted(map(repr, history)) == sorted(map(repr, published.values()))
    # Each reading finds its record, and the accounts are as if there were no records: what is in the outbox
    # are the last readings, where Kafka was slow to answer.
    assert {reading.cal for reading in readings(provisioned, name)["cup.wind_speed"]} == {
        cal for _, cal in published
    }
    with OutboxReader(tmp_path / "outbox.db") as reader:
        left = Counter(from_bytes(stored).topic for _, stored in reader.records())
    assert not left["gateway.channels"]
    assert (record["outbox_records"], record["dropped"]) == (sum(left[topic] for topic in TOPICS), [])
