"""Which channels are there, and what is missing of them: the rows of ``presence``, made of other tables.

All of it is counted each time, spread by gateway, so nothing has to be kept: what is joined and compared is
Spark's work, what a gateway's runs account for that of ``cloud.wire.seq_accounting``. Times are microseconds
since the epoch.

A run record has what was sent by its time, so it counts only once the readings sent before it are in the
table: when a later arrival of its gateway is there, or five minutes later. Until then the figures stay as
they were.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial, reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from cloud.wire import seq_accounting as accounts
from cloud.wire.avro_readings import NO_SCHEMAS, plain
from cloud.wire.fields import InvalidFields
from cloud.wire.reading_records import claimed_identity
from cloud.wire.run_records import ENDS, RunRecord, Unfinished
from cloud.wire.status_records import OFFLINE, ONLINE
from spark_jobs.platform.frames import row_by_row
from spark_jobs.platform.schemas import PRESENCE, columns
from spark_jobs.transforms.dedupe import joined_ranges
from spark_jobs.transforms.seen import IDENTITY
from spark_jobs.transforms.statistics import timely

SILENT: Final = "silent"
SETTLE_US: Final = 300_000_000
"""After so long a run record counts whether or not something of its gateway has arrived since."""
CLONED: Final = "cloned"
_AT_ONCE_US: Final = 600_000_000
_COUNTS: Final = ("pending", "lost", "announced")
_MOST: Final = (1 << 63) - 1
"""The bound of a count: what two runs claim to have issued together may be more."""
_PERIODS: Final = 5
_METERED: Final = 3
"""A metered gateway sends once a minute or less: it is silent after so many times as long."""


def arrivals(readings: DataFrame) -> DataFrame:
    """One row per (gateway, channel): last_seen_us (arrival), and the ``newest``, as of ``with_arrivals``.

    The newest is by the readings' own time; of one whose clock was not set it isn't known.
    """
    newest = F.struct(F.unix_micros("time").alias("time_us"), F.lit(1).alias("new"), "value", "period_ms")
    return readings.groupBy("gateway", "channel").agg(
        F.unix_micros(F.max("kafka_time")).alias("last_seen_us"),
        F.max_by(newest, F.when(timely(), F.struct("time", "run", "seq"))).alias("newest"),
    )


_CLAIMED: Final = columns("gateway channel run: string, seq: long, reporter: string")


def _claimed(payload: bytes, schemas: Mapping[int, str]) -> tuple[str, str, str, int] | None:
    with suppress(InvalidFields):
        return claimed_identity(plain(payload, schemas))
    return None


def _claims(batches: Iterable[Any], schemas: Mapping[int, str]) -> Iterator[Any]:
    for batch in batches:
        rejects = zip(batch["payload"].to_pylist(), batch["gateway"].to_pylist(), strict=True)
        claims = [(_claimed(payload, schemas), reporter) for payload, reporter in rejects if payload]
        rows = [(*claim, reporter) for claim, reporter in claims if claim is not None]
        named = [dict(zip(_CLAIMED.names, row, strict=True)) for row in rows]
        yield pa.RecordBatch.from_pylist(named, schema=to_arrow_schema(_CLAIMED))


def claimed(rejects: DataFrame, schemas: Mapping[int, str] = NO_SCHEMAS) -> DataFrame:
    """The readings that rejects claim to be, as far as they do: gateway, channel, run, seq, reporter.

    A forged one claims what its gateway never issued, and what proves nothing what another may have.
    """
    issued = rejects.where("overflow is null and reason not in ('FORGED', 'IDENTITY')")
    claims = partial(_claims, schemas=dict(schemas))
    return issued.select("payload", "gateway").mapInArrow(claims, _CLAIMED)


def dropped(runs: DataFrame) -> DataFrame:
    """The ranges of seq that run records announce as dropped, and whose record does (``reporter``)."""
    drops = runs.select(F.explode("dropped").alias("drop"), F.col("gateway").alias("reporter"))
    first = F.greatest("drop.first", F.lit(1)).alias("first")
    return drops.select(*(f"drop.{name}" for name in IDENTITY), first, "drop.last", "reporter")


def accountable(ranges: DataFrame, runs: DataFrame) -> DataFrame:
    """Ranges of seq without those that one gateway reports of another, where both have run records.

    Such a gateway accounts for its own readings alone, so none makes another's losses disappear. Devices
    have no run records: the gateway that forwards them reports for them. A ``reporter`` without any is the
    key of a forward, which may be any text.
    """
    gateways = runs.agg(F.collect_set("gateway").alias("gateways"))
    both = "array_contains(gateways, gateway) and array_contains(gateways, reporter)"
    kept = ranges.crossJoin(gateways).where(f"reporter <=> gateway or reporter is null or not ({both})")
    return kept.select(*IDENTITY, "first", "last")


def _whole(found: DataFrame, runs: DataFrame) -> DataFrame:
    """Runs that have ended and of which everything is in these ranges: gateway, run."""

    def range_of(entry: Column) -> Column:
        return F.struct(entry["key"].alias("channel"), F.lit(1).cast("long").alias("first"), entry["value"])

    issued = F.transform(F.filter(F.map_entries("last_seq"), lambda entry: entry["value"] > 0), range_of)
    ended = runs.where(F.col("state").isin(*ENDS)).select(
        "gateway", "run", F.array_sort(issued).alias("issued")
    )
    stored = F.array_sort(F.collect_list(F.struct("channel", "first", "last"))).alias("stored")
    there = found.groupBy("gateway", "run").agg(stored)
    return there.join(ended, ["gateway", "run"]).where("stored <=> issued").select("gateway", "run")


_JUDGED: Final = columns(
    "gateway: string, offline cloned metered: bool, fault: string, losses: losses",
    losses="channel: string, pending lost announced: long",
)


def judged(
    found: Mapping[str, DataFrame], runs: DataFrame, settled: DataFrame, statuses: DataFrame,
    arrived: DataFrame, now_us: int, *, all_settled: bool,
) -> DataFrame:  # fmt: skip
    """Each gateway's state, and what is missing of its channels: ``losses``, null where it is unknown.

    ``fault`` is why it can't be judged: one gateway's records never end the judgement of all others.

    ``runs`` are the run records as they are now, ``settled`` those that may count (all, ``all_settled``).
    ``found``: ranges (gateway, channel, run, first, last) by where they are, as ``Found`` names it. Runs that
    ended with nothing missing are left out before anything of them is looked at.
    """
    found = {**found, "stored": joined_ranges(found["stored"])}
    whole = _whole(found["stored"], settled).withColumn("whole", F.lit(True))
    places = (rows.select(F.lit(place).alias("place"), *rows.columns) for place, rows in found.items())
    rest = reduce(DataFrame.union, places).join(whole, ["gateway", "run"], "left_anti")
    counted = settled.join(whole, ["gateway", "run"], "left").withColumn(
        "last_seq",
        F.when(F.col("whole"), F.create_map().cast("map<string,bigint>")).otherwise(F.col("last_seq")),
    )
    reported = F.unix_micros("reported_at").alias("reported_us")
    record = (
        "run",
        "state",
        reported,
        "previous_run",
        "in_flight",
        "outbox_records",
        "unfinished",
        "last_seq",
    )
    lists: dict[str, tuple[DataFrame, tuple[str | Column, ...]]] = {
        "ranges": (rest, ("place", "run", "channel", "first", "last")),
        "runs": (runs, ("run", "state", reported, "previous_run", "unfinished")),
        "settled": (counted, record),
        "statuses": (statuses, ("run", "state", reported, "uplink")),
    }
    by_gateway = [
        rows.groupBy("gateway").agg(F.collect_list(F.struct(*names)).alias(name))
        for name, (rows, names) in lists.items()
    ]
    together = reduce(lambda left, right: left.join(right, "gateway", "full_outer"), [arrived, *by_gateway])
    return row_by_row(together, partial(_judge, now_us=now_us, all_settled=all_settled), _JUDGED)


def _judge(row: Mapping[str, Any], now_us: int, *, all_settled: bool) -> dict[str, Any]:
    try:
        return judge(row, now_us, all_settled=all_settled)
    except (ArithmeticError, ValueError, TypeError, LookupError) as error:
        fault = f"{type(error).__name__}: {error}"
        return {
            "gateway": row["gateway"],
            "offline": False,
            "cloned": False,
            "metered": False,
            "fault": fault,
        }


def judge(row: Mapping[str, Any], now_us: int, *, all_settled: bool = False) -> dict[str, Any]:
    """One gateway of ``judged``."""
    records, settled = _known(row, "runs"), _known(row, "settled")
    statuses = {each["run"]: each for each in row["statuses"] or ()}
    run = _newest_run(records, statuses)
    status, record = statuses.get(run or ""), records.get(run or "")
    can_count = all_settled or all(
        (row["arrived_us"] or 0) >= at_us or now_us >= at_us + SETTLE_US for _, at_us in settled.values()
    )
    return {
        "gateway": row["gateway"],
        "offline": (status is not None and status["state"] == OFFLINE)
        or (record is not None and record[0].state in ENDS),
        "cloned": len(accounts.go_on(records, now_us - _AT_ONCE_US)) > 1,
        "metered": status is not None and status["uplink"] == "metered",
        "losses": _losses(row["ranges"] or (), settled) if can_count else None,
    }


def _known(row: Mapping[str, Any], name: str) -> dict[str, tuple[RunRecord, int]]:
    """The run records in one of a gateway's lists, as far as the accounts need them."""
    records = {}
    for each in row[name] or ():
        record = RunRecord(
            gateway=row["gateway"],
            run=each["run"],
            state=each["state"],
            last_seq=dict(each.get("last_seq") or ()),
            in_flight=each.get("in_flight") or 0,
            outbox_records=each.get("outbox_records") or 0,
            previous_run=each["previous_run"],
            unfinished=tuple(Unfinished(**of) for of in each["unfinished"] or ()),
        )
        records[each["run"]] = record, each["reported_us"]
    return records


def _newest_run(records: accounts.Known, statuses: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The gateway's run now: the last one with a record, or one with no more than a status yet."""
    named = accounts.named_runs(records)
    current = accounts.current_run(records, named)
    since_us = statuses[current]["reported_us"] if current is not None and current in statuses else -1
    begun = {
        run: status["reported_us"]
        for run, status in statuses.items()
        if run not in records
        and run not in named
        and (current is None or (status["state"] == ONLINE and status["reported_us"] > since_us))
    }
    return max(begun, key=lambda run: begun[run], default=current)


def _losses(spans: Iterable[Mapping[str, Any]], known: accounts.Known) -> list[dict[str, Any]]:
    """Pending, lost and announced of each channel, over all runs."""
    found: defaultdict[str, accounts.Found] = defaultdict(accounts.Found)
    for each in spans:
        getattr(found[each["run"]], each["place"])[each["channel"]].add(each["first"], each["last"])
    totals: dict[str, dict[str, Any]] = {}
    for run in accounts.run_balances(found, known).values():
        shares = accounts.held_of_channels(run.channels, run.held)
        for channel, balance in run.channels.items():
            empty = {"channel": channel, "pending": 0, "lost": 0, "announced": 0}
            total, kept = totals.setdefault(channel, empty), shares.get(channel, 0)
            total["pending"] += balance.issuing + kept
            total["lost"] += len(balance.settled) - kept
            total["announced"] += balance.dropped
    for total in totals.values():
        total |= {name: min(total[name], _MOST) for name in _COUNTS}
    return list(totals.values())


def with_arrivals(old: DataFrame, arrived: DataFrame) -> DataFrame:
    """Rows of ``presence`` with new arrivals: gateway, channel, last_seen_us, newest, counts.

    ``newest`` is a reading: time_us, ``new`` (1 of one that came, 0 of one that was there), value, period_ms.
    """
    before = old.select(
        "gateway", "channel", F.unix_micros("last_seen").alias("last_seen_us"),
        F.struct(F.unix_micros("last_time").alias("time_us"), F.lit(0).alias("new"),
                 F.col("last_value").alias("value"), "period_ms").alias("newest"),
        F.struct(*_COUNTS).alias("counts"),
    )  # fmt: skip
    both = before.unionByName(arrived.withColumn("counts", F.lit(None)))
    # The later of two readings of one time is the corrected one.
    return both.groupBy("gateway", "channel").agg(
        F.max("last_seen_us").alias("last_seen_us"), F.max("newest").alias("newest"),
        F.max("counts").alias("counts"),
    )  # fmt: skip


def presence_rows(channels: DataFrame, gateways: DataFrame, silent_us: int, now_us: int) -> DataFrame:
    """The rows of ``presence`` by ``with_arrivals`` and ``judged``, without their ``updated_at``."""
    losses = gateways.select("gateway", F.explode("losses").alias("losses")).select(
        "gateway", "losses.channel", F.struct(*(f"losses.{name}" for name in _COUNTS)).alias("now")
    )
    patience_us = F.greatest(
        _PERIODS * 1000 * F.coalesce("newest.period_ms", F.lit(0)).cast("long"),
        silent_us * F.when(F.col("metered"), _METERED).otherwise(1),
    )
    here = F.coalesce(now_us - F.col("last_seen_us") <= patience_us, F.lit(False))
    state = (
        F.when(F.col("cloned"), CLONED).when(F.col("offline"), OFFLINE).when(here, ONLINE).otherwise(SILENT)
    )
    counts = F.coalesce("now", "counts")
    return (
        channels.join(losses, ["gateway", "channel"], "full_outer")
        .join(gateways.select("gateway", "offline", "cloned", "metered"), "gateway", "left")
        .select(
            "gateway",
            "channel",
            F.timestamp_micros("last_seen_us").alias("last_seen"),
            F.timestamp_micros("newest.time_us").alias("last_time"),
            F.col("newest.value").alias("last_value"),
            state.alias("state"),
            *(F.coalesce(counts[name], F.lit(0)).cast("long").alias(name) for name in _COUNTS),
            F.col("newest.period_ms").alias("period_ms"),
        )
        .select(*PRESENCE.without("updated_at").names)
    )
