"""``jobs train``: a model per gateway from a period of its statistics, stored as a new version."""

from __future__ import annotations

import argparse
import hashlib
import logging
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version as installed
from importlib.util import find_spec
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.anomaly.model import Model, ModelStore, Packed, unpack
from spark_jobs.anomaly.training import Choices, TooLittleDataError
from spark_jobs.platform import s3
from spark_jobs.platform.errors import JobError, SettingsError
from spark_jobs.platform.files import Files
from spark_jobs.platform.frames import rows_frame
from spark_jobs.platform.schemas import STATISTICS
from spark_jobs.platform.session import running_session
from spark_jobs.platform.settings import Settings, period
from spark_jobs.transforms.anomaly import trained_models, windows

log = logging.getLogger("fieldgate.jobs.train")

DESCRIPTION: Final = "train the anomaly job's models on a period of clean statistics"
_NEEDED: Final = ("sklearn", "skl2onnx", "onnxruntime")
_LIBRARIES: Final = ("scikit-learn", "skl2onnx", "onnxruntime", "numpy", "pyspark")
_MOST_TASKS: Final = 1000
_MOST_POOLED: Final = 20
"""Gateways whose intervals are learnt for those that are too young: they are in one worker's memory."""

Period = tuple[datetime, datetime]
"""Begin, and end (not included)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    add = parser.add_argument
    wrong = "known to be wrong: icing, maintenance (may be repeated)"
    allowed = "alarm events allowed in 30 clean days (default: 1)"
    add("--from", dest="begin", required=True, metavar="TIME", help="UTC, e.g. 2026-01-09")
    add("--to", dest="end", required=True, metavar="TIME", help="the period's end, exclusive")
    add("--gateway", action="append", default=[], metavar="ID", help="only this one (may be repeated)")
    add("--exclude", type=_excluded, action="append", default=[], metavar="FROM/TO", help=wrong)
    add("--false-alarms", type=float, default=1.0, metavar="N", help=allowed)
    add("--seed", type=int, default=0)


def _excluded(text: str) -> Period:
    begin, slash, end = text.partition("/")
    if not slash:
        raise SettingsError(f"--exclude {text!r} is not FROM/TO")
    return period(begin, end)


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

    A gateway with too few intervals of its own gets the model of all that have the same channels. Raises
    JobError when there is no model to store: of a gateway that was named, or of none at all.
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise JobError(f"training needs {', '.join(missing)}: pip install 'fieldgate[anomaly]'")
    statistics = _statistics(spark, settings, *trained_on)
    rows = windows(statistics, None, settings.interval_s)
    out = [(begin.timestamp(), end.timestamp()) for begin, end in excluded]

    def trained(groups: Sequence[tuple[str, str]]) -> DataFrame:
        # Many more tasks than models, or two would often come into one.
        tasks = min(4 * len({model for _, model in groups}), _MOST_TASKS)
        frame = rows_frame(spark, "gateway model: string", groups)
        return trained_models(rows, frame, tasks, settings.interval_s, out, choices).persist()

    # Units belong to them: two gateways may have a quantity of their own of one name, in two.
    channel = F.concat_ws(":", "channel", "unit")
    channels = F.array_join(F.array_sort(F.collect_set(channel)), " ").alias("channels")
    there = {row.gateway: row.channels for row in statistics.groupBy("gateway").agg(channels).collect()}
    wanted = sorted(gateways or there)
    found = trained([(gateway, gateway) for gateway in wanted])
    none = f"has no closed intervals of {settings.interval_s} s in {_text(trained_on)}"
    outcome: dict[str, str | None] = {gateway: f"{gateway} {none}" for gateway in wanted}
    outcome |= {row.model: row.problem for row in found.select("model", "problem").collect()}
    problems = {gateway: problem for gateway, problem in outcome.items() if problem is not None}
    # A gateway that is too young gets a model of those with the same channels, the older ones first.
    young: dict[str, list[str]] = {}
    for gateway in sorted(problems):
        young.setdefault(there.get(gateway, ""), []).append(gateway)
    alike = {key: sorted(name for name in there if there[name] == key) for key in young}
    pools = [
        (gateway, key)
        for key, names in alike.items()
        if len(names) > 1
        for gateway in sorted(names, key=lambda name: name in problems)[:_MOST_POOLED]
    ]
    if pools:
        found = found.unionByName(trained(pools))
    found = found.where("problem is null")
    digests = found.select(F.sha2(F.concat("document", "network"), 256).alias("digest"), "model").collect()
    served = {name for row in digests for name in young.get(row.model, [row.model])}
    for gateway in sorted(problems.keys() - served):
        if gateways:
            raise TooLittleDataError(problems[gateway])
        log.warning("event=train.left_out %s", problems[gateway])
    if not served:
        raise JobError(
            f"no gateway has enough clean intervals of {settings.interval_s} s in {_text(trained_on)}"
        )
    content = hashlib.sha256("".join(sorted(row.digest for row in digests)).encode())
    version = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{content.hexdigest()[:8]}"
    sections: list[str] = []

    def models() -> Iterator[Packed]:
        for row in found.coalesce(8).toLocalIterator():
            model = unpack(Packed(row.model, version, bytes(row.document), bytes(row.network)))
            log.info("event=train.trained model=%s seconds=%.1f %s", row.model, row.seconds, model.facts)
            for gateway in young.get(row.model, [row.model]):
                its = replace(model, gateway=gateway)
                sections.extend(model_section(its))
                yield Packed(gateway, version, its.document(), bytes(row.network))

    texts = _text(trained_on), list(map(_text, excluded))
    store = ModelStore(Files(spark), settings.models)
    store.publish(version, models(), lambda: model_card(version, *texts, sections, command))
    log.info("event=train.stored version=%s models=%d place=%s", version, len(served), settings.models)
    return version


def main(options: Any, settings: Settings) -> None:
    """Runs the command."""
    trained = period(options.begin, options.end)
    choices = Choices(seed=options.seed, false_alarms=options.false_alarms)
    if not choices.false_alarms >= 0:
        raise SettingsError("--false-alarms must be at least 0")
    command = f"fieldgate jobs {shlex.join(sys.argv[1:])}"
    with running_session(settings, "fieldgate-train") as spark:
        # Not after an hour of training.
        s3.refuse_unsafe_place(spark, settings, "models", settings.models)
        print(train_models(spark, settings, trained, options.gateway, options.exclude, choices, command))


def model_section(model: Model) -> list[str]:
    """What one gateway's model compares, what it was trained on, and how it was judged."""
    judged = (f"- {group.quantity}: {', '.join(group.channels)}" for group in model.layout.groups)
    context = ", ".join(model.layout.context) or "nothing"
    facts = (f"- {name.replace('_', ' ')}: {value}" for name, value in model.facts.items())
    given = f"- given to the network, not judged: {context}", f"- threshold: {model.threshold:.3f}"
    return [f"## {model.gateway}", "", *judged, *given, *facts, ""]


def model_card(
    version: str, period: str, excluded: Sequence[str], sections: Sequence[str], command: str
) -> str:
    """The card as Markdown."""
    without = f", without {', '.join(excluded)}" if excluded else ""
    made_with = ", ".join(f"{name} {installed(name)}" for name in _LIBRARIES)
    trained = f"Trained on {period}{without}, with {made_with}:"
    return "\n".join([f"# Anomaly model {version}", "", trained, "", f"    {command}", "", *sections])
