"""Where the mast has stood: first sight, moves, corrections, clocks that are not set, bad files."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cloud.wire.site_records import SiteRecord, parse_site
from gateway.calibration.history import SiteHistory
from gateway.config import Config
from gateway.config.model import SiteConfig
from gateway.ports import Record
from tests.support.clocks import SteppingClock
from tests.support.disks import full_disk
from tests.support.forwarding import snapshot

SECOND_NS = 1_000_000_000
T0_NS = 1_795_246_500 * SECOND_NS
DAY_S = 86_400
MIDNIGHT_S = T0_NS // SECOND_NS // DAY_S * DAY_S
RIDGE = SiteConfig("Ridge", "WindCo", 27.7, 85.5, 2100.0, "+05:45")
LAKE = replace(RIDGE, name="Lake", latitude=27.6, utc_offset="-03:30")


class Daemon:
    """One run after the other on one file; time passes only where a test moves it."""

    def __init__(self, directory: Path, *, synced: bool = True) -> None:
        self.path = directory / "outbox.db.sites"
        self.clock = SteppingClock(T0_NS, T0_NS + 10**9 * SECOND_NS, synced=synced)
        self.site = SiteConfig()
        self.sent: list[Record] = []
        self.wall_s = 0.0
        self.restart()

    def restart(self) -> None:
        self.history = SiteHistory(self.path, self.clock, self._config, self.sent.append, lambda: self.wall_s)

    def _config(self) -> Config:
        return cast("Config", SimpleNamespace(gateway=SimpleNamespace(id="mast-07"), site=self.site))

    def start(self, site: SiteConfig) -> list[SiteRecord]:
        self.site = site
        self.restart()
        self.history.begin()
        return self.published()

    def reload(self, site: SiteConfig) -> list[SiteRecord]:
        self.site = site
        return self.tick()

    def tick(self) -> list[SiteRecord]:
        self.history.tick(snapshot())
        return self.published()

    def published(self) -> list[SiteRecord]:
        sent, self.sent[:] = list(self.sent), []
        records = [parse_site(record.value) for record in sent]
        assert [(each.topic, each.key) for each in sent] == [("gateway.sites", each.key) for each in records]
        return records

    def after(self, seconds: float) -> None:
        self.clock.time_ns += round(seconds * SECOND_NS)


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path)


def short(records: list[SiteRecord]) -> list[tuple[str | None, int]]:
    """Name, and beginning in seconds since the first moment."""
    return [(each.name, (each.valid_from_us - T0_NS // 1000) // 1_000_000) for each in records]


def test_a_site_begins_when_the_daemon_first_has_it(daemon: Daemon) -> None:
    expected = SiteRecord(
        "mast-07", T0_NS // 1000, 1, 27.7, 85.5, 2100.0, utc_offset_min=345, name="Ridge", owner="WindCo"
    )  # fmt: skip
    assert daemon.start(RIDGE) == [expected]
    daemon.after(3600)
    assert daemon.tick() == []
    # The next start has the history, and writes nothing.
    written = daemon.path.stat().st_mtime_ns
    assert daemon.start(RIDGE) == [expected]
    assert daemon.path.stat().st_mtime_ns == written


def test_another_site_begins_at_the_reload_and_the_old_one_stays_what_it_was(daemon: Daemon) -> None:
    daemon.start(RIDGE)
    daemon.after(60)
    (moved,) = daemon.reload(LAKE)
    assert (moved.utc_offset_min, short([moved])) == (-210, [("Lake", 60)])
    daemon.after(60)
    assert short(daemon.reload(RIDGE)) == [("Ridge", 120)]
    assert short(daemon.start(RIDGE)) == [("Ridge", 0), ("Lake", 60), ("Ridge", 120)]


def test_a_site_that_is_no_longer_configured_stays(daemon: Daemon) -> None:
    daemon.start(RIDGE)
    assert daemon.reload(SiteConfig()) == []
    assert short(daemon.start(SiteConfig())) == [("Ridge", 0)]


def test_a_day_in_the_past_corrects_what_was_stated_of_later_times(daemon: Daemon) -> None:
    daemon.start(replace(RIDGE, latitude=28.7))
    yesterday = date.fromordinal(date(1970, 1, 1).toordinal() + MIDNIGHT_S // DAY_S - 1)
    first, corrected = daemon.reload(replace(RIDGE, valid_from=yesterday))
    assert first.valid_from_us == (MIDNIGHT_S - DAY_S) * 1_000_000
    assert (corrected.valid_from_us, corrected.revision) == (T0_NS // 1000, 2)
    assert first.latitude == corrected.latitude == 27.7
    # The same day again is a correction of it.
    changed = daemon.reload(replace(RIDGE, valid_from=yesterday, owner="SunCo"))
    assert [(each.owner, each.revision) for each in changed] == [("SunCo", 2), ("SunCo", 3)]
    assert daemon.start(replace(RIDGE, valid_from=yesterday, owner="SunCo")) == changed


def test_without_a_clock_a_site_waits_and_begins_when_it_was_first_there(daemon: Daemon) -> None:
    daemon.clock.synced = False
    assert daemon.start(RIDGE) == []
    daemon.after(600)
    assert daemon.tick() == []
    daemon.clock.set_by(1000 * SECOND_NS)
    daemon.clock.synced = True
    assert short(daemon.tick()) == [("Ridge", 1000)]


def test_a_day_of_its_own_waits_for_the_clock_too_so_that_it_counts_where_the_history_was_lost(
    daemon: Daemon,
) -> None:
    site = replace(RIDGE, valid_from=date(2026, 3, 20))
    daemon.wall_s = T0_NS / SECOND_NS
    (published,) = daemon.start(site)
    assert published.key == b"mast-07/2026-03-20T00:00:00.000Z"
    daemon.path.unlink()
    daemon.clock.synced, daemon.wall_s = False, 0.0
    assert daemon.start(replace(site, name="Hill")) == daemon.tick() == []
    daemon.clock.synced, daemon.wall_s = True, T0_NS / SECOND_NS + 60
    (corrected,) = daemon.tick()
    assert (corrected.key, corrected.name) == (published.key, "Hill")
    assert corrected.revision > published.revision


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'[{"v":1}]', b"\xff"])
def test_a_file_that_is_none_begins_a_new_history(daemon: Daemon, content: bytes) -> None:
    daemon.path.write_bytes(content)
    assert short(daemon.start(RIDGE)) == [("Ridge", 0)]
    assert short(daemon.start(RIDGE)) == [("Ridge", 0)]


def test_a_full_disk_keeps_no_record_back(daemon: Daemon) -> None:
    with full_disk():
        assert short(daemon.start(RIDGE)) == [("Ridge", 0)]


def test_fields_of_a_later_version_stay(daemon: Daemon) -> None:
    (record,) = daemon.start(RIDGE)
    text = daemon.path.read_text().replace('"v":1', '"v":1,"later":5')
    daemon.path.write_text(text)
    assert daemon.start(RIDGE) == [replace(record, extra={"later": 5})]
