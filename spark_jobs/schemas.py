"""The tables: columns as in the contract, and how each is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_STRING: Final = StringType()
_TIME: Final = TimestampType()
_LONG: Final = LongType()
_INT: Final = IntegerType()
_DOUBLE: Final = DoubleType()


def _columns(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


@dataclass(frozen=True)
class Table:
    """A Delta table: its name under the lake, columns, storage, and the key its rows are merged by.

    ``bounds`` are the columns whose lowest and highest value the log has for each file; () is Delta's choice,
    the first 32. A table that an older version made keeps what it has.
    """

    name: str
    schema: StructType
    key: tuple[str, ...] = ()
    partitioned_by_date: bool = False
    change_feed: bool = False
    bounds: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        """The columns beside the key, the partition and the row's own bookkeeping."""
        apart = {*self.key, "date", "version", "updated_at"}
        return tuple(name for name in self.schema.names if name not in apart)


_KAFKA: Final = _columns(
    kafka_topic=_STRING, kafka_partition=_INT, kafka_offset=_LONG, kafka_time=_TIME, ingested_at=_TIME
).fields

_READING: Final = _columns(
    gateway=_STRING,
    channel=_STRING,
    run=_STRING,
    seq=_LONG,
    quantity=_STRING,
    unit=_STRING,
    time=_TIME,
    period_ms=_INT,
    value=_DOUBLE,
    raw=_DOUBLE,
    raw_unit=_STRING,
    quality=_INT,
    reasons=ArrayType(_STRING),
    clock=_STRING,
    cal=_STRING,
    latitude=_DOUBLE,
    longitude=_DOUBLE,
    altitude_m=_DOUBLE,
    replayed=BooleanType(),
    extra=_STRING,
).fields

HEADERS: Final = ArrayType(StructType([StructField("key", _STRING), StructField("value", BinaryType())]))
"""Kafka headers as they are: names may repeat, values are any bytes."""

_REJECTED: Final = _columns(
    reason=_STRING, payload=BinaryType(), payload_bytes=_LONG, key=_STRING, headers=HEADERS, source=_STRING
).fields

READINGS: Final = Table(
    "readings",
    StructType([*_READING, *_KAFKA, StructField("date", DateType())]),
    key=("gateway", "channel", "run", "seq"),
    partitioned_by_date=True,
    change_feed=True,
    # What readers ask by. Of all columns they were a quarter of the CPU of a write (measured).
    bounds=("gateway", "channel", "seq", "time", "kafka_time"),
)
QUARANTINE: Final = Table(
    "quarantine",
    StructType(
        [
            *_REJECTED,
            *_KAFKA,
            *_columns(gateway=_STRING, overflow=_LONG, overflow_from=_LONG).fields,
        ]
    ),
)
"""What could not be parsed. ``gateway`` is the key's, '' where it names none.

A row with ``overflow`` (reason OVERFLOW) stands for so many records that were counted and not stored: those
of its gateway, hour of Kafka time, topic and partition from offset ``overflow_from`` to ``kafka_offset``.
"""

MESSAGES: Final = Table(
    "messages",
    StructType(
        [
            *_columns(
                gateway=_STRING,
                channel=_STRING,
                run=_STRING,
                seq=_LONG,
                mqtt_topic=_STRING,
                received_at=_TIME,
                payload=BinaryType(),
                payload_bytes=_LONG,
                headers=HEADERS,
                replayed=BooleanType(),
            ).fields,
            *_KAFKA,
            StructField("date", DateType()),
        ]
    ),
    partitioned_by_date=True,
)
"""Other devices' payloads as they are; identity and receipt from the headers. ``date`` is Kafka's."""

_PERIOD: Final = _columns(begin=_TIME, end=_TIME)
_TEXTS: Final = MapType(_STRING, _STRING)

CHANNELS: Final = Table(
    "channels",
    _columns(
        gateway=_STRING,
        channel=_STRING,
        cal=_STRING,
        valid_from=_TIME,
        valid_to=_TIME,
        periods=ArrayType(_PERIOD),
        in_force=BooleanType(),
        revision=_LONG,
        sensor=_STRING,
        quantity=_STRING,
        unit=_STRING,
        raw_unit=_STRING,
        driver=_STRING,
        interval_s=_DOUBLE,
        slope=_DOUBLE,
        offset=_DOUBLE,
        settings=_TEXTS,
        range_min=_DOUBLE,
        range_max=_DOUBLE,
        accuracy=_DOUBLE,
        accuracy_percent=_DOUBLE,
        model=_STRING,
        serial=_STRING,
        certificate=_STRING,
        lab=_STRING,
        calibrated=DateType(),
        expires=DateType(),
        height_m=_DOUBLE,
        boom_deg=_DOUBLE,
        pair=_STRING,
        said=_TEXTS,
        extra=_STRING,
        updated_at=_TIME,
    ),
    key=("gateway", "channel", "cal"),
    change_feed=True,
)
"""Calibration records (``cloud.channel_records``); values of ``settings`` and ``said`` are JSON."""

_DROP: Final = _columns(
    reason=_STRING, gateway=_STRING, run=_STRING, channel=_STRING, first=_LONG, last=_LONG
)

RUNS: Final = Table(
    "runs",
    _columns(
        gateway=_STRING,
        run=_STRING,
        previous_run=_STRING,
        boot=_STRING,
        state=_STRING,
        started=_TIME,
        ended=_TIME,
        last_seq=MapType(_STRING, _LONG),
        in_flight=_LONG,
        outbox_records=_LONG,
        dropped=ArrayType(_DROP),
        dropped_records=MapType(_STRING, _LONG),
        drops_unknown=BooleanType(),
        unfinished=ArrayType(_columns(run=_STRING, end=_STRING, lost_at_most_s=_DOUBLE)),
        revision=_LONG,
        told_at=_TIME,
        updated_at=_TIME,
    ),
    key=("gateway", "run"),
    change_feed=True,
)
"""The run ledger. ``told_at`` is Kafka's time of the record the row is of; ``ended`` is that of the last one
of a run that ended, null while it runs."""

STATUS: Final = Table(
    "_status",
    _columns(
        gateway=_STRING,
        run=_STRING,
        state=_STRING,
        time=_TIME,
        fieldgate=_STRING,
        clock=_STRING,
        uplink=_STRING,
        revision=_LONG,
        extra=_STRING,
        told_at=_TIME,
        told_offset=_LONG,
        updated_at=_TIME,
    ),
    key=("gateway", "run"),
    change_feed=True,
)
"""The last status of each run of a gateway, last wills included, with its place in Kafka's order.

Internal: ``presence`` is made of it.
"""

SEEN: Final = Table(
    "_seen",
    _columns(
        gateway=_STRING, channel=_STRING, run=_STRING, first_seq=_LONG, last_seq=_LONG, readings_version=_LONG
    ),
)
"""Ranges of ``seq`` that ``readings`` holds, up to its version ``readings_version``; rows may overlap.

Internal: derived from ``readings``, some seconds behind it, and rebuilt from it when lost.
"""

STATISTICS: Final = Table(
    "statistics",
    _columns(
        gateway=_STRING,
        channel=_STRING,
        interval_s=_INT,
        interval_start=_TIME,
        quantity=_STRING,
        unit=_STRING,
        avg=_DOUBLE,
        min=_DOUBLE,
        max=_DOUBLE,
        sd=_DOUBLE,
        gust=_DOUBLE,
        max_time=_TIME,
        gust_time=_TIME,
        cube_mean=_DOUBLE,
        count=_LONG,
        expected=_DOUBLE,
        recovery=_DOUBLE,
        period_ms=_INT,
        n_good=_LONG,
        n_not_evaluated=_LONG,
        n_suspect=_LONG,
        n_fail=_LONG,
        n_missing=_LONG,
        quality=_INT,
        version=_INT,
        updated_at=_TIME,
        date=DateType(),
    ),
    key=("gateway", "channel", "interval_s", "interval_start"),
    partitioned_by_date=True,
    change_feed=True,
)
"""``period_ms`` is the period in force at the interval's end: what is missing after it is counted from it."""

MAST: Final = Table(
    "mast",
    _columns(
        gateway=_STRING,
        interval_s=_INT,
        interval_start=_TIME,
        turbulence_intensity=MapType(_STRING, _DOUBLE),
        wind_power_density=MapType(_STRING, _DOUBLE),
        pair_difference=MapType(_STRING, _DOUBLE),
        shear_alpha=_DOUBLE,
        air_density=_DOUBLE,
        insolation=_DOUBLE,
        inputs=MapType(_STRING, _STRING),
        version=_INT,
        updated_at=_TIME,
        date=DateType(),
    ),
    key=("gateway", "interval_s", "interval_start"),
    partitioned_by_date=True,
    change_feed=True,
)
"""What several channels say together. Maps are by channel; ``inputs`` names the channels used by purpose."""

PRESENCE: Final = Table(
    "presence",
    _columns(
        gateway=_STRING,
        channel=_STRING,
        last_seen=_TIME,
        last_time=_TIME,
        last_value=_DOUBLE,
        state=_STRING,
        pending=_LONG,
        lost=_LONG,
        announced=_LONG,
        period_ms=_INT,
        updated_at=_TIME,
    ),
    key=("gateway", "channel"),
    change_feed=True,
)
"""``last_value`` and ``period_ms`` are of the reading at ``last_time``."""

SET_ASIDE: Final = Table(
    "_set_aside",
    _columns(
        gateway=_STRING, channel=_STRING, run=_STRING, first_seq=_LONG, last_seq=_LONG, ingested_at=_TIME
    ),
)
"""Ranges of ``seq`` that records in ``quarantine`` claim, up to what came into it at ``ingested_at``.

Internal: ``quarantine`` keeps its rows for a month, a reading that went there is accounted for longer.
"""

ANOMALIES: Final = Table(
    "anomalies",
    _columns(
        gateway=_STRING,
        interval_s=_INT,
        interval_start=_TIME,
        score=_DOUBLE,
        threshold=_DOUBLE,
        model_version=_STRING,
        channels=ArrayType(_columns(channel=_STRING, share=_DOUBLE)),
        rules=ArrayType(_STRING),
        missing=ArrayType(_STRING),
        version=_INT,
        updated_at=_TIME,
        date=DateType(),
    ),
    key=("gateway", "interval_s", "interval_start"),
    partitioned_by_date=True,
    change_feed=True,
)
"""``channels``: the most deviating first, with their share of the score; ``rules``: the baseline's, as
``RULE:CHANNEL``; ``missing``: what the model knows and the interval has not. ``score`` and what goes with it
is null without a model, ``score`` alone where nothing could be judged."""

ALERTS: Final = Table(
    "alerts",
    _columns(
        id=_STRING,
        rule=_STRING,
        rule_version=_STRING,
        kind=_STRING,
        severity=_STRING,
        gateway=_STRING,
        channel=_STRING,
        raised_at=_TIME,
        cleared_at=_TIME,
        value=_DOUBLE,
        detail=_STRING,
        historical=BooleanType(),
        command_id=_STRING,
        updated_at=_TIME,
    ),
    key=("id",),
    change_feed=True,
)
"""``raised_at`` and ``cleared_at`` are event times: the first violation, and the reading that ended it.

``channel`` is null where the whole gateway is meant; ``value`` and ``detail`` are those of the raise.
"""

RECALIBRATIONS: Final = Table(
    "recalibrations",
    _columns(
        done_at=_TIME,
        gateway=_STRING,
        channel=_STRING,
        begin=_TIME,
        end=_TIME,
        original_cal=_STRING,
        cal=_STRING,
        slope=_DOUBLE,
        offset=_DOUBLE,
        serial=_STRING,
        certificate=_STRING,
        lab=_STRING,
        calibrated=DateType(),
        expires=DateType(),
        rows=_LONG,
        mean_change=_DOUBLE,
    ),
)
"""What ``jobs recalibrate`` did, a row each time it changed something; ``end`` isn't included."""

TABLES: Final = (
    READINGS,
    QUARANTINE,
    MESSAGES,
    CHANNELS,
    RUNS,
    STATISTICS,
    MAST,
    PRESENCE,
    ANOMALIES,
    ALERTS,
    RECALIBRATIONS,
)
"""The contract's tables, and what was recalibrated."""
