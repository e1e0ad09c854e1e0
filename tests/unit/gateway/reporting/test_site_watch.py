"""A mast that was moved: announced once, after minutes of fixes; another site begins anew."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cloud.wire.reading_records import FAIL, GOOD, MISSING, SUSPECT, Reading
from gateway.config import Config, load
from gateway.config.model import SiteConfig
from gateway.ports import Record
from gateway.reporting.site_watch import SiteWatch
from gateway.sampling.last_readings import LastReadings
from tests.support.config import PLACE, config_text, cup, write_config
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
            lambda: cast("Config", SimpleNamespace(gateway=self.site)),
            self.last.located,
            lambda event, **fields: Record("e", b"", json.dumps({"event": event, **fields}).encode(), ()),
            lambda record: self.announced.append(json.loads(record.value)),
        )

    def fixes(
        self, north_m: float | None, seconds: float, every_s: int = 1, quality: int = GOOD
    ) -> list[tuple[str, int | None]]:
        """What is announced in a time of fixes so far north of 27.7, 85.5; None is no fix."""
        self.announced.clear()
        for _ in range(int(seconds)):
            self.now_s += 1
            if self.now_s % every_s == 0:
                self._read(north_m, quality)
            self.watch.tick(snapshot(self.now_s))
        return [(each["event"], each.get("distance_m")) for each in self.announced]

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


MOVED, BACK = ("site-moved", 2000), ("site-back", 350)
FAR = ((2000, 400), [MOVED])
"""Where the fixes are and for how many seconds, and what is announced in that time."""


@pytest.mark.parametrize(
    ("phases", "moved_m"),
    [
        # Once, after five minutes beyond the limit.
        ([((499, 1000), []), ((501, 300), []), ((2000, 2), [MOVED]), ((1500, 2000), [])], 1500),
        # Back clearly within the limit, and for as long.
        ([FAR, ((450, 1000), []), ((350, 299), []), ((350, 2), [BACK]), ((450, 1000), [])], None),
        # Single fixes far away announce nothing.
        ([((9000, 250), []), ((3, 1), [])] * 20, None),
        # A slow receiver's few fixes take longer.
        ([((2000, 2999, 600), []), ((2000, 1, 600), [MOVED])], 2000),
        # A dead receiver's last fix counts once.
        ([((2000, 4), []), ((2000, 1000, 10**6), [])], None),
        # What is no fix begins nothing, nor does it end what has begun.
        *(
            ([((north_m, 1000, 1, quality), []), ((2000, 200), []), ((north_m, 50, 1, quality), []),
              ((2000, 60), [MOVED])], 2000)
            for north_m, quality in ((None, MISSING), (2000, FAIL))
        ),
        # A range of the site that flags far fixes hides nothing.
        ([((2000, 400, 1, SUSPECT), [MOVED])], 2000),
    ],
    ids=[
        "moved", "back", "single fixes", "slow receiver", "dead receiver", "missing", "failed", "suspect",
    ],
)  # fmt: skip
def test_what_is_announced(
    phases: list[tuple[tuple[Any, ...], list[tuple[str, int]]]], moved_m: float | None
) -> None:
    mast = Mast()
    for fixes, announced in phases:
        assert mast.fixes(*fixes) == announced
    assert mast.watch.moved_m == (None if moved_m is None else pytest.approx(moved_m))


def test_the_event_has_the_new_position() -> None:
    mast = Mast()
    mast.fixes(1200, 301)
    assert mast.announced == [
        {
            "event": "site-moved", "distance_m": 1200,
            "longitude": 85.5, "latitude": pytest.approx(27.7108, abs=1e-4),
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("site", "moved_m"),
    [
        (replace(SITE, latitude=27.7 + 2000 / DEGREE_M), None),
        (SiteConfig(), None),
        (replace(SITE, name="Hill"), 2000),
    ],
    ids=["the new position", "none", "another name"],
)
def test_another_position_begins_anew(site: SiteConfig, moved_m: float | None) -> None:
    mast = Mast()
    mast.fixes(2000, 400)
    mast.site = site
    # Whoever waits for its return need not wait any more.
    assert mast.fixes(2000, 1000) == ([("site-back", None)] if moved_m is None else [])
    assert mast.watch.moved_m == (None if moved_m is None else pytest.approx(moved_m))


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
    assert mast.fixes(2000, 1) == [("site-back", None)]
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


@pytest.mark.parametrize("section", ["gateway", "site"])
def test_the_position_may_be_the_sites_or_the_gateways_alone(section: str, tmp_path: Path) -> None:
    config = load(write_config(tmp_path, config_text(cup(), **{section: PLACE})))
    assert config.gateway.position == (27.7, 85.5)
