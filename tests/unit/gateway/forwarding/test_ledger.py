"""The ledger against a plain model: a PUBACK is due exactly when its message is durable, never earlier."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from gateway.forwarding.ledger import ENTRY_BYTES, Entry, Ledger, Settled
from gateway.ports import Ack, Record


def record(value: bytes) -> Record:
    return Record("mqtt.wind_speed", b"mast-07/cup.wind_speed", value, ())


def test_an_echo_is_recognised_by_its_bytes_until_it_is_confirmed() -> None:
    ledger = Ledger()
    entry = ledger.enter(record(b"one"), 0.0, own=True)
    assert ledger.echoed(b"two", Ack(1, 7)) is None
    assert ledger.echoed(b"one", Ack(1, 8)) is entry
    entry.at_sink = True
    ledger.delivered(entry)
    assert ledger.take_settled() == Settled(acks=[Ack(1, 8)])
    assert ledger.echoed(b"one", Ack(1, 9)) is None
    assert len(ledger) == 0


def test_a_message_that_comes_again_with_each_connection_owes_the_latest_puback_only() -> None:
    ledger = Ledger()
    first = Ack(1, 7)
    parts = [ledger.enter(record(value), 0.0, own=False, ack=first) for value in (b"one", b"two")]
    for connection in range(2, 1000):
        again = Ack(connection, 7)
        for part in parts:
            ledger.owe(part, again)
    assert [part.acks for part in parts] == [[Ack(999, 7)], [Ack(999, 7)]]
    ledger.take_for_storing(0.0)
    ledger.stored(parts[:1], [1])
    assert ledger.take_settled() == Settled()
    ledger.stored(parts[1:], [2])
    assert ledger.take_settled() == Settled(acks=[Ack(999, 7)])


def test_the_brokers_lost_session_voids_no_answer_to_a_device() -> None:
    ledger = Ledger()
    answer = Ack(0, 0, done=lambda: None)
    parts = [ledger.enter(record(value), 0.0, own=False, ack=answer) for value in (b"one", b"two")]
    ledger.session_lost()
    ledger.delivered(parts[0])
    assert ledger.take_settled() == Settled()
    ledger.delivered(parts[1])
    assert ledger.take_settled() == Settled(acks=[answer])


def test_a_refused_commit_leaves_the_entry_open_and_unacknowledged() -> None:
    ledger = Ledger()
    entry = ledger.enter(record(b"one"), 0.0, own=False, ack=Ack(1, 1))
    ledger.take_for_storing(1.0)
    ledger.not_stored([entry])
    assert ledger.take_settled() == Settled()
    assert ledger.oldest_unstored() is entry
    assert ledger.take_for_storing(1.0) == [entry]


def test_an_own_reading_that_the_disk_refuses_is_acknowledged_at_once() -> None:
    """The broker has a window of 20: with echoes in it nothing else would come from other devices."""
    ledger = Ledger()
    entry, slow = (ledger.enter(record(value), 0.0, own=True) for value in (b"one", b"slow"))
    ledger.echoed(b"one", Ack(1, 1))
    ledger.not_stored(ledger.take_for_storing(1.0))
    assert ledger.take_settled() == Settled([Ack(1, 1)])
    # Its echo is late.
    assert ledger.echoed(b"slow", Ack(1, 2)) is slow
    assert ledger.take_settled() == Settled([Ack(1, 2)])
    assert ledger.is_open(entry)
    assert ledger.refused == 2


def test_only_what_entered_before_the_moment_is_stored() -> None:
    ledger = Ledger()
    early = ledger.enter(record(b"early"), 1.0, own=True)
    ledger.enter(record(b"late"), 2.0, own=True)
    assert ledger.take_for_storing(1.5) == [early]


class LedgerMachine(RuleBasedStateMachine):
    """Random interleavings of what threads may report to the ledger."""

    entries = Bundle("entries")
    at_sink = Bundle("at_sink")
    commits = Bundle("commits")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.now_s = 0.0
        self.count = 0
        self.row = 0
        self.owed: dict[Ack, set[Entry]] = {}
        self.entered: list[Entry] = []
        self.paid: set[Ack] = set()
        self.durable: set[Entry] = set()
        self.rows: dict[int, Entry] = {}
        self.refused: set[Entry] = set()

    def settle(self) -> None:
        settled = self.ledger.take_settled()
        for ack in settled.acks:
            assert ack not in self.paid, "paid twice"
            assert self.owed[ack] <= self.safe, "paid before all of its message was durable"
            self.paid.add(ack)
        for number in settled.rows:
            del self.rows[number]

    @property
    def safe(self) -> set[Entry]:
        """What is durable, and our own readings that the disk has refused."""
        return self.durable | {entry for entry in self.refused if entry.own}

    def new_ack(self) -> Ack:
        self.count += 1
        return Ack(1, self.count)

    @rule(target=entries)
    def sample(self) -> Entry:
        ack = self.new_ack()
        self.now_s += 1.0
        payload = b"%d" % self.count
        entry = self.ledger.enter(record(payload), self.now_s, own=True)
        assert self.ledger.echoed(payload, ack) is entry
        self.entered.append(entry)
        self.owed[ack] = {entry}
        return entry

    @rule(target=entries, readings=st.integers(1, 4))
    def receive(self, readings: int) -> object:
        ack = self.new_ack()
        self.now_s += 1.0
        made = [
            self.ledger.enter(record(b"%d %d" % (self.count, number)), self.now_s, own=False, ack=ack)
            for number in range(readings)
        ]
        self.entered += made
        self.owed[ack] = set(made)
        return multiple(*made)

    @rule(data=st.data())
    def receive_again(self, data: st.DataObject) -> None:
        unpaid = [ack for ack in self.owed if ack not in self.paid]
        if not unpaid:
            return
        still_open = {
            entry for entry in self.owed[data.draw(st.sampled_from(unpaid))] if self.ledger.is_open(entry)
        }
        again = self.new_ack()
        for entry in still_open:
            self.ledger.owe(entry, again)
        self.owed[again] = still_open

    @rule(target=at_sink, entry=entries)
    def produce(self, entry: Entry) -> object:
        if not entry.waiting or entry in self.durable:
            return multiple()
        entry.at_sink = True
        return entry

    @rule(entry=consumes(at_sink))
    def deliver(self, entry: Entry) -> None:
        self.durable.add(entry)
        self.ledger.delivered(entry)
        self.settle()

    @rule(entry=consumes(at_sink))
    def give_up(self, entry: Entry) -> None:
        self.ledger.undelivered(entry)

    @rule(target=commits, age_s=st.integers(0, 5))
    def begin_commit(self, age_s: int) -> object:
        taken = self.ledger.take_for_storing(self.now_s - age_s)
        return tuple(taken) if taken else multiple()

    @rule(commit=consumes(commits))
    def end_commit(self, commit: tuple[Entry, ...]) -> None:
        numbers = range(self.row + 1, self.row + 1 + len(commit))
        self.row += len(commit)
        self.rows.update(zip(numbers, commit, strict=True))
        self.durable.update(commit)
        self.ledger.stored(commit, numbers)
        self.settle()

    @rule(place=st.integers(0, 20))
    def deliver_row(self, place: int) -> None:
        rows = sorted(number for number, entry in self.rows.items() if not entry.at_sink)
        if place < len(rows):
            number = rows[place]
            self.durable.add(self.rows.pop(number))

    @rule(commit=consumes(commits))
    def fail_commit(self, commit: tuple[Entry, ...]) -> None:
        self.refused.update(commit)
        self.ledger.not_stored(commit)
        self.settle()

    @invariant()
    def a_puback_is_paid_exactly_when_the_last_that_owes_it_has_left(self) -> None:
        still_open = {entry for entry in self.entered if self.ledger.is_open(entry)}
        assert len(self.ledger) == len(still_open)
        owing = still_open - {entry for entry in self.refused if entry.own}
        for ack, entries in self.owed.items():
            assert (ack in self.paid) == entries.isdisjoint(owing)
        assert self.durable.issuperset(set(self.entered) - still_open)
        assert self.ledger.refused == len(self.refused & still_open)
        assert self.ledger.size_bytes == sum(ENTRY_BYTES + len(entry.record.value) for entry in still_open)

    @invariant()
    def a_row_is_held_exactly_while_the_sink_has_its_copy(self) -> None:
        for number, entry in self.rows.items():
            assert (number in self.ledger.held) == entry.at_sink
        assert len(self.ledger.held) == sum(entry.at_sink for entry in self.rows.values())


TestLedgerMachine = LedgerMachine.TestCase


def test_a_reading_of_this_run_is_durable_once_kafka_or_the_outbox_has_it() -> None:
    ledger, seen = Ledger(), []
    ledger.delivered(ledger.enter(record(b"an announcement"), 0.0, own=False))
    seen.append(ledger.has_durable)
    refused = ledger.enter(record(b"refused"), 0.0, own=True)
    ledger.not_stored(ledger.take_for_storing(1.0))
    seen.append(ledger.has_durable)
    ledger.delivered(refused)
    seen.append(ledger.has_durable)
    assert seen == [False, False, True]
    stored = Ledger()
    stored.enter(record(b"stored"), 0.0, own=True)
    stored.stored(stored.take_for_storing(1.0), [1])
    assert stored.has_durable
