"""What a user could write instead of the jobs: Kafka into Delta tables, each reading once, and statistics.

    python -m tests.bench.hand_pipeline SERVERS DIRECTORY

It reads all ``mqtt.*`` topics to their ends, with msgspec, Arrow, DuckDB and delta-rs. It has no checkpoint,
one process and no defence against a kill, and it computes the statistics of each touched date anew.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition
from deltalake import DeltaTable, write_deltalake

_BATCH: Final = 250_000
_TIME: Final = pa.timestamp("us", "UTC")


class _Reading(msgspec.Struct, gc=False):
    gateway: str
    channel: str
    run: str
    seq: int
    quantity: str
    unit: str
    time: datetime
    period_ms: int
    value: float | None
    raw: float | None
    raw_unit: str | None
    quality: int
    reasons: list[str]
    clock: str
    cal: str | None


_decode: Final = msgspec.json.Decoder(_Reading).decode
_NEW: Final = """
    select distinct on (gateway, channel, run, seq) * from batch
    anti join stored using (gateway, channel, run, seq) order by kafka_time
"""
_STATISTICS: Final = """
    select gateway, channel, time_bucket(interval 10 minutes, time) as interval_start, count(value) as count,
        avg(value) as avg, stddev_samp(value) as sd, min(value) as min, max(value) as max, date
    from readings where date in (select unnest(?)) and quality <= 2 group by all
"""


def _parsed(messages: Sequence[Message]) -> tuple[Any, Any]:
    """The readings and the rejects of messages, as Arrow tables."""
    good, places, rejects = [], [], []
    for message in messages:
        place = message.topic(), message.partition(), message.offset(), message.timestamp()[1]
        try:
            good.append(_decode(message.value() or b""))
            places.append(place)
        except msgspec.MsgspecError as error:
            rejects.append((str(error), message.value(), *place))
    columns: dict[str, Any] = {
        name: [getattr(each, name) for each in good] for name in _Reading.__struct_fields__
    }
    columns["time"] = pa.array(columns["time"], _TIME)
    columns["date"] = columns["time"].cast(pa.date32())
    where = ("kafka_topic", "kafka_partition", "kafka_offset", "kafka_time")
    columns |= {name: [place[at] for place in places] for at, name in enumerate(where)}
    columns["kafka_time"] = pa.array(columns["kafka_time"], pa.timestamp("ms", "UTC")).cast(_TIME)
    columns["ingested_at"] = pa.array([datetime.now(UTC)] * len(good), _TIME)
    names = ("reason", "payload", *where)
    return pa.table(columns), pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rejects])


def _store(batch: Any, place: str) -> None:
    """Appends what is new: only files with times of the batch can have a repeat."""
    database = duckdb.connect()
    database.register("batch", batch)
    stored = "select gateway, channel, run, seq from batch where false"
    if DeltaTable.is_deltatable(place):
        database.register("there", DeltaTable(place).to_pyarrow_dataset())
        stored = (
            "select gateway, channel, run, seq from there, "
            "(select min(time) as low, max(time) as high from batch) where time between low and high"
        )
    database.execute(f"create table stored as {stored}")
    new: Any = database.execute(_NEW).to_arrow_table()
    if new.num_rows:
        write_deltalake(place, new, mode="append", partition_by=["date"])


def main() -> None:
    """Reads to the ends that the topics have now."""
    servers, directory = sys.argv[1], Path(sys.argv[2])
    readings, quarantine, statistics = (
        str(directory / name) for name in ("readings", "quarantine", "statistics")
    )
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "hand", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 262_144,
        }
    )  # fmt: skip
    topics = [each for name, each in consumer.list_topics().topics.items() if name.startswith("mqtt.")]
    places = [TopicPartition(str(each.topic), number, 0) for each in topics for number in each.partitions]
    left = sum(consumer.get_watermark_offsets(place)[1] for place in places)
    consumer.assign(places)
    dates: set[Any] = set()
    while left:
        messages = [each for each in consumer.consume(_BATCH, 1.0) if each.error() is None]
        left -= len(messages)
        if messages:
            batch, rejects = _parsed(messages)
            dates |= set(batch["date"].unique().to_pylist())
            _store(batch, readings)
            if rejects.num_rows:
                write_deltalake(quarantine, rejects, mode="append")
    consumer.close()
    database = duckdb.connect()
    database.register("readings", DeltaTable(readings).to_pyarrow_dataset())
    found: Any = database.execute(_STATISTICS, [sorted(dates)]).to_arrow_table()
    write_deltalake(statistics, found, mode="overwrite", partition_by=["date"])


if __name__ == "__main__":
    main()
