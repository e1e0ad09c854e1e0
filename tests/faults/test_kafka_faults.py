"""Kafka is killed, hangs, or is cut off: nothing sampled meanwhile is missing."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud.wire.channel_records import CHANNELS_TOPIC
from cloud.wire.site_records import SITES_TOPIC
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.faults.kafka import Kafka
from tests.faults.mast import CHANNELS, Mast
from tests.support.servers import eventually

pytestmark = pytest.mark.system
Report = Callable[..., None]


def test_kafka_killed_and_back(mast: Mast, cloud: Kafka, report: Report) -> None:
    mast.start()
    mast.sample(200)
    cloud.broker.kill()
    mast.spilling()
    mast.sample(300)
    cloud.broker.start()
    mast.delivered()
    mast.sample(100)
    drained = mast.status()["drained"]
    mast.stop()
    reckoning = mast.reckon()
    reckoning.balance()
    report(reckoning.figures(), drained=drained)
    assert drained >= 300


def test_a_kafka_that_was_rebuilt_gets_the_records_of_channels_again(mast: Mast, cloud: Kafka) -> None:
    def sent() -> Counter[bytes]:
        found = cloud.messages([CHANNELS_TOPIC, SITES_TOPIC])
        return Counter(key for each in found if (key := each.key() or b"").startswith(f"{mast.id}/".encode()))

    mast.start()
    mast.sample(200)
    mast.delivered()
    before = eventually(sent, until=lambda found: len(found) == CHANNELS)
    cloud.uplink.close()
    mast.spilling()
    begin_s = time.monotonic()
    eventually(time.monotonic, until=lambda now_s: now_s >= begin_s + 11)
    cloud.uplink.open()
    mast.delivered()
    eventually(sent, until=lambda found: all(found[key] > times for key, times in before.items()))
    mast.stop()


def test_kafka_hangs_without_refusing(mast: Mast, cloud: Kafka, report: Report, full: bool) -> None:
    seconds = 60 if full else 10
    mast.start()
    mast.sample(200)
    assert cloud.broker.pid is not None
    os.kill(cloud.broker.pid, signal.SIGSTOP)
    begin_s = time.monotonic()
    try:
        mast.spilling()
        eventually(time.monotonic, 2 * seconds + 60, until=lambda now_s: now_s >= begin_s + seconds)
    finally:
        os.kill(cloud.broker.pid, signal.SIGCONT)
    mast.delivered()
    mast.sample(100)
    mast.stop()
    reckoning = mast.reckon()
    reckoning.balance()
    report(reckoning.figures(), seconds=seconds)


def test_connection_cut_in_the_middle_of_batches(
    mast: Mast, cloud: Kafka, report: Report, full: bool
) -> None:
    cuts = 40 if full else 6
    mast.start()
    mast.sample(100)
    for cut in range(cuts):
        if cut % 2:
            cloud.uplink.break_before_answer()
        else:
            cloud.uplink.break_next_batch()
        _wait_for_resets(cloud, cut + 1)
        mast.sample(50)
    mast.delivered()
    mast.stop()
    reckoning = mast.reckon()
    reckoning.balance()
    report(reckoning.figures(), cuts=cuts)


@pytest.mark.timeout(900)
def test_uplink_of_64_kbit_and_2_s_round_trip(
    tmp_path: Path, cloud: Kafka, mosquitto: LocalMosquitto, report: Report, full: bool
) -> None:
    seconds = 120 if full else 10
    cloud.uplink.delay_s, cloud.uplink.bytes_per_s = 1.0, 8000.0
    with Mast(tmp_path, cloud, mosquitto, rate=12) as mast:
        mast.start(seconds=seconds)
        eventually(lambda: mast.status()["state"], seconds + 90, until=lambda state: state == "ended")
        # It has carried all of it soon after the last reading: the link is slow, not too narrow for a mast.
        mast.empty()
        carried = cloud.uplink.carried["up"]
        mast.stop()
        reckoning = mast.reckon()
    reckoning.balance()
    report(reckoning.figures(), seconds=seconds, bytes_up_per_reading=round(carried / len(reckoning.sampled)))
    assert not reckoning.outbox


def _wait_for_resets(cloud: Kafka, count: int) -> None:
    eventually(lambda: cloud.uplink.resets, until=lambda resets: resets >= count)
