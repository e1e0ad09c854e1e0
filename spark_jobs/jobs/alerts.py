"""``alerts``: readings against rules as they arrive; alerts and commands to Kafka, alerts to their table.

Order of a batch: one Spark job brings the samples into the driver; the rules are evaluated there; the new
state and the records it leads to are stored in one file; then the records are produced. A kill before the
file repeats the batch from the old state, a kill after it finds the same batch again and produces the stored
records. The table is written from the supervisor's thread, seconds later: until then its rows are in the
state. Which alerts are open is in the table and these rows: a start goes on with those that its state, lost
or restored from a copy, doesn't have, and ends those that nothing evaluates any more.

A fleet too large for one process has several, shards: each takes the gateways that are its own by a hash of
their name, and has its own checkpoint. They share topics and tables.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window, functions as F

from cloud.wire.alert_records import AlertRecord
from cloud.wire.command_records import Command
from cloud.wire.identities import NOBODY, Identities
from cloud.wire.reading_records import ALERTS_TOPIC, COMMANDS_TOPIC, UNSYNCED
from spark_jobs.alerting.alarm import OpenAlert
from spark_jobs.alerting.engine import PARTS, Engine, IntervalRow
from spark_jobs.alerting.evaluator import AlertEvent
from spark_jobs.alerting.feeds import FEEDS, Feed
from spark_jobs.alerting.gateway_state import Sample
from spark_jobs.alerting.notifications import CROWD, Crowds, Notifier, closing, merged_row
from spark_jobs.alerting.rules import DEFAULT_RULES, Pair, Rule, Rules, load_rules
from spark_jobs.platform.errors import JobError, SettingsError
from spark_jobs.platform.files import Files
from spark_jobs.platform.frames import dicts_of, rows_frame
from spark_jobs.platform.intervals import SECOND_US, now_us
from spark_jobs.platform.metrics import STATE_ROWS
from spark_jobs.platform.schemas import ALERTS, CHANNELS, Table
from spark_jobs.platform.session import small_batch_session, task_slots
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table, latest_version, rows_after
from spark_jobs.sinks.kafka import produce_rows
from spark_jobs.sinks.merge import merge_alerts
from spark_jobs.sinks.reading_schemas import ReadingSchemas
from spark_jobs.sources.kafka import IdentitySource, kafka_records
from spark_jobs.streaming.query import Job, Source, Timer, query_id
from spark_jobs.transforms.validate import parse_batch

log = logging.getLogger("fieldgate.jobs.alerts")

_TRIGGER_S: Final = 0.1
_SHARED_TRIGGER_S: Final = 1.0
"""The trigger beside other jobs: a batch costs nearly the same for few readings, and all wait for it."""
_MAX_RECORDS: Final = 100_000
"""A batch is evaluated in the driver's memory, some 300 bytes a reading."""
_SLOW_S: Final = 1.0
"""Batches that take longer are logged each; of the others one a minute."""
_EVERY_S: Final = {"table": 10.0, "feeds": 10.0, "twins": 60.0, "rules": 5.0, "days": 900.0}
"""What is due by the clock."""


def collect_samples(
    records: DataFrame, dead_letter_topic: str, schemas: ReadingSchemas, identities: Identities = NOBODY
) -> list[Sample]:
    """What may be evaluated of Kafka records: readings, those of a channel in their order.

    One whose clock was not set has no value and is late: it shows that its gateway is there.

    One Spark job brings the records; they are validated here, in the driver: a Python worker's round trip is
    longer than what a second's records take.
    """
    table = records.select("value", "key", "topic", "partition", "offset", "timestamp", "headers").toArrow()
    samples: list[Sample] = []
    for batch in table.combine_chunks().to_batches():
        if not batch.num_rows:
            continue
        parsed = parse_batch(batch, dead_letter_topic, identities, schemas.known)
        if parsed.unknown and schemas.learn(parsed.unknown):
            parsed = parse_batch(batch, dead_letter_topic, identities, schemas.known)
        samples += _samples(parsed.readings)
    return samples


def _samples(readings: Any) -> Iterator[Sample]:
    names = ("gateway", "channel", "time", "period_ms", "value", "quality", "replayed", "kafka_time")
    columns = {
        name: column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for name, column in ((name, readings[name]) for name in names)
    }
    unsynced = pc.equal(readings["clock"], UNSYNCED)
    columns["value"] = pc.if_else(unsynced, None, columns["value"])
    columns["replayed"] = pc.or_(unsynced, columns["replayed"])
    columns["period_ms"] = pc.multiply(columns["period_ms"].cast(pa.int64()), 1000)
    return map(Sample, *(columns[name].to_pylist() for name in names))


_VERSION: Final = 2
_KEPT: Final = 2 * PARTS
"""The first ones after a restart divide the gateways again."""
_DIGEST_BYTES: Final = 32


class StateFiles:
    """The job's state in numbered files beside its checkpoint, at any URI Spark can write. One writer.

    A file is written before a batch's alerts are produced and before Spark counts the batch as done, so after
    a kill the same batch finds its records and produces them again, byte for byte, and the next one goes on
    from its state. Each file has the gateways that changed and a part of the others, so that what a batch
    writes doesn't grow with the fleet, and the last PARTS files together have all of them. Files are never
    written twice nor renamed: object stores have no rename. Each begins with the SHA-256 of what follows, so
    that one that was cut short is ignored: Spark then repeats its batch.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._files = Files(spark)
        self._location = location
        self._numbers = self._files.numbers(location)

    @property
    def next(self) -> int:
        """The number of the next file."""
        return self._numbers[-1] + 1 if self._numbers else 1

    def load(self) -> dict[str, Any] | None:
        """The newest state that is whole, with ``gateways`` by name, each as it was last.

        None where there is none. Raises JobError for one of another version.
        """
        newest: dict[str, Any] | None = None
        for number in reversed(self._numbers):
            content = self._files.read_bytes(f"{self._location}/{number:020d}") or b""
            if hashlib.sha256(content[_DIGEST_BYTES:]).digest() != content[:_DIGEST_BYTES]:
                continue
            state: dict[str, Any] = msgspec.json.decode(zlib.decompress(content[_DIGEST_BYTES:]))
            if state["v"] != _VERSION:
                raise JobError(
                    f"{self._location}: the state is of version {state['v']}, not {_VERSION}: remove the "
                    "directory to start over (alerts that are open go on, by the table)"
                )
            gateways = state.pop("gateways", {})
            newest = newest or {**state, "gateways": {}}
            newest["gateways"] = {**gateways, **newest["gateways"]}
        return newest

    def save(self, state: dict[str, Any]) -> None:
        """Makes a state the newest one; it is on the disk when this returns."""
        number = self.next
        packed = zlib.compress(msgspec.json.encode({"v": _VERSION, **state}), 1)
        self._files.write(
            f"{self._location}/{number:020d}", hashlib.sha256(packed).digest() + packed, sync=True
        )
        self._numbers.append(number)
        while len(self._numbers) > _KEPT:
            self._files.delete(f"{self._location}/{self._numbers.pop(0):020d}")


_Read = tuple[type[Rule], list[IntervalRow], str, int]
"""A kind of rules, the rows that are new for it, of which table, and the version that has them."""


class AlertsJob(Job):
    """One run of the query; after a failure, make a new one."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._shard = part, parts = settings.shard
        self.name = "alerts" if parts == 1 else f"alerts-{part}-of-{parts}"
        self._spark = spark = small_batch_session(spark)
        self._settings = settings
        self._slots = task_slots(spark)
        self._schemas = ReadingSchemas(spark, settings)
        self._location = ensure_table(spark, settings, ALERTS)
        self.identities: IdentitySource = IdentitySource(spark, settings)
        self._files = StateFiles(spark, f"{settings.checkpoint(self.name)}/alerts-state")
        self._rules_path = Path(settings.rules) if settings.rules else None
        self._rules_read_ns = self._rules_path.stat().st_mtime_ns if self._rules_path else 0
        # The query's thread evaluates readings, the supervisor's what is due by the clock or from the tables.
        self._lock = threading.Lock()
        self._started_s = self._logged_s = time.monotonic()
        self._timers = {name: Timer(every_s) for name, every_s in _EVERY_S.items()}
        self._rules = self._load_rules()
        self.recover()

    def recover(self) -> None:
        """Goes on from the stored state."""
        with self._lock:
            self._notifier, self._crowds = Notifier(shard=self._shard), Crowds()
            self._generation, self._done = "", -1
            self._outputs: list[Outgoing] = []
            self._pending: list[Outgoing] = []
            self._unwritten: dict[str, dict[str, Any]] = {}
            self._versions: dict[str, int] = {}
            self._engine, self._is_whole = Engine(self._rules), True
            self._restore()
            self._follow_tables()

    def source(self) -> Source:
        """Readings and dead letters, from the earliest."""
        self.topics, most = self._settings.topic_pattern, min(self._settings.max_records, _MAX_RECORDS)
        stream = kafka_records(self._spark, self._settings, self.topics, most * self._shard[1])
        longest_s = _TRIGGER_S if len(self._settings.jobs) < 2 else _SHARED_TRIGGER_S
        return Source(stream, min(longest_s, self._settings.trigger_s))

    def _own(self, gateway: Column) -> Column:
        """Whether a gateway is one of this shard's."""
        part, parts = self._shard
        return F.lit(True) if parts == 1 else F.crc32(gateway.cast("binary")) % parts == part - 1

    def batch(self, rows: DataFrame, number: int) -> None:
        """Evaluates a batch and produces its alerts and commands."""
        started_s = time.monotonic()
        generation = query_id(rows)
        if (generation, number) == (self._generation, self._done):
            with self._lock:
                produce(self._spark, self._settings, self._outputs)
            log.info("event=alerts.repeated batch=%d records=%d", number, len(self._outputs))
            return
        own = self._own(F.substring_index(F.col("key").cast("string"), "/", 1))
        # Many topics, few records each: as many tasks as cores, not one per partition.
        few = rows.where(own).coalesce(self._slots)
        identities = self.identities.current()
        samples = collect_samples(few, self._settings.dead_letter_topic, self._schemas, identities)
        with self._lock:
            at_us = now_us()
            # What a batch that fails leaves half done must not be stored.
            self._is_whole = False
            self._outputs = self._records(self._engine.observe(samples, at_us), at_us)
            self._is_whole = True
            self._generation, self._done = generation, number
            self._save()
            produce(self._spark, self._settings, self._outputs)
        self._log_batch(number, len(samples), time.monotonic() - started_s)

    def _log_batch(self, batch: int, readings: int, took_s: float) -> None:
        if took_s < _SLOW_S and not self._outputs and time.monotonic() - self._logged_s < 60:
            return
        self._logged_s = time.monotonic()
        STATE_ROWS.labels(self.name, "channels").set(self._engine.size)
        state = len(self._outputs), self._engine.size, self._notifier.withheld
        log.info(
            "event=alerts.batch batch=%d readings=%d records=%d channels=%d withheld=%d seconds=%.2f",
            *(batch, readings, *state, took_s),
        )

    # Due by the clock, and from the tables ---------------------------------------------------------------

    def tick(self) -> None:
        """Silence, ended late passes, intervals of the tables, a changed rules file; the table's rows."""
        if self._timers["rules"].due():
            self._reload_rules()
        if self._timers["twins"].due():
            self._read_twins()
        read = self._read_tables() if self._timers["feeds"].due() else []
        with self._lock:
            at_us = now_us()
            events = self._take(read, at_us)
            if self._has_read_everything():
                self._engine.caught_up = True
            events += self._engine.evaluate_silence(at_us)
            events += self._engine.end_late_passes(at_us)
            self._deliver(self._records(events, at_us))
        if self._unwritten and self._timers["table"].due():
            self._try_to_write()

    def finish(self) -> None:
        """All that is left after the last record."""
        read = self._read_tables()
        with self._lock:
            at_us = now_us()
            events = self._take(read, at_us)
            events += self._engine.end_late_passes(at_us, 0)
            self._deliver(self._records(events, at_us))
        self.write_table()

    def _has_read_everything(self) -> bool:
        if self.query is None or time.monotonic() - self._started_s < _EVERY_S["feeds"]:
            # It may not have begun to read.
            return False
        status = self.query.status
        return not status["isDataAvailable"] and not status["isTriggerActive"]

    def _follow_tables(self) -> None:
        """Follows the tables that rules are about, from now on: intervals closed before raise nothing."""
        for kind, feed in FEEDS:
            table = feed.table
            if table.name not in self._versions and self._has_rules(kind):
                location, there = self._settings.table(table.name), self._has(table)
                self._versions[table.name] = latest_version(self._spark, location) if there else -1

    def _has_rules(self, kind: type[Rule]) -> bool:
        return any(isinstance(rule, kind) for rule in self._rules.rules)

    def _has(self, table: Table) -> bool:
        return bool(DeltaTable.isDeltaTable(self._spark, self._settings.table(table.name)))

    def _read_tables(self) -> list[_Read]:
        """The rows that are new in tables; one that can't be read holds back no other."""
        found: list[_Read] = []
        interval_s, is_due = self._settings.interval_s, self._timers["days"].due()
        for kind, feed in FEEDS:
            name, location = feed.table.name, self._settings.table(feed.table.name)
            if not self._has_rules(kind) or not self._has(feed.table):
                continue
            after = -1 if feed.by_days and is_due else self._versions[name]

            def shape(changes: DataFrame, feed: Feed = feed, location: str = location) -> DataFrame:
                table = self._spark.read.format("delta").load(location)
                return feed.rows(changes.where(self._own(F.col("gateway"))), table, interval_s)

            try:
                changed, latest = rows_after(self._spark, location, after, shape)
            except (PySparkException, Py4JJavaError) as error:
                reason = str(error).strip().partition("\n")[0][:300]
                log.error("event=alerts.feed_failed table=%s after_version=%d %s", name, after, reason)
                continue
            length_us = (feed.length_s or interval_s) * SECOND_US
            rows = [IntervalRow(**row, length_us=length_us) for row in map(feed.completed, changed)]
            found.append((kind, rows, name, latest))
        return found

    def _take(self, read: Iterable[_Read], at_us: int) -> list[AlertEvent]:
        """Evaluates rows of tables; what that leads to is stored with the versions, or neither is."""
        events: list[AlertEvent] = []
        for kind, rows, table, latest in read:
            events += self._engine.observe_intervals(kind, rows, at_us)
            self._versions[table] = latest
        return events

    def _read_twins(self) -> None:
        found = self._twins()
        with self._lock:
            self._deliver(self._ends(self._engine.set_twins(*found)))

    def _twins(self) -> tuple[dict[str, dict[str, str]], dict[str, tuple[str, dict[str, float]]]]:
        """Twins and booms by the table ``channels``, as the engine takes them; none where none are wanted."""
        wanted = any(isinstance(rule, Pair) and (rule.shadow or not rule.pairs) for rule in self._rules.rules)
        if not wanted or not self._has(CHANNELS):
            return {}, {}
        channels = self._spark.read.format("delta").load(self._settings.table(CHANNELS.name))
        rows = channels.where(self._own(F.col("gateway")) & F.expr("coalesce(in_force, true)"))
        # The highest one: the tower disturbs it least.
        vane = F.expr("if(quantity = 'wind_direction', struct(height_m, channel), null)")
        rows = rows.withColumn("vane", F.max(vane).over(Window.partitionBy("gateway")))
        twins: dict[str, dict[str, str]] = {}
        booms: dict[str, tuple[str, dict[str, float]]] = {}
        rows = rows.where("pair is not null or boom_deg is not null")
        for row in rows.select("gateway", "channel", "pair", "boom_deg", "vane").collect():
            if row.boom_deg is not None and row.vane is not None:
                booms.setdefault(row.gateway, (row.vane.channel, {}))[1][row.channel] = row.boom_deg
            if row.pair is not None:
                twin = f"{row.pair}.{row.channel.rpartition('.')[2]}"
                twins.setdefault(row.gateway, {})[row.channel] = twin
        return twins, booms

    def _load_rules(self) -> Rules:
        rules, (_, parts) = load_rules(self._rules_path or DEFAULT_RULES), self._shard
        for rule in rules.rules:
            if rule.command is not None and rule.command.per_hour < parts:
                raise SettingsError(
                    f'rule "{rule.name}": its per_hour is {rule.command.per_hour}, and each of {parts} shards'
                    f" sends its part of it: give it {parts} at least, or use fewer shards"
                )
        return rules

    def _reload_rules(self) -> None:
        """Applies a changed file; one with mistakes is refused as a whole, the old rules stay."""
        if self._rules_path is None:
            return
        try:
            changed_ns = self._rules_path.stat().st_mtime_ns
            if changed_ns == self._rules_read_ns:
                return
            self._rules_read_ns = changed_ns
            rules = self._load_rules()
        except FileNotFoundError:
            return
        except SettingsError as error:
            for line in str(error).splitlines():
                log.error("event=rules.refused %s", line)
            return
        with self._lock:
            states, caught_up = self._engine.to_state(), self._engine.caught_up
            self._rules, self._engine = rules, Engine(rules)
            self._follow_tables()
            self._engine.restore(msgspec.json.decode(msgspec.json.encode(states)))
            self._engine.caught_up = caught_up
            self._deliver(self._forgotten())
            ended = self._engine.adopt(self._open_alerts()) + self._engine.set_twins(*self._twins())
            self._deliver(self._ends(ended))
        log.info("event=rules.taken rules=%d file=%s", len(rules.rules), self._rules_path)

    # Producing and storing ---------------------------------------------------------------------------------

    def _records(self, events: Iterable[AlertEvent], at_us: int) -> list[Outgoing]:
        alerts, commands = self._notifier.records(events, at_us)
        return self._outgoing(self._crowds.pass_on(alerts, at_us), commands)

    def _outgoing(self, alerts: Iterable[AlertRecord], commands: Iterable[Command] = ()) -> list[Outgoing]:
        for alert in alerts:
            self._unwritten[alert.id] = merged_row(self._unwritten.get(alert.id), alert)
        return [
            *((ALERTS_TOPIC, alert.key.decode(), alert.to_json().decode()) for alert in alerts),
            *((COMMANDS_TOPIC, command.key.decode(), command.to_json().decode()) for command in commands),
        ]

    def _deliver(self, records: list[Outgoing]) -> None:
        """Produces records that are of no batch: stored before, dropped from the state after."""
        self._pending += records
        if not self._pending:
            return
        self._save()
        produce(self._spark, self._settings, self._pending)
        self._pending = []
        self._save()

    def write_table(self) -> None:
        """Writes the rows that wait; a row leaves the state when it is in the table. Only one thread does."""
        with self._lock:
            rows = dict(self._unwritten)
        if not rows:
            return
        merge_alerts(self._spark, self._location, rows.values())
        with self._lock:
            self._unwritten = {key: row for key, row in self._unwritten.items() if rows.get(key) != row}
            self._save()

    def _try_to_write(self) -> None:
        """Writes the rows that wait; where that fails (another's commits, a store that is away) they stay."""
        try:
            self.write_table()
        except (PySparkException, Py4JJavaError) as error:
            reason = str(error).strip().partition("\n")[0][:300]
            log.error("event=alerts.table_failed rows=%d the next try is in %g s: %s",
                      len(self._unwritten), _EVERY_S["table"], reason)  # fmt: skip

    def _save(self) -> None:
        if not self._is_whole:
            raise JobError("the state is that of half a batch: it isn't stored")
        self._files.save(
            {
                "generation": self._generation,
                "batch": self._done,
                "gateways": self._engine.to_state(self._files.next),
                "issued": self._notifier.issued,
                "crowds": self._crowds.to_state(),
                "versions": self._versions,
                "outputs": self._outputs,
                "pending": self._pending,
                "unwritten": self._unwritten,
            }
        )

    def _restore(self) -> None:
        """Goes on from the state, and with the alerts that are open by the table."""
        if (state := self._files.load()) is not None:
            self._generation, self._done = state["generation"], state["batch"]
            self._notifier.issued = {
                rule: [(at, gateway) for at, gateway in issued] for rule, issued in state["issued"].items()
            }
            self._crowds.restore(state["crowds"])
            self._versions = state["versions"]
            self._outputs = [tuple(record) for record in state["outputs"]]
            self._pending = [tuple(record) for record in state["pending"]]
            self._unwritten = state["unwritten"]
            self._engine.restore(state["gateways"])
        self._pending += self._forgotten()
        # Before any batch: a backlog's twins are to be compared outside the tower's shadow, too.
        ended = self._engine.adopt(self._open_alerts()) + self._engine.set_twins(*self._twins())
        self._pending += self._ends(ended)

    def _open_alerts(self) -> list[OpenAlert]:
        """Alerts that were raised and not cleared, by the table and the rows that wait for it."""
        there = self._spark.read.format("delta").load(self._location)
        rows = there.where(F.col("cleared_at").isNull() & self._own(F.col("gateway"))).toArrow()
        found = {row["id"]: row for row in dicts_of(rows)} | self._unwritten
        stand = [row for row in found.values() if row["cleared_at"] is None]
        for row in stand:
            if row["rule"] != CROWD[0]:
                self._crowds.adopt(row["gateway"], row["id"], row["severity"])
        for row in stand:
            if row["rule"] == CROWD[0]:
                ended = self._crowds.ended(row["gateway"], row["raised_at"], now_us())
                self._pending += self._outgoing(ended)
        return [
            OpenAlert(
                (row["rule"], row["rule_version"]), row["gateway"], row["channel"],
                row["raised_at"], row["raised_at"], not row["historical"],
            )
            for row in stand
            if row["rule"] != CROWD[0]
        ]  # fmt: skip

    def _forgotten(self) -> list[Outgoing]:
        """Drops withheld alerts of rules that are gone, before any of them gets a place."""
        return self._outgoing(self._crowds.forget_rules((rule.id for rule in self._rules.rules), now_us()))

    def _ends(self, alerts: Iterable[OpenAlert]) -> list[Outgoing]:
        """Ends the alerts whose rules or channels are gone."""
        by_name = {rule.name: rule for rule in self._rules.rules}
        ended = [closing(alert, by_name.get(alert.rule[0])) for alert in alerts]
        return self._outgoing(self._crowds.pass_on(ended, now_us()))


Outgoing = tuple[str, str, str]
"""Topic without the prefix, key, value."""


def produce(spark: SparkSession, settings: Settings, records: Sequence[Outgoing]) -> None:
    """Writes records and waits until all in-sync replicas have them; a repeat writes them again."""
    if not records:
        return
    named = [(settings.prefix + topic, *rest) for topic, *rest in records]
    produce_rows(rows_frame(spark, "topic key value: string", named).coalesce(1), settings)
