"""Keeps where the mast has stood beside the outbox, and publishes it in ``gateway.sites``.

What ``[site]`` has holds from its ``valid_from`` on, without one from when the daemon first had it: records
of later times get it too, so that the newest beginning at or before a time has what the config has last
stated of that time. The file is written only when something changes, before that is published; a start
publishes all of it. What changes waits for a set clock: without it a revision may be less than one that was
published before the file was lost. Owned by the main thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, Final

import msgspec

from cloud.wire.site_records import SITES_TOPIC, SiteRecord, encode_site, parse_site
from gateway.config import Config
from gateway.config.model import SiteConfig
from gateway.ports import Clock, Record, Snapshot
from gateway.system.atomic_file import read_state, write_state

_EPOCH: Final = date(1970, 1, 1).toordinal()
_DAY_US: Final = 86_400_000_000


class SiteHistory:
    """Holds the records of this gateway. ``config`` gives the one in force, ``announce`` publishes a record.

    A file that can't be read or written costs no more than that the same site begins once more, later.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        config: Callable[[], Config],
        announce: Callable[[Record], None],
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._clock = clock
        self._config = config
        self._announce = announce
        self._wall_s = wall_s
        self._records: dict[int, SiteRecord] = read_state(path, _records, {})
        self._site = SiteConfig()
        self._pending = False
        self._since_boot_ns = 0

    def begin(self) -> None:
        """Applies the configuration at a start, and publishes the whole history."""
        self._apply()
        for record in self._records.values():
            self._announce(_kafka_record(record))

    def tick(self, snapshot: Snapshot) -> None:
        """Publishes what has changed."""
        for record in self._apply():
            self._announce(_kafka_record(record))

    def _apply(self) -> list[SiteRecord]:
        """Puts the configured site in force; returns the new or changed records, which are stored."""
        config = self._config()
        if config.site != self._site:
            self._site, self._pending = config.site, True
            self._since_boot_ns = self._clock.now_ns() - self._clock.offset_ns()
        if not self._pending or self._site.position is None or not self._clock.synced:
            return []
        wanted = _record(config.gateway.id, self._site, self._site.position)
        newest = self._records[max(self._records)] if self._records else None
        if self._site.valid_from is not None:
            since_us = (self._site.valid_from.toordinal() - _EPOCH) * _DAY_US
        elif newest is not None and _is_same(newest, wanted):
            self._pending = False
            return []
        else:
            since_us = (self._since_boot_ns + self._clock.offset_ns()) // 1_000_000 * 1000
        self._pending = False
        changed = []
        for time_us in sorted({since_us, *(each for each in self._records if each > since_us)}):
            known = self._records.get(time_us)
            if known is None or not _is_same(known, wanted):
                # Grows also where the history was lost: the newest publication counts.
                revision = max(1 if known is None else known.revision + 1, int(self._wall_s()))
                changed.append(replace(wanted, valid_from_us=time_us, revision=revision))
        if changed:
            self._records |= {record.valid_from_us: record for record in changed}
            write_state(self._path, [msgspec.Raw(encode_site(each)) for each in self._records.values()])
        return changed


def _record(gateway: str, site: SiteConfig, position: tuple[float, float]) -> SiteRecord:
    """Returns the site's record, not published yet and since an unknown time."""
    offset_min = None
    if site.utc_offset is not None:
        hours, minutes = site.utc_offset[1:].split(":")
        offset_min = (-1 if site.utc_offset[0] == "-" else 1) * (60 * int(hours) + int(minutes))
    return SiteRecord(gateway, 0, 0, *position, site.elevation_m, offset_min, site.name, site.owner)


def _is_same(known: SiteRecord, wanted: SiteRecord) -> bool:
    placed = replace(wanted, valid_from_us=known.valid_from_us, revision=known.revision, extra=known.extra)
    return placed == known


def _records(stored: list[Any]) -> dict[int, SiteRecord]:
    records = (parse_site(msgspec.json.encode(each)) for each in stored)
    return {record.valid_from_us: record for record in records}


def _kafka_record(record: SiteRecord) -> Record:
    return Record(SITES_TOPIC, record.key, encode_site(record), ())
