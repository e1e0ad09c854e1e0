"""The tables: columns as in the contract, and how each is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import types as T

_STRING: Final = T.StringType()
_HEADERS: Final = T.ArrayType(
    T.StructType([T.StructField("key", _STRING), T.StructField("value", T.BinaryType())])
)
"""Kafka headers as they are: names may repeat, values are any bytes."""

_TYPES: Final[dict[str, T.DataType]] = {
    "string": _STRING,
    "time": T.TimestampType(),
    "date": T.DateType(),
    "long": T.LongType(),
    "int": T.IntegerType(),
    "double": T.DoubleType(),
    "bool": T.BooleanType(),
    "binary": T.BinaryType(),
    "headers": _HEADERS,
    "strings": T.ArrayType(_STRING),
    "longs": T.ArrayType(T.LongType()),
    "string map": T.MapType(_STRING, _STRING),
    "long map": T.MapType(_STRING, T.LongType()),
    "double map": T.MapType(_STRING, T.DoubleType()),
}


def columns(text: str, **structs: str) -> T.StructType:
    """Columns written as ``name name: type, name: type``; ``structs`` adds types: arrays of structs."""
    types = _TYPES | {name: T.ArrayType(columns(inner)) for name, inner in structs.items()}
    fields = []
    for part in text.split(", "):
        names, _, kind = part.partition(": ")
        fields += [T.StructField(name, types[kind]) for name in names.split()]
    return T.StructType(fields)


@dataclass(frozen=True)
class Table:
    """A Delta table: its name under the lake, columns, storage, and the key its rows are merged by.

    ``bounds`` are the columns whose lowest and highest value the log has for each file; () is Delta's choice,
    the first 32.

    ``dated_later``: rows get their date once they are done, and lie together until then: what changes often
    apart from what doesn't any more.
    """

    name: str
    schema: T.StructType
    key: tuple[str, ...] = ()
    partitioned_by_date: bool = False
    change_feed: bool = False
    bounds: tuple[str, ...] = ()
    dated_later: bool = False

    def without(self, *names: str) -> T.StructType:
        """The columns but for these."""
        return T.StructType([field for field in self.schema if field.name not in names])

    @property
    def values(self) -> tuple[str, ...]:
        """The columns beside the key, the partition and the row's own bookkeeping."""
        apart = {*self.key, "date", "version", "updated_at"}
        return tuple(name for name in self.schema.names if name not in apart)


_KAFKA: Final = "kafka_topic: string, kafka_partition: int, kafka_offset: long, kafka_time ingested_at: time"

READINGS: Final = Table(
    "readings",
    columns(
        "gateway channel run: string, seq: long, quantity unit: string, time: time, period_ms: int, "
        "value raw: double, raw_unit: string, quality: int, reasons: strings, clock cal: string, "
        "latitude longitude altitude_m: double, replayed: bool, extra: string, "
        f"{_KAFKA}, date: date"
    ),
    key=("gateway", "channel", "run", "seq"),
    partitioned_by_date=True,
    change_feed=True,
    # What readers filter by. Of all columns they were a quarter of the CPU of a write (measured).
    bounds=("gateway", "channel", "seq", "time", "kafka_time"),
)
QUARANTINE: Final = Table(
    "quarantine",
    columns(
        "reason: string, payload: binary, payload_bytes: long, key: string, headers: headers, "
        "source: string, "
        f"{_KAFKA}, gateway: string, overflow overflow_from: long"
    ),
)
"""What could not be parsed, or isn't of whom it names.

``gateway`` is the key's; '' where it names none, or one that must prove itself and the record doesn't.

A row with ``overflow`` (reason OVERFLOW) stands for so many records that were counted and not stored: those
of its gateway, hour of Kafka time, topic and partition from offset ``overflow_from`` to ``kafka_offset``.
"""

MESSAGES: Final = Table(
    "messages",
    columns(
        "gateway channel run: string, seq: long, mqtt_topic: string, received_at: time, payload: binary, "
        f"payload_bytes: long, headers: headers, replayed: bool, {_KAFKA}, date: date"
    ),
    partitioned_by_date=True,
)
"""Other devices' payloads as they are; identity and receipt from the headers. ``date`` is Kafka's."""

CHANNELS: Final = Table(
    "channels",
    columns(
        "gateway channel cal: string, valid_from valid_to: time, periods: periods, in_force: bool, "
        "revision: long, sensor quantity unit raw_unit driver: string, interval_s slope offset: double, "
        "settings: string map, range_min range_max accuracy accuracy_percent: double, "
        "model serial certificate lab: string, calibrated expires: date, height_m boom_deg: double, "
        "pair: string, reported: string map, extra: string, updated_at: time, kind: string",
        periods="begin end: time",
    ),
    key=("gateway", "channel", "cal"),
    change_feed=True,
)
"""Calibration records (``cloud.wire.channel_records``); values of ``settings`` and ``reported`` are JSON."""

SITES: Final = Table(
    "sites",
    columns(
        "gateway: string, valid_from: time, latitude longitude elevation_m: double, utc_offset_min: int, "
        "name owner: string, revision: long, extra: string, updated_at: time"
    ),
    key=("gateway", "valid_from"),
    change_feed=True,
)
"""Where each gateway stands from ``valid_from`` on, until its next one (``cloud.wire.site_records``)."""

RUNS: Final = Table(
    "runs",
    columns(
        "gateway run previous_run boot state: string, started ended: time, last_seq: long map, "
        "in_flight outbox_records: long, dropped: drops, dropped_records: long map, drops_unknown: bool, "
        "unfinished: ends, revision: long, reported_at updated_at: time, date: date",
        drops="reason gateway run channel: string, first last: long",
        ends="run end: string, lost_at_most_s: double",
    ),
    key=("gateway", "run"),
    partitioned_by_date=True,
    dated_later=True,
    change_feed=True,
)
"""The run ledger. ``reported_at`` is Kafka's time of the record the row is of. ``ended`` is that of the last
record of a run that ended; it is null while the run goes on, as is its ``date``."""

STATUS: Final = Table(
    "_status",
    columns(
        "gateway run state: string, time: time, fieldgate clock uplink: string, revision: long, "
        "extra: string, reported_at: time, reported_offset: long, updated_at: time"
    ),
    key=("gateway", "run"),
    change_feed=True,
)
"""The last status of each run of a gateway, last wills included, with its place in Kafka's order.

Internal: ``presence`` is made of it.
"""

SEEN: Final = Table(
    "_seen", columns("gateway channel run: string, first_seq last_seq readings_version: long")
)
"""Ranges of ``seq`` that ``readings`` holds, up to its version ``readings_version``; rows may overlap.

Internal: derived from ``readings``, some seconds behind it, and rebuilt from it when lost.
"""

STATISTICS: Final = Table(
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

PROGRESS: Final = Table(
    "_progress",
    columns(
        "gateway channel: string, newest_us: long, is_open: bool, first_us last_us: long, period_ms: int, "
        "unit: string, is_live: bool, until_us records_version pass: long"
    ),
)
"""How far ``statistics`` of one interval length has come with each channel (``transforms.statistics_state``).

Internal; one a length, ``_progress_600s``. Made of ``statistics`` where it is lost.
"""

OWED: Final = Table(
    "_owed", columns("gateway channel: string, period_ms: int, unit: string, first_us end_us: long")
)
"""Missing intervals that ``statistics`` has yet to write (``transforms.missing.stretches``); one a length."""

MAST: Final = Table(
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
"""Values of several channels together. Maps are by channel; ``inputs`` names the channels used by purpose."""

PRESENCE: Final = Table(
    "presence",
    columns(
        "gateway channel: string, last_seen last_time: time, last_value: double, state: string, "
        "pending lost announced: long, period_ms: int, updated_at: time"
    ),
    key=("gateway", "channel"),
    change_feed=True,
)
"""``last_value`` and ``period_ms`` are of the reading at ``last_time``."""

SET_ASIDE: Final = Table(
    "_set_aside", columns("gateway channel run: string, first_seq last_seq: long, ingested_at: time")
)
"""Ranges of ``seq`` that records in ``quarantine`` claim, up to what came into it at ``ingested_at``.

Internal: ``quarantine`` keeps its rows for a month, a reading that went there is accounted for longer.
"""

SCHEMAS: Final = Table("_schemas", columns("id: long, schema: string"))
"""Schemas of readings in Avro, as the registry has them. Internal; a second copy of one changes nothing."""

ANOMALIES: Final = Table(
    "anomalies",
    columns(
        "gateway: string, interval_s: int, interval_start: time, score threshold: double, "
        "model_version: string, channels: shares, rules missing: strings, version: int, updated_at: time, "
        "date: date",
        shares="channel: string, share: double",
    ),
    key=("gateway", "interval_s", "interval_start"),
    partitioned_by_date=True,
    change_feed=True,
)
"""``channels``: the most deviating first, with their share of the score; ``rules``: the baseline's, as
``RULE:CHANNEL``; ``missing``: what the model has and the interval has not. ``score`` and what goes with it
is null without a model, ``score`` alone where nothing could be judged."""

ALERTS: Final = Table(
    "alerts",
    columns(
        "id rule rule_version kind severity gateway channel: string, raised_at cleared_at: time, "
        "value: double, detail: string, historical: bool, command_id: string, updated_at: time"
    ),
    key=("id",),
    change_feed=True,
)
"""``raised_at`` and ``cleared_at`` are event times: the first violation, and the reading that ended it.

``channel`` is null where the whole gateway is meant; ``value`` and ``detail`` are those of the raise.
"""

RECALIBRATIONS: Final = Table(
    "recalibrations",
    columns(
        "done_at: time, gateway channel: string, begin end: time, original_cal cal: string, "
        "slope offset: double, serial certificate lab: string, calibrated expires: date, rows: long, "
        "mean_change: double"
    ),
)
"""What ``jobs recalibrate`` did, a row each time it changed something; ``end`` isn't included."""

IMPORTS: Final = Table(
    "imports",
    columns(
        "gateway channel into: string, interval_s period_ms: int, begin end: time, rows: long, "
        "cal file file_sha256 mapping_sha256: string, imported_at: time"
    ),
    key=("gateway", "channel", "into", "begin", "file_sha256"),
)
"""Which rows of ``statistics`` and ``readings`` come from other loggers' files (``cloud.importing``): of each
channel the stretches of time without a gap. No job of ours writes it."""
