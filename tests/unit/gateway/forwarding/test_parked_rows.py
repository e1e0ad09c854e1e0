"""A topic that takes nothing keeps its rows in the outbox, and they cost passes nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from buffer.errors import Drop
from buffer.outbox_file import Limits
from buffer.sqlite_outbox import SqliteOutbox
from cloud.errors import Undelivered
from gateway.forwarding.backlog import Backlog
from gateway.forwarding.ledger import Entry
from gateway.forwarding.outbox_writer import Answer, Fetched, NotRemoved, OutboxWriter, Stored
from gateway.forwarding.state import Pace, State
from gateway.ports import REPLAYED, Record
from tests.support.forwarding import Done, SinkOf
from tests.support.outbox import TemporaryOutbox
from tests.unit.gateway.mqtt.test_intake import intake

TOPICS = tuple(f"mqtt.q{at}" for at in range(7))
SICK = TOPICS[3]
FORBIDDEN = Undelivered("TOPIC_AUTHORIZATION_FAILED", record_at_fault=False, topic_at_fault=True)


class Cloud:
    """A Kafka that refuses some topics."""

    delivery_timeout_s = 120.0

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.taken: list[Record] = []

    def send(self, record: Record, done: Done) -> bool:
        if record.topic in self.refused:
            done(FORBIDDEN)
        else:
            self.taken.append(record)
            done(None)
        return True

    def values(self, topic: str) -> list[int]:
        return [int(record.value) for record in self.taken if record.topic == topic]


class Mast:
    """A backlog and its outbox, all in this thread; the test moves the time."""

    def __init__(self, outbox: SqliteOutbox, cloud: Cloud, batch_s: float | None = None) -> None:
        self.now_s = 1000.0
        self.cloud = cloud
        self.outbox = outbox
        self.read = 0
        self.made = 0
        self._answers: list[Answer] = []
        self.state = State(intake()[0], Pace(1.0, batch_s))
        self.writer = OutboxWriter(outbox, self._answers.append)
        self.backlog = Backlog(self.state, SinkOf(cloud), self.writer)

    def commit(self, topics: Sequence[str] = TOPICS, padding: int = 0) -> None:
        self.made += 1
        value = b"%d" % self.made
        # Not to be compressed, where a test is to fill the outbox.
        self._store(
            [
                Record(topic, b"mast-07/x", value, (("padding", os.urandom(padding)),) if padding else ())
                for topic in topics
            ]
        )

    def _store(self, records: Sequence[Record]) -> None:
        self.writer.store([Entry(record, self.now_s, own=True) for record in records])
        self._work()

    def turn(self) -> bool:
        """One turn of the forwarder's loop; whether anything moved."""
        moves = self.backlog.moves
        for row in self.backlog.poll(self.now_s):
            self.state.kafka.confirmed(row.record.topic, row.sent_s, self.now_s)
        self.backlog.turn(self.now_s)
        self._work()
        return self.backlog.moves != moves

    def pass_time(self, seconds: float) -> None:
        """Until nothing moves any more, with an eighth of the time between two turns."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            while self.turn():
                pass
            self.now_s += seconds / 8

    def _work(self) -> None:
        while not self.writer._tasks.empty():
            *_, task = self.writer._tasks.get_nowait()
            assert task is not None
            task()
            answers, self._answers[:] = list(self._answers), []
            for answer in answers:
                self._take(answer)

    def _take(self, answer: Answer) -> None:
        match answer:
            case Stored(entries, numbers):
                self.backlog.stored(entries, numbers)
            case Fetched(rows):
                self.read += len(rows)
                self.backlog.fetched(rows, self.now_s)
            case NotRemoved(numbers, problem):
                self.backlog.not_removed(numbers, problem, self.now_s)
            case _:
                raise AssertionError(answer)


def test_rows_of_a_forbidden_topic_are_read_for_its_probes_only_and_leave_once_it_is_mended(
    tmp_path: Path,
) -> None:
    cloud = Cloud()
    cloud.refused.add(SICK)
    outbox = SqliteOutbox(tmp_path / "outbox.db")
    mast = Mast(outbox, cloud)
    for _ in range(1200):
        mast.commit()
    mast.pass_time(600)
    assert len(outbox) == 1200
    mast.read = 0
    mast.pass_time(60)
    # A probe, once in a minute, takes two batches; a pass every ten seconds would read all 1,200.
    assert mast.read <= 2 * 2 * 500
    cloud.refused.clear()
    mast.pass_time(480)
    assert len(outbox) == 0
    for topic in TOPICS:
        assert sorted(cloud.values(topic)) == list(range(1, 1201))
    outbox.close()


def test_rows_that_are_not_late_stay_where_they_are_and_leave_as_news(tmp_path: Path) -> None:
    cloud = Cloud()
    cloud.refused.add(SICK)
    mast = Mast(SqliteOutbox(tmp_path / "outbox.db"), cloud)
    for _ in range(600):
        mast.commit()
    mast.pass_time(50)
    assert len(mast.outbox) == 600
    cloud.refused.clear()
    mast.pass_time(8)
    assert len(mast.outbox) == 0
    assert not any(REPLAYED in record.headers for record in cloud.taken)
    mast.outbox.close()


def test_while_a_topic_without_rows_is_due_passes_keep_their_pauses() -> None:
    cloud = Cloud()
    cloud.refused.add(SICK)
    mast = Mast(TemporaryOutbox(), cloud)
    for _ in range(5):
        mast.commit()
    mast.state.kafka.park(TOPICS[0], mast.now_s, "no delivery report while others came")
    cloud.refused.add(TOPICS[0])
    mast.outbox.remove(range(1, 5 * len(TOPICS), len(TOPICS)))
    for _ in range(400):
        mast.turn()
        mast.now_s += 1
    with patch.object(mast.writer, "fetch", wraps=mast.writer.fetch) as fetch:
        for _ in range(600):
            mast.turn()
            mast.now_s += 0.25
    # Two fetches each pass, every ten seconds and for the probes of a minute apart.
    assert fetch.call_count <= 2 * (150 / 10 + 6)


class ParkedMachine(RuleBasedStateMachine):
    """Commits, passes, topics that take nothing for a while, and kills: nothing is lost, nothing doubled."""

    limits = Limits()
    padding = 0

    def __init__(self) -> None:
        super().__init__()
        self.cloud = Cloud()
        self.drops: list[Drop] = []
        self.outbox = TemporaryOutbox(self.limits, on_drop=self.drops.append)
        self.mast = Mast(self.outbox, self.cloud)
        self.made: dict[str, list[int]] = {topic: [] for topic in TOPICS}
        self.killed = False

    @rule(topics=st.sets(st.sampled_from(TOPICS), min_size=1), times=st.integers(1, 12))
    def commit(self, topics: set[str], times: int) -> None:
        for _ in range(times):
            self.mast.commit(sorted(topics), self.padding)
            for topic in topics:
                self.made[topic].append(self.mast.made)

    @rule(topic=st.sampled_from(TOPICS[:3]))
    def refuse(self, topic: str) -> None:
        self.cloud.refused.add(topic)

    @rule(topic=st.sampled_from(TOPICS[:3]))
    def mend(self, topic: str) -> None:
        self.cloud.refused.discard(topic)

    @rule(seconds=st.sampled_from([0.1, 5.0, 70.0]))
    def pass_time(self, seconds: float) -> None:
        self.mast.pass_time(seconds)

    @rule(turns=st.integers(1, 3))
    def some_turns(self, turns: int) -> None:
        for _ in range(turns):
            self.mast.turn()

    @rule()
    def kill(self) -> None:
        made = self.mast.made
        self.mast = Mast(self.outbox, self.cloud)
        self.mast.made = made
        self.killed = True

    def teardown(self) -> None:
        self.cloud.refused.clear()
        self.mast.pass_time(700)
        assert len(self.outbox) == 0
        for topic, made in self.made.items():
            found = self.cloud.values(topic)
            if self.drops:
                # But for those dropped: what is left is not parked for ever.
                assert set(found) <= set(made)
            elif self.killed:
                assert set(found) == set(made)
            else:
                assert sorted(found) == made


class CappedMachine(ParkedMachine):
    """The same in an outbox that has room for ten commits or so."""

    # Beside the log and its index some forty pages.
    limits = Limits(416 << 10)
    padding = 1000


TestParkedMachine = ParkedMachine.TestCase
TestCappedMachine = CappedMachine.TestCase
TestParkedMachine.settings = TestCappedMachine.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None
)
