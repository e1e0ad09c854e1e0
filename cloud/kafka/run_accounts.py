"""What became of everything that was sampled: the run ledger against what is in Kafka.

A run's seq counts from 1 in each channel, so the last seq names all of its readings. Each of them is in
Kafka, in a dead letter, in an announced drop, pending (in flight or in an outbox), or unaccounted.

Pure bookkeeping; ``cloud.kafka.topic_scan`` reads the topics. Memory grows with the gaps, not the readings.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cloud.wire.avro_readings import NO_SCHEMAS, UNKNOWN_SCHEMA, plain
from cloud.wire.number_set import NumberSet
from cloud.wire.reading_records import InvalidReading, parse_dead_letter, parse_reading
from cloud.wire.run_records import RunRecord
from cloud.wire.seq_accounting import (
    GOING_ON,
    Found,
    current_run,
    held_of_runs,
    in_order,
    named_runs,
    run_balance,
    settled_of,
)

NO_RECORD: Final = "no record"
"""State of a run that has readings and no run record: for instance that of a device that counts by itself."""
LOST_RECORD: Final = "record lost"
"""State of a run that the next one names and that has no record."""

_SUMMED: Final = ("in_kafka", "dead_letters", "dropped", "expired", "never_sampled")


@dataclass(frozen=True, slots=True)
class RunAccount:
    """What became of one run's readings.

    ``in_kafka + dead_letters + dropped + expired + pending + unaccounted == sampled + never_sampled`` unless
    ``sampled`` is None (a run without a record). Each reading is counted in the first place that has it.
    ``never_sampled`` are beyond what a stopped run reports as issued. ``expired`` are older than the oldest
    that Kafka still has of their channel. ``told_ms`` is when the last record came (ms since the epoch).
    ``last_seq`` is the highest seq of each channel that is known to be issued. Of a run that did not end
    itself, readings of its last ``unannounced_s`` seconds may be missing beyond that.
    """

    gateway: str
    run: str
    state: str
    told_ms: int | None
    sampled: int | None
    in_kafka: int
    repeats: int
    replayed: int
    dead_letters: int
    dropped: int
    expired: int
    pending: int
    unaccounted: int
    never_sampled: int
    last_seq: Mapping[str, int]
    unannounced_s: float | None = None

    @property
    def balanced(self) -> bool:
        """Whether everything sampled is accounted for, and nothing else is there."""
        return self.unaccounted == 0 and self.never_sampled == 0


class Books:
    """Takes in records in any order, and gives the accounts. One thread at a time."""

    def __init__(self, gateway: str | None = None, schemas: Mapping[int, str] = NO_SCHEMAS) -> None:
        """``gateway`` leaves all others out; ``schemas`` are those of readings in Avro."""
        self._schemas = schemas
        self._only = gateway
        self._needle = (gateway or "").encode()
        self._found: defaultdict[tuple[str, str], Found] = defaultdict(Found)
        self._records: dict[tuple[str, str], tuple[RunRecord, int]] = {}
        self._truncated: set[str] = set()
        self._topics: defaultdict[str, set[str]] = defaultdict(set)
        self.letters: Counter[tuple[str, str]] = Counter()
        """Dead letters by gateway and reason, with or without a reading in them."""
        self.unreadable: Counter[str] = Counter()
        """Records that are not what their topic is for, by topic."""
        self.unknown_schemas = 0
        """How many of them are in Avro by a schema that isn't known here."""

    def found(self) -> Iterator[tuple[str, str, Found]]:
        """Gateway, run and what was found of it."""
        for (gateway, run), what in self._found.items():
            yield gateway, run, what

    def of(self, gateway: str, run: str) -> Found:
        """What was found of a run, to add to."""
        return self._found[gateway, run]

    def run_record(self, gateway: str, run: str) -> RunRecord | None:
        """The furthest record of a run that was taken."""
        return self._records.get((gateway, run), (None, 0))[0]

    @property
    def reading_topics(self) -> set[str]:
        """The topics that runs name as those of readings of theirs, beside the usual ones."""
        return {topic for record, _ in self._records.values() for topic in record.reading_topics}

    def truncated(self, topic: str) -> None:
        """Note that Kafka has deleted the oldest records of a reading topic."""
        self._truncated.add(topic)

    def take_run(self, topic: str, value: bytes, told_ms: int) -> None:
        """Take a record of ``gateway.runs``; the furthest one of a run counts."""
        try:
            record = RunRecord.from_json(value)
        except ValueError:
            self.unreadable[topic] += 1
            return
        known = self.run_record(record.gateway, record.run)
        if self._only in (None, record.gateway) and (known is None or record.reach >= known.reach):
            self._records[record.gateway, record.run] = record, told_ms

    def take_letter(self, topic: str, value: bytes) -> None:
        """Take a dead letter; the reading in it, where there is one, is accounted for."""
        try:
            letter = parse_dead_letter(value)
        except InvalidReading:
            self.unreadable[topic] += 1
            return
        self.letters[letter.gateway, letter.reason] += 1
        try:
            reading = parse_reading(letter.payload, unrepaired=True)
        except InvalidReading:
            return
        if self._only in (None, reading.gateway):
            self.of(reading.gateway, reading.run).dead_letters[reading.channel].add(reading.seq)

    def take_reading(self, topic: str, value: bytes, *, replayed: bool) -> None:
        """Take a record of a reading topic."""
        if self._needle not in value:
            return
        try:
            reading = parse_reading(plain(value, self._schemas), unrepaired=True)
        except InvalidReading as error:
            self.unreadable[topic] += 1
            self.unknown_schemas += error.reason == UNKNOWN_SCHEMA
            return
        if self._only not in (None, reading.gateway):
            return
        found = self.of(reading.gateway, reading.run)
        seqs = found.kafka[reading.channel]
        found.replayed += replayed
        if reading.seq in seqs:
            found.repeats += 1
        else:
            seqs.add(reading.seq)
        self._topics[reading.quantity].add(topic)

    def accounts(self) -> list[RunAccount]:
        """One for each run, by gateway; a gateway's runs in their order as far as it is known."""
        self._take_drops()
        runs: defaultdict[str, set[str]] = defaultdict(set)
        for gateway, run in (*self._found, *self._records):
            runs[gateway].add(run)
        for record, _ in self._records.values():
            if record.previous_run is not None:
                runs[record.gateway].add(record.previous_run)
            runs[record.gateway].update(each.run for each in record.unfinished)
        return [
            account for gateway in sorted(runs) for account in self._gateway_accounts(gateway, runs[gateway])
        ]

    def _take_drops(self) -> None:
        for record, _ in self._records.values():
            for each in record.dropped:
                if self._only in (None, each.gateway):
                    self._found[each.gateway, each.run].announced[each.channel].add(
                        max(each.first, 1), each.last
                    )

    def _gateway_accounts(self, gateway: str, runs: set[str]) -> list[RunAccount]:
        known = {run: self._records[gateway, run] for run in runs if (gateway, run) in self._records}
        unfinished = {each.run: each for record, _ in known.values() for each in record.unfinished}
        named = named_runs(known)
        current = current_run(known, named)
        balances = {
            run: run_balance(
                self._found.get((gateway, run), Found()),
                known[run][0] if run in known else None,
                counted=run in known or run in named,
                current=run == current,
                expired=self._expired,
            )
            for run in runs
        }
        held = held_of_runs(balances, known, current)
        accounts = []
        for run in in_order(runs, known):
            found = self._found.get((gateway, run), Found())
            channels = list(balances[run].values())
            state = known[run][0].state if run in known else LOST_RECORD if run in named else NO_RECORD
            end = unfinished.get(run)
            account = RunAccount(
                gateway=gateway,
                run=run,
                state=end.end if end is not None and state in GOING_ON else state,
                told_ms=known[run][1] if run in known else None,
                sampled=None if state == NO_RECORD else sum(each.issued for each in channels),
                repeats=found.repeats,
                replayed=found.replayed,
                pending=sum(each.issuing for each in channels) + held[run],
                unaccounted=settled_of(balances[run]) - held[run],
                **{name: sum(getattr(each, name) for each in channels) for name in _SUMMED},
                last_seq={channel: each.issued for channel, each in balances[run].items()},
                unannounced_s=None if end is None else end.lost_at_most_s,
            )
            accounts.append(account)
        return accounts

    def _expired(self, channel: str, kafka: NumberSet, issued: int) -> int:
        """Up to which seq of a channel Kafka may have deleted what it had: below the oldest it still has."""
        topics = self._topics.get(channel.partition(".")[2], self._truncated)
        if not topics & self._truncated:
            return 0
        lowest = kafka.lowest
        return issued if lowest is None else lowest - 1
