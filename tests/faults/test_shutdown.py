"""The end of a run whose readings nothing takes: what is lost is reported, in the exit code and by seq."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.faults.disks import Disk
from tests.faults.kafka import Kafka
from tests.faults.mast import Mast

pytestmark = pytest.mark.system
Report = Callable[..., None]


@pytest.mark.parametrize("trouble", [Disk.fail, Disk.fill], ids=["read-only", "full"])
def test_stopped_without_kafka_and_without_disk(
    trouble: Callable[[Disk], None],
    tmp_path: Path,
    cloud: Kafka,
    mosquitto: LocalMosquitto,
    report: Report,
    full: bool,
) -> None:
    if not full:
        pytest.skip(
            "only with --full: test_outbox_faults.py stops a gateway whose disk is read-only in an outage"
        )
    with Disk(tmp_path, 48) as disk, Mast(tmp_path, cloud, mosquitto, outbox=disk.path / "outbox.db") as mast:
        mast.start()
        mast.sample(50)
        cloud.uplink.close()
        mast.spilling()
        mast.sample(50)
        trouble(disk)
        # More than a full disk's ballast and log have room for.
        mast.sample(200)
        mast.stop(exit_code=1)
        disk.repair()
        reckoning = mast.reckon()
        announced = mast.witness.drops()
    report(reckoning.figures(), reasons=dict(announced))
    reckoning.balance()
    assert set(announced) == {"NOT_STORED"}
    assert len(reckoning.dropped) >= 150
    # What the gateway published of itself is counted too (its status among it); those are no readings.
    assert 0 <= announced["NOT_STORED"] - len(reckoning.dropped) <= 6
    assert not reckoning.dropped & reckoning.outbox
