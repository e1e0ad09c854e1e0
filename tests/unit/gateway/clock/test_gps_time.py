"""A GPS receiver's time decides a boot where no time server does: which reports count, when it is asked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from drivers.gpsd import WATCH
from drivers.hardware.lines import SocketLines
from drivers.interface import ReadError
from gateway.clock.given_time import FIRST_NTP_MS, UNCERTAIN_MS, GpsTime, ManualTime, receivers_of
from gateway.clock.system_clock import since_boot_ns
from gateway.config import load
from tests.support.config import PLACE, baro, config_text, sensor, write_config
from tests.support.servers import eventually
from tests.unit.drivers.test_gpsd import RealGpsd, Receiver as Satellites, real_gpsd
from tests.unit.gateway.clock.test_manual_time import BOOTED_MS, taking


class Receiver:
    """gpsd: a report each second, which comes late by the next of ``late_ms``."""

    def __init__(
        self, late_ms: tuple[int, ...] = (300, 120, 450), boot_ms: int = FIRST_NTP_MS, **fields: Any
    ) -> None:
        self.late_ms = late_ms
        self.boot_ms = boot_ms
        self.fields = {"class": "TPV", "mode": 3, **fields}
        self.sent = 0
        self.ends_after = 1000
        self.watched = self.closed = False

    def boot_ns(self) -> int:
        return self.boot_ms * 1_000_000

    def write(self, line: bytes) -> None:
        self.watched = line == WATCH

    def readline(self, timeout_s: float) -> bytes:
        assert self.watched
        assert timeout_s < 10
        self.sent += 1
        if self.sent > self.ends_after:
            return b""
        if self.sent % 2:
            return b'{"class":"SKY"}\n'
        late_ms = self.late_ms[self.sent // 2 % len(self.late_ms)]
        self.boot_ms += 1000
        fix = datetime.fromtimestamp((BOOTED_MS + self.boot_ms - late_ms) / 1000, UTC)
        return json.dumps({"time": fix.isoformat().replace("+00:00", "Z"), **self.fields}).encode() + b"\n"

    def close(self) -> None:
        self.closed = True


def gps(receiver: Receiver, undecided: Callable[[], bool] = lambda: True) -> GpsTime:
    return GpsTime(lambda host, port: receiver, [("gps", 2947)], ManualTime(receiver.boot_ns), undecided)


def test_the_quickest_of_ten_reports_counts() -> None:
    receiver = Receiver()
    offers = ManualTime(receiver.boot_ns)
    source = GpsTime(lambda host, port: receiver, [("gps", 2947)], offers, lambda: True)
    with taking(offers) as taker:
        assert source.offer()
        assert taker.taken == [(BOOTED_MS - 120, UNCERTAIN_MS)]
    assert receiver.closed


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": 1},
        {"mode": 0},
        {"time": None},
        {"time": "yesterday"},
        # 1,024 weeks ago.
        {"time": "2007-03-18T10:00:00.000Z"},
    ],
)
def test_without_a_fix_of_today_there_is_no_time(fields: dict[str, Any]) -> None:
    receiver = Receiver(**fields)
    assert not gps(receiver).offer()
    assert receiver.closed


def test_reports_that_do_not_agree_count_for_nothing() -> None:
    assert not gps(Receiver(late_ms=(100, 5_000))).offer()


def test_a_receiver_that_is_not_there_or_goes() -> None:
    def nothing(host: str, port: int) -> Receiver:
        raise ReadError("nothing answers")

    assert not GpsTime(nothing, [("gps", 2947)], ManualTime(lambda: 0), lambda: True).offer()
    receiver = Receiver()
    receiver.ends_after = 5
    assert not gps(receiver).offer()


def test_a_refusal_ends_nothing() -> None:
    receiver = Receiver()
    offers = ManualTime(receiver.boot_ns)
    with taking(offers, "the clock is set already"):
        assert not GpsTime(lambda host, port: receiver, [("gps", 2947)], offers, lambda: True).offer()


def test_it_is_asked_once_a_time_server_had_its_time_and_until_the_time_is_decided() -> None:
    receiver = Receiver()
    offers = ManualTime(receiver.boot_ns)
    with taking(offers) as taker:
        source = GpsTime(lambda host, port: receiver, [("gps", 2947)], offers, lambda: not taker.taken)
        source.start()
        eventually(lambda: taker.taken, until=bool)
        source.stop()
    early = Receiver(boot_ms=FIRST_NTP_MS - 60_000)
    waiting = gps(early)
    waiting.start()
    waiting.stop()
    assert not early.watched
    decided = Receiver()
    gps(decided, lambda: False).start()
    assert not decided.watched


@pytest.fixture
def gpsd() -> Iterator[RealGpsd]:
    satellites = Satellites()
    gpsd = RealGpsd(satellites)
    gpsd.start()
    yield gpsd
    gpsd.stop()
    satellites.close()


@real_gpsd
def test_a_real_gpsds_time_is_right_to_a_second(gpsd: RealGpsd) -> None:
    offers = ManualTime(since_boot_ns)
    source = GpsTime(SocketLines.connect, [("127.0.0.1", gpsd.port)], offers, lambda: True)
    with taking(offers) as taker:
        eventually(source.offer, until=bool)
        ((offset_ms, uncertain_ms),) = taker.taken
    # The receiver of the test sends whole seconds, five times in each.
    assert -uncertain_ms <= offset_ms - (time.time_ns() - since_boot_ns()) / 1e6 <= 100


def test_the_receivers_are_the_sensors(tmp_path: Path) -> None:
    sensors = (baro(), sensor("gps", "gpsd", port=2948), sensor("other", "gpsd", host="10.0.0.7"))
    config = load(write_config(tmp_path, config_text(*sensors, gateway=PLACE)))
    assert receivers_of(config) == (("127.0.0.1", 2948), ("10.0.0.7", 2947))
