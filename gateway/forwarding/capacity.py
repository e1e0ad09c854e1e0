"""How much a config makes, and how long the outbox holds it: measured with readings of that config."""

from __future__ import annotations

import heapq
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivers.registry import driver_type
from gateway.config import Config

if TYPE_CHECKING:
    from gateway.ports import Record

_SECONDS_A_DAY: Final = 86_400
_LOG_BYTES: Final = 4 << 20
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a directory of random name is made in it
# The dictionary is stored again after 64 and after 512 blocks; between them the file grows by readings only.
_FIRST_BLOCK, _LAST_BLOCK = 100, 500


def channels(config: Config) -> int:
    """How many channels the sensors have."""
    return sum(len(driver_type(sensor.driver).channels_of(sensor.options)) for sensor in config.sensors)


def readings_per_s(config: Config) -> float:
    """How many readings the gateway's own sensors make in a second."""
    return sum(
        len(driver_type(sensor.driver).channels_of(sensor.options)) / sensor.interval_s
        for sensor in config.sensors
    )


def bytes_per_reading(config: Config) -> float:
    """What a reading takes in the outbox, measured with commits as this config makes them.

    From 48 bytes at twelve readings a commit to some 500 at one. 0 without sensors. Raises OutboxError.
    """
    # Here: measuring takes the outbox in, and checking a config doesn't need that.
    from buffer.reader import OutboxReader
    from buffer.sqlite_outbox import SqliteOutbox
    from gateway.forwarding.record_codec import to_bytes
    from gateway.forwarding.seq_summary import summarise

    if not config.sensors:
        return 0.0
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as directory:
        path = Path(directory) / "outbox.db"
        outbox = SqliteOutbox(path)
        try:
            readings = begin_bytes = 0
            for block, records in enumerate(_commits(config)):
                if block == _FIRST_BLOCK:
                    with OutboxReader(path) as reader:
                        readings, begin_bytes = 0, reader.database_bytes()
                outbox.append(list(map(to_bytes, records)), summarise(records))
                readings += len(records)
            with OutboxReader(path) as reader:
                return (reader.database_bytes() - begin_bytes) / readings
        finally:
            outbox.close()


def room_bytes(config: Config, used_bytes: int, free_bytes: int, ballast_bytes: int = 1 << 20) -> int:
    """What readings can fill altogether: the cap, or what the disk gives, less ballast and log.

    ``used_bytes`` is what the outbox takes already, ``free_bytes`` what is free beside it.
    """
    log_bytes = 2 * min(_LOG_BYTES, config.outbox.max_bytes // 16)
    on_disk = used_bytes + max(free_bytes - config.outbox.min_free_disk, 0)
    return max(min(config.outbox.max_bytes, on_disk) - ballast_bytes - log_bytes, 0)


def days(room: float, config: Config, per_reading: float) -> float:
    """How many days of readings fit into so many bytes; infinity where there are none."""
    per_day = readings_per_s(config) * per_reading * _SECONDS_A_DAY
    return room / per_day if per_day else float("inf")


@dataclass(frozen=True, slots=True, order=True)
class _Due:
    at_s: float
    channel: str
    interval_s: float


def _commits(config: Config) -> Iterator[list[Record]]:
    """What the first commits of an outage would bring, with made-up values that change as a sensor's do."""
    from cloud.wire.schema import Reading, encode_reading, format_time, reading_key, reading_topic
    from gateway.ports import Record

    values = random.Random(1)  # noqa: S311 - not a secret
    due = [
        _Due(0.0, f"{sensor.name}.{channel.quantity}", sensor.interval_s)
        for sensor in config.sensors
        for channel in driver_type(sensor.driver).channels_of(sensor.options)
    ]
    heapq.heapify(due)
    seqs = dict.fromkeys((each.channel for each in due), 0)
    levels = dict.fromkeys(seqs, 10_000)
    gateway, interval_s = config.gateway.id, config.outbox.commit_interval_s
    for _ in range(_LAST_BLOCK):
        until_s = (due[0].at_s // interval_s + 1) * interval_s
        records = []
        while due[0].at_s < until_s:
            now = heapq.heappop(due)
            heapq.heappush(due, _Due(now.at_s + now.interval_s, now.channel, now.interval_s))
            seqs[now.channel] += 1
            levels[now.channel] += values.randint(-20, 20)
            sensor, _, quantity = now.channel.partition(".")
            time_us = 1_767_225_600_000_000 + round(now.at_s * 1_000_000)
            raw = levels[now.channel] / 5_333
            reading = Reading(
                gateway=gateway, channel=now.channel, quantity=quantity, unit="m/s", time_us=time_us,
                period_ms=round(now.interval_s * 1000), value=raw * 0.765 + 0.35, raw=raw, raw_unit="V",
                quality=1, reasons=(), run="9f3c21ab04de", seq=seqs[now.channel], clock="synced",
                cal="5d1c0a7e",
            )  # fmt: skip
            headers = (
                ("mqtt-topic", f"{config.mqtt.topic_root}/{gateway}/{sensor}/{quantity}".encode()),
                ("received-at", format_time(time_us + 1000 * values.randint(1, 999)).encode()),
            )
            topic = reading_topic(config.kafka.topic, quantity)
            records.append(Record(topic, reading_key(gateway, now.channel), encode_reading(reading), headers))
        yield records
