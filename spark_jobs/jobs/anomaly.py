"""``anomaly``: interval statistics to scores, of the intervals that a change in ``statistics`` touches.

A score is computed whole, from the table, with the model that is current when its batch begins; so late data
correct what they touch, a batch that runs twice writes the same, and a new model is used from the next
batch on. Models travel to the workers as bytes: they need no disk in common.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from importlib.util import find_spec
from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.anomaly.model import ModelError, ModelStore, Packed
from spark_jobs.anomaly.scoring import ready
from spark_jobs.platform.files import Files
from spark_jobs.platform.frames import kept
from spark_jobs.platform.schemas import ANOMALIES, STATISTICS
from spark_jobs.platform.session import plan_for, small_batch_session
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table, table_changes
from spark_jobs.sinks.merge import merge_changed
from spark_jobs.sinks.statistics import other_intervals
from spark_jobs.streaming.query import Job, Source
from spark_jobs.transforms.anomaly import anomaly_rows, touched, windows

log = logging.getLogger("fieldgate.jobs.anomaly")

_TRIGGER_S: Final = 2.0


class AnomalyJob(Job):
    """One run of the query; after a failure, make a new one."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.name = f"anomaly-{settings.interval_s}s"
        self._spark = spark = small_batch_session(spark)
        self._settings = settings
        self._statistics = ensure_table(spark, settings, STATISTICS)
        self._location = ensure_table(spark, settings, ANOMALIES)
        self._models = CurrentModels(spark, settings)

    def source(self) -> Source:
        """The changes of ``statistics``."""
        changes = table_changes(self._spark, self._settings, STATISTICS)
        return Source(changes, max(_TRIGGER_S, self._settings.trigger_s), follows=(STATISTICS,))

    def finish(self) -> None:
        """Says which intervals there are, where none is of this length."""
        if hint := other_intervals(self._spark, self._settings):
            log.warning("event=anomaly.no_intervals %s", hint)

    def batch(self, rows: DataFrame, number: int) -> None:
        """Scores the intervals that changed statistics touch."""
        started = time.monotonic()
        interval_s = self._settings.interval_s
        targets = kept(touched(rows, interval_s))
        by_date = targets.groupBy(F.to_date("interval_start").alias("date"))
        found = by_date.agg(
            F.collect_set("gateway").alias("gateways"), F.count("*").alias("number")
        ).collect()
        if not found:
            return
        plan_for(self._spark, 10 * sum(row.number for row in found))
        models = self._models.of({gateway for row in found for gateway in row.gateways})
        # The intervals before the first of a day are of the day before.
        dates = {row.date - timedelta(days=days) for row in found for days in (0, 1)}
        statistics = self._spark.read.format("delta").load(self._statistics)
        statistics = statistics.where(F.col("date").isin(sorted(dates)))
        scored = kept(anomaly_rows(windows(statistics, targets, interval_s), models, interval_s))
        merge_changed(self._location, ANOMALIES, scored)
        if intervals := scored.count():
            figures = number, intervals, len(models), time.monotonic() - started
            log.info("event=anomaly.batch batch=%d intervals=%d models=%d seconds=%.2f", *figures)


class CurrentModels:
    """The current models: which they are is read for each batch, they themselves when they are new."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._interval_s = settings.interval_s
        self._store = ModelStore(Files(spark), settings.models)
        self._usable = find_spec("onnxruntime") is not None
        self._loaded: dict[str, Packed] = {}
        self._refused: set[tuple[str, str]] = set()
        self._without: set[str] = set()
        if not self._usable:
            log.warning(
                "event=anomaly.rules_only reason=no onnxruntime: scores stay null; "
                "pip install 'fieldgate[anomaly]' here and on every worker, then start again"
            )

    def of(self, gateways: Iterable[str]) -> Mapping[str, Packed]:
        """The models of at least these gateways, where they have one."""
        if not self._usable:
            return {}
        current = self._current()
        for gateway in sorted(gateways):
            if version := current.get(gateway):
                self._without.discard(gateway)
                self._load(gateway, version)
                continue
            self._loaded.pop(gateway, None)
            if gateway not in self._without:
                self._without.add(gateway)
                place = gateway, self._store.root
                remedy = "rules only: fieldgate jobs train makes one"
                log.warning("event=anomaly.no_model gateway=%s model_dir=%s %s", *place, remedy)
        return self._loaded

    def _current(self) -> dict[str, str]:
        try:
            return self._store.current()
        except ModelError as error:
            log.error("event=anomaly.models_unreadable %s; the models in use stay", error)
            return {gateway: packed.version for gateway, packed in self._loaded.items()}

    def _load(self, gateway: str, version: str) -> None:
        loaded = self._loaded.get(gateway)
        if (loaded is not None and loaded.version == version) or (gateway, version) in self._refused:
            return
        try:
            packed = self._store.load(gateway, version)
            interval_s = ready(packed)[0].interval_s
            if interval_s != self._interval_s:
                raise ModelError(
                    f"model {version} of {gateway} is of {interval_s}-s intervals: train for these"
                )
        except ModelError as error:
            self._refused.add((gateway, version))
            remains = "the one before stays" if loaded else "rules only"
            log.error("event=anomaly.model_refused %s; %s", error, remains)
            return
        self._loaded[gateway] = packed
        log.info("event=anomaly.model gateway=%s version=%s", gateway, version)
