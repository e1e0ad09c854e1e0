"""``jobs size``: what a fleet needs of a machine, by its count of masts or by what a lake has of a day."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from cloud.values import duration_s
from spark_jobs.platform.errors import SettingsError
from spark_jobs.platform.schemas import READINGS
from spark_jobs.platform.session import running_session
from spark_jobs.platform.settings import Settings

DESCRIPTION: Final = "estimates cores, memory and disk for a fleet"

_DAY_S: Final = 86_400
# Measured on two cores (docs/performance.md). What a batch costs hardly depends on how many readings it has:
# the first figure of a pair is per process, the second per reading.
_LIVE_CORES: Final = (0.8, 110e-6)
_SELDOM_CORES: Final = (0.4, 90e-6)
_ONCE_S: Final = (60.0, 80e-6)
_MEMORY_GB: Final = (2.7, 20e-6)
"""The second is per channel."""
_KAFKA_BYTES: Final = 350.0
_READING_BYTES: Final = 12.0


@dataclass(frozen=True)
class Fleet:
    """How many masts and channels there are, readings a second, and a reading's bytes in the lake."""

    masts: int
    channels: int
    rate: float
    reading_bytes: float = _READING_BYTES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``jobs size``."""
    parser.add_argument("--masts", type=int, metavar="N", help="in place of what the lake has")
    parser.add_argument("--channels", type=int, default=12, metavar="N", help="of a mast (default: 12)")
    parser.add_argument("--every", type=duration_s, default=1.0, metavar="TIME", help="of each (default: 1s)")


def estimate(fleet: Fleet) -> dict[str, str]:
    """What a fleet needs, in the words of the page on sizes."""

    def machine(figures: tuple[float, float]) -> str:
        cores = figures[0] + figures[1] * fleet.rate
        memory = _MEMORY_GB[0] + _MEMORY_GB[1] * fleet.channels
        # Half as much again, to make good for an outage, and a core and 2 GB for Kafka and the system.
        needed = [2 ** math.ceil(math.log2(each)) for each in (1.5 * cores + 1, memory + 2)]
        return f"{cores:.1f} cores, {memory:.1f} GB: a machine of {needed[0]} cores, {needed[1]} GB"

    once_s = _ONCE_S[0] + _ONCE_S[1] * fleet.rate * 3600
    day = fleet.rate * _DAY_S
    return {
        "fleet": f"{fleet.masts:,} masts, {fleet.channels:,} channels, {fleet.rate:,.0f} readings a second",
        "all jobs, live": machine(_LIVE_CORES),
        "--trigger 30s": f"{machine(_SELDOM_CORES)} (without alerts)",
        "--once each hour": f"{math.ceil(once_s / 60):,} minutes of a core, 2 GB",
        "Kafka, a week": f"{7 * day * _KAFKA_BYTES / 1e9:,.1f} GB uncompressed on each replica",
        "lake, 30 days": f"{30 * day * fleet.reading_bytes / 1e9:,.1f} GB of readings",
    }


def _of_lake(settings: Settings) -> Fleet:
    """The fleet by the day before a lake's newest one, which isn't over. Raises SettingsError."""
    location, instead = settings.table(READINGS.name), "name another --lake, or give --masts"
    with running_session(settings, "fieldgate-size") as spark:
        if not DeltaTable.isDeltaTable(spark, location):
            raise SettingsError(f"{location} is no table: {instead}")
        readings = spark.read.format("delta").load(location)
        newest, rows = readings.agg(F.max("date"), F.count("*")).first() or (None, 0)
        if newest is None:
            raise SettingsError(f"{location} has no reading: {instead}")
        day = readings.where(F.col("date") == newest - timedelta(days=1))
        counts = (F.count("*"), F.countDistinct("gateway"), F.countDistinct("gateway", "channel"))
        found, masts, channels = day.agg(*counts).first() or (0, 0, 0)
        if not found:
            raise SettingsError(f"{location} has no reading of the day before {newest}: {instead}")
        [size] = DeltaTable.forPath(spark, location).detail().select("sizeInBytes").first() or [0]
        return Fleet(masts, channels, found / _DAY_S, size / rows)


def main(options: argparse.Namespace, settings: Settings) -> None:
    """Prints the estimate."""
    if options.masts is not None and min(options.masts, options.channels, options.every) <= 0:
        raise SettingsError("--masts, --channels and --every must be above 0")
    channels = (options.masts or 0) * options.channels
    given = options.masts is not None
    fleet = Fleet(options.masts, channels, channels / options.every) if given else _of_lake(settings)
    for what, needed in estimate(fleet).items():
        print(f"{what:<18} {needed}")
    print("Measured on two cores up to 12,000 readings a second; what is beyond is reckoned.")
