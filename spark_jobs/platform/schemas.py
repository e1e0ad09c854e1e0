"""The tables: columns as in the contract, and how each is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import types as T

from cloud.wire import lake_tables
from cloud.wire.lake_tables import KAFKA, LakeTable

_STRING: Final = T.StringType()
_TYPES: Final[dict[str, T.DataType]] = {
    "string": _STRING,
    "time": T.TimestampType(),
    "date": T.DateType(),
    "long": T.LongType(),
    "int": T.IntegerType(),
    "double": T.DoubleType(),
    "bool": T.BooleanType(),
    "binary": T.BinaryType(),
    "strings": T.ArrayType(_STRING),
    "longs": T.ArrayType(T.LongType()),
    "string map": T.MapType(_STRING, _STRING),
    "long map": T.MapType(_STRING, T.LongType()),
    "double map": T.MapType(_STRING, T.DoubleType()),
}


def _struct(named: Mapping[str, str], structs: Mapping[str, Mapping[str, str]]) -> T.StructType:
    types = _TYPES | {name: T.ArrayType(_struct(inner, {})) for name, inner in structs.items()}
    return T.StructType([T.StructField(name, types[kind]) for name, kind in named.items()])


def columns(text: str, **structs: str) -> T.StructType:
    """Columns written as ``name name: type, name: type``; ``structs`` adds types: arrays of structs."""
    inner = {name: lake_tables.columns(each) for name, each in structs.items()}
    return _struct(lake_tables.columns(text), inner)


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


def _stored(table: LakeTable) -> Table:
    """A table that ``fieldgate import`` writes too, with Spark's types."""
    return Table(
        table.name,
        _struct(table.columns, table.structs),
        table.key,
        table.partitioned_by_date,
        table.change_feed,
        table.bounds,
    )


READINGS: Final = _stored(lake_tables.READINGS)
QUARANTINE: Final = _stored(lake_tables.QUARANTINE)

MESSAGES: Final = Table(
    "messages",
    columns(
        "gateway channel run: string, seq: long, mqtt_topic: string, received_at: time, payload: binary, "
        f"payload_bytes: long, headers: headers, replayed: bool, {KAFKA}, date: date",
        headers="key: string, value: binary",
    ),
    partitioned_by_date=True,
)
"""Other devices' payloads as they are; identity and receipt from the headers. ``date`` is Kafka's."""

CHANNELS: Final = _stored(lake_tables.CHANNELS)

SITES: Final = _stored(lake_tables.SITES)

RUNS: Final = Table(
    "runs",
    columns(
        "gateway run previous_run boot state: string, started ended: time, last_seq: long map, "
        "in_flight outbox_records: long, dropped: drops, dropped_records: long map, drops_unknown: bool, "
        "unfinished: ends, revision last_event: long, reported_at updated_at: time, date: date",
        drops="reason gateway run channel: string, first last: long",
        ends="run end: string, lost_at_most_s: double",
    ),
    key=("gateway", "run"),
    partitioned_by_date=True,
    dated_later=True,
    change_feed=True,
)
"""The run ledger. ``reported_at`` is Kafka's time of the record the row is of. ``ended`` is that of the last
record of a run that ended; it is null while the run goes on, as is its ``date``. ``last_event`` is the
highest ``seq`` of the run's events, null where its daemon doesn't number them."""

_PLACE: Final = "kafka_topic: string, kafka_partition: int, kafka_offset: long, kafka_time updated_at: time"

EVENTS: Final = Table(
    "events",
    columns(
        "gateway id: string, time: time, kind run: string, seq: long, fields: string, "
        f"announced: announcements, {_PLACE}, date: date",
        announcements="run: string, seq: long, time: time",
    ),
    key=("gateway", "id", "time"),
    partitioned_by_date=True,
    change_feed=True,
)
"""What gateways report as it happens, each event once: row, ``date`` and place are its first record's.

``announced`` are all its announcements. A daemon that dies may have announced a command's event, which the
next run announces again.
"""

HEALTH: Final = Table(
    "health",
    columns(
        "gateway id: string, time: time, run daemon: string, since_s run_uptime_s machine_uptime_s: double, "
        "sampled forwarded dropped: long, recovery: double map, uplink: string, "
        "kafka_confirmed_ago_s: double, parked: strings, outbox_records outbox_bytes outbox_max_bytes: long, "
        "outbox_problem clock: string, held: long, troubles: string map, under_voltage throttled: long, "
        "disk_free_bytes: long, cpu_celsius load site_moved_m: double, findings: findings, "
        "fieldgate python kernel system config_hash: string, bytes_sent: long, "
        f"{_PLACE}, date: date",
        findings="area severity what remedy: string",
    ),
    key=EVENTS.key,
    partitioned_by_date=True,
    change_feed=True,
)
"""The events of kind ``report``, field by field. Null is what a report hasn't, or has of another type."""

TRENDS: Final = Table(
    "trends",
    columns(
        "gateway channel kind: string, value reference: double, unit: string, "
        "a_month a_month_low a_month_high limit_value: double, "
        "crosses crosses_from crosses_until since: date, "
        "days count: long, detail: string, updated_at: time, date: date"
    ),
    partitioned_by_date=True,
    change_feed=True,
)
"""Of each day what wears, as ``cloud.trends`` has it; ``channel`` is null where the mast is meant."""

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

STATISTICS: Final = _stored(lake_tables.STATISTICS)

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

MAST: Final = _stored(lake_tables.MAST)

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
    "_set_aside",
    columns("gateway channel run: string, first_seq last_seq: long, reporter: string, ingested_at: time"),
)
"""Ranges of ``seq`` that records in ``quarantine`` claim, up to what came into it at ``ingested_at``.

``reporter`` is the ``gateway`` that these records have in ``quarantine``.

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

IMPORTS: Final = _stored(lake_tables.IMPORTS)
