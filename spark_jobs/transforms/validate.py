"""Kafka records to readings or rejects, by the gateway's own validator.

Spark's ``from_json`` takes NaN, two objects, trailing bytes or an empty payload for good and raises on a bad
cast, so each payload is decoded by the types of ``cloud.wire.reading_records`` instead, in Arrow batches. The
rules beyond types are held against whole columns: names and units once for all readings that have the same,
times as Arrow reads them. Whatever isn't sound by these is left to ``parse_reading``, which decides. Avro is
turned into JSON before all that. No byte string may stop a query: everything that is not a reading comes out
as a reject with a reason.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from cloud.wire.avro_readings import NO_SCHEMAS, UnknownSchema, from_avro
from cloud.wire.fields import UNDECODABLE
from cloud.wire.identities import IDENTITY, NOBODY, Identities
from cloud.wire.reading_records import (
    DEAD_LETTER_PAYLOAD_BYTES,
    MAX_AHEAD_US,
    MAX_READING_BYTES,
    MISSING,
    OLDEST_TIME_US,
    UNSYNCED,
    InvalidReading,
    ReadingFields,
    check_constants,
    decode_fields,
    decode_known,
    parse_dead_letter,
    parse_reading,
)
from spark_jobs.platform.intervals import DAY_US, TIMES
from spark_jobs.platform.schemas import QUARANTINE, READINGS

READING_ROWS: Final = to_arrow_schema(READINGS.schema)
REJECT_ROWS: Final = to_arrow_schema(QUARANTINE.schema)
_NO_READINGS: Final = pa.RecordBatch.from_pylist([], schema=READING_ROWS)
_NO_REJECTS: Final = pa.RecordBatch.from_pylist([], schema=REJECT_ROWS)
_UNKNOWN_US: Final = -(1 << 62)
_NO_TIME_US: Final = 1 << 62
"""Of a record without Kafka's time: now, or later."""

_CONSTANT: Final = (
    *("gateway", "channel", "run", "quantity", "unit", "period_ms", "raw_unit", "quality", "reasons"),
    *("clock", "cal", "latitude", "longitude", "altitude_m"),
)
"""Fields that change seldom from one reading of a channel to the next, as columns are named."""
_VALUES: Final[Callable[[ReadingFields], tuple[Any, ...]]] = attrgetter(*_CONSTANT)
# A time that exists, by the calendar, in UTC, as Arrow reads it; in these years each fourth is a leap year.
_TIME: Final = (
    r"\A20(?:[0-9]{2}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)"
    r"|(?:0[13578]|1[02])-31)|(?:[02468][048]|[13579][26])-02-29)"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.(?:[0-9]{3}|[0-9]{6})Z\z"
)
_HEADER: Final = "mqtt-topic"
_REPLAYED: Final = "replayed"


@dataclass(frozen=True)
class Parsed:
    """One Arrow batch of Kafka records: as rows of ``readings`` and of ``quarantine``.

    ``unknown`` are the ids of schemas that some were written by and that weren't given.
    """

    readings: Any
    rejects: Any
    unknown: frozenset[int] = frozenset()


Parse = Callable[[Any], Parsed]
"""How workers validate an Arrow batch of Kafka records."""


def _dead_letter(value: bytes, source: str | None) -> tuple[Any, ...]:
    try:
        dead_letter = parse_dead_letter(value)
    except InvalidReading:
        return "BAD_DEAD_LETTER", value[:DEAD_LETTER_PAYLOAD_BYTES], len(value), source
    payload = dead_letter.payload[:DEAD_LETTER_PAYLOAD_BYTES]
    return dead_letter.reason, payload, dead_letter.payload_bytes, dead_letter.source


def _text(value: bytes | None) -> str | None:
    """A key's or header's bytes as text; what is not UTF-8 stays readable, escaped."""
    return None if value is None else value.decode("utf-8", "backslashreplace")


def _replayed(headers: Any) -> Any:
    """Whether the first header ``replayed`` of each record is 1."""
    found = np.zeros(len(headers), bool)
    inside = headers.flatten()
    named = np.flatnonzero(pc.fill_null(pc.equal(inside.field("key"), _REPLAYED), False))
    if named.size:
        owners = pc.list_parent_indices(headers).to_numpy()[named]
        owners, first = np.unique(owners, return_index=True)
        values = inside.field("value").take(pa.array(named[first]))
        found[owners] = pc.fill_null(pc.equal(values, b"1"), False).to_numpy(zero_copy_only=False)
    return pa.array(found)


def _arrived(taken: Any, now: Any) -> dict[str, Any]:
    """The columns both tables have, of these records."""
    return {
        "kafka_topic": taken["topic"],
        "kafka_partition": taken["partition"],
        "kafka_offset": taken["offset"],
        "kafka_time": taken["timestamp"],
        "ingested_at": pa.repeat(now, taken.num_rows),
    }


def _source(batch: Any, row: int) -> str | None:
    headers = batch["headers"][row].as_py() or ()
    return _text(next((header["value"] for header in headers if header["key"] == _HEADER), None))


def _reject_rows(batch: Any, rejects: dict[int, tuple[Any, ...]], now: Any, identities: Identities) -> Any:
    reasons, payloads, lengths, sources = zip(*rejects.values(), strict=True)
    taken = batch.take(pa.array(list(rejects), pa.int64()))
    keys = [_text(key) for key in taken["key"].to_pylist()]
    times_us = taken["timestamp"].cast(pa.int64()).fill_null(_NO_TIME_US).to_pylist()
    uncounted = pa.nulls(len(rejects), pa.int64())
    counted = map(identities.counted, keys, taken["value"].to_pylist(), times_us)
    columns = {
        "reason": pa.array(reasons, pa.string()),
        "payload": pa.array(payloads, pa.binary()),
        "payload_bytes": pa.array(lengths, pa.int64()),
        "key": pa.array(keys, pa.string()),
        "headers": taken["headers"].cast(REJECT_ROWS.field("headers").type),
        "source": pa.array(sources, pa.string()),
        "gateway": pa.array(counted, pa.string()),
        "overflow": uncounted,
        "overflow_from": uncounted,
        **_arrived(taken, now),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in REJECT_ROWS.names], schema=REJECT_ROWS)


def _is_sound(fields: ReadingFields) -> bool:
    """Whether names, texts and units are a reading's; one of an unset clock has more that is to be read."""
    try:
        check_constants(fields)
    except InvalidReading:
        return False
    return fields.clock != UNSYNCED


def _constant_columns(
    found: list[ReadingFields], identities: Identities
) -> tuple[dict[str, Any], Any, Any, Any]:
    """The columns of ``_CONSTANT``; of each reading, whether these are sound and its value must be null.

    At last, whether it depends on Kafka's time if it is its gateway's.
    """
    numbers: defaultdict[tuple[Any, ...], int] = defaultdict(count().__next__)
    numbered = list(map(numbers.__getitem__, map(_VALUES, found)))
    # One reading of each kind, in the order of their numbers.
    kinds = [fields for _, fields in sorted(dict(zip(numbered, found, strict=True)).items())]
    index = np.array(numbered)
    columns = {
        name: pa.array(values, READING_ROWS.field(name).type).take(pa.array(index))
        for name, values in zip(_CONSTANT, zip(*numbers, strict=True), strict=True)
    }
    sound = np.array([_is_sound(kind) for kind in kinds])
    missing = np.array([kind.quality == MISSING for kind in kinds])
    doubtful = np.array([identities.doubts(kind.gateway, kind.run) for kind in kinds])
    return columns, sound[index], missing[index], doubtful[index]


def _times(found: list[ReadingFields]) -> Any:
    """Their times, microseconds since the epoch, where they are written the usual way."""
    texts = pa.array([fields.time for fields in found], pa.string())
    usual = pc.if_else(pc.match_substring_regex(texts, _TIME), texts, None)
    return usual.cast(TIMES).cast(pa.int64()).fill_null(_UNKNOWN_US).to_numpy().copy()


@dataclass(frozen=True)
class _Decoded:
    """The records of a batch with the types of a reading (``rows``, ascending), and why the others are none.

    ``unknown`` (fields without a column) and ``refused`` (reasons) are by row.
    """

    rows: Any
    fields: list[ReadingFields]
    unknown: dict[int, dict[str, Any]]
    refused: dict[int, str]


def _decoded(payloads: list[bytes]) -> _Decoded:
    """Decodes all payloads of a batch."""
    with suppress(*UNDECODABLE):
        # Nearly always all of them are.
        found = list(map(decode_known, payloads))
        return _Decoded(np.arange(len(found)), found, {}, {})
    found, rows, unknown, refused = [], [], {}, {}
    for row, payload in enumerate(payloads):
        try:
            fields, more = decode_fields(payload)
        except InvalidReading as error:
            refused[row] = error.reason
            continue
        found.append(fields)
        rows.append(row)
        if more:
            unknown[row] = more
    return _Decoded(np.array(rows, np.int64), found, unknown, refused)


def _unknown_column(decoded: _Decoded) -> Any:
    """The fields that have no column, JSON."""
    if not decoded.unknown:
        return pa.nulls(len(decoded.rows), pa.string())
    texts = {row: msgspec.json.encode(fields).decode() for row, fields in decoded.unknown.items()}
    return pa.array(map(texts.get, decoded.rows.tolist()), pa.string())


def _reading_rows(batch: Any, decoded: _Decoded, now: Any, identities: Identities) -> Any:
    """Rows of ``readings``; adds the reasons of those that are none to what was refused."""
    columns, sound, missing, doubtful = _constant_columns(decoded.fields, identities)
    time_us = _times(decoded.fields)
    columns["value"] = pa.array([fields.value for fields in decoded.fields], pa.float64())
    columns["raw"] = pa.array([fields.raw for fields in decoded.fields], pa.float64())
    columns["seq"] = pa.array([fields.seq for fields in decoded.fields], pa.int64())
    taken = batch if len(decoded.rows) == batch.num_rows else batch.take(pa.array(decoded.rows))
    received_us = taken["timestamp"].cast(pa.int64())
    latest_us = received_us.fill_null(_UNKNOWN_US).to_numpy() + MAX_AHEAD_US
    sound &= (time_us >= OLDEST_TIME_US) & (time_us <= latest_us)
    sound &= columns["value"].is_null().to_numpy(zero_copy_only=False) == missing
    sound &= pc.less_equal(pc.binary_length(taken["value"]), MAX_READING_BYTES).to_numpy(zero_copy_only=False)
    for at in np.flatnonzero(~sound).tolist():
        try:
            reading = parse_reading(taken["value"][at].as_py(), received_us[at].as_py())
        except InvalidReading as error:
            decoded.refused[int(decoded.rows[at])] = error.reason
        else:
            time_us[at], sound[at] = reading.time_us, True
    asked = np.flatnonzero(sound & doubtful)
    doubted = taken.take(pa.array(asked))
    times_us = doubted["timestamp"].cast(pa.int64()).fill_null(_NO_TIME_US).to_pylist()
    for at, when_us in zip(asked.tolist(), times_us, strict=True):
        fields = decoded.fields[at]
        if not identities.accepts(fields.gateway, fields.run, when_us):
            decoded.refused[int(decoded.rows[at])], sound[at] = IDENTITY, False
    columns |= {
        "time": pa.array(time_us).cast(TIMES),
        "date": pa.array((time_us // DAY_US).astype(np.int32)).cast(pa.date32()),
        "replayed": _replayed(taken["headers"]),
        "extra": _unknown_column(decoded),
        **_arrived(taken, now),
    }
    made = pa.RecordBatch.from_arrays([columns[name] for name in READING_ROWS.names], schema=READING_ROWS)
    return made if sound.all() else made.filter(pa.array(sound))


def _as_json(
    batch: Any, payloads: list[bytes], schemas: Mapping[int, str]
) -> tuple[Any, list[bytes], dict[int, str], frozenset[int]]:
    """A batch with JSON in the place of Avro; its payloads, why some can't be, and ids that weren't given."""
    rows = np.flatnonzero(pc.fill_null(pc.starts_with(batch["value"], "\0"), False))
    if not rows.size:
        return batch, payloads, {}, frozenset()
    refused, unknown, written = {}, set(), payloads.copy()
    for row in rows.tolist():
        try:
            written[row] = from_avro(payloads[row], schemas)
        except InvalidReading as error:
            refused[row], written[row] = error.reason, b""
            if isinstance(error, UnknownSchema):
                unknown.add(error.schema_id)
    column = batch.schema.get_field_index("value")
    values = pa.array(written, batch.schema.field(column).type)
    return batch.set_column(column, "value", values), written, refused, frozenset(unknown)


def _parsed(batch: Any, now: Any, identities: Identities, schemas: Mapping[int, str]) -> Parsed:
    """Records that are to be readings."""
    payloads = batch["value"].fill_null(b"").to_pylist()
    batch, written, refused, unknown = _as_json(batch, payloads, schemas)
    decoded = _decoded(written)
    decoded.refused.update(refused)
    readings = _reading_rows(batch, decoded, now, identities) if decoded.fields else _NO_READINGS
    rejects = {
        row: (reason, payloads[row][:DEAD_LETTER_PAYLOAD_BYTES], len(payloads[row]), _source(batch, row))
        for row, reason in sorted(decoded.refused.items())
    }
    rejected = _reject_rows(batch, rejects, now, identities) if rejects else _NO_REJECTS
    return Parsed(readings, rejected, unknown)


def parse_batch(
    batch: Any,
    dead_letter_topic: str,
    identities: Identities = NOBODY,
    schemas: Mapping[int, str] = NO_SCHEMAS,
) -> Parsed:
    """One Arrow batch of Kafka records; each is in exactly one of the two results.

    Readings that name one of ``identities`` and aren't its are rejects. ``schemas`` are those of
    readings in Avro by id.
    """
    now = pa.scalar(time.time_ns() // 1000, type=READING_ROWS.field("ingested_at").type)
    dead_letters = pc.equal(batch["topic"], dead_letter_topic)
    if not pc.any(dead_letters).as_py():
        return _parsed(batch, now, identities, schemas)
    parsed = _parsed(batch.filter(pc.invert(dead_letters)), now, identities, schemas)
    dead = batch.filter(dead_letters)
    values = dead["value"].fill_null(b"").to_pylist()
    rejects = {row: _dead_letter(value, _source(dead, row)) for row, value in enumerate(values)}
    refused = pa.concat_batches([parsed.rejects, _reject_rows(dead, rejects, now, identities)])
    return Parsed(parsed.readings, refused, parsed.unknown)
