"""The machine's clock is not set yet, or is set by hand: readings wait, leave once, and have one time."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from paho.mqtt import publish

from cloud.wire.reading_records import SUSPECT, Reading, parse_reading
from gateway.clock.system_clock import since_boot_ns
from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.status.control_socket import send_request
from tests.faults.kafka import Identity, Kafka
from tests.faults.mast import COMMIT_INTERVAL_S, FSYNC_S, Mast
from tests.faults.unset_clock import MachineFile
from tests.support.servers import eventually

pytestmark = pytest.mark.system
Report = Callable[..., None]

FAST: Final = """
[[sensor]]
name = "cup-{n}"
driver = "hall-anemometer"
pin = {pin}
slope = 0.765
interval_s = 0.1
"""
MORE: Final = (
    '[clock]\ntrust = "kernel"\nhold_s = {hold_s}\n[[forward]]\nfilter = "blobs/#"\npayload = "raw"\n'
    + "".join(FAST.format(n=n, pin=n) for n in (5, 6))
)
PER_SECOND: Final = 25
DAY_S: Final = 86_400.0


@pytest.fixture
def machine(tmp_path: Path) -> MachineFile:
    return MachineFile(tmp_path / "machine")


@pytest.fixture
def hold_s() -> int:
    """How long readings wait for the clock while Kafka is there: longer than a test, if none is given."""
    return 3600


@pytest.fixture
def mast(
    tmp_path: Path, cloud: Kafka, mosquitto: LocalMosquitto, machine: MachineFile, hold_s: int
) -> Iterator[Mast]:
    with Mast(
        tmp_path,
        cloud,
        mosquitto,
        board={"kind": "simulated"},
        more=MORE.format(hold_s=hold_s),
        watch_readings=True,
        program=("tests.faults.unset_clock", str(machine.path)),
    ) as mast:
        yield mast


def held(mast: Mast, count: int) -> None:
    eventually(lambda: mast.status()["held"], until=lambda rows: rows >= count)


def in_kafka(mast: Mast) -> dict[Identity, list[Reading]]:
    """Every copy of every reading."""
    copies: defaultdict[Identity, list[Reading]] = defaultdict(list)
    for message in mast.kafka.messages(mast.topics.values()):
        reading = parse_reading(message.value() or b"")
        copies[reading.identity].append(reading)
    return copies


def one_of_each(copies: dict[Identity, list[Reading]]) -> dict[Identity, Reading]:
    """The readings; fails where two copies of one differ."""
    assert all(len(set(map(repr, each))) == 1 for each in copies.values())
    return {identity: each[0] for identity, each in copies.items()}


def clocks(readings: dict[Identity, Reading], run: str) -> set[str]:
    return {reading.clock for reading in readings.values() if reading.run == run}


def on_the_grid(readings: dict[Identity, Reading], run: str) -> None:
    """Fail unless the repaired readings of each channel are whole periods apart."""
    phases: defaultdict[str, set[int]] = defaultdict(set)
    for reading in readings.values():
        if reading.run == run and reading.clock == "repaired":
            phases[reading.channel].add(reading.time_us % (reading.period_ms * 1000))
    assert phases
    assert all(len(found) == 1 for found in phases.values()), phases


def lost_to_kills(mast: Mast, report: Report, kills: int, **more: object) -> None:
    reckoning = mast.reckon()
    report(reckoning.figures(), kills=kills, **more)
    assert len(reckoning.lost) <= kills * PER_SECOND * (COMMIT_INTERVAL_S + FSYNC_S), reckoning.figures()


@pytest.mark.timeout(300)
def test_clock_set_after_two_runs_of_one_boot(mast: Mast, machine: MachineFile, report: Report) -> None:
    """Held, killed, held again, synchronised: both runs' readings leave repaired, each once."""
    machine.write(wrong_s=-3 * DAY_S, synchronised=False, boot="boot-1")
    began_us = time.time_ns() // 1000
    first = mast.start()
    held(mast, 30)
    # The run's first records may have taken the way through the outbox, where the start was slow.
    status = eventually(mast.status, until=lambda status: status["uplink"] == "healthy")
    assert status["clock"] == "unsynced"
    mast.kill()
    second = mast.start()
    held(mast, 60)
    assert in_kafka(mast) == {}
    machine.write(wrong_s=0, synchronised=True)
    mast.delivered()
    assert mast.status()["clock"] == "synced"
    mast.sample(30)
    # The kernel's flag falls back: what is known of a boot stays known, in this run and in the next.
    machine.write(synchronised=False)
    mast.stop()
    third = mast.start()
    assert mast.status()["clock"] == "synced"
    mast.sample(30)
    mast.stop()
    readings = one_of_each(in_kafka(mast))
    assert clocks(readings, first) == {"repaired"}
    assert clocks(readings, second) == {"repaired", "synced"}
    assert clocks(readings, third) == {"synced"}
    for run in (first, second):
        on_the_grid(readings, run)
    # The offset of this machine's clock is the anchor's: wall time was never set but by the test.
    ended_us = time.time_ns() // 1000
    assert all(began_us - 1_000_000 <= reading.time_us <= ended_us for reading in readings.values())
    kept = json.loads(mast.outbox.with_name("outbox.db.clock").read_text())
    anchor_ms = kept["boots"]["boot-1"]["offset_ms"]
    assert abs(anchor_ms - (time.time_ns() - since_boot_ns()) // 1_000_000) < 50
    assert {reading.quality for reading in readings.values()} <= {1, 2, 4, 9}
    assert not any("CLOCK_UNSYNCED" in reading.reasons for reading in readings.values())
    events = [json.loads(message.value() or b"") for message in mast.kafka.messages(["gateway.events"])]
    repaired = [
        event for event in events if event["gateway"] == mast.id and event["event"] == "clock_repaired"
    ]
    (event,) = repaired
    assert (event["run"], event["boot"], event["offset_ms"]) == (second, "boot-1", anchor_ms)
    # What was still in memory may leave before the rows.
    assert event["first"].split()[0] in (first, second)
    lost_to_kills(mast, report, 1)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("hold_s", [1])
def test_reboots_with_and_without_a_time_server(
    mast: Mast, machine: MachineFile, cloud: Kafka, mosquitto: LocalMosquitto, report: Report
) -> None:
    """Readings leave by what was known of their boot; without a time server the hold ends."""
    cloud.uplink.close()
    machine.write(wrong_s=-3 * DAY_S, synchronised=False, boot="boot-1")
    anchored = mast.start()
    held(mast, 30)
    machine.write(wrong_s=0, synchronised=True)
    eventually(lambda: mast.status()["clock"] == "synced")
    eventually(mast.outbox.with_name("outbox.db.clock").exists)
    mast.kill()
    machine.write(wrong_s=-5 * DAY_S, synchronised=False, boot="boot-2")
    unknown = mast.start()
    held(mast, 30)
    mast.kill()
    cloud.uplink.open()
    machine.write(wrong_s=-7 * DAY_S, synchronised=False, boot="boot-3")
    given_up = mast.start()
    eventually(lambda: (mast.status()["repaired"] >= 30, mast.status()["unsynced"] >= 30) == (True, True))
    held(mast, 20)
    readings = one_of_each(in_kafka(mast))
    assert "repaired" in clocks(readings, anchored)
    assert clocks(readings, anchored) <= {"repaired", "synced"}
    assert clocks(readings, unknown) == {"unsynced"}
    assert clocks(readings, given_up) == set()

    def traffic() -> int:
        publish.single("blobs/x", b"?", hostname=mosquitto.host, port=mosquitto.port)
        return int(mast.status()["held"])

    # Kafka is there, and seen to be: after hold_s of that no reading waits any longer, in this boot.
    eventually(traffic, until=lambda rows: rows == 0)
    mast.delivered()
    mast.kill()
    after = mast.start()
    mast.sample(30)
    assert mast.status()["held"] == 0
    mast.stop()
    readings = one_of_each(in_kafka(mast))
    for run in (unknown, given_up, after):
        assert clocks(readings, run) == {"unsynced"}
        of_run = [reading for reading in readings.values() if reading.run == run]
        assert {reading.boot for reading in of_run} == {"boot-2" if run == unknown else "boot-3"}
        assert all(reading.quality >= 3 and "CLOCK_UNSYNCED" in reading.reasons for reading in of_run)
    on_the_grid(readings, anchored)
    lost_to_kills(mast, report, 3)


@pytest.mark.timeout(300)
def test_clock_jumps_under_load(
    mast: Mast, machine: MachineFile, cloud: Kafka, report: Report, full: bool
) -> None:
    """Hours forwards and backwards, with Kafka there and away: no reading is lost, doubled or missed."""
    machine.write(wrong_s=0, synchronised=True, boot="boot-1")
    mast.start()
    jumps_s = [3 * 3600.0, -5 * 3600.0, 0.43, -0.27, 9.5 * 3600.0] * (4 if full else 1)
    began_s = time.monotonic()
    before = mast.sampled()
    wrong_s = 0.0
    for turn, jump_s in enumerate(jumps_s):
        (cloud.uplink.close if turn % 5 == 1 else cloud.uplink.open)()
        wrong_s += jump_s
        machine.write(wrong_s=wrong_s)
        mast.sample(PER_SECOND)
    took_s = time.monotonic() - began_s
    sampled = mast.sampled() - before
    cloud.uplink.open()
    mast.delivered()
    mast.stop()
    readings = one_of_each(in_kafka(mast))
    reckoning = mast.reckon()
    report(reckoning.figures(), jumps=len(jumps_s))
    reckoning.balance()
    # What is sampled last may wait in the outbox after the stop, some seconds' at most.
    assert set(readings) | reckoning.outbox == reckoning.sampled
    assert len(reckoning.outbox) <= 5 * PER_SECOND
    assert {reading.clock for reading in readings.values()} == {"synced"}
    # Each jump costs each channel less than one period, and its wait for the new grid less than another.
    assert sampled >= took_s * PER_SECOND - (len(jumps_s) + 1) * 2 * 8


@pytest.mark.timeout(300)
def test_a_phone_gives_the_time(mast: Mast, machine: MachineFile, report: Report) -> None:
    """Held, given by a phone, killed, set at last: each reading leaves once, and none with a wrong time."""
    machine.write(wrong_s=-3 * DAY_S, synchronised=False, boot="boot-1")
    first = mast.start()
    held(mast, 30)
    assert in_kafka(mast) == {}
    opened = send_request(mast.outbox, {"do": "phone-open", "address": "127.0.0.1", "minutes": 5})
    authority = {"Authorization": f"Bearer {opened['token']}", "Content-Type": "application/json"}

    def request_clock(body: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{opened['url']}api/clock", body, authority)  # noqa: S310
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
            return bytes(answer.read())

    boot_ms = json.loads(request_clock())["boot_ms"]
    given_ms = time.time_ns() // 1_000_000
    request_clock(json.dumps({"time_ms": given_ms, "asked_boot_ms": boot_ms}).encode())
    mast.sample(30)
    mast.delivered()
    status = mast.status()
    # The time is a person's, and the machine's clock is as it was.
    assert (status["clock"], status["clock_given"], status["clock_may_be_given"]) == ("unsynced", True, False)
    # The page has a reading as it leaves, and its age.
    for channel in status["channels"].values():
        age = datetime.fromisoformat(status["now"]) - datetime.fromisoformat(channel["time"])
        assert timedelta(0) <= age < timedelta(minutes=2)
        assert "CLOCK_UNSYNCED" not in channel["reasons"]
        assert channel["quality"] < SUSPECT
    mast.kill()
    second = mast.start()
    mast.sample(30)
    mast.delivered()
    machine.write(wrong_s=0, synchronised=True)
    eventually(mast.status, 20, until=lambda status: status["clock"] == "synced")
    mast.sample(30)
    mast.stop()
    readings = one_of_each(in_kafka(mast))
    assert clocks(readings, first) == {"repaired"}
    assert clocks(readings, second) == {"repaired", "synced"}
    now_us = time.time_ns() // 1000
    assert all(0 < now_us - reading.time_us < 300_000_000 for reading in readings.values())
    for run in (first, second):
        on_the_grid(readings, run)
    lost_to_kills(mast, report, 1)
