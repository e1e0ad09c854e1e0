"""``alerts``: readings against rules as they arrive; alerts and commands to Kafka, alerts to their table.

Order of a batch: one Spark job brings what is judged into the driver; the rules are judged there; the new
state and what is to be told are stored in one file; then the records are produced. A kill before the file
repeats the batch from the old state, a kill after it finds the same batch again and produces the stored
records. The table is written from the supervisor's thread, seconds later: until then its rows are in the
state.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it
from pyspark.sql.streaming.query import StreamingQuery

from cloud.wire.alert_records import AlertRecord
from cloud.wire.command_records import Command
from cloud.wire.schema import ALERTS_TOPIC, COMMANDS_TOPIC
from spark_jobs.alerting.channel_state import Orphan
from spark_jobs.alerting.engine import Engine
from spark_jobs.alerting.evaluator import Told
from spark_jobs.alerting.notifications import Teller, closing, merged_row
from spark_jobs.alerting.rules import Anomaly, Pair, Recovery
from spark_jobs.alerting.rules_file import DEFAULT_RULES, load_rules
from spark_jobs.errors import SettingsError
from spark_jobs.metrics import state_rows
from spark_jobs.schemas import ALERTS, ANOMALIES, CHANNELS, STATISTICS, Table
from spark_jobs.session import small_batch_session
from spark_jobs.settings import Settings
from spark_jobs.sinks.alerts import merge_alerts
from spark_jobs.sinks.delta import ensure_table
from spark_jobs.sinks.kafka import Outgoing, produce
from spark_jobs.sources.changes import latest_version, new_rows
from spark_jobs.sources.kafka import kafka_records
from spark_jobs.sources.samples import anomaly_rows, collect_samples, intervals_of, recovery_rows
from spark_jobs.state.alert_state import StateFiles
from spark_jobs.streaming.batch_gate import Gate
from spark_jobs.streaming.query import start_query
from spark_jobs.streaming.timer import Pace

log = logging.getLogger("fieldgate.jobs.alerts")

_TRIGGER_S: Final = 0.1
_MAX_RECORDS: Final = 100_000
"""A batch is judged in the driver's memory, some 300 bytes a reading."""
_SLOW_S: Final = 1.0
"""Batches that take longer are logged each; of the others one a minute."""
_TABLE_EVERY_S: Final = 10.0
_FEEDS_EVERY_S: Final = 10.0
_TWINS_EVERY_S: Final = 60.0
_RULES_EVERY_S: Final = 5.0

_FEEDS: Final[dict[type[Any], tuple[Table, Callable[..., DataFrame]]]] = {
    Recovery: (STATISTICS, recovery_rows),
    Anomaly: (ANOMALIES, anomaly_rows),
}


def _now_us() -> int:
    return time.time_ns() // 1000


class AlertsJob:
    """One run of the query; after a failure, make a new one."""

    name = "alerts"

    def __init__(self, spark: SparkSession, settings: Settings, gate: Gate) -> None:
        self._gate = gate
        self._spark = spark = small_batch_session(spark)
        self._settings = settings
        self._cores = int(spark.conf.get("spark.sql.shuffle.partitions") or 2)
        self._location = ensure_table(spark, settings, ALERTS)
        self._files = StateFiles(spark, f"{settings.checkpoints.rstrip('/')}/alerts-state")
        self._rules_path = Path(settings.rules) if settings.rules else DEFAULT_RULES
        self._rules_read_ns = self._rules_path.stat().st_mtime_ns if self._rules_path.exists() else 0
        # The query's thread judges readings, the supervisor's what time and the tables bring.
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._query: StreamingQuery | None = None
        self._started_s = self._said_s = time.monotonic()
        self._paces = {
            "table": Pace(_TABLE_EVERY_S),
            "feeds": Pace(_FEEDS_EVERY_S),
            "twins": Pace(_TWINS_EVERY_S),
            "rules": Pace(_RULES_EVERY_S),
        }
        self._teller = Teller()
        self._generation, self._done = "", -1
        self._outputs: list[Outgoing] = []
        self._pending: list[Outgoing] = []
        self._unwritten: dict[str, dict[str, Any]] = {}
        self._versions: dict[str, int] = {}
        self._rules = load_rules(self._rules_path)
        self._engine = Engine(self._rules)
        if (state := self._files.load()) is not None:
            self._restore(state)
        self._follow_tables()

    def start(self) -> StreamingQuery:
        """Starts the query."""
        most = min(self._settings.max_records, _MAX_RECORDS)
        stream = kafka_records(self._spark, self._settings, self._settings.topic_pattern, most)
        pace_s = min(_TRIGGER_S, self._settings.trigger_s)
        self._query = start_query(
            self._settings, self.name, stream, self._batch, self._gate, trigger_s=pace_s
        )
        return self._query

    def _batch(self, records: DataFrame, batch: int) -> None:
        started_s = time.monotonic()
        generation = str(records.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        if (generation, batch) == (self._generation, self._done):
            with self._lock:
                produce(self._spark, self._settings, self._outputs)
            log.info("event=alerts.repeated batch=%d records=%d", batch, len(self._outputs))
            return
        # Many topics, few records each: as many tasks as cores, not one per partition.
        few = records.coalesce(self._cores)
        samples = collect_samples(few, self._settings.dead_letter_topic)
        with self._lock:
            if generation != self._generation and self._generation:
                # The checkpoint was lost: now all comes from the beginning again, and is known by its ids.
                self._engine.forget_readings()
            now_us = _now_us()
            self._outputs = self._tell(self._engine.observe(samples, now_us), now_us)
            self._generation, self._done = generation, batch
            self._save()
            produce(self._spark, self._settings, self._outputs)
        self._say(batch, len(samples), time.monotonic() - started_s)

    def _say(self, batch: int, readings: int, took_s: float) -> None:
        if took_s < _SLOW_S and not self._outputs and time.monotonic() - self._said_s < 60:
            return
        self._said_s = time.monotonic()
        state_rows(self.name, "channels", self._engine.size)
        log.info(
            "event=alerts.batch batch=%d readings=%d records=%d channels=%d withheld=%d seconds=%.2f",
            batch,
            readings,
            len(self._outputs),
            self._engine.size,
            self._teller.withheld,
            took_s,
        )

    # What time and the tables bring ----------------------------------------------------------------------

    def tick(self) -> None:
        """Silence, ended late passes, intervals of the tables, a changed rules' file; the table's rows."""
        if self._paces["rules"].due():
            self._look_at_rules()
        if self._paces["twins"].due():
            self._look_at_twins()
        told = self._look_at_tables() if self._paces["feeds"].due() else []
        with self._lock:
            now_us = _now_us()
            if self._is_waiting():
                self._engine.caught_up = True
            told += self._engine.judge_silence(now_us)
            told += self._engine.end_late_passes(now_us)
            self._deliver(self._tell(told, now_us))
        if self._paces["table"].due():
            self.write_table()

    def finish(self) -> None:
        """All that is left after the last record."""
        told = self._look_at_tables()
        with self._lock:
            now_us = _now_us()
            told += self._engine.end_late_passes(now_us, 0)
            self._deliver(self._tell(told, now_us))
        self.write_table()

    def _is_waiting(self) -> bool:
        """Whether the query has nothing to read, and not just not yet."""
        if self._query is None or time.monotonic() - self._started_s < _FEEDS_EVERY_S:
            return False
        status = self._query.status
        return not status["isDataAvailable"] and not status["isTriggerActive"]

    def _follow_tables(self) -> None:
        """Follows the tables that rules are about, from now on: what was closed before is nobody's news."""
        for kind, (table, _) in _FEEDS.items():
            if self._rules.of_kind(kind) and table.name not in self._versions:
                there = self._has(table)
                latest = latest_version(self._spark, self._settings, table) if there else -1
                self._versions[table.name] = latest

    def _has(self, table: Table) -> bool:
        return bool(DeltaTable.isDeltaTable(self._spark, self._settings.table(table.name)))

    def _look_at_tables(self) -> list[Told]:
        told: list[Told] = []
        interval_s = self._settings.interval_s
        for kind, (table, rows_of) in _FEEDS.items():
            if not self._rules.of_kind(kind):
                continue
            if not self._has(table):
                continue
            after = self._versions[table.name]
            shape = partial(rows_of, interval_s=interval_s)
            changed, latest = new_rows(self._spark, self._settings, table, after, shape)
            if changed is None:
                continue
            with self._lock:
                told += self._engine.observe_intervals(kind, intervals_of(changed, interval_s), _now_us())
                self._versions[table.name] = latest
        return told

    def _look_at_twins(self) -> None:
        if not any(isinstance(rule.kind, Pair) and not rule.kind.pairs for rule in self._rules.rules):
            return
        location = self._settings.table(CHANNELS.name)
        if not self._has(CHANNELS):
            return
        rows = (
            self._spark.read.format("delta")
            .load(location)
            .where(F.col("pair").isNotNull() & F.coalesce(F.col("in_force"), F.lit(True)))
            .select("gateway", "channel", "pair")
            .collect()
        )
        twins = {(row.gateway, row.channel): f"{row.pair}.{row.channel.rpartition('.')[2]}" for row in rows}
        with self._lock:
            parted = self._engine.set_twins(twins)
            self._deliver(self._ends(parted))

    def _look_at_rules(self) -> None:
        """Takes a changed file over; one with mistakes is refused as a whole, the old rules stay."""
        try:
            changed_ns = self._rules_path.stat().st_mtime_ns
            if changed_ns == self._rules_read_ns:
                return
            self._rules_read_ns = changed_ns
            rules = load_rules(self._rules_path)
        except FileNotFoundError:
            return
        except SettingsError as error:
            for line in str(error).splitlines():
                log.error("event=rules.refused %s", line)
            return
        with self._lock:
            state = self._engine.to_state()
            self._rules, self._engine = rules, Engine(rules)
            self._follow_tables()
            self._deliver(self._close(state))
        log.info("event=rules.taken rules=%d file=%s", len(rules.rules), self._rules_path)

    # Telling and keeping -----------------------------------------------------------------------------------

    def _tell(self, told: Iterable[Told], now_us: int) -> list[Outgoing]:
        alerts, commands = self._teller.tell(told, now_us)
        return self._outgoing(alerts, commands)

    def _outgoing(self, alerts: Iterable[AlertRecord], commands: Iterable[Command] = ()) -> list[Outgoing]:
        for alert in alerts:
            self._unwritten[alert.id] = merged_row(self._unwritten.get(alert.id), alert)
        return [
            *((ALERTS_TOPIC, alert.key.decode(), alert.to_json().decode()) for alert in alerts),
            *((COMMANDS_TOPIC, command.key.decode(), command.to_json().decode()) for command in commands),
        ]

    def _deliver(self, records: list[Outgoing]) -> None:
        """Produces what no batch brought: stored before, forgotten after."""
        self._pending += records
        if not self._pending:
            return
        self._save()
        produce(self._spark, self._settings, self._pending)
        self._pending = []
        self._save()

    def write_table(self) -> None:
        """Writes the rows that wait; a row is forgotten when it is in the table."""
        with self._writing:
            with self._lock:
                rows = dict(self._unwritten)
            if not rows:
                return
            merge_alerts(self._spark, self._location, rows.values())
            with self._lock:
                self._unwritten = {key: row for key, row in self._unwritten.items() if rows.get(key) != row}
                self._save()

    def _save(self) -> None:
        self._files.save(
            {
                "v": 1,
                "generation": self._generation,
                "batch": self._done,
                "engine": self._engine.to_state(),
                "issued": self._teller.issued,
                "versions": self._versions,
                "outputs": self._outputs,
                "pending": self._pending,
                "unwritten": self._unwritten,
            }
        )

    def _restore(self, state: dict[str, Any]) -> None:
        self._generation, self._done = state["generation"], state["batch"]
        self._teller.issued = {
            rule: [(at, gateway) for at, gateway in issued] for rule, issued in state["issued"].items()
        }
        self._versions = state["versions"]
        self._outputs = [tuple(record) for record in state["outputs"]]
        self._pending = [tuple(record) for record in state["pending"]]
        self._unwritten = state["unwritten"]
        self._pending += self._close(state["engine"])

    def _close(self, engine: dict[str, Any]) -> list[Outgoing]:
        """Restores the engine's state; alerts of rules that are gone end."""
        return self._ends(self._engine.restore(engine))

    def _ends(self, orphans: Iterable[Orphan]) -> list[Outgoing]:
        by_name = {rule.name: rule for rule in self._rules.rules}
        return self._outgoing([closing(orphan, by_name.get(orphan.rule_id[0])) for orphan in orphans])
