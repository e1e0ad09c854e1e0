"""What Kafka has of everything that was sampled: counted from the topics, beside the product's own tables."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer

from cloud.wire.number_set import NumberSet
from cloud.wire.reading_records import (
    DEAD_LETTER_TOPIC,
    RAW_TOPIC,
    READING_TOPIC_PREFIX,
    RUNS_TOPIC,
    InvalidReading,
    Reading,
    dead_letter,
    encode_dead_letter,
    encode_reading,
    parse_dead_letter,
    parse_reading,
)
from cloud.wire.run_records import RunRecord
from cloud.wire.seq_accounting import GOING_ON, Found, RunBalance, named_runs, run_balances, settled_of
from tests.support.mast import records
from tests.support.servers import unique_name

CUP = "cup-a.wind_speed"
LOST_RECORD = "record lost"
Identity = tuple[str, str, str, int]


@dataclass(frozen=True)
class RunAccount:
    """One run: ``stored + dropped + pending + lost == sampled + never_sampled``.

    ``state`` is None where a device numbers by itself, ``LOST_RECORD`` where only the name is known.
    ``unannounced_s`` is what the run's successor reports of it.
    """

    gateway: str
    run: str
    state: str | None
    balance: RunBalance
    repeats: int = 0
    unannounced_s: float | None = None

    @property
    def sampled(self) -> int:
        """How many readings the run is known to have issued."""
        return sum(each.issued for each in self.balance.channels.values())

    @property
    def stored(self) -> int:
        """How many readings arrived, as readings or as dead letters."""
        return sum(each.stored + each.dead_letters for each in self.balance.channels.values())

    @property
    def dropped(self) -> int:
        """How many readings are announced as dropped, and didn't arrive by another way."""
        return sum(each.dropped for each in self.balance.channels.values())

    @property
    def pending(self) -> int:
        """How many missing readings are on their way or in the gateway's outbox."""
        return sum(each.issuing for each in self.balance.channels.values()) + self.balance.held

    @property
    def lost(self) -> int:
        """How many readings are nowhere."""
        return settled_of(self.balance.channels) - self.balance.held

    @property
    def never_sampled(self) -> int:
        """How many readings are beyond what the stopped run issued."""
        return sum(each.never_sampled for each in self.balance.channels.values())

    @property
    def balanced(self) -> bool:
        """Whether everything sampled is accounted for, and nothing else is there."""
        return self.lost == self.never_sampled == 0

    @property
    def last_seq(self) -> dict[str, int]:
        """The highest seq of each channel that is known to be issued."""
        return {channel: each.issued for channel, each in self.balance.channels.items()}


@dataclass
class Accounts:
    """Takes records in any order."""

    found: defaultdict[tuple[str, str], Found] = field(default_factory=lambda: defaultdict(Found))
    records: dict[tuple[str, str], tuple[RunRecord, int]] = field(default_factory=dict)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Dead letters by gateway and reason."""
    repeats: Counter[tuple[str, str]] = field(default_factory=Counter)
    replayed: Counter[tuple[str, str]] = field(default_factory=Counter)

    def take_run(self, value: bytes, at_ms: int) -> None:
        """Takes a run record; the furthest one of a run counts."""
        record = RunRecord.from_json(value)
        key = record.gateway, record.run
        if key not in self.records or record.reach >= self.records[key][0].reach:
            self.records[key] = record, at_ms

    def take_reading(self, value: bytes, *, replayed: bool = False) -> None:
        """Takes a reading."""
        reading = parse_reading(value, unrepaired=True)
        key = reading.gateway, reading.run
        seqs = self.found[key].stored[reading.channel]
        self.repeats[key] += reading.seq in seqs
        self.replayed[key] += replayed
        seqs.add(reading.seq)

    def take_dead_letter(self, value: bytes) -> None:
        """Takes a dead letter; a reading in it is accounted for."""
        found = parse_dead_letter(value)
        self.refused[found.gateway, found.reason] += 1
        try:
            reading = parse_reading(found.payload, unrepaired=True)
        except InvalidReading:
            return
        self.found[reading.gateway, reading.run].dead_letters[reading.channel].add(reading.seq)

    def identities(self, place: str, gateway: str | None = None) -> Iterator[Identity]:
        """The readings in a place (an attribute of ``Found``)."""
        for (of, run), found in self.found.items():
            if gateway in (None, of):
                seqs_of: dict[str, NumberSet] = getattr(found, place)
                yield from ((of, channel, run, seq) for channel, seqs in seqs_of.items() for seq in seqs)

    def refused_of(self, gateway: str) -> Counter[str]:
        """A gateway's dead letters by reason."""
        return Counter({reason: count for (of, reason), count in self.refused.items() if of == gateway})

    def of(self, gateway: str) -> list[RunAccount]:
        """One account for each of a gateway's runs, in their order."""
        known = {run: record for (of, run), record in self.records.items() if of == gateway}
        found = {run: each for (of, run), each in self.found.items() if of == gateway}
        for record, _ in self.records.values():
            for each in record.dropped:
                if each.gateway == gateway:
                    place = found.setdefault(each.run, Found()).announced[each.channel]
                    place.add(max(each.first, 1), each.last)
        cut = {each.run: each for record, _ in known.values() for each in record.unfinished}
        named, accounts = named_runs(known), []
        for run, balance in run_balances(found, known).items():
            state = known[run][0].state if run in known else LOST_RECORD if run in named else None
            if run in cut and state in GOING_ON:
                state = cut[run].end
            unannounced_s = cut[run].lost_at_most_s if run in cut else None
            accounts.append(
                RunAccount(gateway, run, state, balance, self.repeats[gateway, run], unannounced_s)
            )
        return accounts


def read_accounts(kafka: str, topics: Collection[str] | None = None) -> Accounts:
    """Reads run records, dead letters and readings; by default of all topics that begin as readings' do."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": unique_name("accounts")})
    try:
        known = consumer.list_topics(timeout=20).topics.keys()
    finally:
        consumer.close()
    accounts = Accounts()
    if topics is None:
        topics = [name for name in known if name.startswith(READING_TOPIC_PREFIX) and name != RAW_TOPIC]
    # The run records first: what they report as arrived is then before the ends of the other topics.
    takers: list[tuple[Iterable[str], Callable[[Any], None]]] = [
        ([RUNS_TOPIC], lambda message: accounts.take_run(message.value() or b"", message.timestamp()[1])),
        ([DEAD_LETTER_TOPIC], lambda message: accounts.take_dead_letter(message.value() or b"")),
        (
            topics,
            lambda message: accounts.take_reading(
                message.value() or b"", replayed=("replayed", b"1") in (message.headers() or ())
            ),
        ),
    ]
    for names, take in takers:
        for message in records(kafka, sorted(known & set(names))):
            if message.error() is None:
                with suppress(ValueError):
                    take(message)
    return accounts


def reading(seq: int, *, run: str = "r1", channel: str = CUP, gateway: str = "mast-07") -> bytes:
    """A reading of a cup."""
    return encode_reading(
        Reading(
            gateway=gateway, channel=channel, quantity="wind_speed", unit="m/s",
            time_us=1_767_225_600_000_000, period_ms=1000, value=7.235, raw=9.0, raw_unit="Hz", quality=1,
            reasons=(), run=run, seq=seq, clock="synced", cal=None,
        )
    )  # fmt: skip


def run_record(run: str = "r1", state: str = "stopped", last: int = 10, **more: Any) -> bytes:
    """The record of a run that sampled the cup."""
    fields: dict[str, Any] = {
        "gateway": "mast-07", "run": run, "previous_run": None, "state": state, "last_seq": {CUP: last},
        "in_flight": 0, "outbox_records": 0, "dropped": [],
    }  # fmt: skip
    return json.dumps(fields | more).encode()


def dead_letter_of(payload: bytes) -> bytes:
    """A dead letter with a payload."""
    letter = dead_letter(
        "mast-07", "r1", 1, "TOO_LARGE", "refused", "devices/x", 1_767_225_600_000_000, payload
    )
    return encode_dead_letter(letter)
