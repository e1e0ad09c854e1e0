"""The lake's tables that both the jobs and ``fieldgate import`` write: columns, keys, how they are stored.

Types are words, which each writer translates: to Spark's in ``spark_jobs.platform.schemas``, to Arrow's in
``cloud.importing.tables``. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


def columns(text: str) -> dict[str, str]:
    """Returns the word of each column's type; ``text`` is ``name name: type, name: type``."""
    found: dict[str, str] = {}
    for part in text.split(", "):
        names, _, kind = part.partition(": ")
        found |= dict.fromkeys(names.split(), kind)
    return found


@dataclass(frozen=True)
class LakeTable:
    """A Delta table: its name under the lake, columns, storage, and the key its rows are merged by.

    ``structs`` are types of this table alone: lists of rows with these columns. ``bounds`` are the columns
    whose lowest and highest value the log has for each file; () is Delta's choice, the first 32.
    """

    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...] = ()
    partitioned_by_date: bool = False
    change_feed: bool = False
    bounds: tuple[str, ...] = ()
    structs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


PUBLISHED: Final = ("statistics", "mast", "presence", "events", "alerts")
"""Tables whose closed rows are also in Kafka, each in a compacted topic (``lake_topic``)."""


def lake_topic(table: str) -> str:
    """Returns the topic that the job ``publish`` writes a table's rows to, without a fleet's prefix."""
    return f"lake.{table}"


KAFKA: Final = "kafka_topic: string, kafka_partition: int, kafka_offset: long, kafka_time ingested_at: time"
"""The columns of a table whose rows come from Kafka's records."""

READINGS: Final = LakeTable(
    "readings",
    columns(
        "gateway channel run: string, seq: long, quantity unit: string, time: time, period_ms: int, "
        "value raw: double, raw_unit: string, quality: int, reasons: strings, clock cal: string, "
        "latitude longitude altitude_m: double, replayed: bool, extra: string, "
        f"{KAFKA}, date: date"
    ),
    key=("gateway", "channel", "run", "seq"),
    partitioned_by_date=True,
    change_feed=True,
    # What readers filter by. Of all columns they were a quarter of the CPU of a write (measured).
    bounds=("gateway", "channel", "seq", "time", "kafka_time"),
)
QUARANTINE: Final = LakeTable(
    "quarantine",
    columns(
        "reason: string, payload: binary, payload_bytes: long, key: string, headers: headers, "
        f"source: string, {KAFKA}, gateway: string, overflow overflow_from: long"
    ),
    structs={"headers": columns("key: string, value: binary")},
)
"""What could not be parsed, or isn't of whom it names.

``gateway`` is the key's; '' where it names none, or one that must prove itself and the record doesn't.

A row with ``overflow`` (reason OVERFLOW) stands for so many records that were counted and not stored: those
of its gateway, hour of Kafka time, topic and partition from offset ``overflow_from`` to ``kafka_offset``.
"""

CHANNELS: Final = LakeTable(
    "channels",
    columns(
        "gateway channel cal: string, valid_from valid_to: time, periods: periods, in_force: bool, "
        "revision: long, sensor quantity unit raw_unit driver: string, interval_s slope offset: double, "
        "settings: string map, range_min range_max accuracy accuracy_percent: double, "
        "model serial certificate lab: string, calibrated expires: date, height_m boom_deg: double, "
        "pair: string, reported: string map, extra: string, updated_at: time, kind: string"
    ),
    key=("gateway", "channel", "cal"),
    change_feed=True,
    structs={"periods": columns("begin end: time")},
)
"""Calibration records (``cloud.wire.channel_records``); values of ``settings`` and ``reported`` are JSON."""

SITES: Final = LakeTable(
    "sites",
    columns(
        "gateway: string, valid_from: time, latitude longitude elevation_m: double, utc_offset_min: int, "
        "name owner: string, revision: long, extra: string, updated_at: time"
    ),
    key=("gateway", "valid_from"),
    change_feed=True,
)
"""Where each gateway stands from ``valid_from`` on, until its next one (``cloud.wire.site_records``)."""

STATISTICS: Final = LakeTable(
    "statistics",
    columns(
        "gateway channel: string, interval_s: int, interval_start: time, quantity unit: string, "
        "avg min max sd gust: double, max_time gust_time: time, cube_mean: double, count: long, "
        "expected recovery: double, period_ms: int, n_good n_not_evaluated n_suspect n_fail n_missing: long, "
        "quality version: int, updated_at: time, date: date, sum rate: double, changes: long"
    ),
    key=("gateway", "channel", "interval_s", "interval_start"),
    partitioned_by_date=True,
    change_feed=True,
)
"""``period_ms`` is the period in force at the interval's end: what is missing after it is counted from it."""

MAST: Final = LakeTable(
    "mast",
    columns(
        "gateway: string, interval_s: int, interval_start: time, "
        "turbulence_intensity wind_power_density pair_difference: double map, "
        "shear_alpha air_density insolation: double, inputs: string map, version: int, updated_at: time, "
        "date: date, veer: double, insolation_by_channel: double map"
    ),
    key=("gateway", "interval_s", "interval_start"),
    partitioned_by_date=True,
    change_feed=True,
)
"""Values of several channels together. Maps are by channel; ``inputs`` names the channels used by purpose.

The job writes it; an import only deletes rows.
"""

IMPORTS: Final = LakeTable(
    "imports",
    columns(
        "gateway channel into: string, interval_s period_ms: int, begin end: time, rows: long, "
        "cal file file_sha256 mapping_sha256: string, imported_at: time"
    ),
    key=("gateway", "channel", "into", "begin", "file_sha256"),
)
"""Which rows of ``statistics`` and ``readings`` come from other loggers' files (``cloud.importing``): of each
channel the stretches of time without a gap. No job of ours writes it."""
