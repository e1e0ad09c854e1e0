"""A metered uplink: everything is on the disk first, and what goes over the wire is counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.faults.kafka import Kafka
from tests.faults.mast import Mast
from tests.support.servers import eventually

pytestmark = pytest.mark.system
Report = Callable[..., None]

_RATE = 12
_METERED = """
[uplink]
mode = "metered"
batch_s = {batch_s}

[kafka.properties]
"statistics.interval.ms" = "500"
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("batch_s", "batches"), [(1, 60), (5, 24), (60, 4)], ids=["1 s", "5 s", "60 s"])
def test_metered_uplink_with_a_batch_every(
    tmp_path: Path,
    cloud: Kafka,
    mosquitto: LocalMosquitto,
    report: Report,
    full: bool,
    batch_s: int,
    batches: int,
) -> None:
    if not full:
        if batch_s > 1:
            pytest.skip("takes minutes; runs with --full")
        batches = 2
    with Mast(tmp_path, cloud, mosquitto, rate=_RATE, more=_METERED.format(batch_s=batch_s)) as mast:
        mast.start()

        def batch_ended(drained: int) -> int:
            """Wait until so many readings were sent, and the batch with the last of them is complete."""
            now = eventually(
                mast.status,
                batches * batch_s + 30,
                until=lambda now: now["drained"] >= drained and now["outbox_records"] < 3 * _RATE,
            )
            return int(now["drained"])

        first = batch_ended(batch_s * _RATE)
        carried, begin_s = dict(cloud.uplink.carried), time.monotonic()
        last = batch_ended(first + batches * batch_s * _RATE - _RATE)
        up, down = (cloud.uplink.carried[way] - carried[way] for way in ("up", "down"))
        seconds = time.monotonic() - begin_s
        uplink = mast.status()["uplink"]
        # What the daemon counts as sent is what came through: no less, and soon no more.
        through = cloud.uplink.carried["up"]
        sent = eventually(lambda: mast.status()["bytes_sent"] or 0, until=lambda sent: sent >= through)
        eventually(lambda: cloud.uplink.carried["up"], until=lambda through: through >= sent)
        mast.stop()
        reckoning = mast.reckon()
    reckoning.balance()
    per_reading = (up + down) / (last - first)
    report(
        reckoning.figures(),
        seconds=round(seconds),
        bytes_up_per_reading=round(up / (last - first), 1),
        bytes_down_per_reading=round(down / (last - first), 1),
        MB_a_month_at_12_per_s=round(per_reading * 12 * 86400 * 30 / 1e6),
    )
    assert uplink == "metered"
    assert reckoning.replayed == 0
