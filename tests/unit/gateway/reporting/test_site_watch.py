"""A mast that was moved: announced once, after minutes of fixes; another site begins anew."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cloud.wire.reading_records import FAIL, GOOD, MISSING, SUSPECT, Reading
from gateway.config import Config
from gateway.config.model import SiteConfig
from gateway.ports import Record
from gateway.reporting.site_watch import SiteWatch
from gateway.sampling.last_readings import LastReadings
from tests.support.disks import full_disk
from tests.support.forwarding import snapshot

SITE = SiteConfig("Ridge", latitude=27.7, longitude=85.5)
DEGREE_M = 111_195.08
"""Of latitude, on the sphere with the mean radius."""


class Mast:
    """``path`` is where the watch keeps its state; None, a watch that can't."""

    def __init__(self, site: SiteConfig = SITE, path: Path = Path("/dev/null/none")) -> None:
        self.site = site
        self.path = path
        self.now_s = 0.0
        self.last = LastReadings("mast-07")
        self.announced: list[dict[str, Any]] = []
        self.restart()

    def restart(self) -> None:
        self.watch = SiteWatch(
            self.path,
            lambda: cast("Config", SimpleNamespace(site=self.site)),
            self.last.located,
            lambda event, **fields: Record("e", b"", json.dumps({"event": event, **fields}).encode(), ()),
            lambda record: self.announced.append(json.loads(record.value)),
        )

    def fixes(
        self, north_m: float | None, seconds: float, every_s: int = 1, quality: int = GOOD
    ) -> list[tuple[str, int]]:
        """What is announced in a time of fixes so far north of 27.7, 85.5; None is no fix."""
        self.announced.clear()
        for _ in range(int(seconds)):
            self.now_s += 1
            if self.now_s % every_s == 0:
                self._read(north_m, quality)
            self.watch.tick(snapshot(self.now_s))
        return [(each["event"], each["distance_m"]) for each in self.announced]

    def _read(self, north_m: float | None, quality: int, sensor: str = "gps") -> None:
        place: dict[str, Any] = (
            {} if north_m is None else {"latitude": 27.7 + north_m / DEGREE_M, "longitude": 85.5}
        )
        reading = Reading(
            gateway="mast-07", channel=f"{sensor}.location", quantity="location", unit="m",
            time_us=int(self.now_s * 1e6),
            period_ms=1000, value=north_m, raw=north_m, raw_unit="m", quality=quality, reasons=(),
            run="r", seq=1, clock="synced", cal="5d1c0a7e", **place,
        )  # fmt: skip
        self.last.note(reading)


def test_a_mast_that_was_moved_is_announced_once_after_five_minutes() -> None:
    mast = Mast()
    assert mast.fixes(499, 1000) == []
    assert mast.fixes(501, 300) == []
    assert mast.watch.moved_m is None
    assert mast.fixes(1200, 2) == [("site-moved", 1200)]
    assert mast.announced[0] == {
        "event": "site-moved", "distance_m": 1200,
        "longitude": 85.5, "latitude": pytest.approx(27.7108, abs=1e-4),
    }  # fmt: skip
    assert mast.fixes(1500, 2000) == []
    assert mast.watch.moved_m == pytest.approx(1500)


def test_it_is_back_clearly_within_the_limit_and_for_as_long() -> None:
    mast = Mast()
    mast.fixes(2000, 400)
    assert mast.fixes(450, 1000) == []
    assert mast.fixes(350, 299) == []
    assert mast.fixes(350, 2) == [("site-back", 350)]
    assert mast.watch.moved_m is None
    assert mast.fixes(450, 1000) == []


def test_single_fixes_far_away_announce_nothing() -> None:
    mast = Mast()
    for _ in range(20):
        assert mast.fixes(9000, 250) == []
        assert mast.fixes(3, 1) == []


def test_few_fixes_of_a_slow_receiver_take_longer() -> None:
    mast = Mast()
    assert mast.fixes(2000, 2999, every_s=600) == []
    assert mast.fixes(2000, 1, every_s=600) == [("site-moved", 2000)]


@pytest.mark.parametrize(("north_m", "quality"), [(None, MISSING), (2000, FAIL)])
def test_what_is_no_fix_says_nothing(north_m: float | None, quality: int) -> None:
    mast = Mast()
    assert mast.fixes(north_m, 1000, quality=quality) == []
    mast.fixes(2000, 200)
    mast.fixes(north_m, 50, quality=quality)
    # Nor does it end what has begun.
    assert mast.fixes(2000, 60) == [("site-moved", 2000)]


def test_a_range_of_the_site_that_flags_far_fixes_hides_nothing() -> None:
    assert Mast().fixes(2000, 400, quality=SUSPECT) == [("site-moved", 2000)]


def test_another_site_begins_anew() -> None:
    mast = Mast()
    mast.fixes(2000, 400)
    mast.site = replace(SITE, latitude=27.7 + 2000 / DEGREE_M)
    assert mast.fixes(2000, 1000) == []
    assert mast.watch.moved_m is None
    mast.site = SiteConfig()
    assert mast.fixes(9000, 1000) == []


def test_another_name_of_the_site_moves_nothing() -> None:
    mast = Mast()
    mast.fixes(2000, 400)
    mast.site = replace(SITE, name="Hill")
    assert mast.fixes(2000, 1000) == []
    assert mast.watch.moved_m == pytest.approx(2000)


def test_a_moved_mast_stays_moved_over_a_restart(tmp_path: Path) -> None:
    mast = Mast(path=tmp_path / "outbox.db.moved")
    mast.fixes(10, 400)
    assert not mast.path.exists()
    mast.fixes(2000, 400)
    mast.restart()
    assert mast.fixes(None, 1) == []
    assert mast.watch.moved_m == pytest.approx(2000)
    assert mast.fixes(2000, 1000) == []
    mast.restart()
    assert mast.fixes(10, 400) == [("site-back", 10)]
    mast.restart()
    mast.fixes(None, 1)
    assert mast.watch.moved_m is None


def test_a_start_with_another_position_forgets_that_it_was_moved(tmp_path: Path) -> None:
    mast = Mast(path=tmp_path / "outbox.db.moved")
    mast.fixes(2000, 400)
    mast.site = replace(SITE, latitude=27.7 + 2000 / DEGREE_M)
    mast.restart()
    assert mast.fixes(2000, 1) == []
    assert mast.watch.moved_m is None
    # Nor does it come back with the old one.
    mast.site = SITE
    mast.restart()
    mast.fixes(None, 1)
    assert mast.watch.moved_m is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"position":[1],"moved_m":2}', b'{"position":5}'])
def test_a_file_that_is_none_announces_once_more(tmp_path: Path, content: bytes) -> None:
    mast = Mast(path=tmp_path / "outbox.db.moved")
    mast.path.write_bytes(content)
    mast.restart()
    assert mast.fixes(2000, 400) == [("site-moved", 2000)]


def test_a_full_disk_keeps_no_announcement_back(tmp_path: Path) -> None:
    mast = Mast(path=tmp_path / "outbox.db.moved")
    with full_disk():
        assert mast.fixes(2000, 400) == [("site-moved", 2000)]


def test_any_receiver_with_a_fix_will_do() -> None:
    mast = Mast()
    mast._read(None, MISSING, "first")
    assert mast.fixes(2000, 400) == [("site-moved", 2000)]
    # One that hangs has had its last fix elsewhere.
    mast = Mast()
    mast._read(10, GOOD, "first")
    assert mast.fixes(2000, 400) == [("site-moved", 2000)]


def test_a_dead_receivers_last_fix_counts_once() -> None:
    mast = Mast()
    mast.fixes(2000, 4)
    assert mast.fixes(2000, 1000, every_s=10**6) == []
