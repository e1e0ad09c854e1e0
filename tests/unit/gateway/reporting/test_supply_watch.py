"""Under-voltage and throttling: announced when they begin and when they are over, counted, not repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.ports import Record
from gateway.reporting.supply_watch import SupplyWatch
from gateway.system.host import throttled_bits
from tests.support.forwarding import snapshot


class Pi:
    def __init__(self) -> None:
        self.bits: int | None = 0
        self.now_s = 1000.0
        self.announced: list[dict[str, Any]] = []
        self.watch = SupplyWatch(
            lambda event, **fields: Record("e", b"", json.dumps({"event": event, **fields}).encode(), ()),
            lambda record: self.announced.append(json.loads(record.value)),
            lambda: self.bits,
        )

    def after(self, seconds: float, bits: int | None) -> list[dict[str, Any]]:
        """What is announced in a time in which the firmware reports these bits."""
        self.bits, self.announced = bits, []
        for _ in range(int(seconds)):
            self.now_s += 1.0
            self.watch.tick(snapshot(self.now_s))
        return self.announced


def test_a_weak_supply_is_one_trouble_until_ten_minutes_without() -> None:
    pi = Pi()
    assert pi.after(60, 0) == []
    assert pi.watch.times == {"under_voltage": 0, "throttled": 0}
    assert pi.after(30, 0x10001) == [{"event": "under-voltage", "times": 1}]
    for _ in range(3):
        assert pi.after(500, 0x10000) == []
        assert pi.after(10, 0x10001) == []
    assert pi.watch.troubles == ["under_voltage"]
    (over,) = pi.after(700, 0x10000)
    assert over.pop("lasted_s") == pytest.approx(30 + 3 * 510, abs=10)
    assert over == {"event": "under-voltage-over"}
    assert pi.watch.troubles == []
    assert pi.after(10, 0x50005) == [
        {"event": "under-voltage", "times": 2}, {"event": "throttled", "times": 1},
    ]  # fmt: skip
    assert pi.watch.times == {"under_voltage": 2, "throttled": 1}


def test_a_dip_that_no_reading_met_is_announced_once() -> None:
    pi = Pi()
    assert pi.after(10, 0x10000) == [{"event": "under-voltage", "times": 1}]
    assert [each["event"] for each in pi.after(2000, 0x10000)] == ["under-voltage-over"]


def test_what_nothing_reports_is_unknown() -> None:
    pi = Pi()
    assert pi.after(60, None) == []
    assert pi.watch.times == {"under_voltage": None, "throttled": None}


def test_the_bits_of_firmware_and_kernel(tmp_path: Path) -> None:
    assert throttled_bits(tmp_path) is None
    monitor = tmp_path / "sys/class/hwmon/hwmon1"
    monitor.mkdir(parents=True)
    (monitor / "name").write_text("rpi_volt\n")
    (monitor / "in0_lcrit_alarm").write_text("1\n")
    assert throttled_bits(tmp_path) == 1
    firmware = tmp_path / "sys/devices/platform/soc/soc:firmware"
    firmware.mkdir(parents=True)
    (firmware / "get_throttled").write_text("50005\n")
    assert throttled_bits(tmp_path) == 0x50005
