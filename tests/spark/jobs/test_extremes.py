"""Records at the bounds of the wire, through all jobs: no sequence of them ends a query.

Seeded: a failure names its seed. Only with ``--full``: a sequence takes minutes.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.wire.bounds import MAX_COUNT, MAX_INT32, MAX_NUMBER, TIMES_US
from cloud.wire.channel_records import ChannelRecord, Period, encode_channel, parse_channel
from cloud.wire.quantities import QUANTITIES
from cloud.wire.reading_records import OLDEST_TIME_US, Reading, encode_reading, parse_reading, reading_key
from cloud.wire.run_records import RunRecord
from cloud.wire.site_records import SiteRecord, encode_site
from cloud.wire.status_records import StatusRecord, encode_status
from spark_jobs.platform.registry import load
from spark_jobs.platform.settings import JOB_NAMES, Settings
from tests.spark.jobs.test_records_job import Topics
from tests.spark.records import START_US, reading, rows_of
from tests.spark.running import run_to_end

pytestmark = pytest.mark.timeout(3600)

GATEWAYS: Final = ("mast-a", "mast-b")
HEALTHY: Final = "mast-c"
CHANNELS: Final = (
    *("cup-a.wind_speed", "cup-b.wind_speed", "vane-a.wind_direction", "vane-b.wind_direction"),
    *("box.temperature", "baro.pressure", "bucket.precipitation", "meter.energy", "own.thing"),
)
VALUES: Final = (
    *(0.0, -0.0, 5e-324, 1.0, -1.0, 360.0, 4_294_967_295.0, 3.4e38, MAX_NUMBER, -MAX_NUMBER),
    *(MAX_NUMBER / 3, 1e-300),
)
PERIODS_MS: Final = (1, 1000, 600_000, 86_400_000, MAX_INT32)
SEQS: Final = (1, 2, MAX_COUNT - 1, MAX_COUNT)
TIMES: Final = (
    OLDEST_TIME_US,
    OLDEST_TIME_US + 86_399_999_999,
    START_US,
    START_US + 1,
    START_US + 600_000_000,
)
HEIGHTS: Final = (None, -12_000.0, 0.0, 5e-324, 10.0, 100_000.0)


def extreme_reading(chance: random.Random) -> Reading:
    """A reading as any device may send it."""
    quality = chance.choice((1, 1, 1, 2, 3, 4, 9))
    value = max(-MAX_NUMBER, min(MAX_NUMBER, chance.choice(VALUES)))
    made = reading(
        chance.choice((*SEQS, chance.randrange(1, MAX_COUNT))),
        value,
        gateway=chance.choice(GATEWAYS),
        channel=chance.choice(CHANNELS),
        run=f"run-{chance.randrange(3)}",
        at_us=chance.choice(TIMES),
        period_ms=chance.choice(PERIODS_MS),
        quality=quality,
        clock=chance.choice(("synced", "synced", "unsynced", "repaired")),
        extra={"n": 1e300},
    )
    raw = chance.choice((None, MAX_NUMBER, -MAX_NUMBER))
    return replace(
        made, raw=raw, latitude=chance.choice((None, 90.0)), longitude=chance.choice((None, -180.0))
    )


def extreme_channel(chance: random.Random, gateway: str, channel: str) -> ChannelRecord:
    """A channel's record with bounds in its numbers."""
    sensor, _, quantity = channel.partition(".")
    ends = (None, TIMES_US.start, TIMES_US.stop - 1, START_US)
    number = (None, MAX_NUMBER, -MAX_NUMBER, 5e-324)
    return ChannelRecord(
        gateway=gateway, sensor=sensor, quantity=quantity, cal="5d1c0a7e",
        revision=chance.choice((1, 1 << 52)), in_force=True,
        periods=(Period(chance.choice(ends), chance.choice(ends)), Period(chance.choice(ends))),
        unit=QUANTITIES[quantity].unit if quantity in QUANTITIES else "1", driver="x",
        interval_s=chance.choice((0.001, 1.0, 600.0, MAX_INT32 / 1000)), range=(-MAX_NUMBER, MAX_NUMBER),
        kind="linear",
        slope=chance.choice(number), offset=chance.choice(number), accuracy=chance.choice(number),
        accuracy_percent=chance.choice(number), height_m=chance.choice(HEIGHTS),
        boom_deg=chance.choice((None, 360.0, -360.0)), settings={"n": MAX_NUMBER, "m": -1},
        pair=chance.choice((None, "cup-a", "cup-b", "vane-a")), reported={"serial": 1 << 62},
    )  # fmt: skip


def extreme_run(chance: random.Random, gateway: str) -> bytes:
    """A run's record with bounds in its counts and ranges."""
    run = f"run-{chance.randrange(3)}"
    first = chance.choice((1, MAX_COUNT))
    record: dict[str, Any] = {
        "v": 1, "gateway": gateway, "run": run, "previous_run": f"run-{chance.randrange(3)}",
        "state": chance.choice(("running", "killed", "stopped")), "started": chance.choice(
            ("1900-01-01T00:00:00Z", "2199-12-31T23:59:59.999999Z", "2026-05-28T20:00:00Z")),
        "revision": chance.choice((0, 1, MAX_COUNT)), "in_flight": MAX_COUNT, "outbox_records": MAX_COUNT,
        "last_seq": {channel: chance.choice((0, 1, MAX_COUNT)) for channel in CHANNELS},
        "dropped": [{"reason": "X", "count": MAX_COUNT, "ranges": [
            f"{run} {chance.choice(CHANNELS)} {first}-{MAX_COUNT}"]}],
        "unfinished": [{"run": "run-0", "end": "killed", "lost_at_most_s": MAX_NUMBER}],
    }  # fmt: skip
    return json.dumps(record).encode()


@pytest.mark.parametrize("seed", range(20))
def test_no_sequence_of_valid_records_ends_a_query(
    spark: SparkSession, settings: Settings, kafka: LocalBroker, full: bool, seed: int
) -> None:
    if not full:
        pytest.skip("only with --full: tests/unit/cloud/wire/test_bounds.py, test_records_job.py")
    provision_topics(kafka.bootstrap_servers)
    topics = Topics(kafka)
    settings = replace(topics.settings(settings), interval_s=600)
    chance = random.Random(seed)
    # Twice: the second time there is a lake, and a state.
    for turn in (0, 1):
        readings = [extreme_reading(chance) for _ in range(150)]
        readings += [
            reading(seq, gateway=HEALTHY, run=f"run-{turn}", at_us=START_US + (turn * 60 + seq) * 1_000_000)
            for seq in range(1, 21)
        ]
        channels = [
            extreme_channel(chance, gateway, channel) for gateway in GATEWAYS for channel in CHANNELS[:4]
        ]
        runs = [extreme_run(chance, gateway) for gateway in GATEWAYS for _ in range(3)]
        sites = [
            SiteRecord(gateway, chance.choice((TIMES_US.start, TIMES_US.stop - 1)), 1, 90.0, -180.0, 9000.0)
            for gateway in GATEWAYS
        ]
        statuses = [
            StatusRecord(gateway, "online", "run-0", time_us=TIMES_US.stop - 1, revision=1 << 52)
            for gateway in GATEWAYS
        ]
        sent: list[tuple[str, bytes | None, bytes | None, Any]] = []
        for each in readings:
            parse_reading(encode_reading(each))
            sent.append(("wind_speed", reading_key(each.gateway, each.channel), encode_reading(each), []))
        for channel in channels:
            parse_channel(encode_channel(channel))
            sent.append(
                ("channels", f"{channel.gateway}/{channel.channel}".encode(), encode_channel(channel), [])
            )
        for run in runs:
            RunRecord.from_json(run)
            sent.append(("runs", b"r", run, []))
        sent += [("sites", each.key, encode_site(each), []) for each in sites]
        sent += [("status", each.gateway.encode(), encode_status(each), []) for each in statuses]
        chance.shuffle(sent)
        topics.produce(*sent)
        for _, place, given in replace(settings, jobs=JOB_NAMES).queries():
            run_to_end(given, load(place)(spark, given))
    # Another record under the same ``cal`` is refused; nothing else is.
    assert {row["reason"] for row in rows_of(settings, "quarantine")} <= {"CAL_CHANGED"}
    healthy = [row for row in rows_of(settings, "statistics") if row["gateway"] == HEALTHY]
    assert sum(row["count"] for row in healthy) == 40
    present = {row["gateway"]: row for row in rows_of(settings, "presence")}
    assert (present[HEALTHY]["lost"], present[HEALTHY]["pending"]) == (0, 0)
