"""Records of runs, calibrations, sites and statuses to rows of their tables, by the gateway's own parsers.

A row that can't be made has a ``reason`` and no values: no byte string may stop a query.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cloud.wire.channel_records import ChannelRecord, parse_channel
from cloud.wire.fields import InvalidFields
from cloud.wire.identities import IDENTITY, NOBODY, RUN_HEADER, Identities
from cloud.wire.reading_records import DEAD_LETTER_PAYLOAD_BYTES
from cloud.wire.run_records import ENDS, RunRecord
from cloud.wire.site_records import parse_site
from cloud.wire.status_records import parse_status
from spark_jobs.platform.intervals import day_of
from spark_jobs.platform.schemas import CHANNELS, QUARANTINE, RUNS, SITES, STATUS, Table, columns
from spark_jobs.transforms.dedupe import RECORD, as_quarantined
from spark_jobs.transforms.latest_record import Fold, Row, calibration, furthest_run, last_status, revised
from spark_jobs.transforms.messages import header, place, senders, utf8

REASONS: Final = columns(
    "kafka_topic: string, kafka_partition: int, kafka_offset: long, gateway reason: string"
)
"""Where refused records are in Kafka, among whose rejects they count, and why."""

Parse = Callable[[bytes, int, int], Row]
"""A value, Kafka's time of it in microseconds and its offset to a row. Raises InvalidFields."""


def _words(fields: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Settings as a table keeps them: each value is JSON."""
    return sorted((name, json.dumps(value)) for name, value in (fields or {}).items())


def _json(extra: Mapping[str, Any] | None) -> str | None:
    return json.dumps(extra, separators=(",", ":"), allow_nan=False) if extra else None


def channel_row(record: ChannelRecord) -> Row:
    """A record of ``gateway.channels`` as a row of ``channels``."""
    return {
        **{name: getattr(record, name, None) for name in CHANNELS.schema.names},
        "valid_from": record.valid_from_us,
        "valid_to": record.valid_to_us,
        "periods": [{"begin": each.begin_us, "end": each.end_us} for each in record.periods],
        "range_min": record.range[0],
        "range_max": record.range[1],
        "settings": _words(record.settings),
        "reported": _words(record.reported),
        "extra": _json(record.extra),
    }


def run_row(value: bytes, reported_us: int, offset: int) -> Row:
    """A record of ``gateway.runs`` as a row of ``runs``."""
    record = RunRecord.from_json(value)
    return {
        **{name: getattr(record, name, None) for name in RUNS.schema.names},
        "started": record.started_us,
        "ended": reported_us if record.state in ENDS else None,
        "last_seq": sorted(record.last_seq.items()),
        "dropped": [asdict(each) for each in record.dropped],
        "dropped_records": sorted(record.dropped_records.items()),
        "unfinished": [asdict(each) for each in record.unfinished],
        "reported_at": reported_us,
        "date": day_of(reported_us) if record.state in ENDS else None,
    }


def status_row(value: bytes, reported_us: int, offset: int) -> Row:
    """A record of ``gateway.status`` as a row of ``_status``."""
    record = parse_status(value)
    return {
        **{name: getattr(record, name, None) for name in STATUS.schema.names},
        "time": record.time_us,
        "fieldgate": record.version,
        "extra": _json(record.extra),
        "reported_at": reported_us,
        "reported_offset": offset,
    }


def site_row(value: bytes) -> Row:
    """A record of ``gateway.sites`` as a row of ``sites``."""
    record = parse_site(value)
    return {
        **{name: getattr(record, name, None) for name in SITES.schema.names},
        "valid_from": record.valid_from_us,
        "extra": _json(record.extra),
    }


@dataclass(frozen=True)
class RecordKind:
    """Records that have a table: how one is parsed, and what two of one key make."""

    table: Table
    parse: Parse
    fold: Fold

    @property
    def schema(self) -> StructType:
        """Parsed rows: the table's columns but for bookkeeping, ``reason``, and the place in Kafka."""
        places = (QUARANTINE.schema[name] for name in RECORD)
        return StructType([*self.table.without("updated_at"), REASONS["reason"], *places])


CHANNEL_RECORDS: Final = RecordKind(
    CHANNELS, lambda value, *_: channel_row(parse_channel(value)), calibration
)
RUN_RECORDS: Final = RecordKind(RUNS, run_row, furthest_run)
SITE_RECORDS: Final = RecordKind(SITES, lambda value, *_: site_row(value), revised)
STATUS_RECORDS: Final = RecordKind(STATUS, status_row, last_status)


def parse_rows(batch: Any, kind: RecordKind, identities: Identities = NOBODY) -> Iterator[Row]:
    """One Arrow batch of Kafka records as rows of ``kind.schema``; a null value makes none.

    The gateway of one with a reason is the one among whose rejects it counts.
    """
    times_us = batch["timestamp"].cast(pa.int64()).to_pylist()
    given = [batch[name].to_pylist() for name in ("value", "key", "run", "topic", "partition", "offset")]
    for value, key, run, topic, partition, offset, time_us in zip(*given, times_us, strict=True):
        if value is None:
            continue
        at = dict(zip(RECORD, (topic, partition, offset, time_us), strict=True))
        try:
            row = kind.parse(value, time_us, offset)
            if not identities.accepts(row["gateway"], row.get("run", run), time_us):
                raise InvalidFields(IDENTITY, "no run of its gateway")
            yield {**row, **at, "reason": None}
        except InvalidFields as problem:
            name = None if key is None else key.decode(errors="replace")
            counted = identities.counted(name, value, time_us, run)
            yield {**at, "gateway": counted, "reason": problem.reason}


def _parse_batches(
    batches: Iterable[Any], kind: RecordKind, schema: Any, identities: Identities
) -> Iterator[Any]:
    for batch in batches:
        yield pa.RecordBatch.from_pylist(list(parse_rows(batch, kind, identities)), schema=schema)


def record_rows(records: DataFrame, kind: RecordKind, identities: Identities = NOBODY) -> DataFrame:
    """Kafka records (as the source gives them) to rows of ``kind.schema``."""
    schema = to_arrow_schema(kind.schema)
    run = utf8(header(RUN_HEADER)).alias("run")
    needed = records.select("value", "key", run, "topic", "partition", "offset", "timestamp")
    parse = partial(_parse_batches, kind=kind, schema=schema, identities=identities)
    return needed.mapInArrow(parse, kind.schema)


def _unproven(batches: Iterable[Any], schema: Any, identities: Identities) -> Iterator[Any]:
    for batch in batches:
        times_us = batch["kafka_time"].cast(pa.int64()).to_pylist()
        names = (batch[name].to_pylist() for name in ("gateway", "run"))
        claims = zip(*names, times_us, strict=True)
        mine = [claim[0] is None or identities.accepts(*claim) for claim in claims]
        kept = batch.filter(pa.array([not each for each in mine], pa.bool_()))
        nobodys = pa.array([""] * kept.num_rows, pa.string()), pa.array([IDENTITY] * kept.num_rows)
        arrays = [*(kept[name] for name in RECORD[:3]), *nobodys]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def unproven(records: DataFrame, identities: Identities) -> DataFrame:
    """Kafka records of messages that aren't of whom they name: ``REASONS``."""
    schema = to_arrow_schema(REASONS)
    check = partial(_unproven, schema=schema, identities=identities)
    return senders(records).mapInArrow(check, REASONS)


def refused(records: DataFrame, reasons: DataFrame) -> DataFrame:
    """Kafka records that were refused, as rejects; ``reasons`` (few): rows of ``REASONS``."""
    placed = records.select(
        F.substring("value", 1, DEAD_LETTER_PAYLOAD_BYTES).alias("payload"),
        F.length("value").cast("bigint").alias("payload_bytes"),
        utf8(F.col("key")).alias("key"),
        "headers",
        utf8(header("mqtt-topic")).alias("source"),
        *place(),
    )
    keys = list(RECORD[:3])
    return as_quarantined(placed.join(F.broadcast(reasons), keys))
