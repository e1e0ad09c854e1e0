"""Kafka records to readings or rejects, by the gateway's own validator.

Spark's ``from_json`` takes NaN, two objects, trailing bytes or an empty payload for good and raises on a bad
cast, so each payload goes to ``cloud.schema`` in Arrow batches instead: one of each template
(``transforms.templates``), and every one that no template proves. No byte string may stop a query: everything
that is not a reading comes out as a reject with a reason.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from cloud.wire.schema import (
    DEAD_LETTER_PAYLOAD_BYTES,
    GATEWAY_ID,
    InvalidReading,
    Reading,
    parse_dead_letter,
    parse_reading,
)
from spark_jobs.schemas import QUARANTINE, READINGS
from spark_jobs.transforms.templates import Templates

READING_ROWS: Final = to_arrow_schema(READINGS.schema)
REJECT_ROWS: Final = to_arrow_schema(QUARANTINE.schema)
_DAY_US: Final = 86_400_000_000

_CONSTANT: Final = (
    "gateway",
    "channel",
    "run",
    "quantity",
    "unit",
    "period_ms",
    "raw_unit",
    "quality",
    "reasons",
    "clock",
    "cal",
    "latitude",
    "longitude",
    "altitude_m",
)
"""Columns that are a reading's own, apart from those that change with each (and ``extra``)."""
_VALUES: Final[Callable[[Reading], tuple[Any, ...]]] = attrgetter(*_CONSTANT)
_VARYING: Final = ("time", "value", "raw", "seq")
_HEADER: Final = "mqtt-topic"
_REPLAYED: Final = "replayed"


@dataclass(frozen=True)
class Parsed:
    """One Arrow batch of Kafka records: as rows of ``readings`` and of ``quarantine``."""

    readings: Any
    rejects: Any


def _printable(text: str) -> str:
    """Without lone surrogates, which JSON can carry and a table can't."""
    return text.encode("utf-8", "backslashreplace").decode()


def _since_boot(reading: Reading) -> dict[str, Any]:
    """What an unsynced reading tells of its time, for whoever knows more of that boot."""
    told = {"boot": reading.boot, "mono_ms": reading.mono_ms}
    return {name: value for name, value in told.items() if value is not None}


def _extra(reading: Reading) -> str | None:
    extra = {**(reading.extra or {}), **_since_boot(reading)}
    if not extra:
        return None
    try:
        return json.dumps(extra, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise InvalidReading("NOT_FINITE", "an unknown field holds a number beyond a double") from error
    except RecursionError as error:
        raise InvalidReading("NOT_JSON", "an unknown field is nested too deep") from error


def _reject(reason: str, value: bytes | None, source: str | None) -> tuple[Any, ...]:
    payload = value or b""
    return reason, payload[:DEAD_LETTER_PAYLOAD_BYTES], len(payload), source


def _dead_letter(value: bytes | None, source: str | None) -> tuple[Any, ...]:
    try:
        letter = parse_dead_letter(value or b"")
        if not 0 <= letter.payload_bytes < 1 << 63:
            raise InvalidReading("BAD_DEAD_LETTER", "payload_bytes is no length")
    except (InvalidReading, ArithmeticError):
        return _reject("BAD_DEAD_LETTER", value, source)
    return (
        _printable(letter.reason),
        letter.payload[:DEAD_LETTER_PAYLOAD_BYTES],
        letter.payload_bytes,
        _printable(letter.source),
    )


def _text(value: bytes | None) -> str | None:
    """A key's or header's bytes as text; what is not UTF-8 stays readable, escaped."""
    return None if value is None else value.decode("utf-8", "backslashreplace")


def _first(headers: list[dict[str, Any]] | None, name: str) -> bytes | None:
    """Value of the first header of that name."""
    return next((header["value"] for header in headers or () if header["key"] == name), None)


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


def _arrived(batch: Any, rows: Any, now: Any) -> dict[str, Any]:
    """The columns both tables have, of these rows."""
    taken = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
    return {
        "kafka_topic": taken["topic"],
        "kafka_partition": taken["partition"],
        "kafka_offset": taken["offset"],
        "kafka_time": taken["timestamp"],
        "ingested_at": pa.repeat(now, len(rows)),
    }


def _reading_rows(
    constant: list[Reading], kinds: Any | None, varying: dict[str, Any], arrived: dict[str, Any]
) -> Any:
    """Rows of ``readings``: of each its constant reading (the one of ``kinds``), and what varies."""
    columns = dict(zip(_CONSTANT, zip(*map(_VALUES, constant), strict=True), strict=True))
    columns["extra"] = tuple(map(_extra, constant))
    arrays = {name: pa.array(values, READING_ROWS.field(name).type) for name, values in columns.items()}
    if kinds is not None:
        index = pa.array(kinds)
        arrays = {name: array.take(index) for name, array in arrays.items()}
    days = pc.floor(pc.divide(varying["time"].cast(pa.int64()).cast(pa.float64()), float(_DAY_US)))
    arrays["date"] = days.cast(pa.int32()).cast(pa.date32())
    arrays |= varying | arrived
    return pa.RecordBatch.from_arrays([arrays[name] for name in READING_ROWS.names], schema=READING_ROWS)


def _one_by_one(
    batch: Any, rows: list[int], dead_letter_topic: str
) -> tuple[dict[int, Reading], dict[int, tuple[Any, ...]]]:
    """What ``parse_reading`` says of each of these rows: the readings and the rejects, by row."""
    readings: dict[int, Reading] = {}
    rejects: dict[int, tuple[Any, ...]] = {}
    taken = batch.take(pa.array(rows, pa.int64()))
    received = taken["timestamp"].cast(pa.int64()).to_pylist()
    values, topics = taken["value"].to_pylist(), taken["topic"].to_pylist()
    for row, value, topic, received_us in zip(rows, values, topics, received, strict=True):
        try:
            if topic == dead_letter_topic:
                rejects[row] = _dead_letter(value, _source(batch, row))
            else:
                reading = parse_reading(value or b"", received_us)
                # What can't be written is no reading.
                _extra(reading)
                readings[row] = reading
        except InvalidReading as error:
            rejects[row] = _reject(error.reason, value, _source(batch, row))
    return readings, rejects


def _source(batch: Any, row: int) -> str | None:
    return _text(_first(batch["headers"][row].as_py(), _HEADER))


def _slow_rows(batch: Any, readings: dict[int, Reading], now: Any) -> Any:
    """Readings that were read one by one, as rows."""
    found = list(readings.values())
    times = pa.array([reading.time_us for reading in found], pa.int64())
    varying = {
        "time": times.cast(READING_ROWS.field("time").type),
        "value": pa.array([reading.value for reading in found], pa.float64()),
        "raw": pa.array([reading.raw for reading in found], pa.float64()),
        "seq": pa.array([reading.seq for reading in found], pa.int64()),
    }
    rows = np.fromiter(readings, np.int64, len(readings))
    arrived = _arrived(batch, rows, now)
    arrived["replayed"] = _replayed(batch["headers"].take(pa.array(rows)))
    return _reading_rows(found, None, varying, arrived)


def _gateway(key: str | None) -> str:
    """Whose record it is, as the key tells; '' where it doesn't."""
    name = (key or "").partition("/")[0]
    return name if GATEWAY_ID.fullmatch(name) else ""


def _reject_rows(batch: Any, rejects: dict[int, tuple[Any, ...]], now: Any) -> Any:
    rows = np.fromiter(rejects, np.int64, len(rejects))
    reasons, payloads, lengths, sources = zip(*rejects.values(), strict=True)
    taken = batch.take(pa.array(rows))
    keys = [_text(key) for key in taken["key"].to_pylist()]
    uncounted = pa.nulls(len(rows), pa.int64())
    columns = {
        "reason": pa.array(reasons, pa.string()),
        "payload": pa.array(payloads, pa.binary()),
        "payload_bytes": pa.array(lengths, pa.int64()),
        "key": pa.array(keys, pa.string()),
        "headers": taken["headers"].cast(REJECT_ROWS.field("headers").type),
        "source": pa.array(sources, pa.string()),
        "gateway": pa.array(map(_gateway, keys), pa.string()),
        "overflow": uncounted,
        "overflow_from": uncounted,
        **_arrived(batch, rows, now),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in REJECT_ROWS.names], schema=REJECT_ROWS)


def parse_batch(batch: Any, dead_letter_topic: str, templates: Templates) -> Parsed:
    """One Arrow batch of Kafka records; each is in exactly one of the two results."""
    now = pa.scalar(time.time_ns() // 1000, type=READING_ROWS.field("ingested_at").type)
    parts = []
    left = np.ones(batch.num_rows, bool)
    values = batch["value"]
    letters = pc.equal(batch["topic"], dead_letter_topic)
    if pc.any(letters).as_py():
        values = pc.if_else(letters, None, values)
    if matched := templates.match(values, batch["timestamp"]):
        left[matched.rows] = False
        varying = {name: getattr(matched, name) for name in _VARYING}
        arrived = _arrived(batch, matched.rows, now)
        replayed = _replayed(batch["headers"])
        arrived["replayed"] = replayed if not left.any() else replayed.take(pa.array(matched.rows))
        parts.append(_reading_rows(matched.templates, matched.kinds, varying, arrived))
    rejects = pa.RecordBatch.from_pylist([], schema=REJECT_ROWS)
    if left.any():
        slow, refused = _one_by_one(batch, np.flatnonzero(left).tolist(), dead_letter_topic)
        if slow:
            parts.append(_slow_rows(batch, slow, now))
        if refused:
            rejects = _reject_rows(batch, refused, now)
    empty = pa.RecordBatch.from_pylist([], schema=READING_ROWS)
    readings = parts[0] if len(parts) == 1 else pa.concat_batches(parts) if parts else empty
    return Parsed(readings, rejects)
