"""The channels of a mast, interval by interval, each as it was mounted then: pure."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, functions as F

from spark_jobs.transforms.spans import periods_as_spans

QUANTITIES: Final = ("wind_speed", "wind_direction", "temperature", "humidity", "pressure", "irradiance")
"""What is looked at: no other channel holds a row up."""


def periods_in_force(channels: DataFrame) -> DataFrame:
    """One row per (gateway, channel) with the ``periods`` of all its records: when, how high, whose twin."""
    twin = F.concat("pair", F.lit("."), "quantity").alias("twin")
    period = F.struct("begin_us", "end_us", "revision", "cal", "height_m", "twin")
    each = channels.select("gateway", "channel", "revision", "cal", "height_m", twin, periods_as_spans())
    return each.groupBy("gateway", "channel").agg(F.collect_list(period).alias("periods"))


def _in_force(interval_s: int) -> Column:
    """The period most of the interval lies in; of two equal ones the later, then that of the newer record."""
    begin_us = F.unix_micros("interval_start")
    end_us = begin_us + interval_s * 1_000_000

    def inside_us(period: Column) -> Column:
        return F.least(period["end_us"], end_us) - F.greatest(period["begin_us"], begin_us)

    def ranked(period: Column) -> Column:
        rank = (period[name].alias(name) for name in ("begin_us", "revision", "cal", "height_m", "twin"))
        return F.struct(inside_us(period).alias("inside_us"), *rank)

    touching = F.filter("periods", lambda period: inside_us(period) > 0)
    return F.array_max(F.transform(touching, ranked))


def mounted_channels(statistics: DataFrame, channels: DataFrame, interval_s: int) -> DataFrame:
    """One row per (gateway, interval_start) in which every channel is closed, with its ``channels``.

    ``statistics`` are all rows of whole intervals of ``interval_s`` seconds, ``channels`` the calibration
    records of their gateways. ``channels`` of the result: channel, quantity, avg, sd, cube_mean, recovery,
    height_m and twin (a channel's name) of each, in no order.
    """
    looked_at = statistics.where(F.col("quantity").isin(*QUANTITIES))
    mounted = looked_at.join(F.broadcast(periods_in_force(channels)), ["gateway", "channel"], "left").select(
        *looked_at.columns, _in_force(interval_s).alias("in_force")
    )
    channel = F.struct(
        *("channel", "quantity", "avg", "sd", "cube_mean", "recovery"),
        F.col("in_force.height_m").alias("height_m"),
        F.col("in_force.twin").alias("twin"),
    )
    return (
        mounted.groupBy("gateway", "interval_start")
        .agg(F.collect_list(channel).alias("channels"), F.min("version").alias("version"))
        .where(F.col("version") > 0)
        .drop("version")
    )
