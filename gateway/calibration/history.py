"""The calibrations of each channel over time: kept beside the outbox, published in ``gateway.channels``.

A record is identified by gateway, channel and ``cal``. It ends where the config no longer has it (another
calibration, a sensor that is gone) and continues, with one more period, where it comes back. The file is
written only when something changes, before that is published; a start publishes all of it, so that a topic
that was lost is complete again. Owned by the main thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

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
from gateway.calibration.record import configured
from gateway.config import Config
from gateway.ports import Clock, Record, Snapshot
from gateway.system.atomic_file import write_state

log = logging.getLogger(__name__)

MAX_PERIODS: Final = 100
"""The first and the newest are published where there are more."""
_SAVE_AGAIN_S: Final = 10.0
_LONGEST_UP_MS: Final = 100 * 366 * 86_400_000

_Key = tuple[str, str, str]


def history_path(config: Config) -> Path:
    """The file of the gateway with this config."""
    return config.outbox.path.with_name(config.outbox.path.name + ".channels")


def channel_records(config: Config) -> list[ChannelRecord]:
    """The record of each channel of the gateway's own sensors."""
    return [
        record
        for sensor in config.sensors
        for record in configured(config.gateway.id, sensor, sensor.channels)
    ]


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
    def key(self) -> _Key:
        """The record's."""
        return self.gateway, self.channel, self.cal


class _Stored(msgspec.Struct):
    """The file."""

    v: int
    records: list[msgspec.Raw]
    undated: list[_Undated]


_State = tuple[tuple[ChannelRecord, ...], list[_Undated]]


def read_history(path: Path) -> tuple[ChannelRecord, ...]:
    """The records in a file, those that ended first before the others; none where there is no file.

    Raises UnreadableHistory.
    """
    records, _ = _read(path)
    return records


def kafka_record(record: ChannelRecord) -> Record:
    """A record as it goes to Kafka."""
    key = channel_key(record.gateway, record.channel, record.cal)
    return Record(CHANNELS_TOPIC, key, encode_channel(record), ())


class CalibrationHistory:
    """The records of this gateway, and which have changed since they were last published.

    ``announce`` publishes one; ``boot`` is the kernel's id of this boot. A file that can't be read is set
    aside, one that can't be written is tried again: sampling continues.
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
        self._path = path
        self._boot = boot
        self._clock = clock
        self._announce = announce
        self._wall_s = wall_s
        self._monotonic = monotonic
        records, undated = self._opened()
        self._records = {_key(record): record for record in records}
        # Those of an earlier boot stay undated: its time is unknown.
        self._undated = [each for each in undated if each.boot == boot and each.key in self._records]
        self._changed: dict[_Key, None] = {}
        self._unsaved = False
        self._save_at_s = float("-inf")

    @property
    def records(self) -> tuple[ChannelRecord, ...]:
        """All records, in the order of their last change."""
        return tuple(self._records.values())

    def begin(self, configured: Iterable[ChannelRecord]) -> None:
        """Apply the configuration at a start, and publish the whole history."""
        self.apply(configured)
        self._changed = dict.fromkeys((*self._changed, *self._records))
        self.publish()

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

    def publish(self) -> None:
        """Save what has changed, then publish it."""
        changed = [self._records[key] for key in self._changed if key in self._records]
        if self._unsaved:
            self._save()
        self._changed.clear()
        for record in changed:
            self._announce(kafka_record(record))

    def tick(self, snapshot: Snapshot) -> None:
        """Update what sensors reported of themselves, and date and save what had to wait."""
        for record in self.records:
            reported = snapshot.descriptions.get(record.sensor)
            if reported and record.in_force and (latest := _settings(reported)) != record.reported:
                self._put(replace(record, reported=latest))
                _compare_serials(record, latest)
        if self._undated and self._clock.synced:
            self._date_all()
        if self._changed or (self._unsaved and self._monotonic() >= self._save_at_s):
            self.publish()

    def _put(self, record: ChannelRecord) -> None:
        key = _key(record)
        known = self._records.pop(key, None)
        # Grows also where the history was lost: the newest publication counts.
        revision = max(1 if known is None else known.revision + 1, int(self._wall_s()))
        self._records[key] = replace(record, revision=revision)
        self._changed.pop(key, None)
        self._changed[key] = None
        self._unsaved = True
        self._save_at_s = float("-inf")

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
            self._undated.append(
                _Undated(*_key(record), len(periods) - 1, is_end, self._boot, max(since_boot_ms, 0))
            )
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

    def _opened(self) -> _State:
        try:
            return _read(self._path)
        except UnreadableHistory as error:
            aside = self._path.with_name(self._path.name + ".damaged")
            log.warning("event=calibrations.unreadable error=%s kept_as=%s", error, aside)
            try:
                self._path.replace(aside)
            except OSError as refused:
                log.warning("event=calibrations.not_set_aside error=%s", refused)
            return (), []

    def _save(self) -> None:
        records = [msgspec.Raw(encode_channel(record)) for record in self._records.values()]
        level = logging.DEBUG if self._save_at_s > float("-inf") else logging.ERROR
        self._unsaved = not write_state(self._path, _Stored(VERSION, records, self._undated), level)
        if self._unsaved:
            self._save_at_s = self._monotonic() + _SAVE_AGAIN_S


def _key(record: ChannelRecord) -> _Key:
    return record.gateway, record.channel, record.cal


def _read(path: Path) -> _State:
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=_Stored)
        return tuple(parse_channel(bytes(each)) for each in stored.records), stored.undated
    except FileNotFoundError:
        return (), []
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableHistory(f"{path}: {error}") from error


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
            record.sensor,
            record.serial,
            serial,
        )
