"""Records of runs, calibrations, sites and statuses, and other devices' messages, to rows of their tables.

Records are parsed by the gateway's own parsers. A row that can't be made has a ``reason`` and no values: no
byte string may stop a query. Messages (``mqtt.raw``) keep their payload as it is, the rest is of headers:
only expressions, so that payloads of any size never pass through Python. Whatever the headers hold, the row
is made: an identity that isn't whole is left out, and ``headers`` has them as they came.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial, reduce
from operator import and_
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cloud.wire.channel_records import ChannelRecord, parse_channel
from cloud.wire.fields import InvalidFields
from cloud.wire.identities import IDENTITY, NOBODY, RUN_HEADER, Identities
from cloud.wire.reading_records import CHANNEL_ID, DEAD_LETTER_PAYLOAD_BYTES, GATEWAY_ID, RUN_ID
from cloud.wire.run_records import ENDS, RunRecord, reach
from cloud.wire.site_records import parse_site
from cloud.wire.status_records import parse_status
from spark_jobs.platform.intervals import day_of
from spark_jobs.platform.schemas import CHANNELS, MESSAGES, QUARANTINE, RUNS, SITES, STATUS, Table, columns
from spark_jobs.transforms.dedupe import RECORD, as_quarantined

Row = dict[str, Any]
Fold = Callable[[Row | None, Row], Row]

"""Makes the row of a key once one more record of it has come: the row that is stored, the record's row.

Pure. Each fold gives the same whatever comes twice. All but that of a status give the same in whatever order
records come: old ones are stored during outages and arrive late.
"""

DETERMINING: Final = (
    *("driver", "quantity", "unit", "slope", "offset", "settings", "model", "serial"),
    *("certificate", "lab", "calibrated", "expires", "height_m", "boom_deg"),
)
"""What never changes under one ``cal`` (docs/numbers.md); accuracy and range may be defaults."""


def run_rank(row: Row) -> tuple[int, int, int, Any]:
    """Grows with each record of one run: how far it got, its revision, Kafka's time."""
    return *reach(row["state"], (seq for _, seq in row["last_seq"])), row["revision"], row["reported_at"]


def furthest_run(known: Row | None, new: Row) -> Row:
    """The record of a run that got furthest; a run that has ended doesn't run again."""
    return new if known is None or run_rank(new) > run_rank(known) else known


def calibration(known: Row | None, new: Row) -> Row:
    """The record of a calibration with the highest revision, and the earliest beginning of any.

    Raises InvalidFields (CAL_CHANGED) where the records contradict each other in what determines a value.
    """
    if known is None:
        return new
    for name in DETERMINING:
        if _plain(known[name]) != _plain(new[name]):
            raise InvalidFields("CAL_CHANGED", f"{name} is another than under the same cal before")
    newest = new if new["revision"] >= known["revision"] else known
    begins = [row["valid_from"] for row in (known, new) if row["valid_from"] is not None]
    merged = {**newest, "valid_from": min(begins, default=None)}
    return known if _content(merged) == _content(known) else merged


def revised(known: Row | None, new: Row) -> Row:
    """The record of a key with the highest revision."""
    return new if known is None or new["revision"] > known["revision"] else known


def last_status(known: Row | None, new: Row) -> Row:
    """The last status of a run in Kafka's order.

    One that was stored and comes late is known by its revision; a last will has none (0).
    """
    if known is None:
        return new
    later = (new["reported_at"], new["reported_offset"]) > (known["reported_at"], known["reported_offset"])
    stale = 0 < new["revision"] < known["revision"]
    if not later or stale:
        return known
    # A will after revision 7 doesn't let revision 6 through.
    return {**new, "revision": max(new["revision"], known["revision"])}


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value


def _content(row: Row) -> dict[str, Any]:
    """A row as it would be stored: place in Kafka and bookkeeping left out, maps in a fixed order."""
    return {
        name: _plain(value)
        for name, value in row.items()
        if name != "updated_at" and name != "reason" and not name.startswith("kafka_")
    }


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
    made: Callable[[Iterable[Row]], Iterable[Row]] = iter
    """Makes the table's rows of parsed ones."""
    bounded_by: str | None = None
    """A time in the table's key, by whose range files are left out where rows of a key are looked up."""

    @property
    def schema(self) -> StructType:
        """Parsed rows: the table's columns but for bookkeeping, ``reason``, and the place in Kafka."""
        places = (QUARANTINE.schema[name] for name in RECORD if name not in self.table.schema.names)
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


_SEQ: Final = "[1-9][0-9]{0,18}"
_TIME: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)"
"""RFC 3339, of which the gateway writes milliseconds."""


def header(name: str) -> Column:
    """Bytes of the first header of that name, or null."""
    matching = F.filter(F.col("headers"), lambda each: each["key"] == name)
    return F.try_element_at(matching, F.lit(1))["value"]


def utf8(value: Column) -> Column:
    """Bytes as text; what is not UTF-8 becomes U+FFFD, or no other reader could read the table."""
    return F.make_valid_utf8(value.cast("string"))


def _of(name: str, pattern: str) -> Column:
    """A header's text where it is wholly of this pattern, else null."""
    text = utf8(header(name))
    return F.when(text.rlike(f"^(?:{pattern})\\z"), text)


def place() -> Iterator[Column]:
    """Where a record is in Kafka and when it was stored, as the tables name it."""
    for name in ("topic", "partition", "offset"):
        yield F.col(name).alias(f"kafka_{name}")
    yield F.col("timestamp").alias("kafka_time")
    yield F.current_timestamp().alias("ingested_at")


def _identity() -> Iterator[Column]:
    """Gateway, channel, run and seq; all of them null where one isn't there."""
    identity = {
        "gateway": _of("gateway", GATEWAY_ID.pattern),
        "channel": _of("channel", CHANNEL_ID.pattern),
        "run": _of("run", RUN_ID.pattern),
        "seq": _of("seq", _SEQ).try_cast("bigint"),
    }
    whole = reduce(and_, (value.isNotNull() for value in identity.values()))
    for name, value in identity.items():
        yield F.when(whole, value).alias(name)


def senders(records: DataFrame) -> DataFrame:
    """Whom Kafka records name as their gateway and run, and where they are."""
    gateway, _, run, _ = _identity()
    return records.select(gateway, run, *list(place())[:4])


def messages(records: DataFrame) -> DataFrame:
    """Kafka records (as the source gives them) to rows of ``messages``, one each."""
    return records.select(
        *_identity(),
        F.coalesce(utf8(header("mqtt-topic")), utf8(F.col("key"))).alias("mqtt_topic"),
        _of("received-at", _TIME).try_cast("timestamp").alias("received_at"),
        F.col("value").alias("payload"),
        F.coalesce(F.length("value"), F.lit(0)).cast("bigint").alias("payload_bytes"),
        "headers",
        F.coalesce(utf8(header("replayed")) == "1", F.lit(False)).alias("replayed"),
        *place(),
        F.to_date("timestamp").alias("date"),
    ).select(*MESSAGES.schema.names)
