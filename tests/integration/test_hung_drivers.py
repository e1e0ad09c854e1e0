"""A daemon whose drivers hang: three hangs, one clean restart, then it goes on without those sensors.

The driver that hangs comes from an installed package of its own, and waits for what never comes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from buffer.reader import OutboxReader
from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.daemon.gateway import EXIT_CODE
from gateway.forwarding.records import from_bytes
from tests.support.config import config_text, sensor
from tests.support.mast import published, records, run_gateway
from tests.support.servers import eventually, unique_name

DRIVER = '''
import threading
from dataclasses import dataclass
from itertools import count
from drivers.driver_type import DriverType
from drivers.interface import Channel, Measurement

CHANNEL = Channel("temperature", "Cel", "Cel", -40.0, 80.0)

@dataclass(frozen=True, slots=True)
class Options:
    """How many reads it answers."""
    reads: int = 1000000

drivers = count(1)

class Frozen:
    """Answers some reads, then never again; ``raw`` is the driver's number and that of the read."""
    channels = (CHANNEL,)
    accumulates = False

    def __init__(self, board, options):
        self.number, self.reads, self.most = next(drivers), 0, options.reads

    def start(self):
        pass

    def read(self):
        if self.reads == self.most:
            threading.Event().wait()
        self.reads += 1
        return (Measurement("temperature", 20.0, self.number * 1000 + self.reads),)

    def stop(self):
        pass

TYPE = DriverType("freezing", Options, (CHANNEL,), 0.1, Frozen, longest_read_s=1.0)
'''
HUNG = ("hung-a", "hung-b", "hung-c")


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A directory with the package of the driver that freezes, as pip leaves it."""
    directory = tmp_path / "packages"
    facts = directory / "freezing-1.0.dist-info"
    facts.mkdir(parents=True)
    (directory / "freezing_sensor.py").write_text(DRIVER)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: freezing\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[fieldgate.drivers]\nfreezing = freezing_sensor\n")
    return directory


def stored(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The readings in the outbox: run, channel, fields."""
    with OutboxReader(path) as reader:
        for _, record in reader.records():
            fields = json.loads(from_bytes(record).value)
            if "seq" in fields:
                yield fields["run"], fields["channel"], fields


def test_three_hangs_one_clean_restart_then_it_backs_off(
    tmp_path: Path, packages: Path, provisioned: str, mosquitto: LocalMosquitto
) -> None:
    name = unique_name("mast")
    sensors = [
        sensor(each, "freezing", interval_s=0.2, reads=1_000_000 if each == "fine" else 3)
        for each in (*HUNG, "fine")
    ]
    board = {"kind": "raspberry-pi"}
    config = config_text(*sensors, gateway={"id": name}, clock={"trust": "always"}, board=board)
    place = (tmp_path, config, name, provisioned, mosquitto, packages)
    with run_gateway(*place) as first:
        assert first.process.wait(150) == EXIT_CODE
        record = first.run_record()
        assert (record["state"], record["stop_reason"]) == ("stopped", "HUNG_DRIVERS")
        assert record["samplers_abandoned"] >= 3
        assert json.loads((tmp_path / "outbox.db.restarts").read_text())["restarts"] == 1
    with run_gateway(*place) as second:
        # The same happens again; this time it goes on. Two of them are tried a second time before it is known
        # how bad it is: five drivers that hang, and none that answers after that.
        status: dict[str, Any] = eventually(
            second.status_now, until=lambda status: status["samplers_abandoned"] == 5
        )
        assert status["sensors_hung"] == list(HUNG)
        assert 3000 < status["hang_restart_wait_s"] <= 3600
        before = status["channels"]
        status = eventually(
            second.status_now, until=lambda status: status["channels"]["hung-a.temperature"]["seq"] > 40
        )
        assert second.process.poll() is None
        for channel, last in status["channels"].items():
            assert last["seq"] > before[channel]["seq"] or last["seq"] > 40
            assert (last["value"], last["quality"]) == (
                (20.0, 1) if channel == "fine.temperature" else (None, 9)
            )
        assert second.stop() == 0
        last = second.run_record()
        assert last["state"] == "stopped"
        assert "stop_reason" not in last
    runs: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for message in records(provisioned, ["mqtt.temperature"]):
        reading = json.loads(message.value() or b"{}")
        if reading.get("gateway") == name:
            runs[reading["run"], reading["channel"]].append(reading)
    # What neither run's Kafka had time for is on the disk.
    for run, channel, reading in stored(tmp_path / "outbox.db"):
        runs[run, channel].append(reading)
    for of in (record, last):
        assert set(of["last_seq"]) == {f"{each}.temperature" for each in (*HUNG, "fine")}
        for channel, last_seq in of["last_seq"].items():
            readings = {each["seq"]: each for each in runs[of["run"], channel]}
            assert sorted(readings) == list(range(1, last_seq + 1))
            # Each period once, on the grid of 200 ms.
            times = sorted(each["time"] for each in readings.values())
            assert len(set(times)) == last_seq
            answers = [int(each["raw"]) for _, each in sorted(readings.items()) if each["raw"] is not None]
            by_driver = [
                [raw % 1000 for raw in raws] for _, raws in groupby(answers, lambda raw: raw // 1000)
            ]
            if channel == "fine.temperature":
                assert by_driver == [list(range(1, last_seq + 1))]
                continue
            # Every answer counts, once. The first driver hung after three; of those tried after it the last
            # may still answer when the run ends.
            assert by_driver[0] == [1, 2, 3]
            assert len(by_driver) <= 3
            assert all(reads == [1, 2, 3] for reads in by_driver[:-1])
            assert by_driver[-1] == [1, 2, 3][: len(by_driver[-1])]
    events = published(provisioned, "gateway.events", name, tmp_path / "outbox.db")
    assert sum(each["event"] == "sampler-abandoned" for each in events) >= 6
    (restarting,) = [each for each in events if each["event"] == "restarting"]
    assert (restarting["run"], restarting["reason"]) == (record["run"], "HUNG_DRIVERS")
    log = (tmp_path / "gateway.log").read_text()
    assert log.count("event=daemon.restarts reason=HUNG_DRIVERS") == 1
    assert log.count("event=sensor.silent") < 12
