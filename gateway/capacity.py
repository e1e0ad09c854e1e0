"""How much a config makes, and how long the outbox holds it. Pure arithmetic on measured figures."""

from __future__ import annotations

from typing import Final

from drivers.registry import driver_type
from gateway.config import Config

READING_BYTES: Final = 25
BLOCK_BYTES: Final = 276
"""At rest, measured (docs/durability.md): 25 bytes of a compressed payload a reading, and what each commit
adds: summary, checksums, its share of pages. Twelve readings a commit make 48 bytes a reading."""
_SECONDS_A_DAY: Final = 86_400
_LOG_BYTES: Final = 4 << 20


def channels(config: Config) -> int:
    """How many channels the sensors have."""
    return sum(len(driver_type(sensor.driver).channels) for sensor in config.sensors)


def readings_per_s(config: Config) -> float:
    """How many readings the gateway's own sensors make in a second."""
    return sum(len(driver_type(sensor.driver).channels) / sensor.interval_s for sensor in config.sensors)


def bytes_per_reading(config: Config) -> float:
    """What a reading takes in the outbox: a commit with few readings has its overhead all the same."""
    per_commit = max(readings_per_s(config) * config.outbox.commit_interval_s, 1.0)
    return READING_BYTES + BLOCK_BYTES / per_commit


def room_bytes(config: Config, used_bytes: int, free_bytes: int, ballast_bytes: int = 1 << 20) -> int:
    """What readings can fill altogether: the cap, or what the disk gives, less ballast and log."""
    log_bytes = 2 * min(_LOG_BYTES, config.outbox.max_bytes // 16)
    on_disk = used_bytes + max(free_bytes - config.outbox.min_free_disk, 0)
    return max(min(config.outbox.max_bytes, on_disk) - ballast_bytes - log_bytes, 0)


def days(room: float, config: Config) -> float:
    """How many days of readings fit into so many bytes; infinity where there are none."""
    per_day = readings_per_s(config) * bytes_per_reading(config) * _SECONDS_A_DAY
    return room / per_day if per_day else float("inf")
