"""Kafka records to readings or rejects, by the gateway's own validator.

Spark's ``from_json`` takes NaN, two objects, trailing bytes or an empty payload for good and raises on a bad
cast, so each payload goes through ``cloud.schema`` in Arrow batches instead. No byte string may stop a
query: everything that is not a reading comes out as a reject with a reason.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from cloud.schema import (
    DEAD_LETTER_PAYLOAD_BYTES,
    InvalidReading,
    Reading,
    parse_dead_letter,
    parse_reading,
)
from spark_jobs.schemas import PARSED

_UTC: Final = pa.timestamp("us", tz="UTC")

_FROM_READING: Final[tuple[tuple[str, Any], ...]] = (
    ("gateway", pa.string()),
    ("channel", pa.string()),
    ("run", pa.string()),
    ("seq", pa.int64()),
    ("quantity", pa.string()),
    ("unit", pa.string()),
    ("time_us", _UTC),
    ("period_ms", pa.int32()),
    ("value", pa.float64()),
    ("raw", pa.float64()),
    ("raw_unit", pa.string()),
    ("quality", pa.int32()),
    ("reasons", pa.list_(pa.string())),
    ("clock", pa.string()),
    ("cal", pa.string()),
    ("latitude", pa.float64()),
    ("longitude", pa.float64()),
    ("altitude_m", pa.float64()),
)
_VALUES: Final[Callable[[Reading], tuple[Any, ...]]] = attrgetter(*(name for name, _ in _FROM_READING))
_NO_READING: Final = (None,) * len(_FROM_READING)
_NO_REJECT: Final = (None, None, None, None)


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


def _text(scalar: Any) -> str | None:
    """A key's or header's bytes as text; what is not UTF-8 stays readable, escaped."""
    value: bytes | None = scalar.as_py()
    return None if value is None else value.decode("utf-8", "backslashreplace")


def parse_batch(batch: Any, dead_letter_topic: str) -> Any:
    """One Arrow batch of prepared Kafka records as one of the PARSED schema, in the same order."""
    topics, sources = batch["topic"].to_pylist(), batch["source"]
    received = batch["timestamp"].cast(pa.int64()).to_pylist()
    readings: list[tuple[Any, ...]] = []
    extras: list[str | None] = []
    rejects: list[tuple[Any, ...]] = []
    keys: list[str | None] = []
    # Only rejects keep their headers: taking a null index gives a null.
    rejected: list[int | None] = []
    for row, (value, topic, received_us) in enumerate(
        zip(batch["value"].to_pylist(), topics, received, strict=True)
    ):
        try:
            if topic == dead_letter_topic:
                reject = _dead_letter(value, _text(sources[row]))
            else:
                reading = parse_reading(value or b"", received_us)
                extras.append(_extra(reading))
                readings.append(_VALUES(reading))
                rejects.append(_NO_REJECT)
                keys.append(None)
                rejected.append(None)
                continue
        except InvalidReading as error:
            reject = _reject(error.reason, value, _text(sources[row]))
        readings.append(_NO_READING)
        extras.append(None)
        rejects.append(reject)
        keys.append(_text(batch["key"][row]))
        rejected.append(row)

    reading_columns = zip(zip(*readings, strict=True), _FROM_READING, strict=True)
    reasons, payloads, lengths, origins = zip(*rejects, strict=True)
    now = pa.scalar(time.time_ns() // 1000, type=_UTC)
    columns = [
        *(pa.array(values, type=kind) for values, (_, kind) in reading_columns),
        batch["replayed"],
        pa.array(extras, type=pa.string()),
        pa.array(reasons, type=pa.string()),
        pa.array(payloads, type=pa.binary()),
        pa.array(lengths, type=pa.int64()),
        pa.array(keys, type=pa.string()),
        batch["headers"].take(pa.array(rejected, type=pa.int64())),
        pa.array(origins, type=pa.string()),
        batch["topic"],
        batch["partition"],
        batch["offset"],
        batch["timestamp"],
        pa.repeat(now, len(readings)),
    ]
    return pa.RecordBatch.from_arrays(columns, names=PARSED.names)


def _parse_batches(batches: Iterable[Any], dead_letter_topic: str) -> Iterator[Any]:
    for batch in batches:
        if batch.num_rows:
            yield parse_batch(batch, dead_letter_topic)


def _header(name: str) -> Any:
    """Bytes of the first header of that name, or null."""
    matching = F.filter(F.col("headers"), lambda header: header["key"] == name)
    return F.try_element_at(matching, F.lit(1))["value"]


def validated(records: DataFrame, dead_letter_topic: str) -> DataFrame:
    """Kafka records (as the source gives them) to rows of PARSED: readings have a null ``reason``."""
    prepared = records.select(
        "value",
        "key",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "headers",
        F.coalesce(_header("replayed").cast("string") == "1", F.lit(False)).alias("replayed"),
        _header("mqtt-topic").alias("source"),
    )
    return prepared.mapInArrow(partial(_parse_batches, dead_letter_topic=dead_letter_topic), PARSED)
