"""Spans of time in microseconds since the epoch: begin_us, and end_us (not included). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, functions as F

from spark_jobs.intervals import FOREVER_US


def periods_as_spans() -> Column:
    """A row for each of ``periods`` of a calibration record, ±FOREVER_US where it is unbounded."""
    spans = F.transform(
        "periods",
        lambda each: F.struct(
            F.coalesce(F.unix_micros(each["begin"]), F.lit(-FOREVER_US)).alias("begin_us"),
            F.coalesce(F.unix_micros(each["end"]), F.lit(FOREVER_US)).alias("end_us"),
        ),
    )
    return F.inline(spans)


def changed_spans(spans: DataFrame, key: Sequence[str], use: Sequence[str] = ()) -> DataFrame:
    """By key the time in which its spans, or what is made of them (``use``), are others than before.

    A row is a span; its ``sign`` is -1 for what was there, 1 for what is: states in between cancel out.
    """
    edge = F.explode(F.expr("map(true, begin_us, false, end_us)")).alias("begins", "at_us")
    return (
        spans.select(*key, *use, "sign", edge)
        .groupBy(*key, *use, "begins", "at_us")
        .agg(F.sum("sign").alias("sign"))
        .where("sign != 0")
        .groupBy(*key)
        .agg(F.min("at_us").alias("begin_us"), F.max("at_us").alias("end_us"))
    )
