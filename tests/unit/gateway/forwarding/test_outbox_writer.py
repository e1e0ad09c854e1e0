"""How the outbox's own thread stores what it is given."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from queue import SimpleQueue

import pytest

from buffer import errors
from buffer.outbox_file import Limits
from gateway.config import load
from gateway.forwarding.ledger import Entry
from gateway.forwarding.outbox_writer import Answer, NotRemoved, NotStored, OutboxWriter, Stored, open_outbox
from gateway.forwarding.records import from_bytes, ranges
from gateway.ports import Record
from tests.support.outbox import TemporaryOutbox
from tests.support.servers import eventually
from tests.unit.buffer.trouble import Disk
from tests.unit.gateway.forwarding.test_seq_summary import record as reading_record

_NO_LIMITS = Limits()


def entries(count: int, size: int) -> list[Entry]:
    return [Entry(Record("t", b"k", bytes(size), ()), 0.0, own=False) for _ in range(count)]


def stored_in_parts(given: list[Entry], outbox: TemporaryOutbox) -> list[Answer]:
    answers: SimpleQueue[Answer] = SimpleQueue()
    writer = OutboxWriter(outbox, answers.put)
    writer.start()
    writer.store(given)
    writer.end()
    return [answers.get() for _ in range(answers.qsize())]


def test_a_commit_holds_at_most_500_records() -> None:
    given = entries(1200, 10)
    reported = stored_in_parts(given, TemporaryOutbox())
    assert [len(answer.entries) for answer in reported if isinstance(answer, Stored)] == [500, 500, 200]
    assert [entry for answer in reported if isinstance(answer, Stored) for entry in answer.entries] == given
    assert [n for answer in reported if isinstance(answer, Stored) for n in answer.numbers] == list(
        range(1, 1201)
    )


def test_a_commit_holds_at_most_256_kib_but_always_one_record() -> None:
    reported = stored_in_parts(
        [*entries(3, 100_000), *entries(1, 300_000), *entries(1, 1)], TemporaryOutbox()
    )
    assert [len(answer.entries) for answer in reported if isinstance(answer, Stored)] == [2, 1, 1, 1]


class ClassesOutbox(TemporaryOutbox):
    """Notes what it is given, by class."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[tuple[bool, list[bytes]]] = []

    def append(self, records: Sequence[bytes], summary: bytes = b"", **options: bool) -> list[int]:
        self.given.append((options["others"], [from_bytes(record).value for record in records]))
        return super().append(records, summary)


def test_a_commit_is_split_into_this_gateways_own_and_what_makes_room_for_it() -> None:
    def entry(topic: str, value: bytes, *, own: bool) -> Entry:
        return Entry(Record(topic, b"k", value, ()), 0.0, own=own)

    given = [
        entry("mqtt.raw", b"device", own=False),
        entry("mqtt.wind_speed", b"reading", own=True),
        entry("gateway.dead-letter", b"refused by Kafka", own=True),
        *(entry(f"gateway.{of}", of.encode(), own=False) for of in ("runs", "status", "channels", "events")),
        entry("gateway.dead-letter", b"malformed", own=False),
    ]
    outbox = ClassesOutbox()
    reported = stored_in_parts(given, outbox)
    assert outbox.given == [
        (False, [b"reading", b"runs", b"status", b"channels", b"events"]),
        (True, [b"device", b"refused by Kafka", b"malformed"]),
    ]
    assert [
        [entry.record.value for entry in answer.entries] for answer in reported if isinstance(answer, Stored)
    ] == [values for _, values in outbox.given]


def _on(disk: Disk, path: Path, answers: SimpleQueue[Answer], limits: Limits = _NO_LIMITS) -> OutboxWriter:
    """A writer whose disk the test moves; the thread is not started."""
    return OutboxWriter(disk.outbox(path, errors.ignore, limits), answers.put, lambda: disk.now_s)


def test_a_disk_that_refuses_is_a_problem_until_it_works_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk, answers = Disk(), SimpleQueue[Answer]()
    writer = _on(disk, tmp_path / "outbox.db", answers)
    writer.start()
    writer.store(entries(2, 10))
    assert isinstance(answers.get(timeout=60), Stored)
    disk.fill()
    given = entries(2, 10)
    for _ in range(3):
        writer.store(given)
        assert answers.get(timeout=60) == NotStored(given)
    assert (writer.records, writer.problem) == (2, "full")
    disk.mend()
    # There is no task: it is tried again all the same.
    eventually(lambda: writer.problem, until=lambda problem: problem is None)
    writer.end()
    writer.close()
    logged = [
        record.getMessage() for record in caplog.records if record.name == "gateway.forwarding.outbox_writer"
    ]
    assert logged == [
        "event=outbox.unusable action=keep_in_memory error=full",
        "event=outbox.usable records=2",
    ]


def test_a_disk_that_fails_is_tried_seldom(tmp_path: Path) -> None:
    disk, answers = Disk(), SimpleQueue[Answer]()
    writer = _on(disk, tmp_path / "outbox.db", answers)
    disk.make_read_only()
    for second in range(100):
        disk.now_s = second
        writer._store(entries(1, 10), drop_oldest=False)
        assert isinstance(answers.get(), NotStored)
    # After 0, 1, 3, 7, 15, 31, 47, … s.
    assert disk.tried == 10
    disk.mend()
    writer._store(entries(1, 10), drop_oldest=False)
    assert isinstance(answers.get(), Stored)
    # Soon after, it fails again: it is not tried each second.
    disk.make_read_only()
    disk.tried = 0
    for _ in range(10):
        disk.now_s += 1
        writer._store(entries(1, 10), drop_oldest=False)
    assert disk.tried == 1
    # At the end it is.
    writer.store_last(entries(1, 10))
    assert disk.tried == 2
    writer.close()


def test_a_full_disk_drops_its_oldest_only_when_it_is_told_to_and_then_at_once(tmp_path: Path) -> None:
    disk, answers = Disk(), SimpleQueue[Answer]()
    writer = _on(disk, tmp_path / "outbox.db", answers)
    disk.fill()
    for drop_oldest, answer in ((False, NotStored), (True, Stored)):
        writer._store(entries(1, 10), drop_oldest=drop_oldest)
        assert isinstance(answers.get(), answer)
    # One that fails is no place for anything.
    disk.make_read_only()
    for _ in range(5):
        writer._store(entries(1, 10), drop_oldest=True)
        assert isinstance(answers.get(), NotStored)
    assert disk.tried == 3
    writer.close()


class UnmeasurableOutbox(TemporaryOutbox):
    """Its size can't be read once it is open, as on a card that was pulled out."""

    opened = False

    def size_bytes(self) -> int:
        if self.opened:
            raise OSError(5, "Input/output error")
        self.opened = True
        return super().size_bytes()


def test_a_size_that_cannot_be_read_prevents_no_commit() -> None:
    outbox = UnmeasurableOutbox()
    answers: SimpleQueue[Answer] = SimpleQueue()
    writer = OutboxWriter(outbox, answers.put)
    writer.start()
    for expected in (1, 2):
        given = entries(1, 10)
        writer.store(given)
        stored = answers.get(timeout=60)
        assert isinstance(stored, Stored)
        assert (list(stored.entries), list(stored.numbers)) == (given, [expected])
    assert writer.is_alive()
    # The number of rows needs no disk.
    eventually(lambda: writer.records, until=lambda rows: rows == 2)
    writer.end()
    writer.close()


class RecordingOutbox(TemporaryOutbox):
    """Notes its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def append(self, records: Sequence[bytes], summary: bytes = b"", **options: bool) -> list[int]:
        self.calls.append("append")
        return super().append(records, summary)

    def peek(self, after: int, limit: int, max_bytes: int) -> list[tuple[int, bytes]]:
        self.calls.append(f"peek {after}")
        return super().peek(after, limit, max_bytes)

    def remove(self, numbers: Iterable[int]) -> None:
        doomed = list(numbers)
        self.calls.append(f"remove {doomed}")
        super().remove(doomed)


def test_a_commit_goes_before_what_waits_and_the_rest_keeps_its_order() -> None:
    outbox = RecordingOutbox()
    writer = OutboxWriter(outbox, lambda answer: None)
    writer.remove([1])
    writer.fetch(1)
    writer.remove([2])
    writer.store(entries(1, 10))
    writer.start()
    writer.end()
    writer.close()
    assert outbox.calls == ["append", "remove [1]", "peek 1", "remove [2]"]


def _readings(seqs: Iterable[int]) -> list[Entry]:
    return [Entry(reading_record("cup.wind_speed", seq), 0.0, own=True) for seq in seqs]


def _announced(lost: Iterable[errors.Drop]) -> list[tuple[str, int | None, list[int]]]:
    return [
        (
            drop.reason,
            drop.count,
            [seq for span in ranges(drop.summary) for seq in range(span.first, span.last + 1)],
        )
        for drop in lost
    ]


def test_of_a_block_that_is_dropped_only_what_was_left_of_it_is_announced(tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").write_text(
        f'[gateway]\nid = "mast-07"\n[outbox]\npath = "{tmp_path}/outbox.db"\nmax_bytes = "16MiB"\n'
    )
    lost: list[errors.Drop] = []
    writer = OutboxWriter(open_outbox(load(tmp_path / "gateway.toml"), lost.append), lambda answer: None)
    writer.start()
    writer.store(_readings(range(1, 11)))
    writer.remove([1, 2, 3, 7])
    while not lost:
        writer.store([Entry(Record("t", b"k", os.urandom(200_000), ()), 0.0, own=True) for _ in range(20)])
        eventually(lambda: writer.busy, until=lambda busy: not busy)
    writer.end()
    writer.close()
    assert _announced(lost[:1]) == [(errors.OUTBOX_FULL, 6, [4, 5, 6, 8, 9, 10])]


def test_what_the_disk_does_not_remove_is_reported(tmp_path: Path) -> None:
    disk, answers = Disk(), SimpleQueue[Answer]()
    writer = _on(disk, tmp_path / "outbox.db", answers)
    writer.start()
    writer.store(entries(2, 10))
    assert isinstance(answers.get(timeout=60), Stored)
    disk.make_read_only()
    writer.remove([1, 2])
    assert answers.get(timeout=60) == NotRemoved((1, 2), "read-only")
    disk.mend()
    writer.end()
    writer.close()
