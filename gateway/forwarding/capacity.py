"""How much a config makes, and how long the outbox holds it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

from buffer.errors import OutboxError
from buffer.files import free_bytes
from buffer.outbox_file import Limits
from buffer.reader import OutboxReader
from gateway.config import Config

_SECONDS_A_DAY: Final = 86_400
_COMMIT_BYTES: Final = ((1.0, 175.0), (2.0, 131.0), (12.0, 53.0), (40.0, 39.0), (600.0, 28.0))
"""Bytes a reading by readings a commit, growth of the file over 400 commits of simulated cups (measured)."""
_NEWEST_RECORDS: Final = 2_000
_FEW_RECORDS: Final = 200
# The file has the tree's pages beside its rows: 1 to 20 % of what the rows take (measured).
_TREE_SHARE: Final = 1.1
_READ_AGAIN_S: Final = 60.0
_IDLE_READER_BYTES: Final = 25e6
_LOOK_BYTES: Final = 809.0
_LOOK_EVERY_S: Final = 60.0
"""Of a reader on a connection of its own: idle in 30 days, or a look with a batch (both measured)."""


def channels(config: Config) -> int:
    """How many channels the sensors have."""
    return sum(len(sensor.channels) for sensor in config.sensors)


def readings_per_s(config: Config) -> float:
    """How many readings the gateway's own sensors make in a second."""
    return sum(len(sensor.channels) / sensor.interval_s for sensor in config.sensors)


def bytes_per_reading(config: Config) -> float:
    """What a reading takes in the outbox: as its newest blocks have it, or an estimate while they are few."""
    return _stored_bytes(config.outbox.path) or estimate(config)


def estimate(config: Config) -> float:
    """What a reading takes in the outbox, in bytes, by the number of readings that a commit stores."""
    return between(_COMMIT_BYTES, max(readings_per_s(config) * config.outbox.commit_interval_s, 1.0))


def between(points: tuple[tuple[float, float], ...], at: float) -> float:
    """The value at a place between measured points, by the logarithm of the place; the ends' beyond them."""
    for (left, before), (right, after) in pairwise(points):
        if at <= left:
            return before
        if at < right:
            return before + (after - before) * math.log(at / left) / math.log(right / left)
    return points[-1][1]


def _stored_bytes(path: Path) -> float | None:
    """Bytes a record in the newest blocks; None without an outbox, or with few records in it."""
    try:
        with OutboxReader(path) as reader:
            newest = reader.newest()
            after = 0 if newest is None else newest.first - _NEWEST_RECORDS
            found = [(block.count, block.size_bytes) for block in reader.blocks(after)]
    except OutboxError:
        return None
    records = sum(count for count, _ in found)
    return _TREE_SHARE * sum(size for _, size in found) / records if records >= _FEW_RECORDS else None


def room_bytes(config: Config, used_bytes: int, free_bytes: int) -> int:
    """What readings can fill altogether: the cap, or what the disk gives, less ballast and log.

    ``used_bytes`` is what the outbox takes already, ``free_bytes`` what is free beside it.
    """
    limits = Limits(config.outbox.max_bytes).with_ballast()
    on_disk = used_bytes + max(free_bytes - config.outbox.min_free_disk, 0)
    return max(min(config.outbox.max_bytes, on_disk) - limits.ballast_bytes - 2 * limits.log_bytes, 0)


def reader_bytes(config: Config) -> dict[str, float]:
    """What waiting for records from Kafka takes in 30 days, in bytes both ways, by section of the config."""
    month_s = 30 * _SECONDS_A_DAY
    if config.uplink.mode == "metered":
        each = _LOOK_BYTES * month_s / max(config.uplink.batch_s, _LOOK_EVERY_S)
    else:
        each = _IDLE_READER_BYTES
    reads = {"commands": bool(config.commands.allow), "downlink": bool(config.downlinks)}
    return {name: each for name, wanted in reads.items() if wanted}


def days(room: float, config: Config, per_reading: float) -> float:
    """How many days of readings fit into so many bytes; infinity where there are none."""
    per_day = readings_per_s(config) * per_reading * _SECONDS_A_DAY
    return room / per_day if per_day else float("inf")


class Forecast:
    """How many days the outbox would hold if Kafka went away now. Any thread may call it.

    What a reading takes is read once a minute at most, and for each config: ``(config, bytes, until_s)``.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._measured: tuple[Config, float, float] | None = None

    def days_left(self, config: Config, used_bytes: int, records: int) -> float | None:
        """Days until the first reading would be dropped; None where it isn't known or nothing is sampled.

        ``used_bytes`` is the outbox's size, ``records`` what waits in it.
        """
        try:
            free = free_bytes(config.outbox.path.parent)
        except OSError:
            return None
        measured, now_s = self._measured, self._monotonic()
        if measured is None or measured[0] is not config or now_s >= measured[2]:
            self._measured = measured = (config, bytes_per_reading(config), now_s + _READ_AGAIN_S)
        # A file doesn't shrink when it is emptied: what waits counts, not the file.
        room = room_bytes(config, used_bytes, free) - records * measured[1]
        left = days(max(room, 0.0), config, measured[1])
        return round(left, 2) if math.isfinite(left) else None
