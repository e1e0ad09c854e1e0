"""A topic that takes nothing keeps only its own rows in the outbox, and costs neither memory nor passes."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from buffer.blocks import Group
from buffer.drops import Drop
from buffer.space_limits import Limits
from buffer.sqlite_outbox import SqliteOutbox
from cloud.errors import Undelivered
from cloud.wire.reading_records import STATUS_TOPIC
from gateway.forwarding import parked_rows
from gateway.forwarding.backlog import Backlog
from gateway.forwarding.kafka_health import Pace
from gateway.forwarding.ledger import Entry
from gateway.forwarding.outbox_writer import Answer, Fetched, NotRemoved, OutboxWriter, Refiled, Stored
from gateway.forwarding.record_codec import from_bytes
from gateway.forwarding.state import State
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

    def status(self, revision: int) -> None:
        value = {"run": self.state.intake.run, "revision": revision, "state": "online"}
        record = Record(STATUS_TOPIC, b"mast-07", json.dumps(value).encode(), ())
        self.state.compacted.entered(record)
        self._store([record])

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
            case Refiled(before, numbers):
                self.backlog.refiled(before, numbers)
            case NotRemoved(numbers, problem):
                self.backlog.not_removed(numbers, problem, self.now_s)
            case _:
                raise AssertionError(answer)

    @property
    def partly_removed(self) -> int:
        """Blocks of the file of which memory has what is gone."""
        assert isinstance(self.outbox, SqliteOutbox)
        return len(self.outbox._blocks._removed)

    @property
    def ranges(self) -> tuple[int, int]:
        """How many ranges of numbers are remembered: of rows stored again, and of what is not there."""
        refiled = sum(each.gaps + 1 for each in self.backlog._parked._refiled.values())
        return refiled, self.backlog._skipped._numbers.gaps


@pytest.mark.parametrize("batch_s", [60.0, None], ids=["metered", "live"])
def test_one_forbidden_topic_among_seven_costs_no_memory_by_the_block(
    tmp_path: Path, batch_s: float | None
) -> None:
    cloud = Cloud()
    cloud.refused.add(SICK)
    outbox = SqliteOutbox(tmp_path / "outbox.db")
    mast = Mast(outbox, cloud, batch_s)
    most_blocks = most_refiled = most_gaps = 0
    for commit in range(1200):
        mast.commit()
        mast.now_s += 2
        if commit % 30 == 29:
            mast.pass_time(2)
            most_blocks = max(most_blocks, mast.partly_removed)
            refiled, gaps = mast.ranges
            most_refiled, most_gaps = max(most_refiled, refiled), max(most_gaps, gaps)
    # A batch of rows, what isn't late yet, and what has come since the last pass.
    assert 500 <= most_blocks <= 500 + 60 + 32
    assert most_gaps <= 500 + 60 + 32
    assert 2 <= most_refiled <= 4
    # Killed: what comes back is of these blocks.
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for file in tmp_path.glob("outbox.db*"):
        shutil.copy(file, crashed)
    again = SqliteOutbox(crashed / "outbox.db")
    rows = [from_bytes(row) for _, row in again.peek(0, 1 << 30, 1 << 30)]
    again.close()
    assert Counter(row.topic for row in rows)[SICK] == 1200
    assert len(rows) - 1200 <= 6 * (500 + 60 + 32)
    # Mended: each once; the others' are in the order they came.
    cloud.refused.clear()
    mast.pass_time(480)
    assert len(outbox) == 0
    for topic in TOPICS:
        values = cloud.values(topic)
        assert (sorted(values) if topic == SICK else values) == list(range(1, 1201))
    assert mast.ranges[0] == 0
    outbox.close()


def test_a_backlog_of_an_earlier_run_is_stored_again_once_and_then_costs_passes_nothing(
    tmp_path: Path,
) -> None:
    cloud = Cloud()
    cloud.refused.update(TOPICS)
    outbox = SqliteOutbox(tmp_path / "outbox.db")
    before = Mast(outbox, cloud)
    for _ in range(1200):
        before.commit()
    cloud.refused = {SICK}
    mast = Mast(outbox, cloud)
    mast.commit([TOPICS[0]])
    mast.pass_time(60)
    assert mast.partly_removed <= 200
    left = [from_bytes(row) for _, row in outbox.peek(0, 1 << 30, 1 << 30)]
    assert {row.topic for row in left} == {SICK}
    assert sum(REPLAYED in row.headers for row in left) >= 1000
    # Each pass reads the rows that are too few for a batch; a probe, once in a minute, two batches.
    mast.pass_time(600)
    mast.read = 0
    mast.pass_time(60)
    assert mast.read <= 10 * 200 + 2 * 500
    # A start knows by the header which rows were stored again.
    third = Mast(outbox, cloud)
    stored = outbox.append([b"a row"])[0]
    outbox.remove([stored])
    third.pass_time(60)
    # But for the newest few none has another number than before.
    assert len(outbox) == 1200
    assert third.ranges[0] <= 3
    cloud.refused.clear()
    third.pass_time(480)
    assert len(outbox) == 0
    assert sorted(cloud.values(SICK)) == list(range(1, 1201))


def test_rows_that_are_not_late_stay_where_they_are_and_leave_as_news(tmp_path: Path) -> None:
    cloud = Cloud()
    cloud.refused.add(SICK)
    mast = Mast(SqliteOutbox(tmp_path / "outbox.db"), cloud)
    for _ in range(600):
        mast.commit()
    mast.pass_time(50)
    assert mast.partly_removed == 600
    cloud.refused.clear()
    mast.pass_time(8)
    assert len(mast.outbox) == 0
    assert not any(REPLAYED in record.headers for record in cloud.taken)
    mast.outbox.close()


def test_while_kafka_is_silent_nothing_is_stored_twice_beside_what_waits_for_it() -> None:
    cloud = Cloud()
    cloud.refused.update(TOPICS)
    mast = Mast(TemporaryOutbox(), cloud)
    mast.state.kafka.answering = False
    for _ in range(600):
        mast.commit()
    mast.pass_time(200)
    rows = mast.outbox.peek(0, 1 << 30, 1 << 30)
    assert [number for number, _ in rows] == list(range(1, 4201))
    assert not mast.backlog._parked._found


def test_where_the_outbox_refuses_to_store_them_again_they_leave_from_where_they_are() -> None:
    cloud = Cloud()
    cloud.refused.add(SICK)
    outbox = TemporaryOutbox()
    mast = Mast(outbox, cloud)
    for _ in range(600):
        mast.commit()
    mast.now_s += 70
    refused: list[Sequence[Group]] = []

    def refile(groups: Sequence[Group]) -> list[range]:
        refused.append(groups)
        raise OSError("not now")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(outbox, "refile", refile)
        mast.pass_time(60)
    assert refused
    cloud.refused.clear()
    mast.pass_time(120)
    assert len(outbox) == 0
    assert sorted(cloud.values(SICK)) == list(range(1, 601))


@pytest.mark.parametrize(("sick", "batch_s"), [(7, 60.0), (3, None)], ids=["all-metered", "three-live"])
def test_at_the_cap_several_topics_are_stored_again_and_leave_once_they_are_mended(
    tmp_path: Path, sick: int, batch_s: float | None
) -> None:
    cloud, drops = Cloud(), list[Drop]()
    cloud.refused.update(TOPICS[:sick])
    outbox = SqliteOutbox(tmp_path / "outbox.db", Limits(1 << 20), on_drop=drops.append)
    mast = Mast(outbox, cloud, batch_s)
    for commit in range(1200):
        mast.commit(padding=300)
        mast.now_s += 2
        if commit % 30 == 29:
            mast.pass_time(2)
    assert drops
    # A batch of blocks is partly gone, not each.
    assert mast.partly_removed <= 500 // sick + 100
    cloud.refused.clear()
    mast.pass_time(960)
    assert len(outbox) == 0
    dropped = sum(drop.count or 0 for drop in drops)
    assert len(cloud.taken) == 1200 * len(TOPICS) - dropped
    outbox.close()


def test_a_batch_of_many_topics_is_stored_again_in_one_transaction(tmp_path: Path) -> None:
    topics = [f"mqtt.q{at}" for at in range(250)]
    cloud = Cloud()
    cloud.refused.update(topics)
    outbox = SqliteOutbox(tmp_path / "outbox.db")
    mast = Mast(outbox, cloud)
    for _ in range(4):
        mast.commit(topics)
    mast.now_s += 70
    with patch.object(outbox, "refile", wraps=outbox.refile) as refile:
        mast.pass_time(1)
    assert 1 <= refile.call_count <= 2
    outbox.close()


def test_a_topic_refused_for_moments_leaves_with_the_others() -> None:
    """While a long backlog is drained: what was stored again meanwhile holds back nothing of its topic."""
    cloud = Cloud()
    outbox = TemporaryOutbox()
    mast = Mast(outbox, cloud)
    for _ in range(3000):
        mast.commit()
    mast.now_s += 70
    cloud.refused.add(SICK)
    while not mast.backlog._parked._refiled:
        mast.turn()
        mast.now_s += 0.01
        assert mast.now_s < 1100
    cloud.refused.clear()
    mast.now_s += 1
    for _ in range(4):
        mast.turn()
    taken = Counter(record.topic for record in cloud.taken)
    assert taken[TOPICS[0]] < 3000
    assert taken[SICK] > 100
    mast.pass_time(120)
    assert sorted(cloud.values(SICK)) == list(range(1, 3001))


def test_a_newer_record_leaves_though_the_one_stored_again_is_stale(tmp_path: Path) -> None:
    cloud = Cloud()
    cloud.refused.update({STATUS_TOPIC, SICK})
    outbox = SqliteOutbox(tmp_path / "outbox.db")
    mast = Mast(outbox, cloud)
    mast.status(1)
    for _ in range(600):
        mast.commit()
    mast.now_s += 70
    mast.pass_time(60)
    mast.status(2)
    mast.pass_time(300)
    cloud.refused.discard(STATUS_TOPIC)
    mast.pass_time(120)
    sent = [record for record in cloud.taken if record.topic == STATUS_TOPIC]
    assert [json.loads(record.value)["revision"] for record in sent] == [2]
    outbox.close()


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
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(parked_rows, "BATCH_RECORDS", 5)
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
        self.patch.undo()
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
