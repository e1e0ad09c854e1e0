"""The calibrations of each channel and the sites of the mast over time: kept beside the outbox, published.

Calibrations go to ``gateway.channels``, sites to ``gateway.sites``. A file is written only when something
changes, before that is published; a start publishes all of it, so that a topic that was lost is complete
again. A file that can't be read is set aside, one that can't be written is tried again: sampling continues.
Owned by the main thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

from cloud.wire.channel_records import (
    CHANNELS_TOPIC,
    MAX_LABEL,
    MAX_SETTINGS,
    ChannelRecord,
    Period,
    Setting,
    channel_key,
    encode_channel,
    parse_channel,
)
from cloud.wire.reading_records import VERSION
from cloud.wire.site_records import SITES_TOPIC, SiteRecord, encode_site, parse_site
from gateway.calibration.record import configured
from gateway.config import Config
from gateway.config.model import SiteConfig
from gateway.ports import Clock, Record, Snapshot
from gateway.system.atomic_file import write_state

log = logging.getLogger(__name__)

MAX_PERIODS: Final = 100
"""The first and the newest are published where there are more."""
_SAVE_AGAIN_S: Final = 10.0
_LONGEST_UP_MS: Final = 100 * 366 * 86_400_000
_EPOCH: Final = date(1970, 1, 1).toordinal()
_DAY_US: Final = 86_400_000_000

_R = TypeVar("_R", ChannelRecord, SiteRecord)


class UnreadableHistory(Exception):
    """The file is there and can't be read; the message has the cause."""


class _Undated(msgspec.Struct, frozen=True, array_like=True):
    """An end of a record's last period so far that waits for the clock: since boot, in ms."""

    gateway: str
    channel: str
    cal: str
    period: Annotated[int, msgspec.Meta(ge=0)]
    is_end: bool
    boot: str
    mono_ms: Annotated[int, msgspec.Meta(ge=0, le=_LONGEST_UP_MS)]

    @property
    def key(self) -> bytes:
        """The record's."""
        return channel_key(self.gateway, self.channel, self.cal)


class _Stored(msgspec.Struct):
    """The file."""

    v: int
    records: list[msgspec.Raw]
    undated: list[_Undated] = []


def kafka_record(record: ChannelRecord | SiteRecord) -> Record:
    """A record as it goes to Kafka."""
    if isinstance(record, SiteRecord):
        return Record(SITES_TOPIC, _key(record), encode_site(record), ())
    return Record(CHANNELS_TOPIC, _key(record), encode_channel(record), ())


def _key(record: ChannelRecord | SiteRecord) -> bytes:
    """The record's key in Kafka, which is its identity."""
    if isinstance(record, SiteRecord):
        return record.key
    return channel_key(record.gateway, record.channel, record.cal)


class _History(Generic[_R]):
    """Records by their identity, in the order of their last change, and which have changed since published.

    ``announce`` publishes one.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        announce: Callable[[Record], None],
        parse: Callable[[bytes], _R],
        wall_s: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._path = path
        self._clock = clock
        self._announce = announce
        self._wall_s = wall_s
        self._monotonic = monotonic
        found, self._undated = self._opened(parse)
        self._records: dict[bytes, _R] = {_key(record): record for record in found}
        self._changed: dict[bytes, None] = {}
        self._unsaved = False
        self._save_at_s = float("-inf")

    @property
    def records(self) -> tuple[_R, ...]:
        """All records, in the order of their last change."""
        return tuple(self._records.values())

    def publish(self) -> None:
        """Save what has changed, then publish it."""
        changed = [self._records[key] for key in self._changed if key in self._records]
        if self._unsaved:
            self._save()
        self._changed.clear()
        for record in changed:
            self._announce(kafka_record(record))

    def _publish_all(self) -> None:
        self._changed = dict.fromkeys((*self._changed, *self._records))
        self.publish()

    def _publish_due(self) -> None:
        """Publish what has changed; save what the disk refused before."""
        if self._changed or (self._unsaved and self._monotonic() >= self._save_at_s):
            self.publish()

    def _put(self, record: _R) -> None:
        key = _key(record)
        known = self._records.pop(key, None)
        # Grows also where the history was lost: the newest publication counts.
        revision = max(1 if known is None else known.revision + 1, int(self._wall_s()))
        self._records[key] = replace(record, revision=revision)
        self._changed.pop(key, None)
        self._changed[key] = None
        self._unsaved = True
        self._save_at_s = float("-inf")

    def _opened(self, parse: Callable[[bytes], _R]) -> tuple[tuple[_R, ...], list[_Undated]]:
        try:
            return _read(self._path, parse)
        except UnreadableHistory as error:
            aside = self._path.with_name(self._path.name + ".damaged")
            log.warning("event=history.unreadable error=%s kept_as=%s", error, aside)
            try:
                self._path.replace(aside)
            except OSError as refused:
                log.warning("event=history.not_set_aside error=%s", refused)
            return (), []

    def _save(self) -> None:
        records = [msgspec.Raw(kafka_record(record).value) for record in self._records.values()]
        level = logging.DEBUG if self._save_at_s > float("-inf") else logging.ERROR
        self._unsaved = not write_state(self._path, _Stored(VERSION, records, self._undated), level)
        if self._unsaved:
            self._save_at_s = self._monotonic() + _SAVE_AGAIN_S


def _read(path: Path, parse: Callable[[bytes], _R]) -> tuple[tuple[_R, ...], list[_Undated]]:
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=_Stored)
        return tuple(parse(bytes(each)) for each in stored.records), stored.undated
    except FileNotFoundError:
        return (), []
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableHistory(f"{path}: {error}") from error


def history_path(config: Config) -> Path:
    """The file with the calibrations of the gateway with this config."""
    return config.outbox.path.with_name(config.outbox.path.name + ".channels")


def read_history(path: Path) -> tuple[ChannelRecord, ...]:
    """The calibrations in a file, those that ended first before the others; none where there is no file.

    Raises UnreadableHistory.
    """
    records, _ = _read(path, parse_channel)
    return records


def channel_records(config: Config) -> list[ChannelRecord]:
    """The record of each channel of the gateway's own sensors."""
    return [
        record
        for sensor in config.sensors
        for record in configured(config.gateway.id, sensor, sensor.channels)
    ]


class CalibrationHistory(_History[ChannelRecord]):
    """The calibrations of this gateway; ``boot`` is the kernel's id of this boot.

    A record is identified by gateway, channel and ``cal``. It ends where the config no longer has it (another
    calibration, a sensor that is gone) and continues, with one more period, where it comes back.
    """

    def __init__(
        self,
        path: Path,
        boot: str,
        clock: Clock,
        announce: Callable[[Record], None],
        wall_s: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(path, clock, announce, parse_channel, wall_s, monotonic)
        self._boot = boot
        # Those of an earlier boot stay undated: its time is unknown.
        self._undated = [each for each in self._undated if each.boot == boot and each.key in self._records]

    def begin(self, configured: Iterable[ChannelRecord]) -> None:
        """Apply the configuration at a start, and publish the whole history."""
        self.apply(configured)
        self._publish_all()

    def apply(self, configured: Iterable[ChannelRecord]) -> None:
        """Put these in force and end the others; saved and published with the next ``publish``."""
        wanted = {_key(record): record for record in configured}
        for key, record in list(self._records.items()):
            if record.in_force and key not in wanted:
                self._put(replace(self._dated(record, is_end=True), in_force=False))
        for key, record in wanted.items():
            known = self._records.get(key)
            if known is None:
                self._put(self._dated(replace(record, periods=(Period(None),))))
                continue
            # Fields that aren't part of the name are updated.
            latest = replace(
                record,
                revision=known.revision,
                periods=known.periods,
                in_force=known.in_force,
                reported=known.reported,
                extra=known.extra,
            )
            if not known.in_force:
                begun = replace(latest, in_force=True, periods=(*known.periods, Period(None)))
                self._put(self._dated(begun))
            elif latest != known:
                self._put(latest)

    def tick(self, snapshot: Snapshot) -> None:
        """Update what sensors reported of themselves, and date and save what had to wait."""
        for record in self.records:
            reported = snapshot.descriptions.get(record.sensor)
            if reported and record.in_force and (latest := _settings(reported)) != record.reported:
                self._put(replace(record, reported=latest))
                _compare_serials(record, latest)
        if self._undated and self._clock.synced:
            self._date_all()
        self._publish_due()

    def _dated(self, record: ChannelRecord, *, is_end: bool = False) -> ChannelRecord:
        """The record with now as the beginning, or the end, of its last period."""
        periods = list(record.periods)
        if len(periods) > MAX_PERIODS:
            # Those that wait for the clock are counted from the beginning: they keep their places or go.
            self._undated = [each for each in self._undated if each.key != _key(record)]
            del periods[1 : len(periods) - MAX_PERIODS + 1]
        now_us: int | None = None
        if self._clock.synced:
            now_us = self._clock.now_ns() // 1_000_000 * 1000
        else:
            since_boot_ms = (self._clock.now_ns() - self._clock.offset_ns()) // 1_000_000
            place = (record.gateway, record.channel, record.cal, len(periods) - 1)
            self._undated.append(_Undated(*place, is_end, self._boot, max(since_boot_ms, 0)))
        periods[-1] = replace(periods[-1], **{"end_us" if is_end else "begin_us": now_us})
        return replace(record, periods=tuple(periods))

    def _date_all(self) -> None:
        """The clock is set: date what has happened since boot."""
        offset_ms = self._clock.offset_ns() // 1_000_000
        waiting, self._undated = self._undated, []
        for each in waiting:
            record = self._records.get(each.key)
            if record is None or each.period >= len(record.periods):
                continue
            periods = list(record.periods)
            end = "end_us" if each.is_end else "begin_us"
            periods[each.period] = replace(periods[each.period], **{end: (each.mono_ms + offset_ms) * 1000})
            self._put(replace(record, periods=tuple(periods)))


def _settings(description: Mapping[str, Any]) -> Mapping[str, Setting]:
    """A driver's description, bounded for a record: the driver may be a third party's."""
    settings: dict[str, Setting] = {}
    for name, value in list(description.items())[:MAX_SETTINGS]:
        number = isinstance(value, bool | int) or (isinstance(value, float) and value - value == 0)
        text = value if isinstance(value, str) else str(value)
        settings[_printable(str(name))] = value if number else _printable(text)
    return settings


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:MAX_LABEL])


def _compare_serials(record: ChannelRecord, reported: Mapping[str, Setting]) -> None:
    serial = reported.get("serial")
    if record.serial is not None and serial is not None and str(serial) != record.serial:
        log.warning(
            "event=sensor.other_serial sensor=%s configured=%s reported=%s",
            record.sensor, record.serial, serial,
        )  # fmt: skip


class SiteHistory(_History[SiteRecord]):
    """Where the mast has stood. ``config`` gives the one in force.

    What ``[site]`` has holds from its ``valid_from`` on, without one from when the daemon first had it:
    records of later times get it too, so that the newest beginning at or before a time has what the config
    has last stated of that time. What changes waits for a set clock: without it a revision may be less than
    one that was published before the file was lost.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        config: Callable[[], Config],
        announce: Callable[[Record], None],
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(path, clock, announce, parse_site, wall_s, time.monotonic)
        self._config = config
        self._site = SiteConfig()
        self._pending = False
        self._since_boot_ns = 0

    def begin(self) -> None:
        """Apply the configuration at a start, and publish the whole history."""
        self._apply()
        self._publish_all()

    def tick(self, snapshot: Snapshot) -> None:
        """Publish what has changed."""
        self._apply()
        self._publish_due()

    def _apply(self) -> None:
        """Put the configured site in force."""
        config = self._config()
        if config.site != self._site:
            self._site, self._pending = config.site, True
            self._since_boot_ns = self._clock.now_ns() - self._clock.offset_ns()
        if not self._pending or self._site.position is None or not self._clock.synced:
            return
        self._pending = False
        wanted = _site_record(config.gateway.id, self._site, self._site.position)
        by_time = {record.valid_from_us: record for record in self.records}
        newest = by_time[max(by_time)] if by_time else None
        if self._site.valid_from is not None:
            since_us = (self._site.valid_from.toordinal() - _EPOCH) * _DAY_US
        elif newest is not None and _is_same(newest, wanted):
            return
        else:
            since_us = (self._since_boot_ns + self._clock.offset_ns()) // 1_000_000 * 1000
        for time_us in sorted({since_us, *(each for each in by_time if each > since_us)}):
            known = by_time.get(time_us)
            if known is None or not _is_same(known, wanted):
                self._put(replace(wanted, valid_from_us=time_us))


def _site_record(gateway: str, site: SiteConfig, position: tuple[float, float]) -> SiteRecord:
    """The site's record, not published yet and since an unknown time."""
    offset_min = None
    if site.utc_offset is not None:
        hours, minutes = site.utc_offset[1:].split(":")
        offset_min = (-1 if site.utc_offset[0] == "-" else 1) * (60 * int(hours) + int(minutes))
    return SiteRecord(gateway, 0, 0, *position, site.elevation_m, offset_min, site.name, site.owner)


def _is_same(known: SiteRecord, wanted: SiteRecord) -> bool:
    placed = replace(wanted, valid_from_us=known.valid_from_us, revision=known.revision, extra=known.extra)
    return placed == known
