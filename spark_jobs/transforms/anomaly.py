"""Interval statistics to anomaly scores, each from its interval and the two before it; and to models."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.types import StructField, StructType

from spark_jobs.anomaly.model import Packed
from spark_jobs.anomaly.observations import FIELDS, WINDOW, Observations, broken_rules, gather
from spark_jobs.anomaly.scoring import ready, score
from spark_jobs.anomaly.training import Choices, TooLittleDataError, train
from spark_jobs.platform.intervals import SECOND_US
from spark_jobs.platform.schemas import ANOMALIES, columns

Models = Mapping[str, Packed]
"""The models in use by gateway. They travel to the workers with the plan."""

_ENTRIES: Final = ("lag", "channel", *FIELDS)
_JUDGED: Final = ("score", "threshold", "model_version", "channels", "rules", "missing")
JUDGEMENT: Final = StructType([StructField(name, ANOMALIES.schema[name].dataType) for name in _JUDGED])


def touched(changes: DataFrame, interval_s: int) -> DataFrame:
    """The (gateway, interval_start) whose scores changed statistics touch: theirs and the next two.

    Open intervals (version 0) touch none: of a few seconds neither a mean nor an sd counts. The two that
    follow may not exist yet; ``windows`` gives no row for such.
    """
    now = F.col("_change_type") != "update_preimage"
    return (
        changes.where((F.col("version") >= 1) & (F.col("interval_s") == interval_s) & now)
        .select("gateway", "interval_start")
        .distinct()
        .withColumn("lag", F.explode(_lags()))
        .select("gateway", _later(interval_s).alias("interval_start"))
        .distinct()
    )


def _lags() -> Column:
    return F.sequence(F.lit(0), F.lit(WINDOW - 1))


def _later(interval_s: int) -> Column:
    """The start of the interval ``lag`` intervals after."""
    return F.timestamp_micros(F.unix_micros("interval_start") + F.col("lag") * (interval_s * SECOND_US))


def windows(statistics: DataFrame, targets: DataFrame | None, interval_s: int) -> DataFrame:
    """One row per target interval: gateway, interval_start, and arrays of ``lag``, ``channel`` and FIELDS.

    ``targets`` hold (gateway, interval_start); without them every interval is one. An interval without a
    closed row of its own isn't.
    """
    number = F.col("n_suspect") + F.col("n_fail")
    # Of directions, sums and states, a config's own too, neither a median nor a difference is one of plain
    # numbers. The first have no maximum, the others a sum or changes.
    plain = F.col("max").isNotNull() & F.col("sum").isNull() & F.col("changes").isNull()
    entries = statistics.where((F.col("version") >= 1) & (F.col("interval_s") == interval_s)).select(
        "gateway",
        "interval_start",
        F.explode(_lags()).alias("lag"),
        "channel",
        F.when(plain, F.col("avg")).alias("avg"),
        "sd",
        "max",
        "recovery",
        F.try_divide(number, number + F.col("count")).alias("doubted"),
    )
    entries = entries.withColumn("interval_start", _later(interval_s))
    if targets is not None:
        entries = entries.join(targets, ["gateway", "interval_start"], "left_semi")
    fields = [F.coalesce(F.col(name), F.lit(float("nan"))).alias(name) for name in FIELDS]
    # In order, so that the same rows give the same arrays whatever way they came.
    collected = F.sort_array(F.collect_list(F.struct("lag", "channel", *fields)))
    rows = entries.groupBy("gateway", "interval_start").agg(collected.alias("entries"))
    rows = rows.where(F.element_at("entries", 1)["lag"] == 0)
    return rows.select(
        "gateway", "interval_start", *(F.col("entries")[name].alias(name) for name in _ENTRIES)
    )


def judge(packed: Packed | None, seen: Observations) -> pd.DataFrame:
    """Columns of JUDGEMENT for intervals of one mast; without a model the rules alone."""
    rows: dict[str, list[Any]] = {name: [None] * len(seen) for name in _JUDGED}
    rows["rules"] = broken_rules(seen)
    rows["channels"] = [[] for _ in range(len(seen))]
    rows["missing"] = [[] for _ in range(len(seen))]
    if packed is not None:
        model, network = ready(packed)
        names = np.array((*model.layout.channels, *model.layout.context))
        scores = score(model, network, seen)
        rows["score"] = [None if np.isnan(value) else float(value) for value in scores.score]
        rows["threshold"] = [model.threshold] * len(seen)
        rows["model_version"] = [packed.version] * len(seen)
        rows["channels"] = [
            [
                {"channel": name, "share": share}
                for name, share in scores.deviating(row, model.layout.channels)
            ]
            for row in range(len(seen))
        ]
        rows["missing"] = [[str(name) for name in names[flags]] for flags in scores.missing]
    return pd.DataFrame(rows, columns=list(_JUDGED))


def _judge_frames(frames: Iterable[pd.DataFrame], models: Models) -> Iterator[pd.DataFrame]:
    for frame in frames:
        for gateway, rows in frame.groupby("gateway", sort=False):
            seen = gather({name: rows[name].to_numpy() for name in _ENTRIES})
            judged = judge(models.get(str(gateway)), seen).set_index(rows.index)
            yield rows[["gateway", "interval_start"]].join(judged)


def anomaly_rows(rows: DataFrame, models: Models, interval_s: int) -> DataFrame:
    """Rows of ``windows`` to those of ``anomalies``, but for version and updated_at."""
    key = [rows.schema[name] for name in ("gateway", "interval_start")]
    judged = rows.mapInPandas(partial(_judge_frames, models=models), StructType([*key, *JUDGEMENT]))
    return judged.select(
        "gateway",
        F.lit(interval_s).alias("interval_s"),
        "interval_start",
        F.to_date("interval_start").alias("date"),
        *_JUDGED,
    )


TRAINED: Final = columns("model: string, document network: binary, problem: string, seconds: double")
_APART_S: Final = 36_525 * 86_400
"""Several masts are learnt as one, a century after the other: their days and windows stay apart."""

Spans = Sequence[tuple[float, float]]
"""Periods, seconds since the epoch; the end isn't included."""


def _train(frame: pd.DataFrame, interval_s: int, excluded: Spans, choices: Choices) -> pd.DataFrame:
    """The model of a group's rows, or why there is none."""
    began, (name,) = time.monotonic(), frame["model"].unique()
    frame = frame.sort_values(["gateway", "interval_start"])
    starts_s = frame["interval_start"].to_numpy("datetime64[s]").astype(np.int64)
    out = np.zeros(len(frame), dtype=bool)
    for begin_s, end_s in excluded:
        out |= (starts_s >= begin_s) & (starts_s < end_s)
    numbers, gateways = pd.factorize(frame["gateway"])
    seen = gather({name: frame[name].to_numpy() for name in _ENTRIES})
    row: tuple[Any, ...]
    try:
        made = train(name, interval_s, seen, starts_s + numbers * _APART_S, out, choices)
    except TooLittleDataError as error:
        row = name, None, None, str(error)
    else:
        model = replace(made.model, facts={**made.model.facts, "gateways": len(gateways)})
        row = name, model.document(), made.network(), None
    return pd.DataFrame([(*row, time.monotonic() - began)], columns=TRAINED.names)


def trained_models(
    rows: DataFrame, groups: DataFrame, tasks: int, interval_s: int, excluded: Spans, choices: Choices
) -> DataFrame:
    """Rows of ``windows`` to models (TRAINED), one for each group, in so many tasks.

    ``groups`` (small): gateway and ``model``. Workers need scikit-learn and skl2onnx.
    """
    training = partial(_train, interval_s=interval_s, excluded=excluded, choices=choices)
    grouped = rows.join(F.broadcast(groups), "gateway").repartition(tasks, "model").groupBy("model")
    return grouped.applyInPandas(training, TRAINED)
