"""Other devices' messages (``mqtt.raw``) to rows of ``messages``: the payload as it is, the rest of headers.

Only expressions, so that payloads of any size never pass through Python. Whatever the headers hold, the row
is made: an identity that isn't whole is left out, and ``headers`` has them as they came.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame, functions as F

from cloud.wire.reading_records import CHANNEL_ID, GATEWAY_ID, RUN_ID
from spark_jobs.platform.schemas import MESSAGES

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
