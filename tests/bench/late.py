"""What one late hour of one gateway costs in a long table and in a short one.

    python -m tests.bench.late --gateways 100 --days 30

Prints rows for docs/performance.md. The lakes are made here: readings of one a minute and their ten-minute
statistics, each day compacted and clustered by gateway, channel and time, as maintenance leaves them, but for
the hours that then come late. Measured is the statistics job's own batch, from the change feed to the merged
rows: seconds, CPU seconds of the JVM, and all bytes that Hadoop's file systems read, Delta's log included.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from spark_jobs.jobs.statistics import StatisticsJob
from spark_jobs.platform.schemas import READINGS, STATISTICS, Table
from spark_jobs.platform.session import spark_session
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table, table_version
from tests.bench.figures import cpu_s

_BEGIN_S: Final = 1_780_272_000
"""2026-06-01T00:00Z."""
_DAY_S: Final = 86_400
_PERIOD_S: Final = 60
_CHANNELS: Final = 12
_INTERVAL_S: Final = 600
_FILES_A_DAY: Final = 2


def _series(spark: SparkSession, gateways: int, begin_s: int, end_s: int, step_s: int) -> DataFrame:
    """gateway, channel, second; a day after the other, within it by gateway, channel and time."""
    a_day = min(_DAY_S, end_s - begin_s) // step_s
    days = -(-(end_s - begin_s) // _DAY_S)
    count = days * gateways * _CHANNELS * a_day
    ids = spark.range(0, count, 1, days * _FILES_A_DAY)
    series, at = F.floor(F.col("id") / a_day), F.col("id") % a_day
    day = F.floor(series / (gateways * _CHANNELS))
    return ids.select(
        F.format_string("mast-%03d", F.floor(series / _CHANNELS) % gateways).alias("gateway"),
        F.format_string("s%02d.wind_speed", series % _CHANNELS).alias("channel"),
        (begin_s + day * _DAY_S + at * step_s).alias("second"),
        "id",
    )


def _complete(rows: DataFrame, table: Table, given: dict[str, Column]) -> DataFrame:
    """All columns of a table; those that aren't given are null."""
    return rows.select(
        *(given.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in table.schema)
    )


def readings(spark: SparkSession, gateways: int, begin_s: int, end_s: int) -> DataFrame:
    """One reading a minute of each channel, in whole days or in a part of one."""
    rows = _series(spark, gateways, begin_s, end_s, _PERIOD_S)
    moment = F.timestamp_seconds("second")
    pulses = F.floor(F.rand(7) * 20)
    return _complete(
        rows,
        READINGS,
        {
            "gateway": F.col("gateway"),
            "channel": F.col("channel"),
            "run": F.lit("9f3c21ab04de"),
            "seq": (F.col("second") - _BEGIN_S) / _PERIOD_S + 1,
            "quantity": F.lit("wind_speed"),
            "unit": F.lit("m/s"),
            "time": moment,
            "period_ms": F.lit(_PERIOD_S * 1000),
            "value": pulses * 0.765 + 0.35,
            "raw": pulses,
            "raw_unit": F.lit("Hz"),
            "quality": F.lit(1),
            "reasons": F.array().cast("array<string>"),
            "clock": F.lit("synced"),
            "cal": F.lit("5d1c0a7e"),
            "replayed": F.lit(False),
            "kafka_topic": F.lit("mqtt.wind_speed"),
            "kafka_partition": F.lit(0),
            "kafka_offset": F.col("id"),
            "kafka_time": moment,
            "ingested_at": moment,
            "date": F.to_date(moment),
        },
    )


def statistics(spark: SparkSession, gateways: int, days: int) -> DataFrame:
    """Closed rows of every interval; what the values are makes no difference to the cost."""
    rows = _series(spark, gateways, _BEGIN_S, _BEGIN_S + days * _DAY_S, _INTERVAL_S)
    moment, due = F.timestamp_seconds("second"), _INTERVAL_S // _PERIOD_S
    return _complete(
        rows,
        STATISTICS,
        {
            "gateway": F.col("gateway"),
            "channel": F.col("channel"),
            "interval_s": F.lit(_INTERVAL_S),
            "interval_start": moment,
            "quantity": F.lit("wind_speed"),
            "unit": F.lit("m/s"),
            **{name: F.rand(3) * 20 for name in ("avg", "min", "max", "sd", "cube_mean")},
            "count": F.lit(due),
            "expected": F.lit(float(due)),
            "recovery": F.lit(1.0),
            "period_ms": F.lit(_PERIOD_S * 1000),
            "n_good": F.lit(due),
            **{name: F.lit(0) for name in ("n_not_evaluated", "n_suspect", "n_fail", "n_missing")},
            "quality": F.lit(1),
            "version": F.lit(1),
            "updated_at": moment,
            "date": F.to_date(moment),
        },
    )


@dataclass
class Lake:
    """A lake of so many days, and the job over it."""

    spark: SparkSession
    settings: Settings
    gateways: int
    days: int
    rounds: int

    def make(self) -> float:
        """Writes the tables; seconds."""
        began_s = time.monotonic()
        everything = readings(self.spark, self.gateways, _BEGIN_S, _BEGIN_S + self.days * _DAY_S)
        late = (F.col("gateway") <= f"mast-{self.rounds:03d}") & F.col("time").between(*self._noon())
        self._write(READINGS, everything.where(~late))
        self._write(STATISTICS, statistics(self.spark, self.gateways, self.days))
        return time.monotonic() - began_s

    def _write(self, table: Table, rows: DataFrame) -> None:
        location = ensure_table(self.spark, self.settings, table)
        rows.write.format("delta").mode("append").save(location)

    def start(self) -> float:
        """Makes the job, which takes up where it was; seconds."""
        began_s = time.monotonic()
        self._job = StatisticsJob(self.spark, self.settings)
        return time.monotonic() - began_s

    def _noon(self) -> tuple[Column, Column]:
        """First and last second of the hour that comes late: noon of the middle day."""
        begin_s = _BEGIN_S + self.days // 2 * _DAY_S + _DAY_S // 2
        return F.timestamp_seconds(F.lit(begin_s)), F.timestamp_seconds(F.lit(begin_s + 3599))

    def late_hour(self, number: int) -> tuple[float, float, int]:
        """The hour of a gateway comes late: seconds, CPU seconds and bytes read to correct it."""
        location = self.settings.table(READINGS.name)
        gateway = f"mast-{number:03d}"
        day_s = _BEGIN_S + self.days // 2 * _DAY_S
        hour = readings(self.spark, self.rounds + 1, day_s, day_s + _DAY_S).where(F.col("gateway") == gateway)
        hour = hour.where(F.col("time").between(*self._noon()))
        hour.coalesce(1).write.format("delta").mode("append").save(location)
        version = table_version(self.spark, location)
        changes = (
            self.spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", version)
            .load(location)
        )
        began_s, used_s, read = time.monotonic(), _cpu_s(self.spark), _bytes_read(self.spark)
        self._job.batch(changes, version)
        figures = (time.monotonic() - began_s, _cpu_s(self.spark) - used_s, _bytes_read(self.spark) - read)
        table = self.spark.read.format("delta").load(self.settings.table(STATISTICS.name))
        corrected = table.where((F.col("gateway") == gateway) & (F.col("version") == 2)).count()
        assert corrected == _CHANNELS * 3600 // _INTERVAL_S, corrected
        return figures


def _bytes_read(spark: SparkSession) -> int:
    jvm: Any = spark._jvm
    return sum(each.getBytesRead() for each in jvm.org.apache.hadoop.fs.FileSystem.getAllStatistics())


def _cpu_s(spark: SparkSession) -> float:
    gateway: Any = spark.sparkContext._gateway
    return cpu_s(gateway.proc.pid)


def _middle(found: list[tuple[float, float, int]]) -> tuple[float, float, float]:
    seconds, cpu, read = zip(*found, strict=True)
    return median(seconds), median(cpu), median(read)


def main() -> int:
    parser = argparse.ArgumentParser(description="the cost of a late hour in a long table and in a short one")
    parser.add_argument("--gateways", type=int, default=100)
    parser.add_argument("--days", type=int, default=30, help="of the long table (default: 30)")
    parser.add_argument("--short", type=int, default=3, help="days of the short one (default: 3)")
    parser.add_argument("--rounds", type=int, default=5, help="gateways whose hour comes late (default: 5)")
    parser.add_argument("--directory", type=Path, help="where to make the lakes (default: a temporary one)")
    options = parser.parse_args()
    rows = [
        days * options.gateways * _CHANNELS * _DAY_S // _PERIOD_S for days in (options.short, options.days)
    ]
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        # A row is some 25 bytes on the disk.
        if shutil.disk_usage(name).free < 60 * sum(rows):
            sys.stderr.write(f"not enough room in {name} for {sum(rows):,} rows\n")
            return 1
        base = Settings(jobs=("statistics",), bootstrap_servers="none:1", lake=name, checkpoints=name)
        spark = spark_session(base, app="fieldgate-bench")
        lakes = [
            Lake(
                spark,
                Settings(
                    **{**vars(base), "lake": f"{name}/{days}", "checkpoints": f"{name}/{days}-checkpoints"}
                ),
                options.gateways,
                days,
                options.rounds,
            )
            for days in (options.short, options.days)
        ]
        made = [lake.make() for lake in lakes]
        # The first start and the first rounds warm the JVM up.
        lakes[0].start()
        started = [lake.start() for lake in lakes]
        for lake in lakes:
            lake.late_hour(0)
        found: list[list[tuple[float, float, int]]] = [[], []]
        for number in range(1, options.rounds + 1):
            for lake, figures in zip(lakes, found, strict=True):
                figures.append(lake.late_hour(number))
        short, long = (_middle(each) for each in found)
        load = os.getloadavg()[0]
        spark.stop()
    rows_shown = [
        ("readings, long / short table", f"{rows[1]:,} / {rows[0]:,}"),
        (
            "a late hour of one gateway, long / short",
            f"{long[0]:.2f} / {short[0]:.2f} s, ratio {long[0] / short[0]:.2f}",
        ),
        ("its CPU seconds", f"{long[1]:.2f} / {short[1]:.2f}, ratio {long[1] / short[1]:.2f}"),
        ("bytes read", f"{long[2]:,.0f} / {short[2]:,.0f}, ratio {long[2] / short[2]:.2f}"),
        ("start of the job", f"{started[1]:.1f} / {started[0]:.1f} s"),
        ("making the tables", f"{made[1]:.0f} / {made[0]:.0f} s"),
        ("load average", f"{load:.1f}"),
    ]
    sys.stdout.writelines(f"| {what} | {figure} |\n" for what, figure in rows_shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
