"""What the disk refuses stays in the ledger, within a bound."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from buffer.errors import ignore
from gateway.forwarding.ledger import Entry, Ledger
from gateway.ports import Ack, Record
from tests.support.clocks import SkippingTime
from tests.support.forwarding import make_forwarder
from tests.support.outbox import TemporaryOutbox
from tests.unit.buffer.trouble import Disk
from tests.unit.gateway.mqtt.test_intake import intake

WIND = "mqtt.wind_speed"


def refused(count: int) -> Ledger:
    """A ledger of so many own records that the disk has refused."""
    ledger = Ledger()
    for number in range(count):
        ledger.enter(Record(WIND, b"k", b"%d" % number, ()), float(number), own=True)
    ledger.not_stored(ledger.take_for_storing(float("inf")))
    return ledger


def test_within_a_pause_of_the_disk_only_what_is_new_is_given_to_it() -> None:
    ledger = refused(10)
    new = ledger.enter(Record(WIND, b"k", b"new", ()), 0.0, own=True)
    assert ledger.take_for_storing(1.0, again=False) == [new]
    assert len(ledger.take_for_storing(10.0)) == 10


def others(ledger: Ledger, size: int, ack: Ack | None = None) -> Entry:
    return ledger.enter(Record("mqtt.raw", b"k", bytes(size), ()), 0.0, own=False, ack=ack)


def test_of_what_was_refused_a_part_is_tried_again_and_all_that_is_new() -> None:
    ledger = refused(1200)
    new = [ledger.enter(Record(WIND, b"k", b"new %d" % at, ()), 1200.0, own=True) for at in range(700)]
    taken = ledger.take_for_storing(1200.0)
    assert [entry.entered_s for entry in taken[:500]] == list(range(500))
    assert taken[500:] == new


def test_others_go_first_beyond_their_share_but_for_what_the_broker_has() -> None:
    ledger = refused(300)
    kept = others(ledger, 100_000, Ack(1, 1))
    for _ in range(4):
        others(ledger, 100_000)
    ledger.most_bytes = ledger.size_bytes - 1
    lost = ledger.give_up()
    assert lost is not None
    assert (lost.reason, lost.count, ledger.is_open(kept)) == ("OTHERS_SHARE", 2, True)
    reasons = []
    while lost := ledger.give_up():
        reasons.append(lost.reason)
    assert (reasons[-1], ledger.is_open(kept), len(ledger)) == ("MEMORY_FULL", True, 1)


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
    forwarder._state.ledger = forwarder._uplink._state.ledger = refused(5000)
    forwarder.start()
    left = forwarder.stop(grace_s=0.0)
    assert left is not None
    # How many commits the forwarder's own thread began before it ended is the scheduler's.
    assert 0 < len(outbox) < 5000
    assert len(outbox) + (left.count or 0) == 5000


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
