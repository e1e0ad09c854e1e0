"""What the disk refuses for hours: packed, it leaves in turn, and what can't leave keeps nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from buffer.drops import ignore
from cloud.wire.reading_records import RUNS_TOPIC
from gateway.forwarding.ledger import PACK_BYTES, PACK_ENTRIES, Entry, Ledger
from gateway.forwarding.seq_summary import ranges
from gateway.ports import Ack, Record
from tests.support.clocks import SkippingTime
from tests.support.forwarding import make_forwarder
from tests.support.outbox import TemporaryOutbox
from tests.unit.buffer.trouble import Disk
from tests.unit.gateway.forwarding.test_seq_summary import record as reading
from tests.unit.gateway.mqtt.test_intake import intake

WIND, CO2 = "mqtt.wind_speed", "mqtt.co2"


def refused(count: int, topics: Sequence[str] = (WIND, CO2)) -> Ledger:
    """A ledger of own records that the disk has refused, of each topic so many."""
    ledger = Ledger()
    for number in range(count):
        for topic in topics:
            ledger.enter(
                Record(topic, b"k", b"%s %d" % (topic.encode(), number), ()), float(number), own=True
            )
    ledger.not_stored(ledger.take_for_storing(float("inf")))
    ledger.repack(lambda record: False, to_kafka=False, to_disk=False)
    return ledger


def deliver(ledger: Ledger, parked: str = "") -> list[bytes]:
    """Kafka takes all but a topic's, as far as it is open."""
    taken = [entry for entry in ledger.waiting() if entry.record.topic != parked]
    for entry in taken:
        ledger.delivered(entry)
    return [entry.record.value for entry in taken]


def test_a_topic_that_takes_nothing_keeps_no_other_in_memory_and_stays_packed() -> None:
    ledger, taken = refused(5000), list[bytes]()
    assert ledger.packs.records > 8000
    for _ in range(100):
        taken += deliver(ledger, parked=WIND)
        ledger.repack(lambda record: record.topic == WIND, to_kafka=True, to_disk=False)
        assert len(ledger.waiting()) <= 3 * PACK_ENTRIES
    assert sorted(taken) == sorted(b"mqtt.co2 %d" % number for number in range(5000))
    assert len(ledger) == ledger.refused == 5000
    # What waits rests, and is not opened in vain.
    assert not ledger.repack(lambda record: record.topic == WIND, to_kafka=True, to_disk=False)
    ledger.packs.release()
    for _ in range(100):
        taken += deliver(ledger)
        ledger.repack(lambda record: False, to_kafka=True, to_disk=False)
    assert (len(taken), len(set(taken)), len(ledger), ledger.size_bytes) == (10_000, 10_000, 0, 0)


def test_the_disk_takes_what_kafka_does_not() -> None:
    ledger, stored = refused(3000), 0
    for _ in range(100):
        ledger.repack(lambda record: record.topic == WIND, to_kafka=True, to_disk=True)
        entries = ledger.take_for_storing(float("inf"))
        ledger.stored(entries, range(stored + 1, stored + 1 + len(entries)))
        stored += len(entries)
    assert (stored, len(ledger)) == (6000, 0)


def test_what_is_packed_again_is_older_than_what_came_since() -> None:
    ledger = refused(3000, (WIND,))
    deliver(ledger)
    # Kafka answers for a moment: the oldest pack is opened, and nothing of it goes.
    assert ledger.repack(lambda record: False, to_kafka=True, to_disk=False)
    for number in range(3000, 5000):
        ledger.enter(Record(WIND, b"k", b"%d" % number, ()), float(number), own=True)
    ledger.not_stored(ledger.take_for_storing(float("inf")))
    ledger.repack(lambda record: False, to_kafka=False, to_disk=False)
    packed = [entered_s for pack in ledger.packs for _, entered_s, *_ in pack.rows()]
    assert packed == sorted(packed)
    lost = ledger.give_up()
    assert lost is not None
    assert min(packed) == 0.0
    assert min(entered_s for pack in ledger.packs for _, entered_s, *_ in pack.rows()) == PACK_ENTRIES


def test_within_a_pause_of_the_disk_only_what_is_new_is_given_to_it() -> None:
    ledger = refused(10, (WIND,))
    new = ledger.enter(Record(WIND, b"k", b"new", ()), 0.0, own=True)
    assert ledger.take_for_storing(1.0, again=False) == [new]
    assert len(ledger.take_for_storing(10.0)) == 10


def others(ledger: Ledger, size: int, ack: Ack | None = None) -> Entry:
    return ledger.enter(Record("mqtt.raw", b"k", bytes(size), ()), 0.0, own=False, ack=ack)


def test_a_few_large_messages_are_packed_too() -> None:
    ledger = Ledger()
    for _ in range(20):
        others(ledger, PACK_BYTES // 4)
    ledger.not_stored(ledger.take_for_storing(1.0))
    ledger.repack(lambda record: False, to_kafka=False, to_disk=False)
    assert ledger.open_bytes <= 2 * PACK_BYTES
    assert (len(ledger), ledger.packs.records) == (20, 16)


def test_others_go_first_beyond_their_share_packed_or_not_but_for_what_the_broker_has() -> None:
    ledger = refused(3000, (WIND,))
    kept = others(ledger, 100_000, Ack(1, 1))
    for _ in range(4):
        others(ledger, 100_000)
    ledger.most_bytes = ledger.size_bytes - 1
    lost = ledger.give_up()
    assert lost is not None
    assert (lost.reason, ledger.packs.records > 0, ledger.is_open(kept)) == ("OTHERS_SHARE", True, True)
    while ledger.packs.records:
        lost = ledger.give_up()
        assert lost is not None
    assert (lost.reason, ledger.is_open(kept)) == ("MEMORY_FULL", True)


def test_what_is_lost_at_the_end_is_named_by_the_packs() -> None:
    ledger = Ledger()
    for seq in range(1, 2001):
        ledger.enter(reading("cup.wind_speed", seq), 0.0, own=True)
    ledger.not_stored(ledger.take_for_storing(1.0))
    ledger.repack(lambda record: False, to_kafka=False, to_disk=False)
    for pack in ledger.packs:
        pack.content = b""
    left = ledger.left()
    assert left is not None
    assert (left.reason, left.count) == ("NOT_STORED", 2000)
    assert [(each.first, each.last) for each in ranges(left.summary)] == [(1, 2000)]


class SlowOutbox(TemporaryOutbox):
    """Each commit takes four seconds."""

    def __init__(self, clock: SkippingTime) -> None:
        super().__init__()
        self._clock = clock

    def append(self, records: Sequence[bytes], summary: bytes = b"", **options: bool) -> list[int]:
        self._clock.skip(4)
        return super().append(records, summary)


class NoSink:
    """No producer could be made."""

    usable = False
    delivery_timeout_s = 120.0

    def send(self, record: Record, done: object) -> bool:
        return False


def test_a_slow_disk_is_not_waited_for_beyond_the_time_a_stop_has() -> None:
    clock = SkippingTime()
    outbox = SlowOutbox(clock)
    forwarder = make_forwarder(intake()[0], NoSink(), NoSink(), outbox, monotonic=clock)
    forwarder._state.ledger = forwarder._uplink._state.ledger = refused(5000, (WIND,))
    forwarder.start()
    left = forwarder.stop(grace_s=0.0)
    assert left is not None
    # How many commits the forwarder's own thread began before it ended is the scheduler's.
    assert 0 < len(outbox) < 5000
    assert len(outbox) + (left.count or 0) == 5000


def test_a_packed_run_record_does_not_follow_a_newer_one() -> None:
    forwarder = make_forwarder(intake()[0], NoSink(), NoSink(), TemporaryOutbox())
    old, new = (
        Record(RUNS_TOPIC, b"mast-07/thisrun", json.dumps({"state": "running", "revision": n}).encode(), ())
        for n in (1, 2)
    )
    ledger = forwarder._state.ledger
    entry = ledger.enter(old, 0.0, own=False)
    ledger.not_stored(ledger.take_for_storing(1.0))
    forwarder._state.compacted.delivered(new)
    forwarder._uplink.send(entry, 1.0)
    assert not ledger.is_open(entry)
    assert len(ledger) == 0


@pytest.mark.parametrize("opening", [True, False])
def test_a_size_that_cannot_be_read_ends_nothing_at_the_start(tmp_path: Path, opening: bool) -> None:
    disk = Disk()
    disk.opening = opening
    outbox = disk.outbox(tmp_path / "outbox.db", ignore)
    with pytest.MonkeyPatch.context() as patched:

        def failing() -> int:
            raise OSError(5, "Input/output error")

        patched.setattr(outbox, "size_bytes", failing)
        forwarder = make_forwarder(intake()[0], NoSink(), NoSink(), outbox)
        assert forwarder.outbox.size_bytes == 0
    outbox.close()
