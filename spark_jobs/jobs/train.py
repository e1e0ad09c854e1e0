"""``jobs train``: a model per gateway from a period of its statistics, stored as a new version."""

from __future__ import annotations

import argparse
import hashlib
import logging
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version as installed
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.anomaly.card import model_card
from spark_jobs.anomaly.model import Model, Packed
from spark_jobs.anomaly.store import ModelStore
from spark_jobs.anomaly.training import Choices, TooLittleDataError, train
from spark_jobs.errors import JobError, SettingsError
from spark_jobs.files import Files
from spark_jobs.schemas import STATISTICS
from spark_jobs.session import running_session
from spark_jobs.settings import Settings, period
from spark_jobs.transforms.anomaly import observed, windows

log = logging.getLogger("fieldgate.jobs.train")

DESCRIPTION: Final = "train the anomaly job's models on a period of clean statistics"
_NEEDED: Final = ("sklearn", "skl2onnx", "onnxruntime")


Period = tuple[datetime, datetime]
"""Begin, and end (not included)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument("--from", dest="begin", required=True, metavar="TIME", help="UTC, e.g. 2026-01-09")
    parser.add_argument("--to", dest="end", required=True, metavar="TIME", help="the period's end, exclusive")
    parser.add_argument(
        "--gateway", action="append", default=[], metavar="ID", help="only this one (may be repeated)"
    )
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="FROM/TO",
        help="known to be wrong: icing, maintenance (may be repeated)",
    )
    parser.add_argument(
        "--false-alarms",
        type=float,
        default=1.0,
        metavar="N",
        help="alarm events allowed in 30 clean days (default: 1)",
    )
    parser.add_argument("--seed", type=int, default=0)


def _excluded(texts: Sequence[str]) -> list[Period]:
    periods = []
    for text in texts:
        begin, slash, end = text.partition("/")
        if not slash:
            raise SettingsError(f"--exclude {text!r} is not FROM/TO")
        periods.append(period(begin, end))
    return periods


def _text(period: Period) -> str:
    return "/".join(moment.isoformat() for moment in period)


def _statistics(spark: SparkSession, settings: Settings, begin: datetime, end: datetime) -> DataFrame:
    location = settings.table(STATISTICS.name)
    if not DeltaTable.isDeltaTable(spark, location):
        raise JobError(f"no table of statistics at {location}: name the lake (--lake), run the jobs first")
    table = spark.read.format("delta").load(location)
    days = F.col("date").between(F.lit(begin.date()), F.lit(end.date()))
    start = F.col("interval_start")
    return table.where(days & (start >= begin) & (start < end))


def train_models(
    spark: SparkSession,
    settings: Settings,
    trained_on: Period,
    gateways: Sequence[str],
    excluded: Sequence[Period],
    choices: Choices,
    command: str,
) -> str:
    """Trains and stores a model of each gateway (of all, when none is named); the new version's name.

    Raises JobError when there is no model to store: of a gateway that was named, or of none at all.
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise JobError(f"training needs {', '.join(missing)}: pip install 'fieldgate[anomaly]'")
    statistics = _statistics(spark, settings, *trained_on)
    rows = windows(statistics, None, settings.interval_s)
    wanted = gateways or [row.gateway for row in statistics.select("gateway").distinct().collect()]
    trained: list[tuple[Model, bytes, bytes]] = []
    for gateway in sorted(wanted):
        started = time.monotonic()
        seen, starts_s = observed(rows.where(F.col("gateway") == gateway))
        out = np.zeros(len(starts_s), dtype=bool)
        for begin, end in excluded:
            out |= (starts_s >= begin.timestamp()) & (starts_s < end.timestamp())
        try:
            result = train(gateway, settings.interval_s, seen, starts_s, out, choices)
        except TooLittleDataError as error:
            if gateways:
                raise
            log.warning("event=train.left_out %s", error)
            continue
        seconds = time.monotonic() - started
        log.info("event=train.trained gateway=%s seconds=%.1f %s", gateway, seconds, result.model.facts)
        trained.append((result.model, result.model.document(), result.network()))
    if not trained:
        raise JobError(
            f"no gateway has enough clean intervals of {settings.interval_s} s in {_text(trained_on)}"
        )
    now = datetime.now(UTC)
    content = hashlib.sha256(b"".join(document + network for _, document, network in trained))
    version = f"{now:%Y%m%dT%H%M%SZ}-{content.hexdigest()[:8]}"
    card = model_card(
        version,
        now,
        _text(trained_on),
        list(map(_text, excluded)),
        [model for model, _, _ in trained],
        {name: installed(name) for name in ("scikit-learn", "skl2onnx", "onnxruntime", "numpy", "pyspark")},
        command,
    )
    models = [Packed(model.gateway, version, document, network) for model, document, network in trained]
    ModelStore(Files(spark), settings.models).publish(version, models, card)
    log.info("event=train.stored version=%s models=%d place=%s", version, len(models), settings.models)
    return version


def main(options: Any, settings: Settings) -> None:
    """Runs the command."""
    trained, excluded = period(options.begin, options.end), _excluded(options.exclude)
    choices = Choices(seed=options.seed, false_alarms=options.false_alarms)
    if not choices.false_alarms >= 0:
        raise SettingsError("--false-alarms must be at least 0")
    command = f"fieldgate jobs {shlex.join(sys.argv[1:])}"
    with running_session(settings, "fieldgate-train") as spark:
        print(train_models(spark, settings, trained, options.gateway, excluded, choices, command))
