"""The outbox in trouble: no room, no writing, damage between two runs; and one that is very full."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import publish

from buffer.outbox_file import Limits
from buffer.sqlite_outbox import SqliteOutbox
from cloud.wire.reading_records import encode_reading, reading_key
from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.forwarding.records import to_bytes
from gateway.ports import Record
from tests.faults.disks import Disk
from tests.faults.kafka import Kafka
from tests.faults.mast import Mast, device_reading
from tests.support.servers import eventually, unique_name

pytestmark = pytest.mark.system
Report = Callable[..., None]


def leave_backlog(mast: Mast, count: int) -> None:
    """Fill the outbox as an earlier run left it."""
    outbox = SqliteOutbox(mast.outbox)
    readings = (device_reading(mast.id, seq) for seq in range(1, count + 1))
    while batch := list(islice(readings, 5_000)):
        outbox.append(
            [
                to_bytes(
                    Record(
                        mast.topics[reading.quantity],
                        reading_key(reading.gateway, reading.channel),
                        encode_reading(reading),
                        (
                            ("mqtt-topic", f"fieldgate/{mast.id}/cup-a/wind_speed".encode()),
                            ("received-at", b"2026-01-01T00:00:00.000Z"),
                        ),
                    )
                )
                for reading in batch
            ]
        )
        mast.others.update(reading.identity for reading in batch)
    outbox.close()


@pytest.mark.timeout(1800)
def test_backlog_is_drained_beside_live_readings(
    tmp_path: Path, cloud: Kafka, mosquitto: LocalMosquitto, report: Report, full: bool
) -> None:
    count = 1_000_000 if full else 20_000
    with Mast(tmp_path, cloud, mosquitto, kafka_address=cloud.direct) as mast:
        leave_backlog(mast, count)
        begin_s = time.monotonic()
        mast.start()
        eventually(lambda: mast.status()["drained"], 60 + count / 2_000, until=lambda n: n >= count)
        took_s = time.monotonic() - begin_s
        mast.delivered()
        size_bytes = mast.status()["outbox_bytes"]
        mast.stop()
        reckoning = mast.reckon()
    reckoning.balance()
    report(reckoning.figures(), drained_per_s=round(count / took_s), outbox_bytes_after=size_bytes)
    assert size_bytes - Limits().log_bytes < 1 << 20


def test_disk_full_in_an_outage(
    tmp_path: Path, cloud: Kafka, mosquitto: LocalMosquitto, report: Report
) -> None:
    device = unique_name("device")
    more = '[[forward]]\nfilter = "devices/#"\n'
    with (
        Disk(tmp_path, 48) as disk,
        Mast(tmp_path, cloud, mosquitto, outbox=disk.path / "outbox.db", more=more) as mast,
    ):
        mast.start()
        mast.sample(100)
        cloud.uplink.close()
        mast.spilling()
        mast.sample(100)
        disk.fill()
        # What other devices send is not acknowledged while only memory holds it.
        theirs = [device_reading(device, seq) for seq in range(1, 101)]
        mast.others = {reading.identity for reading in theirs}
        publish.multiple(
            [(f"devices/{device}", encode_reading(reading), 1, False) for reading in theirs],
            hostname=mosquitto.host,
            port=mosquitto.port,
        )
        mast.sample(600)
        mast.in_memory(lambda records: records > 500)
        full_for_s = time.monotonic()
        disk.empty()
        mast.in_memory(lambda records: records == 0)
        moved_in_s = time.monotonic() - full_for_s
        eventually(lambda: mast.status()["received"], until=lambda received: received >= 100)
        mast.sample(100)
        assert mast.status()["outbox_problem"] is None
        cloud.uplink.open()
        mast.delivered()
        mast.stop()
        reckoning = mast.reckon()
        announced = mast.witness.drops()
    reckoning.balance()
    report(reckoning.figures(), moved_in_s=round(moved_in_s, 1))
    # Nothing is dropped while memory has room.
    assert not announced


def test_kafka_returns_while_the_disk_is_full(
    tmp_path: Path, cloud: Kafka, mosquitto: LocalMosquitto, report: Report
) -> None:
    with Disk(tmp_path, 48) as disk, Mast(tmp_path, cloud, mosquitto, outbox=disk.path / "outbox.db") as mast:
        mast.start()
        mast.sample(100)
        cloud.uplink.close()
        mast.spilling()
        disk.fill()
        mast.sample(300)
        mast.in_memory(lambda records: records > 100)
        cloud.uplink.open()
        # Kafka answers: what memory holds goes there, disk or no disk.
        mast.delivered()
        mast.sample(100)
        disk.empty()
        eventually(lambda: mast.status()["outbox_problem"], until=lambda problem: problem is None)
        mast.delivered()
        mast.stop()
        reckoning = mast.reckon()
        announced = mast.witness.drops()
    reckoning.balance()
    report(reckoning.figures())
    assert not announced


def test_disk_becomes_read_only_in_an_outage(
    tmp_path: Path, cloud: Kafka, mosquitto: LocalMosquitto, report: Report
) -> None:
    with Disk(tmp_path, 48) as disk, Mast(tmp_path, cloud, mosquitto, outbox=disk.path / "outbox.db") as mast:
        mast.start()
        mast.sample(100)
        cloud.uplink.close()
        mast.spilling()
        mast.sample(100)
        disk.fail()
        mast.sample(200)
        mast.in_memory(lambda records: records > 100)
        cloud.uplink.open()
        # What is on the disk can be read, what is in memory needs no disk.
        mast.in_memory(lambda records: records == 0)
        eventually(lambda: mast.status()["uplink"], until=lambda uplink: uplink != "spilling")
        mast.sample(100)
        mast.stop()
        disk.repair()
        reckoning = mast.reckon()
        announced = mast.witness.drops()
    reckoning.balance()
    report(reckoning.figures())
    assert not announced


@pytest.mark.parametrize("trouble", [Disk.fail, Disk.fill], ids=["read-only", "full"])
def test_stopped_without_kafka_and_without_disk(
    trouble: Callable[[Disk], None],
    tmp_path: Path,
    cloud: Kafka,
    mosquitto: LocalMosquitto,
    report: Report,
    full: bool,
) -> None:
    if trouble == Disk.fill and not full:
        pytest.skip("only with --full: a full disk's ballast is read and written above")
    with Disk(tmp_path, 48) as disk, Mast(tmp_path, cloud, mosquitto, outbox=disk.path / "outbox.db") as mast:
        mast.start()
        mast.sample(50)
        cloud.uplink.close()
        mast.spilling()
        mast.sample(100)
        trouble(disk)
        # More than a full disk's ballast and log have room for.
        mast.sample(200)
        mast.stop(exit_code=1)
        disk.repair()
        reckoning = mast.reckon()
        announced = mast.witness.drops()
    # What could be kept nowhere is announced exactly.
    reckoning.balance()
    report(reckoning.figures(), reasons=dict(announced))
    assert set(announced) == {"NOT_STORED"}
    assert len(reckoning.dropped) >= 150
    # What the gateway published of itself is counted too (its status among it); those are no readings.
    assert 0 <= announced["NOT_STORED"] - len(reckoning.dropped) <= 6
    # A commit that the failure overtakes fails for the daemon, and may be on the disk all the same: the last.
    before = reckoning.outbox - reckoning.dropped
    assert before
    newest = {channel: seq for _, channel, _, seq in sorted(before, key=lambda identity: identity[3])}
    overtaken = reckoning.outbox & reckoning.dropped
    assert all(seq > newest.get(channel, 0) for _, channel, _, seq in overtaken)
    # At 150 readings a second and a commit each half second; a full disk overtakes none.
    assert len(overtaken) <= (150 if trouble == Disk.fail else 0)


def test_start_on_a_read_only_disk_in_an_outage(
    tmp_path: Path, cloud: Kafka, mosquitto: LocalMosquitto, report: Report
) -> None:
    with Disk(tmp_path, 48) as disk, Mast(tmp_path, cloud, mosquitto, outbox=disk.path / "outbox.db") as mast:
        cloud.uplink.close()
        mast.start()
        mast.spilling()
        mast.sample(100)
        mast.stop()
        disk.protect()
        mast.start()
        mast.sample(200)
        mast.in_memory(lambda records: records > 100)
        assert mast.status()["outbox_problem"]
        cloud.uplink.open()
        mast.in_memory(lambda records: records == 0)
        # Live, with no disk at all.
        mast.sample(100)
        # What the run before has left is sent when the file can be opened.
        disk.unprotect()
        eventually(lambda: mast.status()["outbox_problem"], until=lambda problem: problem is None)
        mast.delivered()
        mast.stop()
        reckoning = mast.reckon()
        announced = mast.witness.drops()
    reckoning.balance()
    report(reckoning.figures())
    assert not announced


def test_cap_reached_in_an_outage(
    tmp_path: Path, cloud: Kafka, mosquitto: LocalMosquitto, report: Report
) -> None:
    device, count = unique_name("device"), 600
    # 60 KB each that no compression makes smaller than half: more than the smallest cap there is.
    fat = [
        replace(device_reading(device, seq), extra={"noise": random.Random(seq).randbytes(30_000).hex()})
        for seq in range(1, count + 1)
    ]
    messages: list[Any] = [(f"devices/{device}", encode_reading(reading), 1, False) for reading in fat]
    more = '[[forward]]\nfilter = "devices/#"\n'
    with Mast(tmp_path, cloud, mosquitto, more=more, max_bytes="16MiB") as mast:
        mast.others = {reading.identity for reading in fat}
        cloud.uplink.close()
        mast.start()
        mast.spilling()
        for part in range(0, count, 50):
            publish.multiple(messages[part : part + 50], hostname=mosquitto.host, port=mosquitto.port)
            mast.sample(20)
            assert mast.status()["outbox_bytes"] <= 16 << 20
        eventually(lambda: mast.status()["received"], until=lambda received: received >= count)
        # What isn't stored yet would leave first, and give room to what else would be dropped.
        now = mast.status()
        eventually(
            lambda: mast.status()["spilled"],
            until=lambda so_many: so_many >= now["received"] + now["sampled"],
        )
        mast.sample(50)
        cloud.uplink.open()
        mast.delivered()
        mast.stop()
        reckoning = mast.reckon()
        announced = mast.witness.drops()
    missing = reckoning.sampled - reckoning.kafka - reckoning.outbox
    report(reckoning.figures(), missing=len(missing), reasons=dict(announced))
    reckoning.balance()
    # What was dropped may have reached Kafka all the same: the producer still had it in memory. The gateway's
    # own readings and records stay.
    assert dict(announced) == {"OTHERS_SHARE": len(reckoning.dropped)}
    assert all(gateway == device for gateway, *_ in reckoning.dropped)
    # The oldest went first.
    of_device = {seq for gateway, _, _, seq in reckoning.dropped if gateway == device}
    assert of_device
    assert of_device == set(range(1, len(of_device) + 1))


def _flip(path: Path, begin: float, end: float) -> None:
    """Turn three bytes over, spread evenly over a part of a file."""
    content = bytearray(path.read_bytes())
    first, last = int(len(content) * begin), int(len(content) * end)
    for at in range(first, last, max(1, (last - first) // 3)):
        content[at] ^= 0xFF
    path.write_bytes(content)


def _truncate(path: Path, share: float) -> None:
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * share))


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "bytes flipped": lambda path: _flip(path, 0.3, 1.0),
    "zero length": lambda path: _truncate(path, 0),
    "first page flipped": lambda path: _flip(path, 0.0, 0.02),
    "truncated": lambda path: _truncate(path, 0.5),
    "log flipped": lambda path: _flip(_log_of(path), 0.3, 1.0),
    "log truncated": lambda path: _truncate(_log_of(path), 0.5),
    "log of zero length": lambda path: _truncate(_log_of(path), 0),
}
_REDUCED = "bytes flipped"


@pytest.mark.parametrize("damage", DAMAGES)
def test_outbox_damaged_between_two_runs(
    damage: str, tmp_path: Path, cloud: Kafka, mosquitto: LocalMosquitto, report: Report, full: bool
) -> None:
    if not full and damage != _REDUCED:
        pytest.skip("only with --full: tests/unit/buffer/test_corruption.py damages files in every way")
    with Mast(
        tmp_path, cloud, mosquitto, outbox=tmp_path / "data" / "outbox.db", watch_readings=True
    ) as mast:
        cloud.uplink.close()
        mast.start()
        mast.sample(200)
        # A killed daemon leaves its log behind.
        mast.kill()
        # Looked at in a copy: closing an outbox folds its log into the file.
        copy = Path(shutil.copytree(mast.outbox.parent, tmp_path / "copy")) / mast.outbox.name
        before = mast.stored(copy)
        mast.others |= before
        if not damage.startswith("log"):
            SqliteOutbox(mast.outbox).close()
        DAMAGES[damage](mast.outbox)
        cloud.uplink.open()
        mast.start()
        # Sampling waits for no recovery.
        mast.sample(50)
        mast.delivered()
        mast.stop()
        reckoning = mast.reckon()
        announced = mast.witness.drops()
    gone = before - reckoning.kafka
    report(reckoning.figures(), stored_before=len(before), gone=len(gone), announced=dict(announced))
    assert not reckoning.invented
    reckoning.agree()
    if gone:
        assert gone <= reckoning.dropped or announced["CORRUPT"] >= len(gone)
    else:
        assert not announced
