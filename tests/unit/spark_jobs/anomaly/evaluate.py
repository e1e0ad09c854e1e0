"""How well the anomaly job does on a real mast: ``python -m tests.unit.spark_jobs.anomaly.evaluate``.

Trains with ``jobs train`` on the early months, scores everything with the ``anomaly`` job itself (in a lake
of its own, in a temporary directory), and holds the rows of the table against the cleaning log. The threshold
is the trained model's; nothing of the test period enters it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import pandas as pd
from deltalake import DeltaTable

from spark_jobs.anomaly.training import Choices, alarm_events
from spark_jobs.jobs.anomaly import AnomalyJob
from spark_jobs.jobs.train import train_models
from spark_jobs.platform.schemas import STATISTICS
from spark_jobs.platform.session import spark_session
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table
from spark_jobs.streaming.query import BatchGate, start_query
from tests.support.real_mast import CUPS, INTERVAL_S, Fault, RealMast, find_wheel, read, statistics_table

DEAD: Final = "Spd80mS"
REMOVED_AFTER: Final = timedelta(days=3)
"""The dead cup is taken out of the mast's config so long after its death (rounded to midnight)."""
_MONTH: Final = 30 * 86_400 / INTERVAL_S


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text + "+00:00")


TRAINING: Final = (utc("2016-01-09T17:20:00"), utc("2016-11-01T00:00:00"))


@dataclass(frozen=True)
class Case:
    """The rows of ``anomalies`` in order of time, and the log's entry for each."""

    rows: pd.DataFrame
    iced: Any
    dead: Any
    tested: Any

    @property
    def times_s(self) -> Any:
        return self.rows.index.to_numpy().astype("datetime64[s]").astype(np.int64)


def instant(moment: datetime) -> np.datetime64:
    """As NumPy has it: UTC, without a zone."""
    return np.datetime64(moment.replace(tzinfo=None), "us")


def within(index: Any, fault: Fault) -> Any:
    return (index >= instant(fault.begin)) & (index < instant(fault.end))


def case_of(rows: pd.DataFrame, mast: RealMast, removed: datetime) -> Case:
    index = rows.index.to_numpy()

    def during(faults: list[Fault]) -> Any:
        inside = np.zeros(len(index), dtype=bool)
        for fault in faults:
            inside |= within(index, fault)
        return inside

    death = mast.faults(DEAD, "Invalid")[0].begin
    dead = (index >= instant(death)) & (index < instant(removed))
    return Case(rows, during(mast.faults("Spd", "Icing")), dead, index >= instant(TRAINING[1]))


def quality(case: Case, alarms: Any) -> str:
    """Precision, recall, false alarms in 30 days of one way to raise alarms; the death doesn't count."""
    counted = case.tested & ~case.dead
    found = int((alarms & case.iced & counted).sum())
    clean = counted & ~case.iced
    months = clean.sum() / _MONTH
    events = alarm_events(alarms & clean, case.times_s)
    raised = int((alarms & counted).sum())
    precision = f"{found / raised:.2f}" if raised else "–"
    recall = found / (case.iced & counted).sum()
    false = int((alarms & clean).sum())
    return f"{precision} | {recall:.2f} | {false} ({false / months:.1f}) | {events} ({events / months:.1f})"


def report(case: Case, mast: RealMast, removed: datetime) -> list[str]:
    threshold = float(case.rows.threshold.iloc[-1])
    score = case.rows.score.fillna(-1.0).to_numpy()
    broken = case.rows.rules

    def rule(*prefixes: str) -> Any:
        return np.array([any(name.startswith(prefixes) for name in names) for names in broken])

    death = mast.faults(DEAD, "Invalid")[0].begin
    since = case.rows.index.to_numpy() - instant(death)
    alarms = score > threshold
    ways = {
        f"score > {threshold:.2f}, the trained threshold": alarms,
        "rule `icing`, any cup": rule("icing:"),
        "rule `icing`, the 80-m north cup alone": rule(f"icing:{CUPS['Spd80mN']}"),
        "rule `dead`, any cup": rule("dead:"),
        "score or rule `icing`": alarms | rule("icing:"),
    }
    counted = case.tested & ~case.dead
    labelled = int((case.iced & counted).sum())
    lines = [
        f"Test: {int(counted.sum())} intervals, {labelled} of them labelled as icing.",
        "",
        "| alarm | precision | recall | false intervals (in 30 days) | false events (in 30 days) |",
        "|---|--:|--:|--:|--:|",
    ]
    lines += [f"| {name} | {quality(case, raised)} |" for name, raised in ways.items()]
    lines += [
        "",
        "| icing | labelled | flagged by the score | by rule `icing` | by rule `dead` |",
        "|---|--:|--:|--:|--:|",
    ]
    for fault in mast.faults("Spd", "Icing"):
        inside = within(case.rows.index.to_numpy(), fault)
        flagged = [int((raised & inside).sum()) for raised in (alarms, rule("icing:"), rule("dead:"))]
        note = "" if fault.begin >= TRAINING[1] else " (training period, left out)"
        lines.append(
            f"| {fault.begin:%Y-%m-%d %H:%M}{note} | {int(inside.sum())} | "
            + " | ".join(map(str, flagged))
            + " |"
        )
    for name, raised in (("score", alarms), ("rule `dead`", rule("dead:"))):
        first = pd.Timedelta(since[raised & (since >= np.timedelta64(0))][0])
        lines.append(
            f"\nDead cup ({death:%Y-%m-%d %H:%M}): first found by the {name} in the interval that begins "
            f"{first} after its death."
        )
    channel = CUPS[DEAD]
    named = [len(items) > 0 and items[0]["channel"] == channel for items in case.rows.channels[case.dead]]
    lines.append(
        f"While it stood there dead ({int(case.dead.sum())} intervals): {alarms[case.dead].mean():.1%} above "
        f"the threshold, {np.mean(named):.1%} name it first. Removed {removed:%Y-%m-%d}, then `missing`."
    )
    return lines


def anomalies(settings: Settings) -> pd.DataFrame:
    """The table in order of time; its index is UTC, without a zone."""
    rows = DeltaTable(settings.table("anomalies")).to_pandas().set_index("interval_start").sort_index()
    return rows.set_axis(pd.DatetimeIndex(rows.index).tz_convert("UTC").tz_localize(None))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", help="path of brightwind-2.7.0-py3-none-any.whl")
    parser.add_argument("--seed", type=int, action="append", default=[])
    options = parser.parse_args()
    wheel = find_wheel(options.wheel)
    if wheel is None or not wheel.exists():
        print("no wheel: pip download --no-deps -d ~/.cache/fieldgate brightwind==2.7.0", file=sys.stderr)
        return 2
    mast = read(wheel)
    death = mast.faults(DEAD, "Invalid")[0].begin
    removed = pd.Timestamp(death + REMOVED_AFTER).normalize()
    known = [(fault.begin, fault.end) for fault in mast.faults("Spd", "Icing") if fault.begin < TRAINING[1]]
    with tempfile.TemporaryDirectory(prefix="fieldgate-anomaly-") as folder:
        settings = Settings(
            ("anomaly",), "", f"{folder}/lake", f"{folder}/checkpoints", interval_s=INTERVAL_S, once=True,
            conf=(("spark.driver.memory", "2g"),),
        )  # fmt: skip
        spark = spark_session(settings)
        try:
            location = ensure_table(spark, settings, STATISTICS)
            rows = spark.createDataFrame(statistics_table(mast.data, {DEAD: removed}))
            rows.repartition("date").write.format("delta").mode("append").save(location)
            for seed in options.seed or [0]:
                choices = Choices(seed=seed)
                version = train_models(spark, settings, TRAINING, [], known, choices, " ".join(sys.argv))
                apart = replace(settings, checkpoints=f"{folder}/{version}")
                query = start_query(apart, AnomalyJob(spark, apart), BatchGate())
                query.awaitTermination()
                if error := query.exception():
                    raise error
                found = anomalies(settings)
                print(f"\n## Seed {seed}, {len(known)} periods left out of the training: {version}\n")
                print("\n".join(report(case_of(found, mast, removed), mast, removed)), flush=True)
        finally:
            spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
