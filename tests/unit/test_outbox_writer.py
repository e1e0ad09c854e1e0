"""How the outbox's own thread stores what it is given."""

from __future__ import annotations

from queue import SimpleQueue

from buffer.memory_outbox import MemoryOutbox
from gateway.ledger import Entry
from gateway.outbox_writer import Answer, NotStored, OutboxWriter, Stored
from gateway.ports import Record


def entries(count: int, size: int) -> list[Entry]:
    return [Entry(Record("t", b"k", bytes(size), ()), 0.0, own=False) for _ in range(count)]


def stored_in_parts(given: list[Entry], outbox: MemoryOutbox) -> list[Answer]:
    answers: SimpleQueue[Answer] = SimpleQueue()
    writer = OutboxWriter(outbox, answers.put)
    writer.start()
    writer.store(given)
    writer.stop()
    return [answers.get() for _ in range(answers.qsize())]


def test_a_commit_holds_at_most_500_records() -> None:
    given = entries(1200, 10)
    told = stored_in_parts(given, MemoryOutbox())
    assert [len(answer.entries) for answer in told if isinstance(answer, Stored)] == [500, 500, 200]
    assert [entry for answer in told if isinstance(answer, Stored) for entry in answer.entries] == given
    assert [n for answer in told if isinstance(answer, Stored) for n in answer.numbers] == list(
        range(1, 1201)
    )


def test_a_commit_holds_at_most_256_kib_but_always_one_record() -> None:
    told = stored_in_parts([*entries(3, 100_000), *entries(1, 300_000), *entries(1, 1)], MemoryOutbox())
    assert [len(answer.entries) for answer in told if isinstance(answer, Stored)] == [2, 1, 1, 1]


def test_what_the_outbox_refuses_is_told_apart_from_what_it_took() -> None:
    outbox = MemoryOutbox()
    outbox.close()
    given = entries(600, 10)
    (told,) = stored_in_parts(given, outbox)
    assert isinstance(told, NotStored)
    assert list(told.entries) == given
